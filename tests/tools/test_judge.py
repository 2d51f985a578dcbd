"""Adapters compared by what they say: a random target with the embedded model's tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.quality.reading.cases import Question
from core.conversation.reading import ReadingStyle
from core.model import lora
from core.model.config import load_config
from core.model.loader import weights_in
from tests.support.tiny_target import tiny_target
from tools.embedded_reader import judge
from tools.embedded_reader.trainer import LoraModel, ReaderRecipe

ASKED = [
    Question("own", "a", "Ann has a cow.", "What has Ann?", ("a cow",)),
    Question("foreign", "a", "Ann has a cow. " * 9, "Who is Bob?", ()),
    Question("own", "b", "It rains.", "What does it do all day long, as you know?", ("rain",)),
]


@pytest.fixture(scope="module")
def target_dir(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 512, "initializer_range": 0.2}
    return tiny_target(tmp_path_factory.mktemp("tiny"), embedded_model_dir, **sizes)


def factors(target: Path, size: float) -> lora.Factors:
    """An adapter that changes every matrix by so much."""
    recipe = ReaderRecipe(target="tiny", rank=2)
    fresh = LoraModel(recipe, load_config(target), weights_in(target), torch.float32).adapter()
    dice = torch.Generator().manual_seed(1)
    return {name: (down, size * torch.randn(up.shape, generator=dice)) for name, (down, up) in fresh.items()}


@pytest.mark.wide
def test_what_is_said_does_not_depend_on_the_questions_beside_it(target_dir: Path, monkeypatch):
    """Rows of a batch are filled up from the left; and one adapter leaves nothing behind for the next."""
    monkeypatch.setattr(judge, "_ANSWER_TOKENS", 6)
    one = judge.Judge(target_dir, ReadingStyle(), torch.device("cpu"))
    little, much = factors(target_dir, 0.0), factors(target_dir, 0.5)

    def said(held: lora.Factors) -> dict[str, str]:
        return {row["question"]: row["said"] for row in one.answers(held, ASKED)}

    first, changed = said(little), said(much)
    assert first != changed
    monkeypatch.setitem(judge._AT_ONCE, "cpu", 1)
    assert said(little) == first


def test_figures_count_refusals_by_kind():
    """A refused question costs its F1; of those that nobody can answer the answered ones are wrong."""
    rows = [
        {"kind": "own", "f1": 1.0, "refused": False},
        {"kind": "own", "f1": 0.0, "refused": True},
        {"kind": "foreign", "refused": True},
        {"kind": "foreign", "refused": False},
        {"kind": "elsewhere", "refused": False},
    ]
    wanted = {"questions": 2, "f1": 0.5, "refused": 0.5, "answered_foreign": 0.5, "answered_elsewhere": 1.0}
    assert judge.figures(rows) == wanted
