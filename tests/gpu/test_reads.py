"""On a CUDA GPU: laws, draws and verdicts are the CPU's, and the host waits once for each.
Skipped without one: `pytest tests/gpu`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from core.backend.cuda.backend import CudaBackend
from core.cache.full import FullKVCache
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft, Verdict, sample_token, verify
from tests.support.tiny import oracle, ours

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]
VOCAB, HISTORY = 32_000, list(range(300))
SETTINGS = pytest.mark.parametrize(
    "settings", [(0.0, 1.0, 1.0), (0.6, 0.9, 1.0), (1.0, 1.0, 1.2), (1.3, 0.95, 1.1)]
)


def levels(rounds: int, device: str) -> list[torch.Tensor]:
    """Logits of target and draft [2, 4, vocab], round by round."""
    dice = torch.Generator().manual_seed(0)
    return [(4.0 * torch.randn(2, 4, VOCAB, generator=dice)).to(device) for _ in range(rounds)]


def judged(both: torch.Tensor, sampling: Sampling, randomness: SeededRandomness) -> Verdict:
    """One round: three tokens by a law that is near the target's, judged."""
    target, other = both
    q = sampling.probs(0.9 * target[:3] + 0.3 * other[:3], HISTORY, (1, 2))
    tokens = tuple(sample_token(row, randomness)[0] for row in q)
    return verify(Draft(tokens, q), sampling.probs(target, HISTORY, tokens), randomness, logits=target)


@contextmanager
def waits() -> Iterator[list[str]]:
    """What made the host wait for the device meanwhile."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield said
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # the mode speaks of itself, too, when it is first set
    said += [str(one.message) for one in caught if "called a synchronizing" in str(one.message)]


@SETTINGS
def test_the_same_tokens_as_on_the_cpu(settings: tuple[float, float, float]):
    """By the same random numbers; a token in a hundred may be a near-tie of softmax or summation."""
    sampling = Sampling(*settings)
    here, there = (
        [judged(both, sampling, SeededRandomness(number)) for number, both in enumerate(levels(100, device))]
        for device in ("cpu", "cuda")
    )
    differ = sum(
        (one.accepted, one.token) != (other.accepted, other.token)
        for one, other in zip(here, there, strict=True)
    )
    assert differ <= 1
    assert len({one.accepted for one in here}) > 1


@SETTINGS
def test_the_same_seed_says_the_same_again(settings: tuple[float, float, float]):
    """Sums on a GPU have no fixed order; draws must not hang on it."""
    sampling, rounds = Sampling(*settings), levels(50, "cuda")
    first, second = (
        [judged(both, sampling, SeededRandomness(number)) for number, both in enumerate(rounds)]
        for _ in range(2)
    )
    assert first == second


@SETTINGS
def test_the_host_waits_once_per_verification(settings: tuple[float, float, float]):
    """Everything from the logits on: a second wait would show here."""
    sampling, randomness = Sampling(*settings), SeededRandomness(0)
    rounds = levels(6, "cuda")
    judged(rounds[0], sampling, randomness)  # kernels are loaded, uniforms are there
    for target, other in rounds:
        q = sampling.probs(other, HISTORY, (1, 2, 3))
        tokens = tuple(sample_token(row, randomness)[0] for row in q[:3])
        for laws in (q[:3], None):
            with waits() as said:
                verify(
                    Draft(tokens, laws), sampling.probs(target, HISTORY, tokens), randomness, logits=target
                )
            assert len(said) == 1, said
    with waits() as said:
        sample_token(sampling.probs(rounds[0][0][:1], HISTORY)[0], randomness, rounds[0][0][:1])
    assert len(said) == 1, said


def test_a_pass_is_asked_for_without_waiting():
    """The ids that it is fed, too: what is asked for next would come after it."""
    backend = CudaBackend(torch.float32)
    model = ours(oracle(), backend=backend)
    cache = FullKVCache(model.config.kv_shape, 64, backend, block_tokens=32)
    for _warm in range(2):
        model.forward([1, 2, 3], cache)
    with waits() as said:
        model.forward([4, 5], cache)
    assert said == []
