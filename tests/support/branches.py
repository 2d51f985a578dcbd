"""A Randomness that walks every branch with its probability, so a law is computed instead of estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from core.decoding.randomness import OwnNumbers

T = TypeVar("T")


class Branches(OwnNumbers):
    """Plays one path of choices per run and remembers which alternatives are left. Branches of probability
    zero do not exist.
    """

    def __init__(self) -> None:
        self._choices: list[int] = []
        self._options: list[list[tuple[int, float]]] = []
        self._at = 0
        self.weight = 1.0

    def runs(self, play: Callable[[], T]) -> Iterator[tuple[float, T]]:
        """(probability, outcome) of every path through `play`, which must be deterministic but for this
        object.
        """
        self._choices, self._options = [], []
        while True:
            self._at, self.weight = 0, 1.0
            outcome = play()
            yield self.weight, outcome
            while self._choices and self._choices[-1] + 1 == len(self._options[-1]):
                self._choices.pop()
                self._options.pop()
            if not self._choices:
                return
            self._choices[-1] += 1

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        """See Randomness."""
        options: list[tuple[int, float]] = []
        reach = 1.0
        for index, accept in enumerate(accept_probs.cpu().tolist()):
            assert 0.0 <= accept <= 1.0, f"acceptance probability {accept}"
            options.append((index, reach * (1.0 - accept)))
            reach *= accept
        return self._choose([*options, (len(accept_probs), reach)], accept_probs.device)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """See Randomness."""
        law = probs.cpu().tolist()
        assert min(law) >= 0.0 and abs(sum(law) - 1.0) < 1e-9, f"not a law: {law}"
        return self._choose(list(enumerate(law)), probs.device)

    def _choose(self, options: list[tuple[int, float]], device: torch.device) -> torch.Tensor:
        options = [option for option in options if option[1] > 0.0]
        if self._at == len(self._choices):
            self._choices.append(0)
            self._options.append(options)
        value, probability = options[self._choices[self._at]]
        self._at += 1
        self.weight *= probability
        return torch.tensor([value]).to(device, non_blocking=True)


class RoundedBranches(Branches):
    """Laws in fp32 add up to 1 within their rounding alone."""

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """See Randomness."""
        return super().draw(probs.double() / probs.double().sum())
