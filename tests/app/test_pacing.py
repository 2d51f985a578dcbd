"""A round's tokens appear over the next round's time; nothing is held back for long and nothing is lost."""

from __future__ import annotations

from app.desk.pacing import LONGEST_S, Pacer, cut
from core.events import Piece


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def paced(interval: float, rounds: int = 4) -> tuple[Pacer, Clock]:
    """A pacer that has seen rounds of 20 characters at an even pace; the clock stands at the newest."""
    clock = Clock()
    pacer = Pacer(clock)
    for number in range(1, rounds + 1):
        pacer.arrived(20 * number)
        if number < rounds:
            clock.now += interval
    return pacer, clock


def test_slow_rounds_are_spread_over_the_time_between_them():
    pacer, clock = paced(0.5)
    seen = []
    for _ in range(6):
        seen.append(pacer.visible())
        clock.now += 0.1
    assert seen == sorted(seen) and seen[0] == 60 and seen[5] == 80
    assert all(60 < some < 80 for some in seen[1:4])


def test_fast_rounds_are_shown_as_they_come():
    assert paced(0.05)[0].visible() == 80


def test_the_first_round_is_shown_at_once():
    assert paced(5.0, rounds=1)[0].visible() == 20


def test_a_long_pause_holds_nothing_back_for_long():
    pacer, clock = paced(30.0)
    clock.now += LONGEST_S
    assert pacer.visible() == 80


def test_what_is_seen_never_goes_back_when_a_round_comes_early():
    pacer, clock = paced(1.0)
    clock.now += 0.25
    before = pacer.visible()
    pacer.arrived(100)
    assert pacer.visible() == before


def test_a_new_text_starts_afresh():
    pacer, _ = paced(1.0)
    pacer.arrived(7)
    assert pacer.visible() == 7


def test_cut_keeps_levels_and_splits_the_last_piece():
    pieces = (Piece("abc", "ngram"), Piece("def", "target"), Piece("ghi", "ngram"))
    assert cut(pieces, 5) == (Piece("abc", "ngram"), Piece("de", "target"))
    assert cut(pieces, 99) == pieces and cut(pieces, 0) == ()
