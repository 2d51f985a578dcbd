"""Who drafts: lookup, a draft model, or a layer of the model's own that predicts one token further (MTP)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.cli.parser import main
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.shapes import AheadShape
from core.model.store.catalogue import find
from core.planning import costs, planner
from core.planning.budget import DRAFT_CACHE, DRAFT_MODEL
from core.planning.plan import MTP, Plan
from core.planning.planner import make_plan
from core.planning.stored_facts import StoredFacts
from core.planning.wording import format_plan
from tests.support.tuned_record import RECORD

CARD = imagined_hardware(gpu="RTX 4090", ram_gib=64)
BOOK = 131_072
NAME = "Qwen3.8-27B-Q4_K_M"


def planned(name: str = NAME, **settings: object) -> Plan:
    return make_plan(CARD, Settings(context_tokens=BOOK, device="cuda", **settings), target=find(name).shape)


def line(made: Plan, name: str) -> int:
    return sum(one.bytes for one in made.budget if one.name == name)


def test_a_file_with_such_a_layer_drafts_by_it_and_its_memory_is_counted():
    made, layer = planned(), find(NAME).shape.layer_ahead
    assert (made.drafter, made.draft_model, made.straight) == (MTP, None, False)
    assert made.assumed_draft_acceptance == costs.ACCEPTANCE_AHEAD == 0.5
    assert line(made, DRAFT_MODEL) == layer.weight_bytes("bfloat16")
    # by the difference of two published files of one shape, and what 3.6's has beside that
    assert line(made, DRAFT_MODEL) == pytest.approx(289.5e6, rel=0.02)
    rows = made.draft_sinks + made.draft_window + made.tail_tokens
    assert line(made, DRAFT_CACHE) == rows * 2 * 4 * 256 * 2
    assert any("(MTP) drafts: 0.50 of its tokens" in note for note in made.notes)
    assert "a layer of the model's own (MTP)" in format_plan(made)


def test_one_without_it_drafts_by_lookup():
    made = planned("Qwen3.6-27B-Q4_K_M")
    assert (made.drafter, line(made, DRAFT_MODEL), made.expected_draft_ms) == ("lookup", 0, 0.0)
    assert not any("MTP" in note for note in made.notes)


def test_the_user_has_the_last_word():
    assert planned(draft_model="none").drafter == "lookup"
    assert line(planned(draft_model="none"), DRAFT_MODEL) == 0


def test_where_it_does_not_pay_lookup_drafts(monkeypatch: pytest.MonkeyPatch):
    """By the time that a token takes with either, at the acceptance that is assumed."""
    monkeypatch.setattr(costs, "ACCEPTANCE_AHEAD", 0.05)
    made = planned()
    assert made.drafter == "lookup" and made.expected_tbt_ms == planned(draft_model="none").expected_tbt_ms


def test_a_draft_is_a_pass_of_its_layer_and_of_the_whole_output_matrix():
    """Which is the target's, and not held twice."""
    layer = find(NAME).shape.layer_ahead
    assert isinstance(layer, AheadShape)
    assert layer.pass_bytes("bfloat16") == layer.weight_bytes("bfloat16") + 248_320 * 5120 * 210 // 256
    assert layer.parameters == pytest.approx(424.7e6, rel=0.001)
    whole = replace(layer, coded_weights=0, coded_bytes=0, head_bytes=0)
    assert whole.pass_bytes("bfloat16") == 2 * (layer.parameters + 248_320 * 5120)


def test_of_two_layers_ahead_none_is_used():
    """What comes after the next would be the second one's."""
    assert replace(find("Qwen3.5-4B").shape, ahead=2).layer_ahead is None


def test_what_was_tuned_with_another_drafter_is_not_used():
    record = replace(RECORD, model=NAME, device="cuda", context_tokens=BOOK, kernel="codes", dtype="bfloat16")
    record = replace(record, machine=planner.machine_of(CARD), threads=CARD.physical_cores, draft_model="x")
    settings = Settings(context_tokens=BOOK, device="cuda", kv=8)
    made = make_plan(CARD, settings, target=find(NAME).shape, known=StoredFacts((record,)))
    assert not made.tuned and any("they are for drafts by x" in note for note in made.notes)
    own = replace(record, draft_model=MTP, kv_rows=made.kv_rows, on_chip_layers=made.on_chip_layers)
    made = make_plan(CARD, settings, target=find(NAME).shape, known=StoredFacts((own,)))
    assert (made.tuned, made.drafter) == (own.date, MTP)


def test_the_acceptance_that_is_assumed_can_be_said():
    """Of what drafts; lookup's is not meant."""
    more = planned(assumed_draft_acceptance=0.75)
    assert (more.drafter, more.assumed_draft_acceptance) == (MTP, 0.75)
    assert more.expected_tbt_ms < planned().expected_tbt_ms < more.expected_plain_tbt_ms
    lookup = planned("Qwen3.6-27B-Q4_K_M", assumed_draft_acceptance=0.9)
    assert lookup.assumed_draft_acceptance == costs.ACCEPTANCE_NGRAM


def test_plan_json_says_who_drafts(capsys: pytest.CaptureFixture):
    asked = ["plan", "--gpu", "RTX 4090", "--ram", "64", "--context", str(BOOK), "--json"]
    found = []
    for name in (NAME, "Qwen3.6-27B-Q4_K_M"):
        assert main([*asked, "--model", name]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1])["drafter"])
    assert found == [MTP, "lookup"]
