"""The rule by the production randomness: vocabularies that cannot be enumerated through the whole loop, by chi-square."""

from __future__ import annotations

import pytest
import torch

from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, verify
from tests.decoding import mutants
from tests.decoding.toys import token_law

VOCAB, ROUNDS = 12, 6_000
FALSE_ALARM = 1e-6        # chance that a sound rule fails one of these tests; the seed is fixed, so it either always does or never


def chi_square_of(rule: object, seed: int) -> tuple[float, float]:
    """(chi-square of the first emitted token against p, share of tokens that came from the residual)."""
    dice = torch.Generator().manual_seed(seed)
    p = torch.softmax(1.5 * torch.randn(VOCAB, generator=dice, dtype=torch.float64), -1)
    q = torch.softmax(1.5 * torch.randn(VOCAB, generator=dice, dtype=torch.float64), -1)
    randomness = SeededRandomness(seed)
    counts, residual = torch.zeros(VOCAB, dtype=torch.float64), 0
    for _ in range(ROUNDS):
        draft = Draft((randomness.draw(q),), q.unsqueeze(0), ("draft",))
        verdict = rule(draft, torch.stack([p, p]), randomness)
        counts[draft.tokens[0] if verdict.accepted else verdict.token] += 1
        residual += not verdict.accepted
    expected = ROUNDS * p
    return float(((counts - expected) ** 2 / expected).sum()), residual / ROUNDS


def limit() -> float:
    """The chi-square that VOCAB - 1 degrees of freedom exceed with probability FALSE_ALARM."""
    low, high = 0.0, 500.0
    for _ in range(80):
        middle = (low + high) / 2
        tail = float(torch.special.gammaincc(torch.tensor((VOCAB - 1) / 2.0, dtype=torch.float64), torch.tensor(middle / 2)))
        low, high = (middle, high) if tail > FALSE_ALARM else (low, middle)
    return high


@pytest.mark.parametrize("seed", [0, 1])
def test_emitted_tokens_follow_the_target(seed: int):
    """With the seeded generator, rejections often."""
    statistic, residual = chi_square_of(verify, seed)
    assert residual > 0.2
    assert statistic < limit()


@pytest.mark.parametrize("flaw", [mutants.residual_from_p, mutants.everything_accepted], ids=lambda flaw: flaw.__name__)
def test_the_sample_is_large_enough_to_catch_mutants(flaw: object):
    """The same test on broken rules."""
    assert chi_square_of(flaw, 0)[0] > limit()


@pytest.mark.parametrize("vocab", [5, 300])
@pytest.mark.parametrize("settings", [(0.0, 1.0, 1.0), (0.7, 0.9, 1.0), (1.3, 0.5, 1.3), (2.0, 0.999, 1.1), (1.0, 1.0, 1.5)])
def test_laws_equal_the_definition(vocab: int, settings: tuple[float, float, float]):
    """Also where the nucleus outgrows the candidates first looked at; the penalty knows the drafted tokens of the rows before."""
    temperature, top_p, penalty = settings
    logits = torch.randn(4, vocab, generator=torch.Generator().manual_seed(vocab), dtype=torch.float64)
    history, drafted = [1, 2, 3], [0, 4, 2]
    got = Sampling(temperature, top_p, penalty, answer_start=1).probs(logits, history, drafted)
    assert got.dtype == torch.float64
    for row in range(4):
        want = token_law(logits[row].tolist(), [*history[1:], *drafted[:row]], temperature, top_p, penalty)
        assert torch.allclose(got[row], torch.tensor(want, dtype=torch.float64), atol=1e-12)
