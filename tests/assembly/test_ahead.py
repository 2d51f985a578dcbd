"""An engine whose drafts come from a layer of the model's own, from a folder on: what the plan says is what
is loaded, and where the folder lacks the layer that is said.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.assembly import engines
from core.assembly.engines import build_bench, build_engine
from core.backend.cpu.backend import CpuBackend
from core.config import Settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from core.model.gguf.folder import opened
from core.model.store.catalogue import from_folder, from_gguf
from core.model.store.fetch import model_folder
from core.model.store.untrusted import entry_safely
from core.planning.offers import plan_model
from core.planning.plan import MTP, Plan
from core.planning.planner import make_plan
from core.request import Params
from tests.support.ahead import LayerAlone, WithAhead, checkpoint_with_ahead, noted_drafts
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.greedy_answers import answer
from tests.support.said import worded_by

PROMPT = [5, 17, 200, 3, 88, 41, 250, 12, 7, 119, 300, 33]
SETTINGS = Settings(context_tokens=256, snapshot_quota_gb=0)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def planned(shape: Any) -> Plan:
    """By the layer ahead, which so small a model would not be worth."""
    made = make_plan(imagined_hardware(ram_gib=16), SETTINGS, target=shape)
    return replace(made, drafter=MTP, straight=True, gamma=3, expected_draft_ms=0.0)


@pytest.mark.parametrize("form", ["checkpoint", "file"])
def test_what_the_plan_says_drafts(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch):
    drafts = noted_drafts(monkeypatch)
    reference, weights = checkpoint_with_ahead(tmp_path / "model")
    folder, shape = tmp_path / "model", from_folder(tmp_path / "model").shape
    if form == "file":
        file = write_gguf(tmp_path / "model.gguf", WithAhead(reference, weights), "Q8_0")
        folder, shape = opened(file), from_gguf(file).shape
    made = build_engine(planned(shape), SETTINGS, folder, backend=CpuBackend())
    said = {
        mode: answer(made, PROMPT, Params(temperature=0.0, top_p=1.0, max_new_tokens=10, mode=mode))
        for mode in ("autoregressive", "triforce")
    }
    assert said["triforce"] == said["autoregressive"] and max(map(len, drafts)) > 1
    assert not worded_by(engines, *made.plan.notes)
    build_bench(planned(shape), SETTINGS, folder).draft_pass()


def test_a_file_of_the_layer_alone_drafts_for_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `draft_model`, for a file of the model that lacks it; the plan counts it, and drafts are its."""
    reference, weights = checkpoint_with_ahead(tmp_path / "model")
    whole = write_gguf(tmp_path / "whole.gguf", WithAhead(reference, weights), "Q8_0")
    model = write_gguf(tmp_path / "model.gguf", reference, "Q8_0")
    layer = write_gguf(tmp_path / "mtp-model.gguf", LayerAlone(reference, weights), "Q8_0")
    assert entry_safely(layer).role == "ahead"
    settings = replace(SETTINGS, draft_model=str(layer))
    made = plan_model(imagined_hardware(ram_gib=16), settings, from_gguf(model))
    assert (made.plan.drafter, made.draft.folder) == (MTP, layer)
    assert made.entry.shape.layer_ahead == replace(from_gguf(whole).shape.layer_ahead, name=made.entry.name)
    drafts = noted_drafts(monkeypatch)
    said = []
    for folder, draft in ((opened(whole), None), (opened(model), model_folder(made.draft, lambda *_: None))):
        shape = made.entry.shape
        engine = build_engine(planned(shape), SETTINGS, folder, draft_dir=draft, backend=CpuBackend())
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=10, mode="triforce")
        said.append((answer(engine, PROMPT, params), tuple(drafts)))
        drafts.clear()
    assert said[0] == said[1] and max(map(len, said[0][1])) > 1


def test_a_layer_alone_is_no_model_and_drafts_for_no_other(tmp_path: Path):
    reference, weights = checkpoint_with_ahead(tmp_path / "model")
    layer = write_gguf(tmp_path / "mtp-model.gguf", LayerAlone(reference, weights), "Q8_0")
    two = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    other = write_gguf(tmp_path / "other.gguf", wide("qwen3_5_text", **two), "Q8_0")
    pc = imagined_hardware(ram_gib=16)
    with pytest.raises(UserError, match="draft_model"):
        plan_model(pc, SETTINGS, from_gguf(layer))
    with pytest.raises(UserError, match="another model"):
        plan_model(pc, replace(SETTINGS, draft_model=str(layer)), from_gguf(other))


def test_where_the_folder_lacks_it_lookup_drafts_and_that_is_said(tmp_path: Path):
    wide("qwen3_5_text").save_pretrained(tmp_path / "model")
    shape = from_folder(tmp_path / "model").shape
    made = build_engine(planned(shape), SETTINGS, tmp_path / "model", backend=CpuBackend())
    assert worded_by(engines, *made.plan.notes)
    params = Params(temperature=0.0, top_p=1.0, max_new_tokens=6)
    plain = answer(made, PROMPT, replace(params, mode="autoregressive"))
    assert answer(made, PROMPT, params) == plain
