"""An engine for which Gemma 4's assistant drafts, from folders on: the one beside the model, one that is
named, and one that was made for another model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.assembly.engines import build_bench, build_engine
from core.backend.cpu.backend import CpuBackend
from core.config import Settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from core.model.assistant import load_assistant
from core.model.llama import LlamaModel
from core.model.store.catalogue import draft_for, find, from_folder
from core.model.store.fetch import model_folder
from core.planning import notes
from core.planning.offers import PlannedModel, plan_model
from core.planning.plan import ASSISTANT
from core.request import Params
from tests.support.ahead import noted_drafts
from tests.support.assistant import assistant_oracle
from tests.support.greedy_answers import answer
from tests.support.said import values, worded_by
from tests.support.tiny import SHARED, oracle, ours

PROMPT = [5, 17, 20, 3, 88, 41, 25, 12, 7, 19, 30, 33]
SETTINGS = Settings(context_tokens=256, snapshot_quota_gb=0)
PC = imagined_hardware(ram_gib=16)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def saved(model: torch.nn.Module, folder: Path) -> Path:
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def pair(root: Path, family: str = "gemma4_text") -> tuple[Path, Path]:
    """Folders of a tiny model and of its assistant."""
    reference = oracle(family, max_position_embeddings=512)
    theirs = assistant_oracle(reference, grouped=False)
    return saved(reference, root / "gemma"), saved(theirs, root / "gemma-assistant")


def planned(folder: Path, settings: Settings = SETTINGS) -> PlannedModel:
    """By the assistant, which so small a model would not be worth."""
    made = plan_model(PC, settings, from_folder(folder))
    plan = replace(made.plan, drafter=ASSISTANT, straight=True, gamma=3, expected_draft_ms=0.0)
    return replace(made, plan=plan)


@pytest.mark.parametrize("family", ["gemma4_text", SHARED])
def test_the_assistant_beside_the_model_drafts(tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch):
    """What is said is what plain decoding says; its passes can be timed for the tuner."""
    drafts = noted_drafts(monkeypatch)
    folder, own = pair(tmp_path, family)
    named = replace(SETTINGS, draft_model=str(own))
    made = plan_model(PC, named, from_folder(folder))
    assert (made.plan.drafter, made.plan.draft_model, made.draft.folder) == (ASSISTANT, own.name, own)
    (note,) = worded_by(notes._draft, *made.plan.notes)
    assert values(note) == {"draft": own.name, "rate": 0.5}
    engine = build_engine(
        planned(folder).plan,
        SETTINGS,
        folder,
        draft_dir=model_folder(made.draft, lambda *_: None),
        backend=CpuBackend(),
    )
    params = Params(temperature=0.0, top_p=1.0, max_new_tokens=10)
    said = {
        mode: answer(engine, PROMPT, replace(params, mode=mode)) for mode in ("autoregressive", "triforce")
    }
    assert said["triforce"] == said["autoregressive"] and max(map(len, drafts)) > 1
    build_bench(planned(folder).plan, SETTINGS, folder, draft_dir=own).draft_pass()


def test_it_is_found_by_its_name(tmp_path: Path):
    """Unless the user wants none."""
    folder, own = pair(tmp_path)
    assert draft_for(find(str(folder))).folder == own
    assert draft_for(find(str(folder)), "none") is None


def test_one_of_another_size_is_refused_when_named_and_passed_over_beside(tmp_path: Path):
    folder, own = pair(tmp_path)
    other = saved(oracle("gemma4_text", max_position_embeddings=512, hidden_size=16), tmp_path / "other")
    own.rename(tmp_path / "other-assistant")
    assert draft_for(find(str(other))) is None and draft_for(find(str(folder))) is None
    with pytest.raises(UserError, match="made to draft for another model"):
        draft_for(find(str(other)), str(tmp_path / "other-assistant"))


def test_it_is_no_model(tmp_path: Path):
    _folder, own = pair(tmp_path)
    with pytest.raises(UserError, match="only drafts for another model"):
        plan_model(PC, SETTINGS, find(str(own)))


@torch.inference_mode()
def test_a_checkpoint_of_groups_is_loaded_as_it_was_saved(tmp_path: Path):
    """With its centroids and the order of its tokens."""
    reference = oracle("gemma4_text", vocab_size=96)
    theirs = assistant_oracle(reference, grouped=True)
    target: LlamaModel = ours(reference)
    own = load_assistant(saved(theirs, tmp_path / "own"), target.backend, target=target)
    row = torch.randn(1, own.config.hidden)
    want = theirs.masked_embedding(row[None], theirs.lm_head.weight)[0, 0]
    found = own.logits(row)[0]
    assert int(found.isfinite().sum()) == 24
    assert torch.allclose(found[found.isfinite()], want[found.isfinite()], atol=1e-4)
