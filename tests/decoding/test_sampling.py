"""The rule by the production randomness: vocabularies that cannot be enumerated through the whole loop, by
chi-square.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, Verdict, verify
from tests.support import mutants
from tests.support.real_law import limit
from tests.support.toys import token_law
from tests.tiers import first

pytestmark = pytest.mark.usefixtures("either_way")

ROUNDS, DRAFTED = 6_000, 3
# chance that a sound rule fails one of these tests; the seed is fixed, so it either always does or never
FALSE_ALARM = 1e-6


def chi_square_of(rule: Callable[..., Verdict], vocab: int, seed: int) -> tuple[float, float]:
    """(chi-square of the first and the second emitted token against their laws, share of judged tokens that
    came from the residual).

    Each position has laws of its own, whatever stands before it, so both tokens are independent. Where a
    round emits one token only, the second is drawn plainly.
    """
    dice = torch.Generator().manual_seed(seed)
    p, q = torch.softmax(1.5 * torch.randn(2, DRAFTED + 1, vocab, generator=dice, dtype=torch.float64), -1)
    randomness = SeededRandomness(seed)
    counts, residual, judged = torch.zeros(2, vocab, dtype=torch.float64), 0, 0
    for _ in range(ROUNDS):
        draft = Draft(
            tuple(int(randomness.draw(row)) for row in q[:DRAFTED]), q[:DRAFTED], ("draft",) * DRAFTED
        )
        verdict = rule(draft, p, randomness)
        tokens = (*draft.tokens[: verdict.accepted], verdict.token)[:2]
        residual, judged = residual + (verdict.accepted < 2), judged + len(tokens)
        for place, token in enumerate((*tokens, int(randomness.draw(p[1])))[:2]):
            counts[place, token] += 1
    expected = ROUNDS * p[:2]
    return float(((counts - expected) ** 2 / expected).sum()), residual / judged


@pytest.mark.parametrize("vocab", first([8, 12, 32]))
@pytest.mark.parametrize("seed", first([0, 1]))
def test_emitted_tokens_follow_the_target(vocab: int, seed: int):
    """With the seeded generator, three drafted tokens judged at once, rejections often."""
    statistic, residual = chi_square_of(verify, vocab, seed)
    assert residual > 0.3
    assert statistic < limit(2 * (vocab - 1), FALSE_ALARM)


@pytest.mark.parametrize("vocab", first([8, 32]))
@pytest.mark.parametrize(
    "flaw",
    [mutants.residual_from_p, mutants.rows_off_by_one, mutants.everything_accepted],
    ids=lambda flaw: flaw.__name__,
)
def test_the_sample_is_large_enough_to_catch_mutants(flaw: Callable[..., Verdict], vocab: int):
    """The same test on broken rules."""
    assert chi_square_of(flaw, vocab, 0)[0] > limit(2 * (vocab - 1), FALSE_ALARM)


@pytest.mark.parametrize("vocab", [5, 300])
@pytest.mark.parametrize(
    "settings", [(0.0, 1.0, 1.0), (0.7, 0.9, 1.0), (1.3, 0.5, 1.3), (2.0, 0.999, 1.1), (1.0, 1.0, 1.5)]
)
def test_laws_equal_the_definition(vocab: int, settings: tuple[float, float, float]):
    """Also where the nucleus outgrows the candidates first looked at; the penalty knows the drafted tokens of
    the rows before.
    """
    temperature, top_p, penalty = settings
    logits = torch.randn(4, vocab, generator=torch.Generator().manual_seed(vocab), dtype=torch.float64)
    history, drafted = [1, 2, 3], [0, 4, 2]
    got = Sampling(temperature, top_p, penalty, answer_start=1).probs(logits, history, drafted)
    assert got.dtype == torch.float64
    for row in range(4):
        want = token_law(logits[row].tolist(), [*history[1:], *drafted[:row]], temperature, top_p, penalty)
        assert torch.allclose(got[row], torch.tensor(want, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("top_p", [0.3, 0.971, 0.9991])
@pytest.mark.parametrize("shape", ["one far ahead", "all alike"])
def test_a_nucleus_may_reach_far(shape: str, top_p: float):
    """To tokens 8,000 times less probable than the first, and no further than it must; among equals the first
    ones.
    """
    logits = torch.zeros(2, 300, dtype=torch.float64)
    if shape == "one far ahead":
        logits += torch.linspace(0, 0.1, 300, dtype=torch.float64)
        logits[:, 7] = 9.0
    got = Sampling(1.0, top_p).probs(logits, [1])
    want = torch.tensor(token_law(logits[0].tolist(), [], 1.0, top_p, 1.0), dtype=torch.float64)
    assert torch.allclose(got, want.expand(2, -1), atol=1e-12)
    if shape == "one far ahead":
        assert int((got[0] > 0).sum()) == {0.3: 1, 0.971: 66, 0.9991: 293}[top_p]


@pytest.mark.parametrize("before", [0, 1, 253, 255, 256, 300])
def test_the_penalty_looks_at_the_newest_256_tokens(before: int):
    """Row by row: the window of a row begins later than that of the row before as soon as it is full."""
    dice = torch.Generator().manual_seed(before)
    logits = torch.randn(5, 2_000, generator=dice, dtype=torch.float64)
    said = torch.randperm(2_000, generator=dice)[: before + 4].tolist()  # no token twice
    history, drafted = [7, 7, *said[:before]], said[before:]
    got = Sampling(1.0, 1.0, 1.5, answer_start=2).probs(logits, history, drafted)
    for row in range(5):
        want = token_law(logits[row].tolist(), said[: before + row][-256:], 1.0, 1.0, 1.5)
        assert torch.allclose(got[row], torch.tensor(want, dtype=torch.float64), atol=1e-12)
