"""Keys and values of layers that see the last tokens alone, and attention within such a window. Knows no
model.

Attention is put together from what every backend does over keys that lie in one run. Rows of a short pass
each attend to their own window, as if they were alone. Of many rows, those of a piece see three parts of the
keys: the own ones causally, what all of them see, and before that a triangle of which each row sees one key
less than the row before it. Read backwards, rows and keys, that triangle is causal, too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.backend.base import Backend
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.backend.shared.kv_rows import as_rows
from core.backend.shared.merge import merge_into
from core.cache.base import KVShape, KVStore

_STEP = 16  # tokens by multiples of which a run is moved: rows then keep their place in a line of memory


def run_tokens(window: int, room: int) -> int:
    """Tokens of a run in which `room` rows may lie behind a window."""
    return (-(-(window + room) // _STEP) + 1) * _STEP


class KeptWindows(NamedTuple):
    """What windows reached before token `end`, in host memory: rows [base, end) as [layers, kv_heads, rows,
    width].
    """

    base: int
    end: int
    k: torch.Tensor
    v: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.k.nbytes + self.v.nbytes


class WindowRows:
    """Rows of the window layers of `shape`: tokens [base, ...) of each in one run, which holds a window and
    `room` rows behind it. Numbers of layers are places among the window layers.

    When a run is full, rows that no window reaches any more give way. A short pass moves all runs at once and
    keeps what is reached from the last committed token; where more rows are waiting than there is room for,
    runs grow. In a segment of a prefill each layer's run moves by itself, chunk by chunk: what it held before
    is gone, and who wants to go back there has kept it (`kept_at`).
    """

    def __init__(
        self, shape: KVShape, backend: Backend, *, room: int, dtype: torch.dtype | None = None
    ) -> None:
        self.window, self._shape, self._backend = shape.window, shape.of_windows, backend
        self._dtype = dtype or backend.storage
        self.store = self._store(run_tokens(shape.window, room))
        self._bases = [0] * self._shape.layers

    def _store(self, capacity: int) -> KVStore:
        with torch.inference_mode(False):  # who goes back does so outside a pass, too
            return KVStore(
                self._shape, capacity, block_tokens=capacity, dtype=self._dtype, device=self._backend.device
            )

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.store.nbytes

    def commit(self, length: int) -> None:
        """Rows below `length` are final: they lie where they are."""

    def fed(self, length: int) -> None:
        """A segment ends at token `length`."""

    @property
    def base(self) -> int:
        """The first token of every run, between passes."""
        return self._bases[0]

    @property
    def oldest(self) -> int:
        """The shortest length at which everything that a window reaches is still here."""
        return self.base + self.window - 1 if self.base else 0

    def reset(self) -> None:
        """As new."""
        self._bases = [0] * self._shape.layers

    def make_room(self, kept: int, end: int) -> None:
        """Rows up to `end` will come in a short pass. What no window reaches from token `kept` on may go."""
        if end - self.base <= self.store.capacity:
            return
        base, old = self._reached(kept), self.store
        if end - base > old.capacity:
            self.store = self._store(run_tokens(self.window, end - kept))
        for target, source in ((self.store.k, old.k), (self.store.v, old.v)):
            rows = source[:, 0, :, base - self.base :].clone()  # those that are not final among them
            target[:, 0, :, : rows.shape[2]] = rows
        self._bases = [base] * self._shape.layers

    def attend(
        self, place: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, start: int
    ) -> torch.Tensor:
        """As KVCache.attend, of rows from token `start` on, each to its window."""
        base, end = self._bases[place], start + k.shape[0]
        if end - base > self.store.capacity:
            return self._attend_and_move(place, q, k, v, start=start)
        self.store.write(place, start - base, k, v)
        return self.attend_again(place, q, start=start)

    def attend_again(self, place: int, q: torch.Tensor, *, start: int) -> torch.Tensor:
        """As KVCache.attend_again, q [n, heads, head_dim] from token `start` on."""
        run = self.store.k[place], self.store.v[place]
        length = start + q.shape[0] - self._bases[place]
        return attend_window(self._backend, q, *run, length=length, window=self.window)

    def _attend_and_move(
        self, place: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, start: int
    ) -> torch.Tensor:
        """Likewise of a chunk that does not fit behind what is there; the run keeps what is reached next."""
        base, first, end = self._bases[place], self._reached(start), start + k.shape[0]
        following = self._reached(end)
        run = []
        for part, new in ((self.store.k, k), (self.store.v, v)):
            held = part[place, 0, :, first - base : start - base]  # [kv_heads, rows, width]
            rows = as_rows(new, self._shape.head_dim, self._dtype).transpose(0, 1)
            run.append(torch.cat((held, rows), dim=1).unsqueeze(0))
            part[place, 0, :, : end - following] = run[-1][0, :, following - first :]
        self._bases[place] = following
        return attend_window(self._backend, q, *run, length=end - first, window=self.window)

    def kept_at(self, end: int) -> KeptWindows:
        """What is reached from token `end`, copied."""
        base = self._reached(end)
        assert base >= self.base, f"windows of token {end} begin before {self.base}"
        found = []
        for part in (self.store.k, self.store.v):
            rows = part[:, 0, :, base - self.base : end - self.base]
            found.append(self._backend.host_memory(rows.shape, rows.dtype).copy_(rows))
        return KeptWindows(base, end, *found)

    def put_back(self, kept: KeptWindows) -> None:
        """As it was when they were kept."""
        for part, rows in ((self.store.k, kept.k), (self.store.v, kept.v)):
            part[:, 0, :, : rows.shape[2]] = rows
        self._bases = [kept.base] * self._shape.layers

    def follow(self, source: WindowRows, held: int, length: int) -> None:
        """Rows [held, length) become those of `source`, or all that a window reaches where that is not
        possible.
        """
        if held <= self.base or length - self.base > self.store.capacity:
            held = self._reached(length)
            self._bases = [held] * self._shape.layers
        if length > held:
            self.store.copy_rows(source.store, held - source.base, held - self.base, length - held)

    def _reached(self, token: int) -> int:
        """Where a run may begin of which the next row is `token`."""
        return max(0, token - self.window + 1) // _STEP * _STEP


def attend_window(
    backend: Backend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, window: int
) -> torch.Tensor:
    """Attention of q [n, heads, head_dim], the last n of `length` rows, each to the `window` rows that end
    with its own. k, v [1, kv_heads, rows, width] in one run. Returns [n, heads, head_dim].
    """
    n = q.shape[0]
    if n <= SHORT_PASS_ROWS:
        found = backend.attend_window(q, k, v, length=length, window=window)
        if found is not None:
            return found
        ends = range(length - n + 1, length + 1)
        rows = [
            backend.attend(row, *_run(k, v, end - window, end), length=min(end, window), causal=True)
            for row, end in zip(q.split(1), ends, strict=True)
        ]
        return torch.cat(rows)
    found = []
    start = length - n
    while start < length:
        # up to there no row has more before it than a window holds
        end = min(window - 1, length) if start < window - 1 else min(start + window, length)
        rows = q[start - length + n : end - length + n]
        found.append(_piece(backend, rows, k, v, end=end, window=window))
        start = end
    return torch.cat(found)


def _piece(
    backend: Backend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, end: int, window: int
) -> torch.Tensor:
    """Up to `window` rows, the last of which is row `end` - 1."""
    n = q.shape[0]
    common = max(0, end - window)  # the first key that all of them see
    out, lse = backend.attend_part(q, *_run(k, v, common, end), length=end - common, causal=True)
    if common and n > 1:
        # keys that the first row sees and the last one does not; the last row sees none of them
        first = end - n - window + 1
        keys, values = (part.flip(2) for part in _run(k, v, first, common))
        # row i of n - 1, read backwards, sees the first i + 1 of as many keys
        part, part_lse = backend.attend_part(q[:-1].flip(0), keys, values, length=n - 1, causal=True)
        merge_into(out[:-1], lse[:-1], part.flip(0), part_lse.flip(0))
    return out.to(q.dtype)


def _run(k: torch.Tensor, v: torch.Tensor, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    return k[:, :, max(0, start) : end], v[:, :, max(0, start) : end]
