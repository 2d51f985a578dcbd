"""A GGUF as the target of whole answers: every mode says what plain decoding of the same codes says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.ask import Params
from core.backend.cpu import CpuBackend
from core.backend.native.products import native_products
from core.config import MODES
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.engine import Done
from core.events import Prefill
from core.hardware.cpu import cpu_flags
from core.model.gguf_folder import opened
from core.model.loader import load_model
from core.text.tokenizer import Tokenizer
from tests.gguf_files import write_gguf
from tests.model.test_gguf import MIXED, as_stored, wide
from tests.tiny import engine, ours

NEEDED = native_products(cpu_flags())


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def answers(machine, ids: list[int], tokens: int) -> dict[str, list[int]]:
    """The greedy answer of every mode."""
    found = {}
    for mode in MODES:
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=tokens, mode=mode)
        events = machine.generate(machine.new_context(machine.context_tokens), ids, params)
        found[mode] = [
            token for event in events if not isinstance(event, (Prefill, Done)) for token in event.tokens
        ]
    return found


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kinds", [MIXED, "Q8_0"], ids=["Q4_K_M", "Q8_0"])
def test_every_mode_says_what_transformers_says_of_the_decoded_weights(tmp_path, kinds, compiled):
    """Drafts are mostly rejected; prefill is of decoded pieces, decoding from codes."""
    if compiled and NEEDED is None:
        pytest.skip("no library for this computer")
    reference = wide()
    file = write_gguf(tmp_path / "model.gguf", reference, kinds)
    backend = CpuBackend(products=NEEDED if compiled else None)
    model = load_model(opened(file), backend, positions=512)
    as_stored(reference, file)
    ids = torch.randint(0, 300, (131,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        inputs = torch.tensor([ids])
        want = reference.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=16, do_sample=False
        )[0, len(ids) :].tolist()
    draft = ours(wide(tied=True))
    assert answers(engine(model, draft=draft), ids, 16) == dict.fromkeys(MODES, want)


def test_sampling_repeats_with_its_seed_in_bfloat16(tmp_path):
    """In the number format of real use, by the kernel that serves here."""
    file = write_gguf(tmp_path / "model.gguf", wide(), MIXED)
    model = load_model(opened(file), CpuBackend(torch.bfloat16, products=NEEDED), positions=512)
    ids = list(range(5, 105))
    params = Params(temperature=1.0, max_new_tokens=12, seed=3, mode="triforce")
    machine = engine(model)

    def said(given: Params) -> list[int]:
        events = machine.generate(machine.new_context(machine.context_tokens), ids, given)
        return [token for one in events if not isinstance(one, (Prefill, Done)) for token in one.tokens]

    first = said(params)
    assert len(first) == 12 and said(params) == first
    assert said(replace(params, seed=4)) != first


def test_summaries_by_two_files_of_one_name_are_kept_apart(tmp_path):
    """Both are called model.gguf: what one wrote about a book is not the other's."""
    keys = []
    for kind in ("Q8_0", "Q5_0"):
        (tmp_path / kind).mkdir()
        file = write_gguf(tmp_path / kind / "model.gguf", wide(), kind)
        machine = engine(load_model(opened(file), CpuBackend(), positions=64))
        session = Session(machine, Tokenizer.load(opened(file)), ReadingStyle())
        assert session.facts["model_name"] == "model"
        keys.append(session._summarizer._made_from("text", ["prompt"]))
    assert keys[0] != keys[1] and keys[0][1:] == keys[1][1:]
