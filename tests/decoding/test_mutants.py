"""Each broken loop is caught, by the test named beside it. A suite that passes on these would prove
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from core.decoding import decoder as outer_level
from core.decoding import drafters as middle_level
from core.decoding.randomness import Randomness, SeededRandomness
from core.decoding.sampling import Sampling
from tests.support import mutants
from tests.support.loop import Loop, distance, exact_law, plain_law
from tests.support.rounds import rounds_of_perfect_draft

pytestmark = pytest.mark.usefixtures("either_way")

CAUGHT = 1e-3  # a slip moves some probability by far more than rounding does
RULES = [
    mutants.residual_from_p,
    mutants.rows_off_by_one,
    mutants.bonus_from_last_draft_row,
    mutants.improbable_tokens_accepted,
    mutants.everything_accepted,
]


def off(loop: Loop) -> float:
    """How far the loop's law is from plain decoding's."""
    how = {"horizon": 2 if loop.middle == "itself" else 3}
    return distance(exact_law(loop, **how), plain_law(loop, **how))


def loop_at(level: str, **settings: object) -> Loop:
    """A loop in which what goes wrong at `level` is not put right above it by chance alone."""
    return Loop(
        middle="none" if level == "outer, one level" else "itself", drafter="wrong", gamma=1, **settings
    )


@pytest.mark.parametrize("flaw", RULES, ids=lambda flaw: flaw.__name__)
@pytest.mark.parametrize("level", ["outer", "outer, one level", "middle"])
def test_the_exact_law_catches_a_broken_rule(flaw: Callable, level: str, monkeypatch: pytest.MonkeyPatch):
    """At either level; caught by test_exact_law.test_every_composition_has_the_law_of_plain_decoding."""
    home = middle_level if level == "middle" else outer_level
    # a middle level that is the target itself is always accepted by a sound outer rule: only the middle's own
    # slip shows the target's nucleus forbids what the draft says (at the middle level verify's own assertion
    # would already stop this mutant)
    cut = {"top_p": 0.6} if flaw is mutants.improbable_tokens_accepted and level != "middle" else {}
    below = {"draft_sampling": {"top_p": 1.0}, "middle_sampling": {"top_p": 1.0}} if level == "outer" else {}
    streaming = Loop(middle="streaming", drafter="wrong", gamma=1, **cut, **below)
    loop = streaming if level == "outer" else loop_at(level, **cut)
    assert off(loop) < 1e-9
    monkeypatch.setattr(home, "verify", flaw)
    assert off(loop) > CAUGHT


@pytest.mark.parametrize(
    ("loop", "flaw"),
    [
        (Loop(middle="none"), {"model_drafter": mutants.ReportsAnotherLaw}),
        (Loop(middle="itself"), {"model_drafter": mutants.ReportsAnotherLaw}),
        (Loop(middle="streaming", drafter="none"), {"verified_drafter": mutants.MiddleReportsAnotherLaw}),
        (Loop(middle="none"), {"model_drafter": mutants.DropsDoubtful}),
        (Loop(middle="itself"), {"model_drafter": mutants.DropsDoubtful}),
        (Loop(middle="streaming", drafter="none"), {"verified_drafter": mutants.MiddleDropsDoubtful}),
        (Loop(middle="streaming", drafter="none"), {"verified_drafter": mutants.MiddlePeeks}),
        (Loop(middle="none"), {"cache": mutants.RollsBackOneShort}),
    ],
    ids=[
        "q not sampled law, one level",
        "q not sampled law, below the middle",
        "q not sampled law, by the middle",
        "low q dropped, one level",
        "low q dropped, below the middle",
        "low q dropped, by the middle",
        "length peeks at the target",
        "rollback one short",
    ],
)
def test_the_exact_law_catches_a_broken_part(loop: Loop, flaw: dict):
    """Caught by test_exact_law.test_every_composition_has_the_law_of_plain_decoding."""
    settings = {name: getattr(loop, name) for name in ("middle", "drafter", "gamma")}
    assert off(Loop(**settings)) < 1e-9
    assert off(Loop(**settings, **flaw)) > CAUGHT


def test_the_exact_law_catches_a_penalty_that_forgets_the_draft(monkeypatch: pytest.MonkeyPatch):
    """The penalty of a whole block from the tokens before the block; caught by
    test_exact_law.test_repetition_penalty.
    """
    loop = Loop(drafter="ngram", middle="none", penalty=1.5)
    assert off(loop) < 1e-9
    sound = Sampling._penalised
    monkeypatch.setattr(
        Sampling,
        "_penalised",
        lambda self, logits, history, drafted: torch.cat(
            [sound(self, row.unsqueeze(0), history, ()) for row in logits]
        ),
    )
    assert off(loop) > CAUGHT


@pytest.mark.parametrize(
    "flaw", [mutants.EndsBetweenRounds, mutants.SpeaksOn], ids=lambda flaw: flaw.__name__
)
@pytest.mark.parametrize("ends", [{"eos": frozenset({2})}, {"stop": (1, 2)}], ids=["eos", "stop"])
def test_the_exact_law_catches_an_end_overlooked_inside_a_block(flaw: type, ends: dict):
    """Caught by test_exact_law.test_end_of_sequence_inside_a_block and test_stop_string_inside_a_block."""
    assert off(Loop(middle="none", **ends)) < 1e-9
    assert off(Loop(middle="none", **ends, decoder=flaw)) > CAUGHT


def test_a_dropped_bonus_is_caught(monkeypatch: pytest.MonkeyPatch):
    """The law stays right and every round loses a token; caught by
    test_rounds.test_perfect_draft_is_always_accepted.
    """
    assert all(len(result.tokens) == 3 for result in rounds_of_perfect_draft(gamma=2))
    monkeypatch.setattr(outer_level, "verify", mutants.bonus_dropped)
    assert not all(len(result.tokens) == 3 for result in rounds_of_perfect_draft(gamma=2))


def test_a_draft_that_loses_its_last_token_is_caught():
    """The law stays right and acceptance falls; caught by
    test_rounds.test_perfect_draft_is_always_accepted.
    """
    assert all(result.acceptance_retrieval.rate == 1.0 for result in rounds_of_perfect_draft(gamma=2))
    broken = rounds_of_perfect_draft(gamma=2, model_drafter=mutants.LosesLastToken)
    assert not all(result.acceptance_retrieval.rate == 1.0 for result in broken)


@pytest.mark.parametrize(
    ("randomness", "sound"), [(SeededRandomness, True), (mutants.AcceptsAtEquality, False)]
)
def test_u_of_zero_accepts_nothing_of_probability_zero(
    randomness: type[Randomness], sound: bool, monkeypatch: pytest.MonkeyPatch
):
    """torch.rand returns 0 once in a while; `u <= p/q` would then emit what the target forbids."""
    monkeypatch.setattr(torch, "rand", lambda n, **how: torch.zeros(n, dtype=torch.float64))
    accepted = randomness(0).first_rejection(torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))
    assert (int(accepted) == 1) == sound
