"""Tuning as the command does it: what it is tuned for, and one run with the real model to the planner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.parser import main
from core.config import Settings
from core.conversation.reading import ReadingStyle
from core.tuning.run_tuning import BUSY, LEAST_TEMPERATURE, _params


def test_it_tunes_for_answers_as_the_user_wants_them():
    """The model's own sampling, livelier where it is greedy; a temperature of the user's stays."""
    greedy = ReadingStyle(temperature=0.0, repetition_penalty=1.1)
    assert (
        _params(Settings(), greedy).temperature == LEAST_TEMPERATURE
        and _params(Settings(), greedy).repetition_penalty == 1.1
    )
    assert _params(Settings(temperature=0.0), greedy).temperature == 0.0
    assert _params(Settings(), ReadingStyle(temperature=0.9)).temperature == 0.9


@pytest.mark.slow
def test_from_the_command_to_the_plan(home_with_model: Path, capsys: pytest.CaptureFixture[str]):
    """Whatever wins on this machine today: the file holds it or there is none, and the plan says which."""
    assert home_with_model is not None and main(["tune", "--context", "1024", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    faster = min(found["chosen_tbt_ms"], found["plain_tbt_ms"]) < found["default_tbt_ms"]
    assert found["kept"] == (found["file"] is not None) == (faster and found["busy"] <= BUSY)
    assert main(["plan", "--context", "1024", "--json"]) == 0
    made = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert made["tuned"] == (found["tuned"]["date"] if found["kept"] else "")
    wanted = found["chosen" if found["kept"] else "default"]
    assert [made[name] for name in ("retrieval_budget", "gamma")] == [
        wanted[name] for name in ("retrieval_budget", "gamma")
    ]
