"""Windows of 262,144 to 1,048,576 tokens: what memory allows is planned, and what is missing is said in
numbers.
"""

from __future__ import annotations

import re

import pytest

from core.errors import PlanError
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import load_catalogue
from core.planning import budget
from tests.support.imagined import planned
from tests.support.said import values

LWM, MILLION = "LWM-Text-Chat-1M", 1_048_576
LONG = [
    entry.name
    for entry in load_catalogue().values()
    if entry.role == "target" and not entry.file and entry.shape.longest_context >= 262_144
]


def line(plan, name: str) -> int:
    return sum(one.bytes for one in plan.budget if one.name == name)


def test_a_million_tokens_where_memory_allows():
    """309 GB of keys and values in 8 bits: a card of 24 GB streams them from 512 GB."""
    plan = planned(imagined_hardware(gpu="RTX 4090", ram_gib=512), LWM, context=MILLION)
    assert plan.kv_bits == 8 and plan.swept_prefill
    away = (32 - plan.on_chip_layers) * MILLION * 2 * 32 * 144
    assert line(plan, budget.KV_PINNED) == pytest.approx(away, rel=0.01)


def test_work_space_is_that_of_a_shorter_window():
    """Of a swept prefill: what grows with the window on the card is the KV cache that stays there, a rotation
    for each position and a score for each chunk.
    """
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=512)
    same = {"prefill_segment_tokens": 16_384, "on_chip_layers": 0}
    for_long, for_short = (
        planned(machine, LWM, context=tokens, **same) for tokens in (MILLION, MILLION // 2)
    )
    assert for_long.swept_prefill and for_short.swept_prefill
    for name in {one.name for one in for_long.budget if one.place == "VRAM"} - {budget.TABLES}:
        assert line(for_long, name) == pytest.approx(line(for_short, name), rel=0.03), name
    per_token = 2 * 128 * 2 + 32 * 32 // 8 * 4
    grown = line(for_long, budget.TABLES) - line(for_short, budget.TABLES)
    assert grown == pytest.approx(MILLION // 2 * per_token, rel=0.01)


def test_what_is_missing_is_what_a_swept_prefill_lacks():
    """The refusal named VRAM, for two whole layers that no plan of this window has; the RAM was missing."""
    refused = planned(imagined_hardware(gpu="RTX 4090", ram_gib=128), LWM, context=MILLION)
    assert isinstance(refused, PlanError)
    said = str(refused)
    needed, free, more = (
        float(re.search(rf"{words}", said)[1])
        for words in (r"needs ([\d.]+) GB of RAM", r"; ([\d.]+) GB is free", r"add RAM \(([\d.]+) GB more\)")
    )
    assert needed - free == pytest.approx(more, abs=0.2) and needed > 309
    shorter = int(re.search(r"lower context_tokens to ([\d,]+)", said)[1].replace(",", ""))
    again = planned(imagined_hardware(gpu="RTX 4090", ram_gib=128), LWM, context=shorter)
    assert again.context_tokens == shorter > 131_072
    enough = imagined_hardware(gpu="RTX 4090", ram_gib=128 + (more + 30) / 1.07)
    assert planned(enough, LWM, context=MILLION).context_tokens == MILLION


def test_a_processor_counts_its_tables():
    """1.6 GB for a million tokens of a 7B model had no line."""
    plan = planned(imagined_hardware(gpu="none", ram_gib=512), LWM, context=MILLION)
    assert line(plan, budget.TABLES) > MILLION * (2 * 128 * 4 + 32 * 32 // 8 * 4)


def test_models_that_attend_otherwise_beyond_are_held_to_their_window():
    """Qwen2.5-1M reads more than 262,144 tokens with dual chunk attention, which is not computed here."""
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    refused = planned(machine, "Qwen2.5-7B-Instruct-1M", context=1_010_000)
    assert isinstance(refused, PlanError)
    assert (values(str(refused))["most"], values(str(refused))["context"]) == ("262,144", "1,010,000")


@pytest.mark.parametrize("name", LONG)
def test_long_windows_of_the_catalogue_are_planned_or_refused_in_numbers(name: str):
    """On a card of 24 GB beside 128 GB of memory, each at 262,144 tokens."""
    plan = planned(imagined_hardware(gpu="RTX 4090", ram_gib=128), name, context=262_144)
    if isinstance(plan, PlanError):
        assert re.search(r"needs [\d.]+ GB of (RAM|VRAM); [\d.]+ GB is free", str(plan)), str(plan)
    else:
        assert plan.context_tokens == 262_144 and plan.context_stretch == 1.0
