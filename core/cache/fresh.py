"""The rows of a pass that streams its past, until they lie where they stay. Knows no attention."""

from __future__ import annotations

import torch

from core.backend.base import Backend, HostCopies, Mark
from core.cache.base import KVShape
from core.cache.host import Pair
from core.cache.stored import StoredBlocks, device_store


class FreshRows:
    """Up to `tokens` rows of every streamed layer, by its place among them: on the device while the pass runs
    ("fresh"), then in one copy to the host, where they wait to be put into their places.
    """

    def __init__(
        self,
        stored: StoredBlocks,
        backend: Backend,
        copies: HostCopies,
        shape: KVShape,
        *,
        tokens: int,
        dtype: torch.dtype,
    ) -> None:
        self._stored, self._copies, self._streamed = stored, copies, list(stored.host)
        self._store = device_store(shape, backend, len(self._streamed), tokens, tokens, dtype)
        self._landing = tuple(backend.host_memory(self._store.k.shape, dtype) for _ in range(2))
        # rows [start, start + rows) are here and, once landed, in `landing`
        self._start = self._rows = 0
        self._settled = True  # those rows are in their places too

    @property
    def capacity(self) -> int:
        """Rows of the longest pass."""
        return self._store.capacity

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self._store.nbytes

    @property
    def host_bytes(self) -> int:
        """Bytes held in host memory."""
        return sum(part.nbytes for part in self._landing)

    def begin(self) -> None:
        """A new pass; what was here is settled, or gone."""
        self._rows = 0

    def write(self, place: int, k: torch.Tensor, v: torch.Tensor) -> Pair:
        """A layer's rows k, v [n, kv_heads, head_dim]; returns them as they are stored, [1, kv_heads, tokens,
        width] each.
        """
        self._store.write(place, 0, k, v)
        return self._store.filled(place, k.shape[0])

    def land(self, start: int, n: int) -> Mark:
        """The pass is over: its `n` rows are tokens [start, start + n). Returns when they are in host
        memory.
        """
        for target, source in zip(self._landing, (self._store.k, self._store.v), strict=True):
            self._copies.to_host(target, source)
        self._start, self._rows, self._settled = start, n, False
        return self._copies.mark()

    def holds(self, start: int, n: int) -> bool:
        """Whether tokens [start, start + n) are still here."""
        return start >= self._start and start + n <= self._start + self._rows

    def rows(self, place: int, start: int, n: int) -> Pair:
        """These tokens of a layer, on the device: [kv_heads, n, width] each."""
        rows = slice(start - self._start, start - self._start + n)
        return self._store.k[place, 0, :, rows], self._store.v[place, 0, :, rows]

    def settle(self, landed: Mark) -> None:
        """Puts the rows into their places; of those that were rolled back others come there. `landed`: see
        `land`.
        """
        if not self._settled and self._rows:
            self._copies.finish(landed)
            for place, layer in enumerate(self._streamed):
                away = tuple(part[place, 0, :, : self._rows] for part in self._landing)
                self._stored.put(layer, self._start, self.rows(place, self._start, self._rows), away)
        self._settled = True


def landing_bytes(shape: KVShape, layers: int, tokens: int, dtype: torch.dtype) -> tuple[int, ...]:
    """Bytes of each piece of host memory that this takes."""
    return (layers * tokens * shape.token_bytes(dtype) // 2,) * 2 if layers else ()
