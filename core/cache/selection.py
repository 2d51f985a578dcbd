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

POLICIES = ("mass", "mean_key", "streaming", "h2o")
_ROWS = 32  # queries at a time whose attention over all keys is held for the column sums


class Score(Protocol):
    """Scores of one query q [heads, head_dim] over k [blocks, kv_heads, block_tokens, head_dim], of which
    `length` rows are visible.

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
    kv_heads, head_dim = k.shape[1], k.shape[3]
    # [kv_heads, chunks, head_dim]
    means = k.unflatten(2, (-1, chunk)).mean(3, dtype=torch.float32).transpose(0, 1).flatten(1, 2)
    # [kv_heads, group, chunks]
    scores = q.view(kv_heads, -1, head_dim).float() @ means.transpose(1, 2) * head_dim**-0.5
    scores[..., length // chunk :] = -torch.inf
    return scores.flatten(0, 1)


def column_sums(q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
    """What each chunk receives of the attention of all queries, the measure of H2O
    (https://arxiv.org/abs/2306.14048 section 4).

    q [n, heads, head_dim], whose own rows are the last n of the `length` keys in k [blocks, kv_heads,
    block_tokens, head_dim]. Returns fp32 [kv_heads, blocks * block_tokens / chunk]. Every query meets every
    key in plain sight, which no fast kernel does: for comparison only.
    """
    n, kv_heads, d = q.shape[0], k.shape[1], k.shape[3]
    # [kv_heads, tokens, d]
    keys = k.transpose(0, 1).flatten(1, 2).float()
    tokens = torch.arange(keys.shape[1], device=k.device)
    sums = torch.zeros(keys.shape[:2], device=k.device)
    for start in range(0, n, _ROWS):
        rows = q[start : start + _ROWS].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3).float() * d**-0.5
        # [kv_heads, group, rows, tokens]
        scores = rows @ keys.unsqueeze(1).transpose(-1, -2)
        last = length - n + start + torch.arange(rows.shape[2], device=k.device)
        sums += torch.softmax(scores.masked_fill_(tokens > last.unsqueeze(1), -torch.inf), -1).sum((1, 2))
    return sums.unflatten(1, (-1, chunk)).sum(-1)


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
        scores = torch.stack(self._layers)
        return torch.softmax(scores, -1).unflatten(1, (kv_heads, -1)).sum(2)
