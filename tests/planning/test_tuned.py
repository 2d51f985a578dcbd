"""Tuned values: when the planner uses them, when it says why not, and what is kept in the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import Settings
from core.hardware.facts import Hardware
from core.model.store.catalogue import EMBEDDED, find
from core.planning import notes, stored_facts
from core.planning.doctor import doctor_report
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.planning.tuned import Tuned, bucket, interpolated_ms
from core.planning.wording import format_plan
from tests.support.said import values, worded_by
from tests.support.tuned_record import MACHINE, RECORD


def planned(machine: Hardware = MACHINE, record: Tuned = RECORD, **settings) -> Plan:
    return make_plan(
        machine, Settings(**settings), target=find(EMBEDDED).shape, known=stored_facts.StoredFacts((record,))
    )


def speculation(made: Plan) -> tuple[int, int, int, int]:
    return made.retrieval_budget, made.retrieval_chunk, made.gamma, made.middle_gamma


def test_the_plan_takes_what_was_measured():
    """Lengths, pass times, acceptance, and by them the expectation: 40 + 2 x 5 ms for six rows, middle passes
    of 14 ms for three.
    """
    made = planned()
    assert (
        speculation(made) == (512, 16, 5, 2) and made.tuned == "2026-11-21" and made.assumed_acceptance == 0.8
    )
    assert (made.expected_plain_tbt_ms, made.expected_middle_ms, made.expected_row_ms) == (40.0, 10.0, 2.0)
    tokens, per_pass = (1 - 0.8**6) / 0.2, (1 - 0.3**3) / 0.7
    assert made.expected_tbt_ms == pytest.approx((50 + 5 * 14 / per_pass) / tokens, abs=1e-3)
    assert "measured acceptance of 0.80" in format_plan(made)


def test_plain_decoding_that_was_faster_is_what_runs():
    """Said in one sentence, with its own time and no word of drafts; a set gamma brings them back."""
    record = replace(RECORD, plain=True)
    made = planned(record=record)
    assert made.plain and made.expected_tbt_ms == made.expected_plain_tbt_ms == 40.0
    said = "Plain decoding, about 40 ms a token: measured on this machine to be faster than drafts."
    assert said in made.notes and not any("n-gram" in note for note in made.notes)
    assert not planned().plain
    drafted = planned(record=record, gamma=5)
    assert not drafted.plain and drafted.expected_tbt_ms == planned(gamma=5).expected_tbt_ms != 40.0


def test_the_user_wins():
    """A length in the settings is the user's; an assumed acceptance too, with the times as measured."""
    made = planned(gamma=9, middle_gamma=1, assumed_acceptance=0.5)
    assert (
        speculation(made) == (512, 16, 9, 1)
        and made.assumed_acceptance == 0.5
        and made.expected_plain_tbt_ms == 40.0
    )
    _whole, own, rest = worded_by(notes.tuning_notes, *made.notes)
    assert values(own) == {"names": "gamma, middle_gamma"}
    assert values(rest) == {"names": "retrieval_budget, retrieval_chunk", "date": made.tuned}
    assert made.tuned in rest
    assert "an assumed acceptance of 0.50" in format_plan(made)


@pytest.mark.parametrize(
    ("changes", "settings", "why"),
    [
        ({"machine": "another"}, {}, "another machine"),
        ({"stale": "the model's files have changed since"}, {}, "files have changed"),
        ({"threads": 4}, {}, "4 threads"),
        ({}, {"retrieval_budget": 1024}, "retrieval_budget is set"),
        ({"draft_model": "a draft"}, {}, "drafts by a draft"),
        ({"kernel": "float"}, {}, "float kernels"),
        ({"on_chip_layers": 20}, {}, "30 layers fit"),
    ],
)
def test_what_does_not_hold_here_is_not_used_and_said(changes: dict, settings: dict, why: str):
    """Values of another machine, model or layout are worse than the rules, and silence is a riddle."""
    made = planned(record=replace(RECORD, **changes), **settings)
    without = make_plan(MACHINE, Settings(**settings), target=find(EMBEDDED).shape)
    assert replace(made, notes=()) == replace(without, notes=())
    assert any("2026-11-21 are not used" in note and why in note for note in made.notes)


def test_another_context_is_another_matter():
    """What was measured behind 8K says nothing of 2K, and nothing needs to be said about it."""
    made = planned(context_tokens=2048)
    assert made.tuned == "" and not any(RECORD.date in note for note in made.notes)
    assert planned(context_tokens=7000).tuned and [bucket(n) for n in (4096, 4097, 8192)] == [
        4096,
        8192,
        8192,
    ]


def test_doctor_and_plan_say_where_values_come_from():
    """Both show the notes; with nothing measured they name the command that would."""
    report = doctor_report(MACHINE, Settings(), known=stored_facts.StoredFacts((RECORD,)))
    assert any(
        "measured on this machine on 2026-11-21" in note for note in report["would_run"]["plan"]["notes"]
    )
    assert any(
        "launcher.py tune" in note
        for note in make_plan(MACHINE, Settings(), target=find(EMBEDDED).shape).notes
    )
    assert json.dumps(report["hardware"])


def test_times_between_and_beyond_the_measured_rows():
    """On the line between neighbours; behind the last in proportion."""
    assert [interpolated_ms(((1, 10.0), (4, 16.0)), rows) for rows in (1, 2, 4, 8)] == [
        10.0,
        12.0,
        16.0,
        32.0,
    ]


# ---- the file ----------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path: Path) -> Tuned:
    """Of a model that lies in a folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return replace(RECORD, folder=str(folder), fingerprint=stored_facts.fingerprint(folder))


def test_what_is_kept_is_read_again(tmp_path: Path, record: Tuned):
    """Exactly, and one per machine, model, device and size of context."""
    stored_facts.store_tuned(tmp_path, record)
    stored_facts.store_tuned(tmp_path, replace(record, context_tokens=16_384))
    stored_facts.store_tuned(tmp_path, replace(record, gamma=7, context_tokens=8000))
    assert [(one.context_tokens, one.gamma) for one in stored_facts.read_tuned(tmp_path)] == [
        (16_384, 5),
        (8000, 7),
    ]
    assert stored_facts.forget_tuned(tmp_path, record) and not stored_facts.forget_tuned(tmp_path, record)
    assert stored_facts.read_tuned(tmp_path) == (replace(record, context_tokens=16_384),)


def test_a_stale_record_says_so(tmp_path: Path, record: Tuned):
    """Another version, a changed model, a model that is gone."""
    stored_facts.store_tuned(tmp_path, replace(record, version="format 0, torch 1"))
    assert "format 0" in stored_facts.read_tuned(tmp_path)[0].stale
    stored_facts.store_tuned(tmp_path, record)
    (tmp_path / "model" / "config.json").write_text('{"a": 1}')
    changed = stored_facts.read_tuned(tmp_path)[0].stale
    assert worded_by(stored_facts._stale, changed) and not changed.values
    (tmp_path / "model" / "config.json").unlink()
    assert values(stored_facts.read_tuned(tmp_path)[0].stale) == {"folder": record.folder}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"tuned": [{}]}', '{"tuned": [1]}', '{"tuned": [{"verify_ms": 3, "middle_ms": []}]}'],
)
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: str):
    """The program must start whatever became of it."""
    (tmp_path / stored_facts.NAME).write_text(content)
    assert stored_facts.read_tuned(tmp_path) == ()
