"""What is shown of the larger shape beside llama.cpp."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from benchmarks import contenders, larger, repeated
from core.backend.cpu import CpuBackend
from core.cache.full import FullKVCache
from core.model.gguf_folder import opened
from core.model.loader import load_model
from tests.benchmarks.test_peers import row
from tests.gguf_files import write_gguf
from tests.model.test_gguf import IDS, wide


def case(load: float, ours: dict) -> dict:
    peer = {
        "rows": {"llama.cpp": row(1024, 9.0, 50.0)},
        "memory": {"resident_mb": 800.0, "of_files_mb": 700.0},
    }
    return {
        "programs": {"llama.cpp at 1024": peer, "ours at 1024": ours},
        "load_before": load,
        "threads": 1,
        "clock": "cpu",
        "weights": 1.55,
        "mb": 940.0,
    }


ROWS = {
    "ours, plain": row(1024, 3.0, 100.0),
    "ours, TriForce": row(1024, 3.0, 40.0, distinct=0.2),
    "ours, TriForce, T 0.6": row(1024, 3.0, 80.0),
    "ours, TriForce, T 1": row(1024, 3.0, 100.0),
}


def test_ratios_say_who_is_faster_and_memory_who_takes_more():
    """A ratio upside down would praise the slower program."""
    ours = {"rows": ROWS, "memory": {"resident_mb": 1200.0, "of_files_mb": 100.0}}
    each, against = larger.tables({"1024": case(0.4, ours)})
    assert against.rows == ((1024, 3.0, 0.5, 1.25, 0.625, 0.5, 1.5),)
    assert [one[0] for one in each.rows] == ["llama.cpp", *ROWS]
    assert each.rows[0][1:4] == (1024, 9.0, 50.0) and each.rows[0][6:] == (800.0, 700.0, "varied")
    assert each.rows[2][-1] == "loops"
    assert "1.55 thousand million weights" in each.notes[0] and each.notes[0].endswith("program: 1.")
    assert "CPU time" in each.notes[0]
    assert each.notes[1].endswith("context: 0.4.")


def test_what_was_not_read_has_no_time_of_reading():
    """An eighth of the text was: its seconds are not those of the context."""
    programs = {
        f"{name}, repeated at 8000": {"rows": {row_name: row(8000, 3.0, ms)}, "memory": {"resident_mb": mb}}
        for name, row_name, ms, mb in (
            ("llama.cpp", "llama.cpp", 60.0, 900.0),
            ("ours", "ours, plain", 90.0, 990.0),
        )
    }
    done = {"8000": {**case(0.4, {}), "programs": programs}}
    each, against = larger.tables(done)
    assert [(one[0], one[2], one[3], one[-1]) for one in each.rows] == [
        ("llama.cpp", None, 60.0, "without meaning"),
        ("ours, plain", None, 90.0, "without meaning"),
    ]
    assert against.rows == ((8000, None, pytest.approx(60 / 90), None, None, None, pytest.approx(1.1)),)


def test_rows_several_times_are_those_that_were_read(tmp_path: Path):
    """In every layer; and tokens are counted and timed behind them."""
    file = write_gguf(tmp_path / "model.gguf", wide(tied=True), "F16")
    model = load_model(opened(file), CpuBackend(), positions=512)
    cache = FullKVCache(model.config.kv_shape, 512, model.backend, block_tokens=64)
    with torch.inference_mode():
        model.forward(IDS, cache)
        repeated.repeat(cache, len(IDS))
        assert cache.length == repeated.TIMES * len(IDS)
        for layer in range(model.config.layers):
            own, last = (cache.rows(layer, at, len(IDS)) for at in (0, cache.length - len(IDS)))
            assert torch.equal(own[0], last[0]) and torch.equal(own[1], last[1])
        step = repeated.step_of_ours(model, cache)
        ticks = iter(range(0, 100, 2))
        tokens, seconds = repeated.answered(step, IDS[-1], 3, lambda: next(ticks))
    assert len(tokens) == 4 and seconds == [2, 2, 2] and cache.length == repeated.TIMES * len(IDS) + 4


def test_without_one_of_the_two_nothing_is_compared():
    (each,) = larger.tables({"1024": case(0.4, {"reason": "it ended with code 1"})})
    assert [one[0] for one in each.rows] == ["llama.cpp"]
    assert larger.tables({}) == []


def test_both_read_the_file_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And not the embedded model, whatever --gguf says: then its times stood under the larger one's name."""
    file, seen = write_gguf(tmp_path / "other.gguf", wide(tied=True), "Q8_0"), []
    monkeypatch.setattr(contenders.embedded, "book_ids", lambda book, folder, least: [1] * least)
    monkeypatch.setattr(
        contenders, "PEERS", {"ours": contenders.Peer("core", "", lambda setup: seen.append(setup) or {})}
    )
    told = {
        "gguf": file,
        "book": file,
        "draft": tmp_path,
        "context": 640,
        "tokens": 4,
        "peer": "ours",
        "threads": 1,
    }
    turn = contenders._turn(contenders._arguments([f"--{key}={value}" for key, value in told.items()]))
    assert (seen[0].folder, seen[0].gguf) == (opened(file), file)
    assert (seen[0].plan.threads, seen[0].clock) == (1, time.perf_counter)
    assert load_model(seen[0].folder, CpuBackend(), positions=64).config.hidden == wide().config.hidden_size
    held = turn()["memory"]
    assert 0 <= held["of_files_mb"] < held["resident_mb"]
