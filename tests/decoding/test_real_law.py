"""Sampling on real weights: the embedded model, fixed pages of a sample book, against the exact laws of plain
forwards.

The caches below the target are starved until at least 30% of the judged tokens come from the residual at each
level, and the sample is large enough that drawing the residual from p, at either level, fails the same test.
A sound loop fails with probability FALSE_ALARM per test; seeds are fixed, so it either always does or never.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.decoding import decoder as outer_level
from core.decoding import drafters as middle_level
from core.decoding.verify import verify
from core.paths import ROOT
from tests.support import mutants
from tests.support.by_definition import logits_over
from tests.support.embedded import embedded, low_precision
from tests.support.real_law import Page, RowSampling, Sample, chi_square, exact_law, limit, read_page, sample
from tests.tiers import first

pytestmark = [pytest.mark.usefixtures("either_way"), pytest.mark.every_isa]

FALSE_ALARM = 1e-6
# of a normal variable, exceeded with probability FALSE_ALARM on either side together
DEVIATIONS = 4.9
LEAST_RESIDUAL = 0.3
LAST_DIGIT = 2e-7  # of a number in fp32: by so much passes of other row counts differ
LEAST_FLIPPED = 100  # bytes of keys that such noise changes, of 1.4 million
KV_8 = "8-bit KV"
ONE_STEP = 1.0  # of a code: half by rounding, and what the numbers before it differ by
SAMPLINGS = [(0.6, 0.9), (1.0, 1.0)]
BOOK = ROOT / "assets" / "samples" / "the-light-on-the-holm.md"
# tokens of the book; between them, next tokens of many kinds at both temperatures
PAGES = ((40, 294), (40, 359))


@cache
def read(folder: Path, precision: str) -> tuple[tuple[Page, ...], tuple[torch.Tensor, ...]]:
    """The pages as the loop sees them, and the logits of plain decoding: transformers' in fp32, the runtime's
    own in bf16; over a KV cache in 8 bits by their definition, from the rows that the cache has kept.
    """
    reference, machine, tokenizer = embedded(folder)
    model = low_precision(folder, in_codes=True).model if precision == "bf16" else machine.model
    rows = torch.int8 if precision == KV_8 else None
    ids = tokenizer(BOOK.read_text(encoding="utf-8"))["input_ids"]
    pages = tuple(read_page(model, ids[start:end], budget=4, window=3, rows=rows) for start, end in PAGES)
    if precision == KV_8:
        return pages, tuple(over_kept_rows(reference, page) for page in pages)
    if precision != "fp32":
        return pages, tuple(page.full for page in pages)
    with torch.inference_mode():
        return pages, tuple(reference(torch.tensor([page.ids])).logits[0, -1] for page in pages)


def over_kept_rows(reference: torch.nn.Module, page: Page) -> torch.Tensor:
    """The logits [vocab] that the definition gives; the newest token's own codes are those of its numbers."""
    with torch.inference_mode():
        logits, steps = logits_over(reference, page.ids[-1], page.kept)
    assert steps < ONE_STEP, f"a number of the newest row is {steps:.2f} steps from its code"
    return logits


def sampled(folder: Path, settings: tuple[float, float], rounds: int, precision: str = "fp32") -> Sample:
    """Rounds after every page, judged by the exact laws."""
    pages, logits = read(folder, precision)
    return sample(
        pages, [exact_law(row, *settings) for row in logits], RowSampling(*settings), rounds=rounds, seed=1
    )


