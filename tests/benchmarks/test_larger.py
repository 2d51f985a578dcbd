"""What is shown of the larger shape beside llama.cpp."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import contenders, larger
from core.backend.cpu.backend import CpuBackend
from core.model.gguf.folder import opened
from core.model.loader import load_model
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.peer_rows import row


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
