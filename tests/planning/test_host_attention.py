"""Attention on the CPU beside a card: what the plan says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.backend.shared.compiled import ATTENTION
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import find
from core.planning import notes
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.planning.wording import format_plan
from tests.support.said import worded_by

SEVEN = "Yarn-Llama-2-7b-128k"
PAPERS = {"context_tokens": 124_928, "weights": 16, "kv": 16}


def planned(
    *,
    card: str | None = "RTX 4090",
    cores: int = 8,
    refused: tuple[str, ...] = (),
    cards: int = 1,
    **given: object,
) -> Plan:
    machine = imagined_hardware(gpu=card, ram_gib=256, cores=cores, cards=cards)
    machine = replace(machine, refused=refused)
    settings = Settings(device="cuda" if card else "cpu", **{**PAPERS, **given})
    return make_plan(machine, settings, target=find(SEVEN).shape)


def test_the_papers_baseline_is_priced():
    """What lies in host memory, at the rate at which eight cores read memory, and what the card computes."""
    plan = planned()
    away = (32 - plan.on_chip_layers) * 124_928 * 16_384
    assert away / 45e9 < plan.expected_cpu_attention_ms / 1e3 < 1.2 * away / 45e9
    assert plan.expected_cpu_attention_ms == plan.to_json()["expected_cpu_attention_ms"]
    (line,) = [one for one in format_plan(plan).splitlines() if "cpu_attention)" in one]
    assert f" {plan.expected_cpu_attention_ms:,.0f} ms" in line


def test_more_cores_never_make_it_slower():
    """Up to what the memory gives."""
    times = [planned(cores=cores).expected_cpu_attention_ms for cores in (1, 2, 3, 4, 8, 16, 64)]
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[-1]


@pytest.mark.parametrize(("card", "given"), [("RTX 4090", {"context_tokens": 4096}), (None, {})])
def test_nothing_is_said_where_nothing_lies_beside_a_card(card: str | None, given: dict[str, object]):
    """Then the mode is plain decoding, and the plan says so to whoever chose it."""
    plan = planned(card=card, **given, mode="cpu_attention")
    assert plan.expected_cpu_attention_ms is None
    (note,) = worded_by(notes._cpu_attention, *plan.notes)
    assert not note.values and "cpu_attention" in note
    assert "cpu_attention)" not in format_plan(plan)


def test_who_chose_the_mode_reads_its_time():
    """And nobody else a note about it."""
    plan, other = planned(mode="cpu_attention"), planned()
    (note,) = [note for note in plan.notes if "cpu_attention" in note]
    assert f"{plan.expected_cpu_attention_ms:.0f} ms" in note
    assert not any("cpu_attention" in note for note in other.notes)
    assert plan.expected_tbt_ms == other.expected_tbt_ms


def test_where_the_compiled_kernel_does_not_serve_it_takes_far_longer():
    """Refused on this computer, or over rows that it does not read."""
    swift = planned().expected_cpu_attention_ms
    assert planned(refused=(ATTENTION,)).expected_cpu_attention_ms > 10 * swift
    assert planned(dtype="float16").expected_cpu_attention_ms > 10 * swift
    assert planned(kv=8).expected_cpu_attention_ms < 0.7 * swift


def test_two_cards_share_one_processor():
    """Each has half of the heads and half of its rate: all in all as with one, but for what stays there."""
    one, two = planned(on_chip_layers=0), planned(on_chip_layers=0, cards=2, devices=(0, 1))
    assert two.expected_cpu_attention_ms == pytest.approx(one.expected_cpu_attention_ms, rel=0.05)