def overlap(laws: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """The mean of sum min(p, q), and the deviation of one accept-or-reject by it."""
    shares = [float(torch.minimum(p, q).sum()) for p, q in laws]
    return sum(shares) / len(shares), (sum(share * (1 - share) for share in shares) / len(shares)) ** 0.5


def check(folder: Path, settings: tuple[float, float], rounds: int, precision: str = "fp32") -> None:
    """First tokens follow the target, residuals at both levels are frequent, and acceptance is sum min(p,
    q).
    """
    found = sampled(folder, settings, rounds, precision)
    assert min(found.residual, found.middle_residual) >= LEAST_RESIDUAL
    assert found.statistic < limit(found.freedom, FALSE_ALARM)
    pages, _ = read(folder, precision)
    laws = [[exact_law(row, *settings) for row in (page.full, page.retrieval, page.draft)] for page in pages]
    for residual, pairs in (
        (found.residual, [(p, q) for p, q, _ in laws]),
        (found.middle_residual, [(q, r) for _, q, r in laws]),
    ):
        expected, deviation = overlap(pairs)
        assert abs(1 - residual - expected) < DEVIATIONS * deviation / found.rounds**0.5 + 1e-4


def check_mutant(
    folder: Path, settings: tuple[float, float], home: object, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published code's slip at one level does not pass the same test."""
    assert home.verify is verify
    monkeypatch.setattr(home, "verify", mutants.residual_from_p)
    found = sampled(folder, settings, rounds)
    assert found.statistic > limit(found.freedom, FALSE_ALARM)


SETTINGS = pytest.mark.parametrize("settings", SAMPLINGS, ids=["T 0.6, top-p 0.9", "T 1"])


@SETTINGS
def test_sampled_tokens_follow_the_target(embedded_model_dir: Path, settings: tuple[float, float]):
    """The promise above temperature 0, on real weights."""
    check(embedded_model_dir, settings, 1_000)


@pytest.mark.wide
def test_sampled_tokens_follow_the_target_over_8_bit_rows(embedded_model_dir: Path):
    """The law is that of plain decoding over the rows that are kept; another cache's would be refused."""
    check(embedded_model_dir, SAMPLINGS[0], 1_000, KV_8)


@pytest.mark.wide
def test_noise_in_the_last_digit_of_a_prompt_changes_nothing(
    embedded_model_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another machine rounds a prompt otherwise, and some codes of its rows are others: the law is that of
    the rows that are there.
    """
    (sound, *_), _ = read(embedded_model_dir, KV_8)
    reference, machine, _tokenizer = embedded(embedded_model_dir)
    attend, dice = CpuBackend.attend, torch.Generator().manual_seed(5)

    def noisy(self: CpuBackend, q: torch.Tensor, *args: object, **given: object) -> torch.Tensor:
        found = attend(self, q, *args, **given)
        return found * (1 + LAST_DIGIT * torch.randn(found.shape, generator=dice))

    monkeypatch.setattr(CpuBackend, "attend", noisy)
    for _ in range(4):
        page = read_page(machine.model, sound.ids, budget=4, window=3, rows=torch.int8)
        flipped = sum(
            int((k != other).sum()) for (k, _), (other, _) in zip(page.kept, sound.kept, strict=True)
        )
        assert flipped > LEAST_FLIPPED
        law = exact_law(over_kept_rows(reference, page), *SAMPLINGS[0])
        found = sample([page], [law], RowSampling(*SAMPLINGS[0]), rounds=300, seed=1)
        assert found.statistic < limit(found.freedom, FALSE_ALARM)


@pytest.mark.wide
@pytest.mark.parametrize(
    "settings",
    [SAMPLINGS[0], pytest.param(SAMPLINGS[1], marks=pytest.mark.slow)],
    ids=["T 0.6, top-p 0.9", "T 1"],
)
@pytest.mark.parametrize("home", first([middle_level, outer_level]), ids=["middle", "outer"])
def test_the_same_sample_catches_a_residual_from_p(
    embedded_model_dir: Path, settings: tuple[float, float], home: object, monkeypatch: pytest.MonkeyPatch
):
    """At both levels: a test that lets this pass would let the published code pass."""
    check_mutant(embedded_model_dir, settings, home, 2_500, monkeypatch)


@pytest.mark.slow
@SETTINGS
@pytest.mark.parametrize("precision", ["fp32", "bf16", KV_8])
def test_large_samples_follow_the_target(
    embedded_model_dir: Path, settings: tuple[float, float], precision: str
):
    """Ten times as many; in bf16 with the 4-bit kernels against the laws that these compute."""
    check(embedded_model_dir, settings, 10_000, precision)


# ---- the check, checked ------------------------------------------------------------------------------------


def generated(
    reference: torch.nn.Module,
    ids: tuple[int, ...],
    logits: torch.Tensor,
    *,
    settings: tuple[float, float],
    n: int,
):
    """Counts [vocab] of n first tokens by transformers' `generate(do_sample=True)`, whose forward pass gives
    the known row.
    """
    batch, counts = 50, torch.zeros(len(logits), dtype=torch.float64)
    inputs = torch.tensor([ids[-2:]]).expand(batch, -1)
    output = SimpleNamespace(logits=logits.expand(batch, 1, -1))
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(type(reference), "__call__", lambda self, *given, **more: _Output(output.logits))
        for _ in range(n // batch):
            out = reference.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                do_sample=True,
                temperature=settings[0],
                top_p=settings[1],
                top_k=0,
                max_new_tokens=1,
                use_cache=False,
                pad_token_id=0,
            )
            counts += torch.bincount(out[:, -1], minlength=len(logits))
    return counts


class _Output(dict):
    """What `generate` reads of a forward pass."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__(logits=logits)
        self.logits = logits


@pytest.mark.wide
@SETTINGS
def test_transformers_own_sampling_passes_the_check(embedded_model_dir: Path, settings: tuple[float, float]):
    """A sampler that nobody doubts passes by the same statistic against the same law, and fails against one a
    little off.
    """
    reference, (pages, logits) = embedded(embedded_model_dir)[0], read(embedded_model_dir, "fp32")
    torch.manual_seed(1)
    counts = generated(reference, pages[0].ids, logits[0], settings=settings, n=1_500)
    for temperature, sound in ((settings[0], True), (1.3 * settings[0], False)):
        law = exact_law(logits[0], temperature, settings[1])
        statistic, cells = chi_square(counts * (law > 0), law)
        assert (statistic < limit(cells - 1, FALSE_ALARM)) == sound
