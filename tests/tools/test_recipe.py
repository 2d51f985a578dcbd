"""The verifier's recipe from its questions to its weights, short, with the real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ferry import QUESTION, told
from tools.embedded_reader import candidates, verifier

ASKED = {
    "ferry.txt": [
        {"question": QUESTION, "keywords": ["plank"]},
        {"question": "Who found a key of copper in her well?", "keywords": ["brandt|widow"]},
        {"question": "What is the name of the ferryman's wife?", "keywords": None},
    ]
}


def run(monkeypatch, program, *options: str | Path) -> None:
    monkeypatch.setattr("sys.argv", ["recipe", *map(str, options)])
    program.main()


def made(monkeypatch, folder: Path, books: Path) -> tuple[str, bytes, str]:
    """What each step of the recipe writes."""
    folder.mkdir()
    lines, table, learned = folder / "lines.jsonl", folder / "table.gz", folder / "verifier.json"
    run(monkeypatch, candidates, "--books", books, "--out", lines)
    run(monkeypatch, verifier, "table", "--books", books, lines, "--out", table)
    run(monkeypatch, verifier, "learn", table, table, "--out", learned)
    return lines.read_text(), table.read_bytes(), learned.read_text()


@pytest.mark.slow
def test_the_recipe_gives_the_same_verifier_each_time(home_with_model, tmp_path, monkeypatch):
    """What is drawn follows from the questions' seeds: weights that nobody can make again are not checked."""
    (tmp_path / "ferry.txt").write_text(told().text)
    (tmp_path / "questions.json").write_text(json.dumps(ASKED))
    monkeypatch.setattr(candidates, "QUESTIONS", tmp_path / "questions.json")
    first = made(monkeypatch, tmp_path / "first", tmp_path)
    assert first == made(monkeypatch, tmp_path / "second", tmp_path)
    lines = [json.loads(line) for line in first[0].splitlines()]
    assert [line["question"] for line in lines] == [one["question"] for one in ASKED["ferry.txt"]]
    assert all(len(one["said"]) == candidates.ANSWERS for line in lines for one in line["heard"])
    assert any("plank" in text for one in lines[0]["heard"] for text, _level in one["said"])
    assert list(json.loads(first[2])["weights"]) == list(verifier.NAMES)
