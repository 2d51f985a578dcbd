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

from collections.abc import Iterator

import torch

from core.backend.slots import STEP
from core.cache.base import KVStore, TargetKVCache
from core.cache.fixed import FixedRows
from core.cache.selection import POLICIES, Score, Scores, attention_mass, column_sums, mean_key


class RetrievalKVCache:
    """A sparse copy of `source` with the budget in tokens, re-selected by `refresh`.

    `tail_tokens` bounds the exact recent rows plus the running draft; when an answer outgrows them,
    `needs_refresh` turns true and the older answer rows become ordinary chunks at the next refresh. `policy`,
    for comparison: "mass" as above, "mean_key" renews by mean keys too, "streaming" always takes the newest
    chunks (StreamingLLM, https://arxiv.org/abs/2309.17453), "h2o" those that received most attention from all
    rows that it was shown (H2O, https://arxiv.org/abs/2306.14048), which takes a layer's keys in one part.
    `store`: memory of an earlier cache of the same sizes.
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
        policy: str = "mass",
        store: KVStore | None = None,
    ) -> None:
        assert source.block_tokens % chunk == 0, f"chunk {chunk} does not divide {source.block_tokens}"
        assert policy in POLICIES, f"unknown policy {policy!r}"
        self.source, self.backend, self.policy = source, source.backend, policy
        self.budget, self.chunk, self.recent, self.tail_tokens = budget, chunk, recent, tail_tokens
        capacity = -(-(budget + recent + chunk + tail_tokens + slack) // STEP) * STEP
        self.store = store or KVStore(
            source.shape,
            capacity,
            block_tokens=capacity,
            dtype=self.backend.dtype,
            device=self.backend.device,
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

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        start = self._slot(self.length) + offset
        self.store.write(layer, start, k, v)
        end = start + k.shape[0]
        keys, values = self.store.filled(layer, end)
        return self.backend.attend(q, keys, values, length=end, causal=True)

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
        self._scores = self._no_scores()
        # "h2o": fp32 [kv_heads, chunks] each
        self._columns: list[torch.Tensor | None] = [None] * self.source.shape.layers

    def observe(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int
    ) -> None:
        """Scores the keys shown for the pass's first query, whose token is certain. An observer of
        verification passes.
        """
        if self.policy == "h2o":
            self._add_columns(layer, q, k, start, length, own)
            return
        score = mean_key if self.policy == "mean_key" else attention_mass
        self._score(score, layer, q[0], k, start, length - own + 1 if own else length)

    def tap(self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """Scores the keys shown for the pass's last query by their chunks' means. An observer of the last
        chunk of a prefill.
        """
        if self.policy == "h2o":
            self._add_columns(layer, q, k, start, length, own)
            return
        self._score(mean_key, layer, q[-1], k, start, length)

    def refresh(self) -> bool:
        """Selects anew by what was observed since the last time and copies the chosen chunks and the recent
        rows from the source.

        Returns whether there was anything to go by; without it the selection stays. The source must hold only
        committed rows.
        """
        known = {"streaming": True, "h2o": all(sums is not None for sums in self._columns)}
        if not known.get(self.policy, self._scores.complete):
            return False
        length = self.source.length
        # first token of the exact tail
        anchor = max(0, (length - self.recent) // self.chunk * self.chunk)
        chunks = min(self.budget // self.chunk, anchor // self.chunk)
        if chunks:
            self.source.copy_chunks(self.store, self._selection(anchor // self.chunk, chunks), self.chunk)
        self._scores = self._no_scores()
        self._anchor, self._selected = anchor, chunks * self.chunk
        self.committed = self.length = anchor
        self.commit(length)
        self.ready = True
        return True

    def _selection(self, among: int, m: int) -> torch.Tensor:
        """The m best of the first `among` chunks in ascending order, [layers, kv_heads, m]. The sinks are
        always among them.
        """
        layers, kv_heads = self.source.shape.layers, self.source.shape.kv_heads
        if self.policy == "streaming":
            newest = torch.arange(among - m, among, device=self.backend.device)
            newest[0] = 0
            return newest.expand(layers, kv_heads, m)
        shares = torch.stack(self._columns) if self.policy == "h2o" else self._scores.shares(kv_heads)
        shares = shares[..., :among]
        shares[..., 0] = torch.inf
        return shares.topk(m, dim=-1).indices.sort(dim=-1).values

    def _score(
        self, score: Score, layer: int, q: torch.Tensor, k: torch.Tensor, start: int, visible: int
    ) -> None:
        """One query's scores of one part of a layer's keys. The query's own row alone may begin inside a
        chunk; it has a mass, no mean.
        """
        if visible == 1 and score is mean_key:
            return
        chunk = self.chunk if visible > 1 else 1
        assert start % chunk == 0, f"{visible} keys from token {start} on, which is inside a chunk of {chunk}"
        shown = k if visible > 1 else k[:1, :, :1]
        self._scores.add(
            layer, start // self.chunk, score(self.backend, q, shown, length=visible, chunk=chunk)
        )

    def _add_columns(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, start: int, length: int, own: int
    ) -> None:
        """Sums what the pass's rows pay. A layer shown in parts is left out: no part knows what the others
        get.
        """
        if start or not own:
            return
        sums = column_sums(q, k, length=length, chunk=self.chunk)
        if self._columns[layer] is None:
            self._columns[layer] = sums.new_zeros(sums.shape[0], self.source.capacity // self.chunk)
        self._columns[layer][:, : sums.shape[1]] += sums

    def _no_scores(self) -> Scores:
        return Scores(self.source.shape.layers, self.source.capacity // self.chunk)

    def _slot(self, token: int) -> int:
        """Where a token at or after the anchor is stored."""
        return self._selected + token - self._anchor
