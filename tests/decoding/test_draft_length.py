"""How long drafts become: never where plain decoding is faster, and near the best fixed length in worlds
whose acceptance is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest

from core.decoding.draft_length import Costs, DraftLength, ExpectedGain, FixedLength

LONGEST = 32


def draft(
    length: DraftLength, confidence: Callable[[], list[float]], longest: int = LONGEST
) -> tuple[list[float], int]:
    """One draft: the draft's own probabilities of its tokens, and the passes it took."""
    drawn, passes = [], 0
    while length.more(drawn, longest):
        drawn.extend(confidence())
        passes += 1
    return drawn, passes


def time_per_token(
    length: DraftLength,
    costs: Costs,
    world: Callable[[random.Random], tuple[list[float], list[bool]]],
    *,
    rounds: int = 4000,
    longest: int = LONGEST,
) -> float:
    """Simulated decoding; `world` gives one middle pass's tokens: their confidence, and whether the target
    would accept them.
    """
    dice, tokens, spent = random.Random(1), 0, 0.0
    for _ in range(rounds):
        stands: list[bool] = []

        def one_pass(stands: list[bool] = stands) -> list[float]:
            confidence, good = world(dice)
            stands.extend(good)
            return confidence

        drawn, passes = draft(length, one_pass, longest)
        if not drawn:  # what a pass would have looked up, verified by the full model itself
            looked_up = len(one_pass()) - 1
            stands, spent = stands[:looked_up], spent + looked_up * costs.row
        accepted = next((i for i, good in enumerate(stands) if not good), len(stands))
        if drawn:
            length.observe(drawn, accepted)
        else:
            length.rested(accepted + 1)
        tokens += accepted + 1
        spent += costs.verify + passes * costs.middle + len(drawn) * costs.row
    return spent / tokens


def world(easy: float, *, per_pass: int = 1) -> Callable[[random.Random], tuple[list[float], list[bool]]]:
    """Tokens of which a share is easy: sure of themselves and nearly always right; the others are drawn and
    accepted by halves.
    """

    def one(dice: random.Random) -> tuple[list[float], list[bool]]:
        sure = [dice.random() < easy for _ in range(dice.choice((per_pass, per_pass, max(1, per_pass - 1))))]
        return [0.98 if s else 0.5 for s in sure], [dice.random() < (0.985 if s else 0.6) for s in sure]

    return one


def time_of_fixed(costs: Costs, easy: float, per_pass: int, gamma: int) -> float:
    """`time_per_token` of drafts of `gamma` tokens in `world`, in the mean over all that may happen."""
    stands = 0.985 * easy + 0.6 * (1 - easy)
    sizes = (per_pass, per_pass, max(1, per_pass - 1))
    if not gamma:
        spent = costs.verify + (sum(sizes) / 3 - 1) * costs.row
        return spent / (sum(sum(stands**i for i in range(size)) for size in sizes) / 3)

    def behind(drawn: int) -> tuple[float, float]:
        """What is still spent and accepted of a draft that has so many tokens."""
        if drawn >= gamma:
            return 0.0, 0.0
        spent = accepted = 0.0
        for size in sizes:
            later = behind(drawn + size)
            spent += costs.middle + size * costs.row + later[0]
            accepted += sum(stands**i for i in range(drawn + 1, drawn + size + 1)) + later[1]
        return spent / len(sizes), accepted / len(sizes)

    behind = cache(behind)
    spent, accepted = behind(0)
    return (costs.verify + spent) / (1 + accepted)


SITES = {
    "offloaded, 128K": Costs(verify=280.0, row=0.2, middle=20.0),
    "on chip, 128K": Costs(verify=80.0, row=0.3, middle=20.0),
    "CPU, 8K": Costs(verify=45.0, row=7.0, middle=21.0),
    "CPU, 1K": Costs(verify=19.0, row=4.0, middle=17.0),
}


@pytest.mark.parametrize("per_pass", [1, 3])
@pytest.mark.parametrize("easy", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("site", SITES)
def test_near_the_best_fixed_length_plain_decoding_among_them(site: str, easy: float, per_pass: int):
    """Within a twentieth of whichever fixed length is best in this world, without being told which world it
    is.
    """
    costs, tokens = SITES[site], world(easy, per_pass=per_pass)
    best = min(time_of_fixed(costs, easy, per_pass, gamma) for gamma in range(25))
    assert time_per_token(ExpectedGain(costs), costs, tokens) < 1.05 * best


def test_the_mean_of_a_fixed_length_is_what_rounds_come_to():
    """What the policy is compared with is computed; a slip there would make any policy look good."""
    costs = SITES["CPU, 8K"]
    simulated = time_per_token(FixedLength(), costs, world(0.7, per_pass=3), longest=7)
    assert time_of_fixed(costs, 0.7, 3, 7) == pytest.approx(simulated, rel=0.03)


def test_drafts_nothing_where_a_draft_costs_what_it_saves_and_tries_again_now_and_then():
    """A middle pass as dear as the full one: plain decoding, but for one round in 32."""
    length = ExpectedGain(Costs(verify=10.0, row=0.0, middle=10.0))
    passes = []
    for _ in range(320):
        drawn, taken = draft(length, lambda: [0.9])
        passes.append(taken)
        if drawn:
            length.observe(drawn, 0)
    assert sum(passes) == 10 and max(passes) == 1
    assert passes.index(1) == 31


def test_drafts_nothing_where_lookups_alone_are_faster():
    """Behind a short text the full model verified the same tokens twice: a pass of the middle level costs
    what a full one does, and lookups go to that one as well.
    """
    costs = Costs(verify=19.0, row=0.6, middle=17.0)
    length, passes = ExpectedGain(costs), []
    for _ in range(320):
        drawn, taken = draft(length, lambda: [0.99, 0.99])  # one looked up, one of the pass's own
        passes.append(taken)
        if drawn:
            length.observe(drawn, len(drawn))
        else:
            length.rested(2)
    assert sum(map(bool, passes)) < 20


def test_a_text_that_begins_to_repeat_itself_is_drafted_again():
    """What was learned of a hard stretch fades."""
    costs = Costs(verify=45.0, row=7.0, middle=30.0)
    length = ExpectedGain(costs)
    hard = time_per_token(length, costs, world(0.0))
    assert hard < 1.05 * costs.verify
    assert time_per_token(length, costs, world(1.0, per_pass=4)) < 0.6 * costs.verify


def test_no_longer_than_told():
    """gamma is a bound: of tokens at which another pass would begin."""
    length = ExpectedGain(Costs(verify=1000.0, row=0.0, middle=1.0))
    assert [len(draft(length, lambda: [0.99], longest)[0]) for longest in (0, 1, 5)] == [0, 1, 5]


def test_doubt_ends_a_draft():
    """After a token that is as good as a coin the next pass is rarely reached."""

    def drawn(second: float) -> int:
        length, confidence = (
            ExpectedGain(Costs(verify=8.0, row=0.1, middle=1.0)),
            iter([0.99, second] + [0.99] * LONGEST),
        )
        for _ in range(50):
            # what was sure stood, what was doubtful fell
            before = iter([0.99] * 8 + [0.5])
            said, _passes = draft(length, lambda before=before: [next(before)], 9)
            length.observe(said, min(8, len(said)))
        return len(draft(length, lambda: [next(confidence)])[0])

    assert drawn(0.2) <= 2 < drawn(0.99)
