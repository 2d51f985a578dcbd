"""Retrieval KV cache: the chunks of the full cache that the last queries care about. Knows nothing of drafting.

Slots, in this order: the budget (the sink chunk, the chunks of highest attention mass, always whole chunks) | the recent tokens and the
answer so far, exact | the tokens of the running draft. Keys keep their absolute rotation, so the order of slots does not matter to
attention. The paper scores chunks once, by the last prompt token's query against each chunk's mean key (https://arxiv.org/abs/2404.11912
section 4.1); here the score is the attention mass itself, taken from the queries of a verification pass, and it is renewed while the
answer grows. Selection is per KV head: softmax per query head first, then summed over the group that shares the head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from core.cache.base import KVStore
from core.cache.full import FullKVCache


class RetrievalKVCache:
    """A sparse copy of `source` with the budget in tokens, re-selected by `refresh`.

    `tail_tokens` bounds the exact recent rows plus the running draft; when an answer outgrows them, `needs_refresh` turns true and the
    older answer rows become ordinary chunks at the next refresh.
    """

    rotates_on_read = False

    def __init__(
        self, source: FullKVCache, *, budget: int, chunk: int = 16, recent: int = 64, tail_tokens: int = 256, slack: int = 64
    ) -> None:
        assert source.store.block_tokens % chunk == 0, f"chunk {chunk} does not divide {source.store.block_tokens}"
        self.source, self.backend = source, source.backend
        self.budget, self.chunk, self.recent, self.tail_tokens = budget, chunk, recent, tail_tokens
        capacity = budget + recent + chunk + tail_tokens + slack
        self.store = KVStore(
            source.store.shape, capacity, block_tokens=capacity, dtype=self.backend.dtype, device=self.backend.device
        )
        self.reset()

    @property
    def oldest_rollback(self) -> int:
        """Below the anchor the rows are chunks, not a sequence."""
        return self._anchor

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    @property
    def needs_refresh(self) -> bool:
        """Nothing was selected yet, or the exact tail is full."""
        return not self.ready or self.length - self._anchor > self.recent + self.chunk + self.tail_tokens

    def positions(self, n: int) -> torch.Tensor:
        """Absolute positions: the keys are rotated as in the full cache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache."""
        start = self._slot(self.length) + offset
        self.store.write(layer, start, k, v)
        end = start + k.shape[0]
        keys, values = self.store.filled(layer, end)
        return self.backend.attend(q, keys, values, length=end, causal=True)

    def advance(self, n: int) -> None:
        """See KVCache."""
        self.length += n

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache. Nothing: committed rows come from the source."""
        return iter(())

    def commit(self, length: int) -> None:
        """Exact rows of the source replace the speculative ones up to `length`: those were computed with a partial context."""
        stale = length - self.committed
        if stale > 0:
            self.store.copy_rows(self.source.store, self.committed, self._slot(self.committed), stale)
        self.length = self.committed = length

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if not self._anchor <= length <= self.length:
            raise ValueError(f"cannot roll a retrieval cache of {self.length} tokens, selected at {self._anchor}, back to {length}")
        self.length = length
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        """See KVCache."""
        self.length = self.committed = self._anchor = self._selected = 0
        self.ready = False
        self._mass: list[torch.Tensor | None] = [None] * self.source.store.shape.layers

    def observe(self, layer: int, q: torch.Tensor, keys: torch.Tensor, length: int) -> None:
        """Takes one layer's chunk masses from the newest queries of a pass over the full cache (an observer of FullKVCache)."""
        self._mass[layer] = self.backend.chunk_mass(q[:1], keys, length=length - q.shape[0] + 1, chunk=self.chunk)

    def refresh(self) -> bool:
        """Selects anew from the observed masses and copies the chosen chunks and the recent rows from the source.

        Returns whether anything was observed; without it the selection stays. The source must hold only committed rows.
        """
        if any(mass is None for mass in self._mass):
            return False
        length = self.source.length
        anchor = max(0, (length - self.recent) // self.chunk * self.chunk)             # first token of the exact tail
        mass = torch.stack([mass[:, :anchor // self.chunk] for mass in self._mass])    # [layers, kv_heads, chunks]
        self._mass = [None] * len(self._mass)
        chunks = min(self.budget // self.chunk, anchor // self.chunk)
        if chunks:
            mass[..., 0] = torch.inf                                                   # the sinks are always kept
            self._copy_chunks(mass.topk(chunks, dim=-1).indices.sort(dim=-1).values)
        self._anchor, self._selected = anchor, chunks * self.chunk
        self.committed = self.length = anchor
        self.commit(length)
        self.ready = True
        return True

    def _copy_chunks(self, chunks: torch.Tensor) -> None:
        """chunks [layers, kv_heads, m]: slots [0, m * chunk) of each layer and head get the rows of these chunks."""
        layers, kv_heads, m = chunks.shape
        per_block = self.source.store.block_tokens // self.chunk
        layer = torch.arange(layers, device=chunks.device).view(-1, 1, 1)
        head = torch.arange(kv_heads, device=chunks.device).view(1, -1, 1)
        for target, source in ((self.store.k, self.source.store.k), (self.store.v, self.source.store.v)):
            split = source.unflatten(3, (per_block, self.chunk))                       # [layers, blocks, kv_heads, per_block, chunk, d]
            picked = split[layer, chunks // per_block, head, chunks % per_block]       # [layers, kv_heads, m, chunk, d]
            target[:, 0, :, :m * self.chunk] = picked.flatten(2, 3)

    def _slot(self, token: int) -> int:
        """Where a token at or after the anchor is stored."""
        return self._selected + token - self._anchor
