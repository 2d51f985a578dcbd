"""A model's file that somebody shortens, changes or takes away while it is in use: with the real engine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from app.engine.client import Runtime
from app.engine.process import why_ended
from core.config import Settings
from core.errors import UserError
from core.events import Failed, Finished
from core.model.store.catalogue import find
from core.model.store.fetch import model_folder
from core.request import Request
from core.wire import RANK_LOST
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import values

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def gguf(home, tmp_path) -> Path:
    return write_gguf(tmp_path / "mine.gguf", wide(max_position_embeddings=4096), "Q8_0")


@pytest.fixture
def checkpoint(gguf, tmp_path) -> Path:
    """A folder with 16-bit weights, which stay mapped on a CPU that computes in bfloat16."""
    folder = tmp_path / "checkpoint"
    wide(max_position_embeddings=4096).to(torch.bfloat16).save_pretrained(folder)
    standing = model_folder(find(str(gguf)), lambda stage, share: None)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(standing / name, folder / name)
    return folder


@pytest.fixture
def start() -> Iterator:
    engines = []

    def started(model: Path) -> Runtime:
        engine = Runtime(Settings(model=str(model), threads=1, max_new_tokens=8, dtype="bfloat16"))
        engines.append(engine)
        engine.start()
        assert engine.wait_ready(90), engine.error
        return engine

    yield started
    for engine in engines:
        engine.close()


def asked(engine: Runtime, question: str) -> Finished | Failed:
    return list(engine.ask(Request(question, None)))[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be shortened there")
@pytest.mark.wide
def test_a_mapped_file_that_shrinks_costs_one_answer_and_is_named(checkpoint, start):
    weights = checkpoint / "model.safetensors"
    whole, engine = weights.read_bytes(), start(checkpoint)
    assert isinstance(asked(engine, "the"), Finished)
    os.truncate(weights, 100)
    lost = asked(engine, "he the")
    assert isinstance(lost, Failed) and str(weights) in lost.message and "lost" in lost.message
    wait_until(lambda: engine.state == "failed")
    assert str(weights) in engine.error and "short" in engine.error
    weights.write_bytes(whole)
    engine.start()
    assert engine.wait_ready(90), engine.error
    assert isinstance(asked(engine, "he the"), Finished)


@pytest.mark.skipif(sys.platform == "win32", reason="asks which files are open")
@pytest.mark.wide
def test_a_gguf_is_held_open_only_while_it_is_loaded(gguf, start):
    """So it can be changed, moved or deleted, on Windows too, and what is in memory goes on."""
    engine = start(gguf)
    process = psutil.Process(engine.pid)
    assert str(gguf) not in {one.path for one in process.open_files()}
    if sys.platform == "linux":
        assert str(gguf) not in {one.path for one in process.memory_maps()}
    os.truncate(gguf, 100)
    assert isinstance(asked(engine, "the"), Finished)
    gguf.unlink()
    assert isinstance(asked(engine, "he the"), Finished)
    engine.use(str(gguf))  # at the next load it is looked at again
    wait_until(lambda: engine.state == "failed")
    assert str(gguf) in engine.error and "gone" in engine.error


@pytest.mark.wide
def test_a_file_that_was_changed_since_is_checked_at_the_next_load(gguf, start):
    engine = start(gguf)
    os.truncate(gguf, gguf.stat().st_size - 64)
    engine.use(str(gguf))
    wait_until(lambda: engine.state == "failed")
    assert str(gguf) in engine.error and "damaged" in engine.error


def test_an_end_that_no_file_explains_is_told_as_before(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"1234")
    killed = values(why_ended("signal 9", {str(file): 4}))["how"]
    assert killed != values(why_ended("signal 11", {}))["how"] and "9" not in killed
    assert str(file) in why_ended("signal 7", {str(file): 5})
    assert values(why_ended("signal 9", {}))["how"] == killed
    assert "cards" in why_ended(f"exit code {RANK_LOST}", {})


def test_a_path_without_a_model_is_named(tmp_path):
    """Not the nearest name of the catalogue."""
    with pytest.raises(UserError, match="gone.gguf is gone"):
        find(str(tmp_path / "gone.gguf"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x"}))
    with pytest.raises(UserError, match="type “x”"):
        find(str(tmp_path))
