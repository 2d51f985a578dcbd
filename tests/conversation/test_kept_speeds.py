"""What was measured of a model's speed outlives the process that measured it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from core.conversation.kept_speeds import SPEEDS, KeptSpeeds
from core.conversation.time_estimates import TimeEstimate
from core.events import Prefill, Stats
from core.hardware.measured import FILE, Measurements
from core.paths import ROOT
from tests.support.fakes import FAKE_PLAN
from tests.support.talks import book, make

BEFORE = """
import os, sys
from pathlib import Path
from core.events import Prefill, Stats
from tests.conversation.test_kept_speeds import opened
session = opened(Path(sys.argv[1]))
session._expectation.watch(Prefill(1000, 1000, 50.0))
session._expectation.answered(Stats(rounds=50, tbt_mean_ms=700.0))
os.kill(os.getpid(), 9)
"""


def opened(folder: Path):
    speeds = kept(folder)
    session, _engine = make(expectation=TimeEstimate(FAKE_PLAN, speeds.known, learned=speeds.keep))
    return session


def kept(folder: Path, model: str = "fake", plan=FAKE_PLAN) -> KeptSpeeds:
    return KeptSpeeds(Measurements(folder), model, plan)


def test_the_next_process_promises_what_the_last_one_measured(tmp_path):
    """Behind every restart the first promise was what the plan expects of any such machine. The process is
    killed in the middle of its work.
    """
    story = book()
    fresh = opened(tmp_path).card(story)
    subprocess.run([sys.executable, "-c", BEFORE, str(tmp_path)], cwd=ROOT, check=False)
    session = opened(tmp_path)
    known = session.card(story)
    assert known["prefill_s_estimate"] == pytest.approx(known["tokens"] / 20)
    assert known["prefill_s_estimate"] > 2 * fresh["prefill_s_estimate"]
    assert session._expectation.writing_s(100, 100) == pytest.approx(70.0)


def test_what_is_kept_counts_as_one_measurement():
    """The last process may have had a busy machine."""
    estimate = TimeEstimate(FAKE_PLAN, {"read_s": 0.03})
    estimate.watch(Prefill(1000, 1000, 10.0))
    assert estimate.reading_s(100) == pytest.approx(2.0)


def test_a_model_that_runs_otherwise_has_speeds_of_its_own(tmp_path):
    kept(tmp_path).keep({"read_s": 0.5})
    assert kept(tmp_path).known == {"read_s": 0.5}
    assert kept(tmp_path, "another").known == {}
    assert kept(tmp_path, plan=replace(FAKE_PLAN, device="cuda")).known == {}
    assert kept(tmp_path, plan=replace(FAKE_PLAN, threads=FAKE_PLAN.threads + 1)).known == {}


def test_of_many_models_the_last_are_kept(tmp_path):
    for number in range(40):
        kept(tmp_path, f"model {number}").keep({"read_s": 0.5})
    assert len(Measurements(tmp_path).get(SPEEDS)["of"]) == 30
    assert not kept(tmp_path, "model 9").known and kept(tmp_path, "model 10").known


def test_nothing_is_written_where_nothing_new_was_measured(tmp_path):
    one = kept(tmp_path)
    one.keep({})
    assert not (tmp_path / FILE).exists()
    one.keep({"read_s": 0.123456})
    before = (tmp_path / FILE).stat().st_mtime_ns
    one.keep({"read_s": 0.13})
    assert (tmp_path / FILE).stat().st_mtime_ns == before
    one.keep({"read_s": 0.15})
    assert kept(tmp_path).known == {"read_s": 0.15}


@pytest.mark.parametrize("value", ["fast", -1.0, 0.0, float("nan"), float("inf"), True, None, [1.0]])
def test_what_cannot_be_a_speed_is_not_taken_for_one(tmp_path, value):
    """A file that somebody else wrote, or a disk cut."""
    kept(tmp_path).keep({"read_s": 0.5, "written_s": 0.25})
    stored = json.loads((tmp_path / FILE).read_text())
    (name,) = stored[SPEEDS]["of"]
    stored[SPEEDS]["of"][name]["read_s"] = value
    (tmp_path / FILE).write_text(json.dumps(stored))
    assert kept(tmp_path).known == {"written_s": 0.25}
    stored[SPEEDS]["of"] = value
    (tmp_path / FILE).write_text(json.dumps(stored))
    assert kept(tmp_path).known == {}


def test_what_an_answer_took_is_among_what_is_kept():
    estimate = TimeEstimate(FAKE_PLAN)
    assert estimate.measured == {}
    estimate.answered(Stats(rounds=50, tbt_mean_ms=30.0))
    assert estimate.measured == {"written_s": pytest.approx(0.03)}
