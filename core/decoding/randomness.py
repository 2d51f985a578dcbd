"""Where chance enters decoding: one object with few verbs, so that a test can walk every branch with its
probability.
"""

from __future__ import annotations

from typing import Protocol

import torch

from core.backend.ranks import Ranks
from core.backend.shared.transfer import to_host

_BLOCK = 1024  # uniforms drawn and sent at once
ONE = 2**62  # probability 1 in fixed point


def cumulative(probs: torch.Tensor) -> torch.Tensor:
    """Running sums of probabilities [..., n] as int64 in units of 1 / ONE.

    A GPU adds floating-point numbers in no fixed order: rounding would give a probability to what has none,
    or the same seed another token. Integers have one sum.
    """
    return (probs * float(ONE)).long().cumsum_(-1)


class Randomness(Protocol):
    """The two random decisions of speculative sampling. Answers are int64 [1] where the question lies:
    nothing is read from a device, but for what `numbers` is given.
    """

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        """The first index i that is rejected when i is accepted with probability accept_probs[i]; their
        number when none is.
        """
        ...

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """A token from the distribution `probs` [vocab], which sums to 1."""
        ...

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """What was decided, for the host; see core.backend.shared.transfer.to_host."""
        ...


class OwnNumbers:
    """Reads what was decided here."""

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """See Randomness."""
        return to_host(*parts)


class SeededRandomness(OwnNumbers):
    """Production randomness: one generator on the host, consumed in decoding order, so the same seed and
    settings give the same text.

    Its numbers go to the device in blocks, which does not change their order.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._block, self._used = torch.empty(0, dtype=torch.float64), 0

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        """See Randomness. u is in [0, 1): probability 0 is never accepted, probability 1 always."""
        u = self._uniform(len(accept_probs), accept_probs.device)
        return (u < accept_probs.double()).long().cumprod(0).sum(0, keepdim=True)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """See Randomness. By inverting the cumulative distribution, which never lands on a token of
        probability zero.
        """
        ends = cumulative(probs)
        total = ends[-1:]
        mark = torch.minimum((self._uniform(1, probs.device) * total).long(), total - 1)
        # the first to exceed the mark, so it has a probability
        return torch.searchsorted(ends, mark, right=True)

    def _uniform(self, n: int, device: torch.device) -> torch.Tensor:
        """The next n numbers of the stream, fp64 in [0, 1), on `device`."""
        if self._used + n > len(self._block):
            more = torch.rand(max(n, _BLOCK), generator=self._generator, dtype=torch.float64)
            self._block = torch.cat(
                [part.to(device, non_blocking=True) for part in (self._block[self._used :], more)]
            )
            self._used = 0
        self._used += n
        return self._block[self._used - n : self._used].to(device)


class RankedRandomness(SeededRandomness):
    """The chance of a model of several ranks: what rank 0 decided holds for all."""

    def __init__(self, seed: int, *, ranks: Ranks) -> None:
        super().__init__(seed)
        self._ranks = ranks

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """See Randomness."""
        return self._ranks.numbers(*parts)
