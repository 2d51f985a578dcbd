"""Policies of selection that the product's is compared with: by mean keys alone, the newest chunks, by column
sums.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.cache.base import TargetKVCache
from core.cache.selection import ByMass, Policy, mean_key, top_chunks

_ROWS = 32  # queries at a time whose attention over all keys is held for the column sums


class ByMeanKey(ByMass):
    """As TriForce's first selection, also when it is renewed."""

    summed = None

    def observe(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int
    ) -> None:
        """See Policy. The pass's first query counts, whose token is certain."""
        self.add(mean_key, layer, q[0], k, start, length - own + 1 if own else length)


class Newest:
    """The newest chunks behind the sinks: StreamingLLM (https://arxiv.org/abs/2309.17453)."""

    ready, summed = True, None

    def __init__(self, source: TargetKVCache, chunk: int) -> None:
        self._shape, self._device = source.shape, source.backend.device

    def tap(self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """See Policy. Nothing is looked at."""

    observe = tap

    def choose(self, among: int, m: int) -> torch.Tensor:
        """See Policy."""
        newest = torch.arange(among - m, among, device=self._device)
        newest[:1] = 0
        return newest.expand(self._shape.layers, self._shape.kv_heads, m)

    def reset(self) -> None:
        """See Policy."""


class ByColumnSums:
    """The chunks that received most attention from all rows shown so far: H2O
    (https://arxiv.org/abs/2306.14048). A layer's keys come in one part.

    `begun`: another whose sums so far it begins with.
    """

    summed = None

    def __init__(self, source: TargetKVCache, chunk: int, begun: ByColumnSums | None = None) -> None:
        self._chunk, self._chunks = chunk, source.capacity // chunk
        self._begun = begun.columns if begun else [None] * source.shape.layers
        self.reset()

    @property
    def ready(self) -> bool:
        """See Policy."""
        return all(sums is not None for sums in self.columns)

    def tap(self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """See Policy. A layer shown in parts is left out: no part knows what the others get."""
        if start or not own:
            return
        sums = column_sums(q, k, length=length, chunk=self._chunk)
        if self.columns[layer] is None:
            self.columns[layer] = sums.new_zeros(sums.shape[0], self._chunks)
        self.columns[layer][:, : sums.shape[1]] += sums

    observe = tap

    def choose(self, among: int, m: int) -> torch.Tensor:
        """See Policy. The sums go on."""
        return top_chunks(torch.stack(self.columns)[..., :among], m)

    def reset(self) -> None:
        """See Policy."""
        # each fp32 [kv_heads, chunks]
        self.columns = [None if sums is None else sums.clone() for sums in self._begun]


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


POLICIES: dict[str, Callable[[TargetKVCache, int], Policy]] = {
    "mass": ByMass,
    "mean_key": ByMeanKey,
    "streaming": Newest,
    "h2o": ByColumnSums,
}
