"""In how many bits weights are held where the settings leave it open: both sides of each line, and what is
said.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.backend.shared.compiled import PRODUCTS
from core.build import as_planned
from core.config import Settings
from core.errors import PlanError
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import find
from core.planning import budget, notes
from core.planning.offers import PlannedModel, choose_model, offers, plan_model
from core.planning.plan import Plan
from core.planning.planner import make_plan
from tests.support.imagined import planned
from tests.support.said import values, worded_by

PC_4090 = imagined_hardware(gpu="RTX 4090", ram_gib=64)
EIGHT = "Llama-3.1-8B-Instruct"


def held(found: Plan | PlanError) -> tuple[int, str, bool]:
    assert isinstance(found, Plan), str(found)
    return found.weights_bits, found.weights_format, found.rounded


@pytest.mark.parametrize(
    ("gpu", "name", "context", "bits"),
    [
        ("RTX 4090", EIGHT, 8192, 16),
        ("RTX 4090", EIGHT, 131_072, 4),
        ("A100 80 GB", EIGHT, 131_072, 16),
        # the cache in 8 bits costs less than weights in 4
        ("RTX 4090", "Qwen3-4B-Instruct-2507", 131_072, 16),
        ("RTX 4080", "Qwen3-4B-Instruct-2507", 131_072, 4),
        ("RTX 4070", "LWM-Text-Chat-128K", 8192, 4),  # 16 bits do not fit at all
    ],
)
def test_four_bits_where_sixteen_would_push_the_cache_off_the_card(gpu, name, context, bits):
    """Never where 16 leave the whole cache on the card. 16 can be had by one setting, where they fit."""
    machine = imagined_hardware(gpu=gpu, ram_gib=64)
    found = planned(machine, name, context=context)
    strict = planned(machine, name, context=context, weights=16)
    assert held(found) == ((16, "", False) if bits == 16 else (4, "Q4_0", True))
    if bits == 16:
        assert found == strict and found.on_chip_layers == found.layers
    elif isinstance(strict, Plan):
        assert strict.on_chip_layers < strict.layers and strict.weights_bits == 16
        assert found.expected_tbt_ms < strict.expected_tbt_ms
        assert found.on_chip_layers > strict.on_chip_layers


def test_a_cache_that_eight_bits_would_keep_on_the_card_rounds_no_weights():
    """It may leave the card a little in 16, where that is quick: both stay as they are."""
    machine = imagined_hardware(gpu="RTX 5090", ram_gib=64)
    found, coded = (planned(machine, EIGHT, context=131_072, kv=kv) for kv in (None, 8))
    assert coded.on_chip_layers == coded.layers > found.on_chip_layers
    assert (found.weights_bits, found.kv_bits) == (16, 16) and found.expected_tbt_ms < 33
    assert held(planned(machine, EIGHT, context=131_072, kv=16)) == (4, "Q4_0", True)


def test_what_was_rounded_is_said():
    """In the plan's notes and in what it is exact for, so that nobody takes it for the checkpoint."""
    found = planned(PC_4090, EIGHT, context=131_072)
    exact = "Llama 3.1 8B Instruct, 4-bit weights (Q4_0), 16-bit KV cache, up to rounding on the card"
    assert found.exact_for == exact
    assert found.to_json()["exact_for"] == found.exact_for and found.to_json()["rounded"]
    (note,) = worded_by(notes._rounded, *found.notes)
    assert values(note) == {"bits": 4, "format": "Q4_0"} and "weights: 16" in note
    for bits in (4, 16):  # as set: nothing was chosen
        asked = planned(PC_4090, EIGHT, context=131_072, weights=bits)
        assert not worded_by(notes._rounded, *asked.notes)


def test_the_disk_holds_the_checkpoint_and_what_is_made_of_it():
    found = planned(PC_4090, EIGHT, context=131_072)
    (files,) = (line.bytes for line in found.budget if line.name == budget.MODEL_FILES)
    shape = find(EIGHT).shape
    draft = find(found.draft_model).shape.file_bytes if found.draft_model else 0
    assert files - draft == pytest.approx(shape.parameters * (2 + 18 / 32), rel=0.02)


