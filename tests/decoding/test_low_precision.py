"""bf16 and fp16 round: every token of an answer is plain decoding's or a near-tie, by a margin that rounding
alone explains.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conversation.verification import NEAR_TIE, gap, verify_answer
from core.decoding.sampling import Sampling
from core.engine import Engine
from core.paths import ROOT
from core.request import Params
from tests.support.embedded import kv_in_8_bits, low_precision
from tests.support.greedy_answers import answer
from tests.support.modes import GRID_MODES
from tests.tiers import first

log = logging.getLogger(__name__)
pytestmark = pytest.mark.every_isa

BOOK = ROOT / "assets" / "samples" / "the-thursday-clock.md"
MOST_NEAR_TIES = 0.05  # benchmarks/results/precision.json has about 1% in bf16


def check(
    folder: Path, machine: Engine, *, temperature: float, windows: int, tokens: int, mode: str = "triforce"
) -> None:
    """Answers after pieces of a book, re-checked by a plain teacher-forced pass."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(BOOK.read_text(encoding="utf-8"))["input_ids"]
    params = Params(temperature=temperature, top_p=0.9, max_new_tokens=tokens, mode=mode)
    ties = judged = 0
    for number in range(windows):
        prompt = ids[500 * number : 500 * number + 200]
        written = answer(machine, prompt, params)
        context = machine.new_context(machine.context_tokens)
        said = verify_answer(machine.model, context, [*prompt, *written], len(prompt), params)
        log.info("window %d: %s", number, said)
        assert said.mismatches == 0, said
        ties, judged = ties + said.near_ties, judged + said.tokens
    assert ties <= MOST_NEAR_TIES * judged + 1, f"{ties} near-ties in {judged} tokens"


@pytest.mark.wide
@pytest.mark.parametrize("temperature", [0.6, 0.0])
def test_bf16_from_codes(embedded_model_dir: Path, temperature: float):
    """What the product computes on a CPU that can."""
    machine = low_precision(embedded_model_dir, in_codes=True)
    check(embedded_model_dir, machine, temperature=temperature, windows=1, tokens=48)


@pytest.mark.parametrize("temperature", first([0.6, 0.0]))
def test_a_kv_cache_in_8_bits(embedded_model_dir: Path, temperature: float):
    """Every level sees codes, and the plain pass the same ones; what flips one is rounding."""
    machine = kv_in_8_bits(embedded_model_dir)
    check(embedded_model_dir, machine, temperature=temperature, windows=1, tokens=48)


@pytest.mark.slow
@pytest.mark.parametrize("in_codes", [True, False], ids=["codes", "bf16 weights"])
@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("mode", ["triforce", "autoregressive"])
def test_bf16_over_many_answers(embedded_model_dir: Path, in_codes: bool, temperature: float, mode: str):
    """Also plain decoding's own answers: they meet the same near-ties."""
    machine = low_precision(embedded_model_dir, in_codes=in_codes)
    check(embedded_model_dir, machine, temperature=temperature, windows=6, tokens=64, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("mode", GRID_MODES)
def test_a_kv_cache_in_8_bits_over_many_answers(embedded_model_dir: Path, temperature: float, mode: str):
    """In every mode."""
    machine = kv_in_8_bits(embedded_model_dir)
    check(embedded_model_dir, machine, temperature=temperature, windows=6, tokens=64, mode=mode)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    top_p=st.sampled_from([0.5, 0.9, 0.99]),
    spread=st.sampled_from([0.5, 2.0, 4.0]),
    noise=st.sampled_from([1e-3, 0.05, 0.3]),
)
def test_a_gap_is_no_larger_than_twice_the_rounding(
    seed: int, temperature: float, top_p: float, spread: float, noise: float
):
    """Whatever an honest sampler of slightly different logits says is within the margin that those logits'
    rounding explains.
    """
    dice = torch.Generator().manual_seed(seed)
    said = spread * torch.randn(40, generator=dice, dtype=torch.float64)
    judged = said + noise * (2 * torch.rand(40, generator=dice, dtype=torch.float64) - 1)
    sampling = Sampling(temperature, top_p)
    log_probs = torch.log_softmax(judged, -1)
    for token in sampling.probs(said.unsqueeze(0), ())[0].nonzero().flatten().tolist():
        assert gap(log_probs, token, sampling) <= 2 * noise + 1e-9


def test_a_token_that_rounding_does_not_explain_has_a_gap_beyond_every_margin():
    """Deep in the tail, and beside an argmax that leads by far: no margin may swallow these."""
    log_probs = torch.log_softmax(torch.tensor([9.0, 5.0, 4.0, 0.0, -3.0], dtype=torch.float64), -1)
    for token, sampling in ((1, Sampling()), (3, Sampling(1.0, 0.9)), (4, Sampling(0.6, 0.9))):
        assert gap(log_probs, token, sampling) > max(NEAR_TIE.values())
    assert gap(log_probs, 0, Sampling()) == gap(log_probs, 1, Sampling(1.0, 0.999)) == 0.0
