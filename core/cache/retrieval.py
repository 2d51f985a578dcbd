"""Retrieval KV cache: the chunks of the full cache that the last queries care about. Knows nothing of
drafting.

Slots, in this order: the budget (the sink chunk and the chunks of highest score, always whole chunks) | the
recent tokens and the answer so far, exact | the tokens of the running draft. Keys keep their absolute
rotation, so the order of slots does not matter to attention. The first selection is the paper's, by the last
prompt token's query and each chunk's mean key (https://arxiv.org/abs/2404.11912 section 4.1), taken during
prefill while a layer's keys are on the device; it is renewed while the answer grows by the attention mass of
a verification's query. Selection is per KV head (core.cache.selection).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from core.backend.base import ScoreRequest
from core.backend.shared.slots import STEP
from core.cache.base import InPlaceRows, KVStore, TargetKVCache
from core.cache.fixed import FixedRows
from core.cache.selection import ByMass, Policy


class RetrievalKVCache:
    """A sparse copy of `source` with the budget in tokens, re-selected by `refresh`.

    `tail_tokens` bounds the exact recent rows plus the running draft; when an answer outgrows them,
    `needs_refresh` turns true and the older answer rows become ordinary chunks at the next refresh. `policy`
    makes what chooses, for a source and a chunk: the one above, or another for comparison. `store`: memory of
    an earlier cache of the same sizes.
    """

    rotates_on_read = False

    def __init__(
        self,
        source: TargetKVCache,
        *,
        budget: int,
        chunk: int = 16,
        recent: int = 64,
        tail_tokens: int = 256,
        slack: int = 64,
        policy: Callable[[TargetKVCache, int], Policy] = ByMass,
        store: KVStore | None = None,
    ) -> None:
        assert source.block_tokens % chunk == 0, f"chunk {chunk} does not divide {source.block_tokens}"
        self.source, self.backend, self.policy = source, source.backend, policy(source, chunk)
        self.budget, self.chunk, self.recent, self.tail_tokens = budget, chunk, recent, tail_tokens
        capacity = -(-(budget + recent + chunk + tail_tokens + slack) // STEP) * STEP
        self.store = store or KVStore(
            source.shape,
            capacity,
            block_tokens=capacity,
            dtype=self.backend.storage,
            device=self.backend.device,
        )
        self.reset()

    @property
    def oldest_rollback(self) -> int:
        """Below the anchor the rows are chunks, not a sequence."""
        return self._anchor

    @property
    def needs_refresh(self) -> bool:
        """Nothing was selected yet, or the exact tail is full."""
        return not self.ready or self.length - self._anchor > self.recent + self.chunk + self.tail_tokens

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache. Absolute positions: the keys are rotated as in the full cache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        self.store.write(layer, self._slot(self.length) + offset, k, v)
        return self.attend_again(layer, q, offset=offset)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        end = self._slot(self.length) + offset + q.shape[0]
        keys, values = self.store.filled(layer, end)
        return self.backend.attend(q, keys, values, length=end, causal=True)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache."""
        return InPlaceRows(self.store, self._slot(self.length))

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. Nobody asks what a middle pass looked at."""

    def place(self) -> tuple[int, int]:
        """See SlotCache."""
        return self.length, self._slot(self.length)

    def fixed(self, n: int) -> FixedRows:
        """See SlotCache."""
        return FixedRows(self.store, self.backend, n)

    def advance(self, n: int) -> None:
        """See KVCache."""
        self.length += n

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache. Nothing: committed rows come from the source."""
        return iter(())

    def commit(self, length: int) -> None:
        """Exact rows of the source replace the speculative ones up to `length`: those were computed with a
        partial context.
        """
        stale = length - self.committed
        if stale > 0:
            self.source.copy_rows(self.store, self.committed, self._slot(self.committed), stale)
        self.length = self.committed = length

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if not self._anchor <= length <= self.length:
            raise ValueError(
                f"cannot roll a retrieval cache of {self.length} tokens, selected at {self._anchor}, back to "
                f"{length}"
            )
        self.length = length
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        """See KVCache."""
        self.length = self.committed = self._anchor = self._selected = 0
        self.ready = False
        self.policy.reset()

    def refresh(self) -> bool:
        """Selects anew by what was observed since the last time and copies the chosen chunks and the recent
        rows from the source.

        Returns whether there was anything to go by; without it the selection stays. The source must hold only
        committed rows.
        """
        if not self.policy.ready:
            return False
        length = self.source.length
        # first token of the exact tail
        anchor = max(0, (length - self.recent) // self.chunk * self.chunk)
        chunks = min(self.budget // self.chunk, anchor // self.chunk)
        chosen = self.policy.choose(anchor // self.chunk, chunks)
        if chunks:
            self.source.copy_chunks(self.store, chosen, self.chunk)
        self._anchor, self._selected = anchor, chunks * self.chunk
        self.committed = self.length = anchor
        self.commit(length)
        self.ready = True
        return True

    def _slot(self, token: int) -> int:
        """Where a token at or after the anchor is stored."""
        return self._selected + token - self._anchor
