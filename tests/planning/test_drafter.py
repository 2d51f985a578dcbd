"""Who drafts: lookup, a draft model, or a layer of the model's own that predicts one token further (MTP)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.cli.parser import main
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.assistant_sizes import AssistantShape, assistant_shape
from core.model.shapes import AheadShape
from core.model.store.catalogue import find
from core.planning import costs, notes, planner, wording
from core.planning.budget import DRAFT_CACHE, DRAFT_MODEL
from core.planning.plan import ASSISTANT, MTP, Plan
from core.planning.planner import make_plan
from core.planning.stored_facts import StoredFacts
from core.planning.wording import format_plan
from tests.support.said import values, worded_by
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
    (note,) = worded_by(notes._draft, *made.notes)
    assert values(note) == {"rate": 0.5} and "(MTP)" in note
    (said,) = set(worded_by(wording._draft, *wording._choices(made)))
    assert "(MTP)" in said and said in format_plan(made)


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
    assert not made.tuned
    assert [values(one) for one in worded_by(planner._tuned, *made.notes)] == [{"draft": "x"}]
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


def assistant(*, groups: bool = False, **own: object) -> AssistantShape:
    """Of the 12B, as its config.json says (ollama.com, jessegross/gemma4:12b-mtp-mlx)."""
    layers = {
        "model_type": "gemma4_unified_text",
        "hidden_size": 1024,
        "intermediate_size": 8192,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 4,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 1024,
        "vocab_size": 262_144,
        "max_position_embeddings": 262_144,
    }
    config = {
        "model_type": "gemma4_unified_assistant",
        "backbone_hidden_size": 3840,
        "use_ordered_embeddings": groups,
        "num_centroids": 2048,
        "centroid_intermediate_top_k": 32,
        "text_config": layers | own,
    }
    return assistant_shape(config, name="own-assistant")


GEMMA = "gemma-4-12b-it-Q4_K_M"


def assisted(card: str, **settings: object) -> Plan:
    pc = imagined_hardware(gpu=card, ram_gib=64)
    wanted = Settings(**({"context_tokens": BOOK, "device": "cuda"} | settings))
    return make_plan(pc, wanted, target=find(GEMMA).shape, draft=assistant())


def test_an_assistant_drafts_straight_before_a_cache_on_the_card():
    """Of a model whose layers mostly have a window a middle pass takes nearly what a full one takes. It has
    no cache of its own; what it attends to is read, and counted.
    """
    made = assisted("RTX 4080")
    assert (made.drafter, made.draft_model, made.straight) == (ASSISTANT, "own-assistant", True)
    assert made.on_chip_layers == made.layers and made.assumed_draft_acceptance == costs.ACCEPTANCE_AHEAD
    assert line(made, DRAFT_MODEL) == assistant().weight_bytes("bfloat16")
    assert line(made, DRAFT_CACHE) == 0
    (note,) = worded_by(notes._draft, *made.notes)
    assert values(note) == {"draft": "own-assistant", "rate": 0.5}
    alone = make_plan(
        imagined_hardware(gpu="RTX 4080", ram_gib=64),
        Settings(context_tokens=BOOK, device="cuda", draft_model="none"),
        target=find(GEMMA).shape,
    )
    assert made.expected_tbt_ms < alone.expected_tbt_ms < alone.expected_plain_tbt_ms
    read = BOOK * 1 * 512 * 2 * 2
    weights_ms = assistant().pass_bytes("bfloat16") / 0.91 / 717e9 * 1e3
    assert made.expected_draft_ms > weights_ms + read / 717e9 * 1e3
    short = assisted("RTX 4080", context_tokens=BOOK // 2, draft_model="own-assistant")
    assert short.straight
    assert made.expected_draft_ms - short.expected_draft_ms > read / 2 / 717e9 * 1e3 * 0.9


def test_an_assistant_drafts_for_the_retrieval_level_where_the_cache_is_in_host_memory():
    """It would cross the bus again for every token that is drafted."""
    made = assisted("RTX 4070", draft_model="own-assistant", context_tokens=98_304)
    assert made.on_chip_layers < made.layers
    assert (made.drafter, made.straight) == (ASSISTANT, False)
    assert made.expected_draft_ms < assisted("RTX 4080").expected_draft_ms * 717 / 504


def test_an_assistant_of_groups_reads_the_rows_of_the_nearest():
    shape, whole = assistant(groups=True), assistant()
    rows = 262_144 * 1024 * 2
    assert whole.pass_bytes("bfloat16") == whole.weight_bytes("bfloat16") - 1024 * 2
    assert shape.pass_bytes("bfloat16") == whole.pass_bytes("bfloat16") - rows + rows // 64 + 2048 * 1024 * 2


def test_an_assistant_suits_the_model_that_it_was_made_for():
    assert assistant().suits(find("Gemma-4-12B-it").shape)
    assert not assistant().suits(find("Gemma-4-31B-it").shape)
    assert not assistant(sliding_window=512).suits(find("Gemma-4-12B-it").shape)
