"""Which chunks of a long context matter to a query: scores by part of the keys, and what they say about the
whole. Holds no rows.

The scores of one query head over all chunks are logarithms of shares, known up to a constant: the log-sum-exp
of the chunk's attention scores (`attention_mass`, what the query really pays), or the score of the chunk's
mean key (`mean_key`, TriForce, https://arxiv.org/abs/2404.11912 section 4.1). Softmax per query head first,
then summed over the group that shares a KV head: raw products must not be added up, one head with large norms
would decide for all.
"""

from __future__ import annotations

from typing import Protocol

import torch

from core.backend.base import Backend
from core.backend.shared.kv_rows import dequantized
from core.cache.base import TargetKVCache

_MEANS = 1 << 22  # numbers of mean keys that exist at a time: 16 MB


class Policy(Protocol):
    """Chooses the chunks of one retrieval cache by what passes over its source looked like."""

    def tap(self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """See KeyHook: q [n, heads, head_dim] and k [blocks, kv_heads, block_tokens, width] of the last chunk
        of a prefill.
        """
        ...

    def observe(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int
    ) -> None:
        """See KeyHook: q [n, heads, head_dim] and k [blocks, kv_heads, block_tokens, width] of passes that
        verify.
        """
        ...

    @property
    def summed(self) -> int | None:
        """The chunk of which `observe` takes sums from attention (TargetKVCache.observed_chunk)."""
        ...

    @property
    def ready(self) -> bool:
        """There is something to choose by."""
        ...

    def choose(self, among: int, m: int) -> torch.Tensor:
        """m of the first `among` chunks in ascending order, [layers, kv_heads, m], the sinks always among
        them. What was observed is used up.
        """
        ...

    def reset(self) -> None:
        """Forgets everything that was observed."""
        ...


class Score(Protocol):
    """Scores of one query q [heads, head_dim] over rows k [blocks, kv_heads, block_tokens, width], of which
    `length` are visible.

    Returns fp32 [heads, blocks * block_tokens / chunk], -inf for chunks without a visible key.
    """

    def __call__(
        self, backend: Backend, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int
    ) -> torch.Tensor: ...


def attention_mass(
    backend: Backend, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int
) -> torch.Tensor:
    """See Score."""
    return backend.chunk_lse(q, k, length=length, chunk=chunk)


def mean_key(backend: Backend, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
    """See Score. A chunk cut by `length` counts as not visible: the newest rows are never selected, they are
    kept exactly.
    """
    (blocks, kv_heads, block_tokens, _), head_dim = k.shape, q.shape[-1]
    rows = q.view(kv_heads, -1, head_dim).float() * head_dim**-0.5
    # [kv_heads, group, blocks, chunks of a block]
    scores = rows.new_full((*rows.shape[:2], blocks, block_tokens // chunk), -torch.inf)
    # a piece at a time: the mean keys of a book take as much memory as an eighth of its keys in fp32
    step = max(1, _MEANS // (kv_heads * head_dim)) * chunk
    for block in range(blocks):
        for start in range(0, block_tokens, step):
            piece = dequantized(k[block, :, start : start + step], head_dim, q.dtype)
            keys = piece.unflatten(1, (-1, chunk))
            # [kv_heads, head_dim, chunks]
            means = keys.mean(2, dtype=torch.float32).transpose(1, 2)
            scores[:, :, block, start // chunk : start // chunk + keys.shape[1]] = rows @ means
    scores = scores.flatten(2)
    scores[..., length // chunk :] = -torch.inf
    return scores.flatten(0, 1)


class Scores:
    """The scores of one pass, collected layer by layer and part by part. A layer's first part begins it
    anew.
    """

    def __init__(self, layers: int, chunks: int) -> None:
        self._layers: list[torch.Tensor | None] = [None] * layers  # each fp32 [heads, chunks]
        self._chunks = chunks

    @property
    def complete(self) -> bool:
        """Every layer was seen."""
        return all(layer is not None for layer in self._layers)

    def add(self, layer: int, first_chunk: int, scores: torch.Tensor) -> None:
        """Scores [heads, n] of chunks [first_chunk, first_chunk + n); what two parts say of the same chunk is
        joined.
        """
        if first_chunk == 0 or self._layers[layer] is None:
            self._layers[layer] = scores.new_full((scores.shape[0], self._chunks), -torch.inf)
        kept = self._layers[layer][:, first_chunk : first_chunk + scores.shape[1]]
        kept.copy_(torch.logaddexp(kept, scores[:, : kept.shape[1]]))

    def shares(self, kv_heads: int) -> torch.Tensor:
        """The part of all attention that falls on each chunk, summed over the heads of a group: fp32 [layers,
        kv_heads, chunks].
        """
        # layer by layer: the scores of all query heads are as large as those of a book's chunks
        return torch.stack(
            [torch.softmax(scores, -1).unflatten(0, (kv_heads, -1)).sum(1) for scores in self._layers]
        )


class ByMass:
    """The product's policy: the first choice by mean keys for the last query of the prompt, as in the paper;
    later ones by the attention that a verification's first query pays. Scores `source` in chunks of `chunk`.
    """

    def __init__(self, source: TargetKVCache, chunk: int) -> None:
        self._backend, self._shape, self._chunk = source.backend, source.shape, chunk
        self._chunks = source.capacity // chunk
        self.reset()

    @property
    def ready(self) -> bool:
        """See Policy. Every layer was seen."""
        return self._scores.complete

    def tap(self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """See Policy."""
        self.add(mean_key, layer, q[-1], k, start, length)

    @property
    def summed(self) -> int | None:
        """See Policy."""
        return self._chunk

    def observe(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        *,
        start: int,
        length: int,
        own: int,
        sums: torch.Tensor | None = None,
    ) -> None:
        """See Policy. The pass's first query counts, whose token is certain."""
        seen = length - own + 1 if own else length
        if sums is None:
            self.add(attention_mass, layer, q[0], k, start, seen)
        else:  # of its own row alone, which may begin inside a chunk, the first holds everything
            self._scores.add(layer, start // self._chunk, sums if seen > 1 else sums[:, :1])

    def add(
        self, score: Score, layer: int, q: torch.Tensor, k: torch.Tensor, start: int, length: int
    ) -> None:
        """One query's scores, q [heads, head_dim], of one part of a layer's keys, k [blocks, kv_heads,
        block_tokens, width], `length` of them visible.

        The query's own row alone may begin inside a chunk; it has a mass, no mean.
        """
        if length == 1 and score is mean_key:
            return
        chunk = self._chunk if length > 1 else 1
        assert start % chunk == 0, f"{length} keys from token {start} on, which is inside a chunk of {chunk}"
        shown = k if length > 1 else k[:1, :, :1]
        found = score(self._backend, q, shown, length=length, chunk=chunk)
        self._scores.add(layer, start // self._chunk, found)

    def choose(self, among: int, m: int) -> torch.Tensor:
        """See Policy. The chunks of the largest shares."""
        shares = self._scores.shares(self._shape.kv_heads)
        self.reset()
        return top_chunks(shares[..., :among], m)

    def reset(self) -> None:
        """See Policy."""
        self._scores = Scores(self._shape.layers, self._chunks)


def top_chunks(shares: torch.Tensor, m: int) -> torch.Tensor:
    """The m chunks of the largest shares [..., chunks] in ascending order, always with the sinks."""
    shares[..., :1] = torch.inf
    return shares.topk(m, dim=-1).indices.sort(dim=-1).values
