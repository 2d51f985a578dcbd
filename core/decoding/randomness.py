"""Where chance enters decoding: one object with two verbs, so that a test can walk every branch with its probability."""

from __future__ import annotations

from typing import Protocol

import torch


class Randomness(Protocol):
    """The two random decisions of speculative sampling."""

    def first_rejection(self, accept_probs: torch.Tensor) -> int:
        """The first index i that is rejected when i is accepted with probability accept_probs[i]; their number when none is."""
        ...

    def draw(self, probs: torch.Tensor) -> int:
        """A token from the law `probs` [vocab], which sums to 1."""
        ...


class SeededRandomness:
    """Production randomness: one generator, consumed in decoding order, so the same seed and settings give the same text."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def first_rejection(self, accept_probs: torch.Tensor) -> int:
        """See Randomness. u is in [0, 1): probability 0 is never accepted, probability 1 always."""
        u = torch.rand(len(accept_probs), generator=self._generator, dtype=torch.float64)
        rejected = (u >= accept_probs.cpu().double()).nonzero()
        return int(rejected[0]) if len(rejected) else len(accept_probs)

    def draw(self, probs: torch.Tensor) -> int:
        """See Randomness. By inverting the cumulative law, which never lands on a token of probability zero."""
        cumulative = probs.cpu().double().cumsum(-1)
        u = torch.rand(1, generator=self._generator, dtype=torch.float64) * cumulative[-1]
        token = int(torch.searchsorted(cumulative, u, right=True))       # the first to exceed u, so it has a probability
        return token if token < len(probs) else int(probs.nonzero()[-1])
