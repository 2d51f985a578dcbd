"""Where a text is looked at: the queries of a few attention heads, kept as passes go by, and the part of
their attention that falls on each stretch of the text. Knows nothing of what a stretch is.

The queries are all that is kept of a pass, a few hundred numbers a token. They are scored when somebody wants
to know, between two passes: over the keys of their own head only, where those lie. In host memory the
processor reads them there and nothing crosses the bus: a head's keys of 128K tokens of 128 numbers are 32 MB,
while scoring blocks as they pass would cost every pass what is wanted once a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from core.cache.base import TargetKVCache

_KEYS_AT_ONCE = 4096  # bounds what one step takes of a device's memory
_MOST_ROWS = 32  # queries that are scored at once; of more, every second, third ...


class AttentionHead(NamedTuple):
    """One attention head of a model, counted from 0."""

    layer: int
    head: int


class QueryRecorder:
    """Queries of `heads` at tokens from `first` on. A pass that begins at an earlier token than the last one
    ended replaces what it feeds again, so a rejected draft leaves no trace. `group`: query heads per KV head.
    """

    def __init__(self, heads: Sequence[AttentionHead], *, group: int) -> None:
        self.heads, self._group = tuple(heads), group
        self._layers: dict[int, tuple[int, ...]] = {
            layer: tuple(one.head for one in self.heads if one.layer == layer)
            for layer in dict.fromkeys(one.layer for one in self.heads)
        }
        self._first = 0
        # by layer: (token of the first row, queries [rows, heads of this layer, head_dim])
        self._kept: dict[int, list[tuple[int, torch.Tensor]]] = {layer: [] for layer in self._layers}

    def begin(self, first: int) -> None:
        """Only tokens from `first` on matter from now on; what is kept of them stays."""
        for layer, kept in self._kept.items():
            self._kept[layer] = [
                (max(start, first), rows[max(0, first - start) :])
                for start, rows in kept
                if start + len(rows) > first
            ]
        self._first = first

    def forget(self) -> None:
        """Drops what was kept."""
        for kept in self._kept.values():
            kept.clear()

    def __call__(self, layer: int, q: torch.Tensor, start: int) -> None:
        """A Witness (core.cache.base). Copies the chosen heads' queries of a chosen layer."""
        if layer not in self._layers:
            return
        kept = self._kept[layer]
        while kept and kept[-1][0] >= start:
            kept.pop()
        if kept:
            at, rows = kept[-1]
            kept[-1] = at, rows[: start - at]
        begin = max(0, self._first - start)
        if begin < len(q):
            kept.append((start + begin, torch.stack([q[begin:, one] for one in self._layers[layer]], 1)))

    def masses(self, cache: TargetKVCache, tokens: range, borders: Sequence[int]) -> list[list[float]] | None:
        """For every head the part of its attention that falls on each stretch [borders[i], borders[i + 1]),
        over the square root of the stretch's length; the mean over the queries at `tokens`.

        The text is all tokens from the first border to the last: softmax over them alone, in fp32. None where
        no query at these tokens was kept.
        """
        assert borders[-1] <= cache.length, f"a text up to {borders[-1]} in a cache of {cache.length}"
        with torch.inference_mode():
            queries = [self._queries(one, tokens) for one in self.heads]
            if any(rows is None for rows in queries):
                return None
            return [
                _shares(_attention(cache, one, one.head // self._group, rows, borders), borders)
                for one, rows in zip(self.heads, queries, strict=True)
            ]

    def _queries(self, head: AttentionHead, tokens: range) -> torch.Tensor | None:
        """The kept queries [rows, head_dim] of a head at `tokens`."""
        place = self._layers[head.layer].index(head.head)
        parts = [
            rows[max(0, tokens.start - start) : max(0, tokens.stop - start), place]
            for start, rows in self._kept[head.layer]
        ]
        found = torch.cat(parts) if parts else torch.empty(0)
        return found[:: -(-len(found) // _MOST_ROWS)] if len(found) else None


def _attention(
    cache: TargetKVCache, head: AttentionHead, kv_head: int, rows: torch.Tensor, borders: Sequence[int]
) -> torch.Tensor:
    """What the queries [rows, head_dim] pay to each token of the text, [tokens]: their mean."""
    pieces = [
        (rows.to(keys.device).float() @ keys.float().t()).to(rows.device)
        for whole in cache.keys(head.layer, kv_head, borders[0], borders[-1])
        for keys in whole.split(_KEYS_AT_ONCE)
    ]
    return torch.softmax(torch.cat(pieces, 1) * rows.shape[-1] ** -0.5, -1).mean(0)


def _shares(attention: torch.Tensor, borders: Sequence[int]) -> list[float]:
    """The sum over each stretch, over the square root of its length."""
    places = torch.tensor(borders, device=attention.device) - borders[0]
    sums = torch.nn.functional.pad(attention.double().cumsum(0), (1, 0))[places].diff()
    return (sums / places.diff().clamp(min=1).sqrt()).tolist()
