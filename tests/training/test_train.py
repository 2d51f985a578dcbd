"""A whole training run in small: a random target with the embedded model's tokenizer, two short books."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from core.backend.cpu.backend import CpuBackend
from core.cache.streaming import StreamingKVCache
from core.conversation.reading import ReadingStyle
from core.errors import UserError
from core.model.loader import load_draft, load_model
from core.training.recipe import Recipe
from core.training.train import TrainingDevice, train
from tests.support.tiny_target import tiny_target

SITE = TrainingDevice(torch.device("cpu"), torch.float32)
STYLE = ReadingStyle(part_prompts=("What happens?",), answer_prompt="{question}", repetition_penalty=1.1)
RECIPE = Recipe(
    target="tiny",
    tokens=6 * 160,
    epochs=2,
    head_tokens=640,
    sinks=4,
    window=16,
    prompt_tokens=64,
    new_tokens=16,
    shard_rows=2,
    batch_rows=1,
)


@pytest.fixture(scope="module")
def target_dir(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    sizes = {"num_hidden_layers": 3, "max_position_embeddings": 256, "initializer_range": 0.3}
    made = tiny_target(folder, embedded_model_dir, **sizes)
    stated = json.loads((made / "config.json").read_text(encoding="utf-8"))
    # as one that stands for a GGUF has it
    (made / "config.json").write_text(json.dumps({**stated, "content": "of this file"}), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    for number in (1, 2):
        lines = [
            f"On day {day} the keeper of lamp {number} went up the stair and lit it once more."
            for day in range(60)
        ]
        (folder / f"book {number}.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n no book at all")
    return folder


class Stopped(Exception):
    """Somebody ends the run."""


def run(
    target: Path,
    books: Path,
    out: Path,
    recipe: Recipe = RECIPE,
    *,
    stop_after: int | None = None,
    start: Path | None = None,
) -> Path:
    def report(stage: str, fraction: float | None) -> None:
        if stop_after is not None and stage.startswith(f"Step {stop_after + 1} "):
            raise Stopped

    return train(recipe, target, [books], STYLE, out=out, site=SITE, report=report, every=2, start=start)


@pytest.fixture(scope="module")
def trained(target_dir: Path, books: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(target_dir, books, tmp_path_factory.mktemp("whole"))


@pytest.mark.wide
def test_it_learns(trained: Path):
    """The loss on passages that were kept apart falls, and the picture of it is one."""
    state = torch.load(trained / "training" / "state.pt", weights_only=True)
    assert state["step"] == RECIPE.steps == 24
    losses = [point["judged"]["loss"] for point in state["history"]]
    assert losses[-1] < 0.9 * losses[0]
    assert Image.open(trained / "curves.png").size == (960, 720)


@pytest.mark.wide
def test_a_stopped_run_goes_on_as_if_it_had_not(trained: Path, target_dir: Path, books: Path, tmp_path: Path):
    """Optimiser, order of texts and chance come back; what follows the last checkpoint is done again."""
    with pytest.raises(Stopped):
        run(target_dir, books, tmp_path, stop_after=9)
    run(target_dir, books, tmp_path)
    whole, again = load_file(trained / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_more_tokens_keep_what_is_there(trained: Path, target_dir: Path, books: Path, tmp_path: Path):
    """A longer run goes on with the shards, the vocabulary and the steps of the shorter one."""
    shutil.copytree(trained, tmp_path / "longer")
    before = {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "longer" / "training").glob("laws-*")
    }
    longer = run(target_dir, books, tmp_path / "longer", replace(RECIPE, tokens=8 * 160, epochs=2))
    after = {path.name: path.stat().st_mtime_ns for path in (longer / "training").glob("laws-*")}
    assert before.items() < after.items()
    assert torch.load(longer / "training" / "state.pt", weights_only=True)["step"] == 32


@pytest.mark.wide
def test_a_run_can_begin_with_a_trained_draft(trained: Path, target_dir: Path, books: Path, tmp_path: Path):
    """It begins where that one ended, with its vocabulary."""
    history = torch.load(trained / "training" / "state.pt", weights_only=True)["history"]
    other = replace(RECIPE, seed=1, head_tokens=704)
    again = run(target_dir, books, tmp_path / "again", other, start=trained)
    first = torch.load(again / "training" / "state.pt", weights_only=True)["history"][0]
    assert first["loss"] < 0.9 * history[0]["loss"]
    ids = [load_file(folder / "model.safetensors")["head_ids"] for folder in (trained, again)]
    assert torch.equal(*ids)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_start_that_does_not_fit_is_refused(
    trained: Path, target_dir: Path, books: Path, tmp_path: Path, layers: int
):
    """A model of another kind, or a draft with other layers."""
    start = target_dir if layers == 1 else trained
    with pytest.raises(UserError, match="no draft to start from"):
        run(target_dir, books, tmp_path, replace(RECIPE, layers=layers), start=start)


def test_the_result_drafts(trained: Path, target_dir: Path):
    """A checkpoint that the runtime loads beside its target, small because the embedding stays there."""
    backend = CpuBackend(torch.float32)
    target = load_model(target_dir, backend, positions=64)
    draft = load_draft(trained, backend, target=target, target_dir=target_dir, positions=64)
    cache = StreamingKVCache(draft.config.kv_shape, backend, draft.rope.rotate, sinks=4, window=16, slack=8)
    logits = draft.forward([5, 6, 7], cache)
    assert logits.shape == (3, 49152)
    assert int(torch.isfinite(logits[0]).sum()) == 640
    assert (trained / "model.safetensors").stat().st_size < 64 * 1024
    stated = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    assert stated["draft"]["head_tokens"] == 640
    assert "content" not in stated  # the hash of another file


def test_another_recipe_needs_another_folder(trained: Path, target_dir: Path, books: Path):
    with pytest.raises(UserError, match="head_tokens 640"):
        run(target_dir, books, trained, replace(RECIPE, head_tokens=704))


def test_texts_that_are_too_short_are_refused(target_dir: Path, tmp_path: Path):
    (tmp_path / "note.txt").write_text("Only this.", encoding="utf-8")
    with pytest.raises(UserError, match="too short to train on"):
        run(target_dir, tmp_path, tmp_path / "out")


@pytest.mark.parametrize("change", [{"layers": 0}, {"head_tokens": 100}, {"tokens": 10}])
def test_values_out_of_range_are_named(change: dict):
    with pytest.raises(UserError, match=next(iter(change))):
        replace(RECIPE, **change)
