"""The StreamingLLM KV cache: attention sinks and a recent window. Knows nothing of drafting.

Keys are stored before RoPE and rotated by slot when read (https://arxiv.org/abs/2309.17453 section 3.2), so
the model never sees a position beyond its own window. Eviction happens on commit only: uncommitted rows stay
behind the window until they are final, which is what lets a draft of any length be rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from core.backend.base import Backend, ScoreRequest
from core.cache.base import InPlaceRows, KVShape
from core.cache.fixed import FixedRows, Rotate
from core.cache.two_sizes import OneBlockStore, store_of


class StreamingKVCache:
    """At most `sinks + window` committed rows are kept, and up to `slack` uncommitted ones follow them.

    `rotate(layer, x [n, heads, head_dim], positions [n])` applies the model's rotary embedding. `length`
    counts tokens of the conversation, of which the kept ones are tokens [0, sinks) and the newest. `store`:
    memory of an earlier cache of the same sizes.
    """

    rotates_on_read = True
    ready = True

    def __init__(
        self,
        shape: KVShape,
        backend: Backend,
        rotate: Rotate,
        *,
        sinks: int = 16,
        window: int = 256,
        slack: int = 64,
        store: OneBlockStore | None = None,
    ) -> None:
        self.backend = backend
        self.sinks, self.window, self.slack = sinks, window, slack
        capacity = sinks + window + slack
        how = {"block_tokens": capacity, "dtype": backend.storage, "device": backend.device}
        self.store = store or store_of(shape, capacity, **how)
        self._rotate = rotate
        self.reset()

    @property
    def oldest_rollback(self) -> int:
        """Evicted rows do not come back: every prefix before the first eviction, the committed length after
        it.
        """
        return self.committed if self._evicted else 0

    @property
    def kept(self) -> int:
        """Rows in the store, uncommitted ones included."""
        return self.length - self._evicted

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache. Slots, not positions in the conversation."""
        return torch.arange(self.kept, self.kept + n, device=self.backend.device)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache; k is not rotated."""
        self.store.write(layer, self.kept + offset, k, v)
        return self.attend_again(layer, q, offset=offset)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        end = self.kept + offset + q.shape[0]
        keys, values = self.store.filled(layer, end)
        slots = torch.arange(end, device=self.backend.device)
        # [1, kv_heads, capacity, head_dim]
        rotated = keys.clone()
        rotated[0, :, :end] = self._rotate(layer, keys[0, :, :end].transpose(0, 1), slots).transpose(0, 1)
        return self.backend.attend(q, rotated, values, length=end, causal=True)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache. Keys are rotated on their way."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def place(self) -> tuple[int, int]:
        """See SlotCache."""
        return self.kept, self.kept

    def fixed(self, n: int) -> FixedRows:
        """See SlotCache."""
        return FixedRows(self.store, self.backend, n, self._rotate)

    def advance(self, n: int) -> None:
        """See KVCache."""
        self.length += n

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache. A gap wider than the cache is jumped: only the sinks and the newest window are fed, as
        if it had been read.
        """
        if length - self.length > self.sinks + self.window + self.slack:
            self.reset()
            yield range(self.sinks)
            skipped = length - self.window - self.length
            self.length, self.committed, self._evicted = (
                self.length + skipped,
                self.committed + skipped,
                skipped,
            )
        while length - self.length > self.slack // 2:
            yield range(self.length, min(length, self.length + self.slack // 2))

    def commit(self, length: int) -> None:
        """Drops rows beyond `length`, then evicts the oldest rows after the sinks until the window fits."""
        length = min(length, self.length)
        assert self.committed <= length, f"commit({length}) below the {self.committed} tokens that are final"
        self.length = self.committed = length
        excess = self.kept - (self.sinks + self.window)
        if excess > 0:
            self.store.move(self.sinks + excess, self.sinks, self.window)
            self._evicted += excess

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if not self.oldest_rollback <= length <= self.length:
            raise ValueError(
                f"cannot roll a streaming cache of {self.length} tokens (kept since {self.oldest_rollback}) "
                f"back to {length}"
            )
        self.length = length
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        """See KVCache."""
        self.length = self.committed = self._evicted = 0
