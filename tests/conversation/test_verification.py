"""Answers re-checked by a plain pass: honest ones stand, foreign tokens and broken loops are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.conversation.verification import verify_answer
from core.decoding.verify import verify
from core.engine import Engine
from core.request import Params
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.modes import GRID_MODES
from tests.support.tiny import engine, oracle, ours


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return engine(ours(oracle()), draft=ours(oracle(tied=True)))


@pytest.mark.parametrize("mode", GRID_MODES)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_verify_agrees_with_an_honest_answer(tiny: Engine, mode: str, temperature: float):
    """Every token is one that plain decoding could have produced, and the conversation goes on afterwards."""
    params = Params(temperature=temperature, top_p=0.9, repetition_penalty=1.2, mode=mode, max_new_tokens=16)
    context = tiny.new_context(400)
    answer, _ = run(tiny, context, PROMPT, params)
    said = verify_answer(tiny.model, context, [*PROMPT, *answer], len(PROMPT), params)
    assert said.tokens == said.agreed + said.near_ties == 16
    assert said.mismatches == 0 and said.log_probability < 0
    following = [*PROMPT, *answer, 1, 2]
    assert run(tiny, context, following, GREEDY) == run(tiny, tiny.new_context(400), following, GREEDY)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_verify_finds_a_foreign_token(tiny: Engine, temperature: float):
    """One token that the law forbids is counted, with how far off it was."""
    params = Params(temperature=temperature, top_p=0.5, max_new_tokens=12)
    context = tiny.new_context(400)
    answer, _ = run(tiny, context, PROMPT, params)
    logits = tiny.model.forward([*PROMPT, *answer[:6]], tiny.new_context(400).cache)[-1]
    answer[6] = int(logits.argmin())
    said = verify_answer(tiny.model, context, [*PROMPT, *answer], len(PROMPT), params)
    assert said.mismatches >= 1 and said.largest_gap > 1


def test_verify_finds_a_broken_loop(tiny: Engine, monkeypatch: pytest.MonkeyPatch):
    """The switch would notice a decoder that trusts its draft."""
    from core.decoding import decoder
    from tests.support import mutants

    monkeypatch.setattr(decoder, "verify", mutants.everything_accepted)
    assert decoder.verify is not verify
    params = replace(GREEDY, mode="draft", max_new_tokens=16)
    context = tiny.new_context(400)
    answer, _ = run(tiny, context, PROMPT, params)
    assert verify_answer(tiny.model, context, [*PROMPT, *answer], len(PROMPT), params).mismatches > 0
