"""Matrices put together of others, or of a part of one. Knows no files."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.backend.base import Linear


class StackedLinear:
    """Matrices of different formats one above the other."""

    def __init__(self, parts: Sequence[Linear]) -> None:
        self._parts = parts

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, sum of out]"""
        return torch.cat([part(x) for part in self._parts], dim=-1)


class PartialHead:
    """An output matrix for the tokens `ids` alone. The others have logit -inf: a draft gives them probability
    0, which stays lossless.
    """

    def __init__(self, linear: Linear, ids: torch.Tensor, vocab: int) -> None:
        self._linear, self._ids, self._vocab = linear, ids, vocab

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> fp32 [n, vocab]"""
        logits = torch.full((x.shape[0], self._vocab), -torch.inf, device=x.device)
        return logits.index_copy_(1, self._ids, self._linear(x).float())
