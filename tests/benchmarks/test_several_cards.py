"""The benchmark of several cards, with two processes on the CPU in place of two cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.card import several_cards
from tests.support.tiny import oracle

pytestmark = pytest.mark.wide


def checkpoint(folder: Path) -> Path:
    """Of a tiny model. Its tokenizer is not asked: ids are random."""
    oracle().save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_text("{}")
    return folder / "model"


def test_one_and_two_are_measured_and_shown_beside_the_plan(tmp_path: Path, capfd: pytest.CaptureFixture):
    """Both find the same text, so as many proposals stand."""
    model = checkpoint(tmp_path)
    given = ["--model", str(model), "--cpu", "--random", "--contexts", "400", "--tokens", "12"]
    given += ["--save", "several", "--folder", str(tmp_path)]
    assert several_cards.main(given) == 0
    found = json.loads((tmp_path / "several.json").read_text())["details"]
    assert found["refused"] == []
    runs = found["runs"]
    assert [(run["cards"], run["mode"]) for run in runs] == [
        (1, "autoregressive"),
        (1, "triforce"),
        (2, "autoregressive"),
        (2, "triforce"),
    ]
    assert all(run["tbt_ms"] > 0 and run["planned_ms"] > 0 for run in runs)
    assert runs[1]["acceptance"] == runs[3]["acceptance"]
    assert "One card and several" in capfd.readouterr().out


def test_what_does_not_divide_is_said(tmp_path: Path, capfd: pytest.CaptureFixture):
    """Two KV heads among three cards."""
    model = checkpoint(tmp_path)
    given = ["--model", str(model), "--cpu", "--random", "--contexts", "200", "--tokens", "4"]
    assert several_cards.main([*given, "--gpus", "3"]) == 0
    assert "3 cards, 200 tokens" in json.loads(capfd.readouterr().out.splitlines()[-1])["refused"][0]
