"""Greedy in fp32: every mode says token for token what plain decoding says, and what transformers' own
generate says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.cache.query_recorder import AttentionHead, QueryRecorder
from core.decoding.decoder import Round
from core.engine import Engine
from core.request import Params
from tests.support.embedded import embedded
from tests.support.greedy_answers import answer
from tests.support.modes import GRID_MODES
from tests.support.tiny import engine, oracle, ours
from tests.tiers import first

pytestmark = [pytest.mark.usefixtures("either_way"), pytest.mark.every_isa]

PROMPTS = (
    "The lighthouse keeper wrote in his diary every evening. On the third of March he noted",
    "Write a short summary of this passage in your own words. The sea was calm, the sea was grey, and the "
    "boats had not come back.",
    "Question: what is a whale? Answer:",
    "1, 2, 3, 5, 8, 13, 21,",
    "def mean(values):\n    return",
)


def watched_answer(machine: Engine, ids: list[int], params: Params) -> list[int]:
    """The same, asked after every pass where the model looked, by heads of both layers."""
    context, config = machine.new_context(machine.context_tokens), machine.model.config
    context.looking = QueryRecorder(
        (AttentionHead(0, 0), AttentionHead(1, 3)), group=config.heads // config.kv_heads
    )
    context.looking.begin(len(ids) - 20)
    said: list[int] = []
    for event in machine.generate(context, ids, params):
        if isinstance(event, Round):
            said += event.tokens
            rows = range(len(ids) - 1, len(ids) + len(said) - 1)
            assert context.looking.masses(context.cache, rows, [0, 40, 100]), "nobody looked"
    return said


def generated(reference: torch.nn.Module, ids: list[int], n: int) -> list[int]:
    """transformers' greedy answer."""
    inputs = torch.tensor([ids])
    with torch.inference_mode():
        out = reference.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=n, do_sample=False
        )
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kv_heads", [4, 1], ids=["MHA", "GQA"])
@pytest.mark.parametrize("answered", [answer, watched_answer], ids=["unwatched", "looking"])
def test_tiny_models_in_every_mode(family: str, kv_heads: int, answered: Callable[..., list[int]]):
    """Random weights reject most drafts: the rollback paths are taken all the time. Looking is on in the
    program, and changes nothing.
    """
    reference = oracle(family, kv_heads=kv_heads)
    model = ours(reference)
    machine = engine(model, draft=ours(oracle(family, kv_heads=kv_heads, tied=True)))
    ids = [
        int(token)
        for token in torch.randint(0, 97, (131,), generator=torch.Generator().manual_seed(kv_heads))
    ]
    want = generated(reference, ids, 24)
    greedy = Params(temperature=0.0, top_p=1.0, max_new_tokens=24)
    assert {mode: answered(machine, ids, replace(greedy, mode=mode)) for mode in GRID_MODES} == dict.fromkeys(
        GRID_MODES, want
    )


def check(folder: Path, prompt: str, tokens: int, modes: tuple[str, ...], *, native: bool = True) -> None:
    reference, machine, tokenizer = embedded(folder, native=native)
    ids = tokenizer(prompt * 3)["input_ids"]
    want = generated(reference, ids, tokens)
    greedy = Params(temperature=0.0, top_p=1.0, max_new_tokens=tokens)
    assert {mode: answer(machine, ids, replace(greedy, mode=mode)) for mode in modes} == dict.fromkeys(
        modes, want
    )


@pytest.mark.parametrize("native", first([True, False]))
def test_embedded_model_on_one_prompt(embedded_model_dir: Path, native: bool):
    """Real weights and real text, a budget far below the prompt; with the compiled attention and without."""
    check(embedded_model_dir, PROMPTS[1], 12, ("autoregressive", "triforce"), native=native)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_embedded_model_five_prompts_of_128_tokens(embedded_model_dir: Path, prompt: str):
    """Every mode, long enough for several refreshes."""
    check(embedded_model_dir, prompt, 128, GRID_MODES)
