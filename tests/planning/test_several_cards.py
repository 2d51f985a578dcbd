"""Plans for several cards that compute one model together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import Settings, override
from core.errors import PlanError, UserError
from core.hardware.facts import GIB
from core.hardware.gpus import imagine, imagined_gpu, imagined_hardware
from core.model.store.catalogue import find
from core.planning import budget, costs, notes
from core.planning.fitting import weakest
from core.planning.wording import format_plan
from core.text.words import size
from tests.support.imagined import VRAM, planned
from tests.support.said import worded_by

LLAMA = "Yarn-Llama-2-7b-128k"
BOTH = {"devices": (0, 1)}
PC = imagined_hardware(gpu="RTX 4090", ram_gib=256, cards=2)


def line(plan, name: str) -> int:
    return sum(one.bytes for one in plan.budget if one.name == name)


def test_two_cards_hold_and_stream_half_each():
    """What is printed for a card is one card's; of the memory that they share it is both's."""
    how = {"context": 124_928, "weights": 16, "kv": 16}
    one, two = planned(PC, LLAMA, **how), planned(PC, LLAMA, **how, **BOTH)
    assert (one.devices, two.devices) == ((), (0, 1))
    assert two.on_chip_layers > 4 * one.on_chip_layers
    whole = find(LLAMA).shape.weight_bytes("bfloat16")
    embeddings = 2 * 32_000 * 4096 * 2
    assert line(two, budget.WEIGHTS) == pytest.approx((whole + embeddings) / 2, rel=1e-3)
    away = (32 - two.on_chip_layers) * 124_928 * 2 * 32 * 128 * 2
    assert line(two, budget.KV_PINNED) == pytest.approx(away, rel=0.01)
    assert line(two, budget.PROGRAM) == 2 * line(one, budget.PROGRAM)
    assert line(two, budget.MODEL_FILES) == line(one, budget.MODEL_FILES)
    assert line(two, budget.SNAPSHOTS) == 0 and two.cuda_graphs == "off"
    told = [format_plan(made).splitlines() for made in (one, two)]
    heads = [next(row for row in rows if row.startswith(VRAM)) for rows in told]
    assert heads[0] == f"{VRAM}  {size(one.bytes_in(VRAM))}"
    assert "card" in heads[1] and heads[1].endswith(f"  {size(two.bytes_in(VRAM))}")
    assert "2 × RTX 4090" in two.notes[0]
    assert not worded_by(notes._gpus_left, *two.notes)


def test_the_papers_two_cards():
    """108 ms a token on two RTX 4090 were published for Llama-2-7B-128K: https://arxiv.org/abs/2404.11912"""
    two = planned(PC, LLAMA, context=124_928, weights=16, kv=16, **BOTH)
    assert 80 <= two.expected_tbt_ms <= 130


def test_sums_cost_time():
    """A plan without them would promise what no two cards keep."""
    part = find(LLAMA).shape.divided(2)
    free = costs.gpu_speeds(PC.gpus[0], "bfloat16")
    passes = [
        costs.pass_s(part, "bfloat16", rows=1, kv_tokens=4096, speeds=speeds)
        for speeds in (free, costs.divided_speeds(free))
    ]
    assert passes[1] - passes[0] == pytest.approx(2 * 32 * costs.SUM_S)
    reading = [
        costs.prefill_seconds(part, "bfloat16", tokens=10_000, segment=8192, chunk=4096, speeds=speeds)
        for speeds in (free, costs.divided_speeds(free))
    ]
    assert reading[1] - reading[0] == pytest.approx(2 * 32 * 10_000 * 4096 * 2 / 12.5e9)


def test_heads_that_do_not_divide_are_refused_with_the_numbers():
    """A plan for them would fail when the weights are loaded, minutes later."""
    three = imagined_hardware(gpu="RTX 4090", ram_gib=64, cards=3)
    refused = planned(three, LLAMA, context=None, devices=(0, 1, 2))
    assert isinstance(refused, PlanError)
    assert "32 key/value heads, which do not divide by 3 graphics cards" in str(refused)


def test_a_card_that_is_not_there_is_named():
    refused = planned(PC, LLAMA, context=None, devices=(0, 4))
    assert isinstance(refused, PlanError)
    assert "graphics card 4" in str(refused) and "1 (RTX 4090)" in str(refused)


def test_memory_that_is_too_small_is_that_of_the_machine():
    """A rank's half of it is nothing that a person knows."""
    small = imagine(PC, ram_gib=20)
    refused = planned(small, LLAMA, context=124_928, weights=16, kv=16, **BOTH)
    assert isinstance(refused, PlanError)
    free = imagine(PC, ram_gib=20).ram_available_bytes
    assert f"{free / 1e9:.1f} GB is free" in str(refused)


def test_unlike_cards_are_planned_by_the_least_of_each():
    """A share that the larger one holds does not fit the other."""
    large, small = imagined_gpu("RTX 4090"), imagined_gpu("RTX 3060")
    found = weakest((large, replace(small, index=1)))
    assert found.name == "1 × RTX 4090, 1 × RTX 3060"
    assert (found.free_bytes, found.tflops) == (small.free_bytes, small.tflops)
    assert found.memory_gb_per_s == small.memory_gb_per_s


def test_naming_one_card_uses_that():
    """Of two the freest is taken unless one is named."""
    first, second = PC.gpus
    pc = replace(PC, gpus=(first, replace(second, free_bytes=12 * GIB)))
    plan = planned(pc, LLAMA, context=None, devices=(1,))
    assert (plan.gpu_index, plan.devices) == (1, ())


@pytest.mark.parametrize("written", [[0, 1], "[0, 1]", "0,1", (0, 1)])
def test_how_devices_are_written(written: object):
    """In config.yaml, on the command line, and through the pipe to the engine."""
    found = override(Settings(), {"devices": written})
    assert found.devices == (0, 1)
    assert Settings.from_json(found.to_json()) == found


@pytest.mark.parametrize("written", [[0, 0], [-1], "x", [], [0.5]])
def test_devices_that_are_none(written: object):
    with pytest.raises(UserError, match=r"as in \[0, 1\]"):
        override(Settings(), {"devices": written})


def test_so_many_of_a_machines_own_card():
    """`--gpus` alone."""
    one = imagined_hardware(gpu="RTX 4090")
    assert [gpu.index for gpu in imagine(one, cards=2).gpus] == [0, 1]
    with pytest.raises(UserError, match="no CUDA GPU"):
        imagine(imagined_hardware(), cards=2)