def test_without_a_card_a_checkpoint_that_fits_is_not_touched():
    """However slow it is; one that does not fit, or leaves a scrap of context, is rounded."""
    roomy, small = imagined_hardware(ram_gib=64), imagined_hardware(ram_gib=16)
    assert held(planned(roomy, EIGHT, context=None)) == (16, "", False)
    assert held(planned(small, EIGHT, context=8192)) == (4, "Q4_0", True)
    tight = replace(roomy, ram_available_bytes=21 << 30)
    scrap = planned(tight, EIGHT, context=None, weights=16)
    assert isinstance(scrap, Plan) and scrap.context_tokens < 8192
    few = planned(tight, EIGHT, context=None)
    assert held(few) == (4, "Q4_0", True) and few.context_tokens > 8192
    assert held(planned(tight, EIGHT, context=scrap.context_tokens)) == (16, "", False)


def test_codes_that_would_be_slower_are_not_made():
    """Where the card refused the kernel torch decodes them for every product."""
    gpu = replace(PC_4090.gpus[0], refused=(PRODUCTS,))
    machine = replace(PC_4090, gpus=(gpu,))
    assert held(planned(PC_4090, EIGHT, context=131_072, kv=16)) == (4, "Q4_0", True)
    assert held(planned(machine, EIGHT, context=131_072, kv=16)) == (16, "", False)


def test_layers_that_the_person_put_off_the_card_round_nothing():
    """Then it is not the weights that push them."""
    assert held(planned(PC_4090, EIGHT, context=8192, on_chip_layers=4)) == (16, "", False)


def test_what_cannot_be_rounded_is_left_alone():
    """Rows that are no whole groups, and files that are codes, or numbers, already."""
    shape, settings = find(EIGHT).shape, Settings(context_tokens=131_072)
    for change in ({"intermediate": 14_346}, {"format": "F16"}):
        assert held(make_plan(PC_4090, settings, target=replace(shape, **change)))[2] is False
    assert held(planned(PC_4090, "Meta-Llama-3.1-8B-Instruct-Q4_K_M", context=131_072)) == (
        4,
        "Q4_K_M",
        False,
    )


def test_what_is_loaded_is_planned_anew_in_the_same_formats():
    """A card with less room than was thought: weights of 4 bits lie on it, and none of 16 can be had."""
    for settings, bits in ((Settings(context_tokens=131_072), 4), (Settings(context_tokens=8192), 16)):
        choice = plan_model(PC_4090, settings, find(EIGHT))
        fixed = as_planned(settings, choice)
        assert (choice.plan.weights_bits, fixed.weights) == (bits, bits)
        fewer = plan_model(PC_4090, replace(fixed, on_chip_layers=2), find(EIGHT)).plan
        assert (fewer.weights_bits, fewer.kv_bits) == (bits, choice.plan.kv_bits)
    file = find("Meta-Llama-3.1-8B-Instruct-Q4_K_M")
    assert as_planned(Settings(), plan_model(PC_4090, Settings(), file)).weights is None


def test_the_list_fetches_no_checkpoint_to_round_it_where_there_is_a_file():
    """16 GB to make 5 of them, when the list has those 5: a PC without a card was offered such downloads."""
    little = imagined_hardware(ram_gib=16)
    offered = {one.entry.name: one.plan for one in offers(little, Settings())}
    assert offered[EIGHT] is None and offered["Meta-Llama-3.1-8B-Instruct-Q4_K_M"] is not None
    there = {one.entry.name: one.plan for one in offers(little, Settings(), is_downloaded=lambda entry: True)}
    assert there[EIGHT].rounded  # who has it can use it


def test_of_a_checkpoint_and_its_file_the_file_is_started():
    """A GGUF was rounded with more care than the program takes, though Q4_0 is smaller and so faster."""
    names = {EIGHT, "Meta-Llama-3.1-8B-Instruct-Q4_K_M"}
    settings = Settings(context_tokens=131_072)
    chosen: PlannedModel = choose_model(PC_4090, settings, is_downloaded=lambda entry: entry.name in names)
    assert chosen.entry.name == "Meta-Llama-3.1-8B-Instruct-Q4_K_M"
