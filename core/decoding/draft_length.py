"""How many tokens to draft before verifying. Decides from the past and from distributions already drawn from,
never from the clock or the target.

Whether to draw the next token may depend on the tokens before it and on their draft distributions; a token
once drawn is always submitted (core.decoding.drafters). So the proposal stays a function of the past and
exactness is untouched, and a seed repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_FADE = 0.983  # of what is remembered, per draft
_RESTS = 32


class DraftLength(Protocol):
    """Decides pass by pass."""

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """Whether to draft on, given the draft's own probability of each token drawn so far; asked once
        before each pass.
        """
        ...

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """What became of a whole draft: its first `accepted` tokens stood."""
        ...

    def rested(self, made: int) -> None:
        """A round without a draft made so many tokens, from lookups that the full model verified itself."""
        ...


class FixedLength:
    """Always `gamma` tokens, as in the paper."""

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """See DraftLength."""
        return len(confidence) < gamma

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """See DraftLength."""

    def rested(self, made: int) -> None:
        """See DraftLength."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Time of a verification pass, of each drafted row in it and of a middle pass, in any one unit."""

    verify: float
    row: float
    middle: float


class ExpectedGain:
    """Drafts on while what one more pass yields is worth its time, and not at all where rounds without a
    draft are expected to be faster.

    With r the chance that all tokens so far stand, E the tokens expected of the round and T its cost, a token
    costs T / E. One more pass is expected to add y tokens, each of which stands with probability a if those
    before it do, so it pays while

        r * (a + a^2 + ... + a^y) * T / E > middle + y * row.

    a, y and the strictness s, by which a token drawn with draft probability c is rejected with probability s
    * (1 - c), are estimated from past drafts. A round without a draft makes y tokens, too: what a pass makes
    of a lookup, the full model makes of it. So a draft is begun where its best length costs less a token than
    that does, not where it costs less than a token a pass. Where drafting does not pay, it is tried again
    every 32 rounds: the text may have changed.
    """

    def __init__(self, costs: Costs, acceptance: float = 0.9) -> None:
        self._costs = costs
        # prior: a quarter of the doubt turns into rejections
        self._rejections, self._doubt = 1.0, 4.0
        self._stood, self._judged = 8.0 * acceptance, 8.0
        self._tokens, self._passes = 1.0, 1.0  # that past passes yielded
        self._running = 0  # passes of the draft at hand
        self._resting = 0  # rounds since the last draft

    def more(self, confidence: Sequence[float], gamma: int) -> bool:
        """See DraftLength. True means that a pass follows."""
        if not confidence:
            self._running = 0
        if len(confidence) >= gamma:
            return False
        pays = self._pays(confidence) if confidence else self._begins(gamma)
        if not pays and not confidence:
            self._resting += 1
            pays = self._resting >= _RESTS
        if pays:
            self._running, self._resting = self._running + 1, 0
        return pays

    def observe(self, confidence: Sequence[float], accepted: int) -> None:
        """See DraftLength. Old rounds fade with a half-life of about 40 drafts."""
        evaluated = confidence[: accepted + 1]
        self._rejections = _FADE * self._rejections + (accepted < len(confidence))
        self._doubt = _FADE * self._doubt + sum(1.0 - c for c in evaluated)
        self._rejections, self._doubt = max(self._rejections, 0.02), max(self._doubt, 0.08)
        self._stood, self._judged = _FADE * self._stood + accepted, _FADE * self._judged + len(evaluated)
        self._tokens, self._passes = (
            _FADE * self._tokens + len(confidence),
            _FADE * self._passes + max(self._running, 1),
        )
        self._running = 0

    def rested(self, made: int) -> None:
        """See DraftLength."""
        self._tokens, self._passes = _FADE * self._tokens + made, _FADE * self._passes + 1

    def _begins(self, gamma: int) -> bool:
        """Whether a draft of some length costs less a token than a round without one."""
        costs, yields = self._costs, self._tokens / self._passes
        stands, expected = min(self._stood / self._judged, 0.999), 1.0
        without = (costs.verify + (yields - 1) * costs.row) / yields
        for passes in range(1, math.ceil(gamma / yields) + 1):
            expected += stands ** ((passes - 1) * yields + 1) * (1.0 - stands**yields) / (1.0 - stands)
            if (costs.verify + passes * (costs.middle + yields * costs.row)) / expected < without:
                return True
        return False

    def _pays(self, confidence: Sequence[float]) -> bool:
        strictness = self._rejections / self._doubt
        reach, expected = 1.0, 1.0
        for c in confidence:
            reach *= max(0.0, 1.0 - strictness * (1.0 - c))
            expected += reach
        yields, stands = self._tokens / self._passes, min(self._stood / self._judged, 0.999)
        gain = reach * stands * (1.0 - stands**yields) / (1.0 - stands)
        so_far = self._costs.verify + self._running * self._costs.middle + len(confidence) * self._costs.row
        return gain * so_far / expected > self._costs.middle + yields * self._costs.row
