"""How many tokens to draft before verifying. Decides from the past and from laws already drawn from, never from the clock or the target.

Whether to draw the next token may depend on the tokens before it and on their draft laws; a token once drawn is always submitted
(core.decoding.drafters). So the proposal stays a function of the past and exactness is untouched, and a seed repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class DraftLength(Protocol):
    """Decides pass by pass."""

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """Whether to draft on, given the draft's own probability of each token drawn so far."""
        ...

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """What became of a whole draft: its first `accepted` tokens stood."""
        ...


class FixedLength:
    """Always `gamma` tokens, as in the paper."""

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """See DraftLength."""
        return len(confidence) < gamma

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """See DraftLength."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of a verification pass, of each drafted row in it and of a middle pass, in any one unit."""

    verify: float
    row: float
    middle: float


class ExpectedGain:
    """Drafts on while one more token, weighted by the chance that verification reaches it, is worth its pass.

    A token drawn with draft probability c is taken to be rejected with probability s * (1 - c); s is estimated from past drafts. With
    r the chance that all tokens so far stand, E the expected tokens of the round and T its cost, one more token pays while
    r * T / E > middle + row (the marginal gain r must beat the average price T / E of a token).
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._rejections, self._doubt = 1.0, 4.0           # prior: a quarter of the doubt turns into rejections

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """See DraftLength."""
        if not confidence:
            return gamma > 0
        if len(confidence) >= gamma:
            return False
        strictness = self._rejections / self._doubt
        reach, expected = 1.0, 1.0
        for c in confidence:
            reach *= max(0.0, 1.0 - strictness * (1.0 - c))
            expected += reach
        passes = len(confidence)
        total = self._costs.verify + passes * (self._costs.middle + self._costs.row)
        return reach * total / expected > self._costs.middle + self._costs.row

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """See DraftLength. Old rounds fade with a half-life of about 40 drafts."""
        evaluated = confidence[:accepted + 1]
        self._rejections = 0.983 * self._rejections + (accepted < len(confidence))
        self._doubt = 0.983 * self._doubt + sum(1.0 - c for c in evaluated)
        self._rejections, self._doubt = max(self._rejections, 0.02), max(self._doubt, 0.08)
