"""When the retrieval cache selects anew: after so many rounds, sooner when acceptance drops or the exact tail
is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.decoding.refresh import RetrievalRefresh
from core.events import Acceptance

GOOD, POOR = Acceptance(9, 9), Acceptance(1, 9)


@dataclass
class Source:
    """A full cache as far as a refresh knows it."""

    observer: object = None


class Policy:
    """What it observes with is named, not called: the source would."""

    summed = 8

    def observe(self) -> None: ...

    tap = observe


@dataclass
class Retrieval:
    """Counts what is asked of it."""

    ready: bool = True
    needs_refresh: bool = False
    refreshed: list[int] = field(default_factory=list)
    policy: Policy = field(default_factory=Policy)
    round: int = 0

    def refresh(self) -> bool:
        self.refreshed.append(self.round)
        return True


def refreshed(acceptances: list[Acceptance], *, full_at: int | None = None) -> list[int]:
    """The rounds after which there was a new selection."""
    cache, source = Retrieval(), Source()
    refresh = RetrievalRefresh(source, cache, every=8, floor=0.7)
    for number, acceptance in enumerate(acceptances):
        cache.round, cache.needs_refresh = number, number == full_at
        refresh.before_round()
        refresh.after_round(acceptance)
    return cache.refreshed


def test_with_good_acceptance_only_every_eighth_round():
    assert refreshed([GOOD] * 20) == [8, 17]


def test_when_acceptance_drops_it_is_renewed_sooner():
    """The text has moved on and the chosen chunks no longer matter: waiting would cost a slow round each
    time.
    """
    assert refreshed([GOOD] * 3 + [POOR] * 2 + [GOOD] * 4) == [5]


def test_poor_acceptance_alone_does_not_renew_in_every_round():
    """A renewal costs a pass's second product; where it does not help it must not come each time."""
    found = refreshed([POOR] * 12)
    assert found and all(later - earlier >= 3 for earlier, later in zip(found, found[1:], strict=False))


def test_a_full_tail_does_not_wait():
    assert refreshed([GOOD] * 5, full_at=1) == [1]


def test_rounds_that_judged_nothing_do_not_count_as_poor():
    assert refreshed([Acceptance()] * 8) == []


def test_rounds_of_plain_decoding_renew_nothing():
    """A selection that nothing looks at would be renewed for its price alone."""
    assert refreshed([GOOD] * 7 + [Acceptance()] * 20 + [GOOD] * 3) == [28]
