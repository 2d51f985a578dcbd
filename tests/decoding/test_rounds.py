"""What a round says of itself: counts, levels, lengths; and the two ends, a draft that is always right and
one that is always wrong.
"""

from __future__ import annotations

import pytest
import torch

from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, verify
from tests.support.loop import Loop
from tests.support.rounds import rounds, rounds_of_perfect_draft
from tests.support.toys import ToyModel

pytestmark = pytest.mark.usefixtures("either_way")


def text(done: list) -> list[int]:
    return [token for result in done for token in result.tokens][:24]


@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_perfect_draft_is_always_accepted(gamma: int):
    """A draft cache that lost, repeated or shifted a token would be rejected sooner or later."""
    for result in rounds_of_perfect_draft(gamma=gamma):
        assert result.acceptance_retrieval.accepted == result.acceptance_retrieval.evaluated == gamma
        assert len(result.tokens) == gamma + 1


@pytest.mark.parametrize("middle", ["none", "itself", "retrieval"])
def test_always_wrong_draft_gives_the_same_greedy_text(middle: str):
    """Greedy: the draft takes the least likely token each time, nothing of it stands, and the text is plain
    decoding's.
    """
    plain = text(rounds(Loop(drafter="none", middle="none", temperature=0.0)))
    wrong = rounds(Loop(drafter="model", middle=middle, temperature=0.0, model_drafter=_Worst))
    perfect = rounds(Loop(drafter="perfect", middle=middle, temperature=0.0))
    level = "acceptance_retrieval" if middle == "none" else "acceptance_draft"
    if middle != "retrieval":  # what the target likes least, its partial view may like
        assert sum(getattr(result, level).accepted for result in wrong) == 0
    assert sum(getattr(result, level).evaluated for result in wrong) > 0
    assert text(wrong) == text(perfect) == plain


class _Never:
    def more(self, confidence: object, gamma: int) -> bool:
        """No pass of the middle level pays."""
        return False

    def observe(self, confidence: object, accepted: int) -> None:
        """There is nothing to learn."""

    def rested(self, made: int) -> None:
        """There is nothing to learn."""


def test_a_draft_that_goes_past_a_resting_middle_counts_as_the_drafts():
    loop = Loop(drafter="ngram", gamma=3, middle_gamma=2, temperature=0.0, policy=_Never)
    done = rounds(loop)
    assert not any(result.acceptance_retrieval.evaluated for result in done)
    accepted = sum(result.acceptance_draft.accepted for result in done)
    assert 0 < accepted == sum(len(result.tokens) - 1 for result in done)
    assert {level for result in done for level in result.levels} == {"ngram", "target"}
    assert text(done) == text(rounds(Loop(drafter="none", middle="none", temperature=0.0)))


class _Worst:
    """Certain of the target's least likely next token."""

    def __init__(
        self, model: ToyModel, cache: object, sampling: Sampling, randomness: object, *, length: object
    ) -> None:
        self._target = model.like

    def propose(self, committed: list[int], gamma: int) -> Draft:
        tokens: list[int] = []
        for _ in range(gamma):
            row = self._target.row((*committed, *tokens))
            tokens.append(row.index(min(row)))
        return Draft(tuple(tokens), None, ("draft",) * gamma)

    def rollback(self, length: int) -> None:
        pass

    def commit(self, length: int) -> None:
        pass


@pytest.mark.parametrize(
    "loop",
    [Loop(), Loop(drafter="ngram"), Loop(drafter="none"), Loop(middle="none"), Loop(length="gain", gamma=4)],
)
def test_counts_add_up(loop: Loop):
    """Acceptance shown to the user is accepted / evaluated, where evaluated counts the one rejected and
    nothing behind it.
    """
    for result in rounds(loop, tokens=40):
        outer = result.acceptance_retrieval
        if not outer.evaluated:  # the draft went past the middle level, or there was none
            outer = result.acceptance_draft
        assert len(result.levels) == len(result.tokens) == outer.accepted + 1
        assert outer.evaluated - outer.accepted in (0, 1)
        assert result.levels[-1] == "target"
        assert all(level in ("draft", "ngram", "retrieval") for level in result.levels[:-1])


def test_same_seed_same_text():
    """A seed repeats: nothing in the loop looks at the clock or at memory addresses."""
    loop = Loop(length="gain", gamma=4, refresh_every=2)
    assert text(rounds(loop, seed=3)) == text(rounds(loop, seed=3))
    assert len({tuple(text(rounds(loop, seed=seed))) for seed in range(5)}) == 5


def test_a_draft_of_probability_zero_is_refused():
    """A drafter that reports a law it cannot have drawn from is a bug, not a rejection."""
    with pytest.raises(AssertionError, match="probability 0"):
        verify(
            Draft((1,), torch.tensor([[1.0, 0.0]])),
            torch.tensor([[0.5, 0.5], [0.5, 0.5]]),
            SeededRandomness(0),
        )


@pytest.mark.parametrize(
    ("draft", "p", "expected"),
    [
        (Draft((0,), torch.tensor([[1.0, 0.0, 0.0]])), [0.0, 0.0, 1.0], {(0, 2)}),  # disjoint
        # one-hot and right: the bonus row is token 0
        (Draft((1,), torch.tensor([[0.0, 1.0, 0.0]])), [0.0, 1.0, 0.0], {(1, 0)}),
        # certain and impossible
        (Draft((1,), None), [0.5, 0.0, 0.5], {(0, 0), (0, 2)}),
        # p = q: always accepted
        (Draft((0,), torch.tensor([[0.5, 0.5, 0.0]])), [0.5, 0.5, 0.0], {(1, 0)}),
    ],
)
def test_the_edges_of_the_rule(draft: Draft, p: list[float], expected: set[tuple[int, int]]):
    """(accepted, token) over many seeds when laws touch 0 and 1."""
    rows = torch.tensor([p, [1.0, 0.0, 0.0]])
    seen = {
        (verdict.accepted, verdict.token)
        for verdict in (verify(draft, rows, SeededRandomness(seed)) for seed in range(60))
    }
    assert seen == expected
