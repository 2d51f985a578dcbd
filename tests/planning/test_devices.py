"""Card or CPU: a PC with a card is never worse off than the same PC without it."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product

import pytest

from core.build import as_planned
from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import Hardware
from core.hardware.gpus import imagined_hardware, known_gpus
from core.model.store.catalogue import CatalogueEntry, find, load_catalogue
from core.planning import notes
from core.planning.offers import offer_for, offers, plan_model
from core.planning.plan import Plan
from core.planning.recommended import Offer, best_offer, first_answer, is_free
from core.planning.stored_facts import NOTHING
from tests.support.said import worded_by

RAMS = (8, 16, 32)
FREE = [entry for entry in load_catalogue().values() if entry.file and is_free(entry)]
# of each instruction set of cards the least: where the CPU is most often the better
WEAK = ("GTX 1650", "RTX 2060", "RTX 3050 6 GB Laptop", "RTX 4050 Laptop")


def answer_s(hardware: Hardware, entry: CatalogueEntry) -> float:
    """Until the first answer; endless where the model does not fit."""
    try:
        return first_answer(plan_model(hardware, Settings(), entry).plan).seconds
    except PlanError:
        return float("inf")


@pytest.mark.wide
def test_no_card_of_the_table_makes_an_answer_come_later():
    """A model that did not fit the card, or crawled there, was planned for the card all the same. Each card
    with each memory, the models by turns.
    """
    without: dict[tuple, float] = {}
    pcs = product((spec.name for spec in known_gpus()), RAMS)
    for (card, ram), entry in zip(pcs, cycle(FREE), strict=False):
        alone = without.setdefault((ram, entry.name), answer_s(imagined_hardware(ram_gib=ram), entry))
        with_card = answer_s(imagined_hardware(gpu=card, ram_gib=ram), entry)
        assert with_card <= alone, (card, ram, entry.name)


def recommended(hardware: Hardware) -> Offer:
    return next(offer for offer in offers(hardware, Settings()) if offer.recommended)


def assert_no_worse(card: str, ram: int) -> None:
    """The PC without the card would take this PC's recommendation, too."""
    alone, found = (
        recommended(imagined_hardware(ram_gib=ram)),
        recommended(imagined_hardware(gpu=card, ram_gib=ram)),
    )
    assert best_offer([found, alone]) is found, (card, ram, found.entry.name, alone.entry.name)


@pytest.mark.parametrize("card", WEAK)
def test_a_pc_with_a_weak_card_is_recommended_nothing_worse(card: str):
    """ "RTX 2060, 16 GB" had a model of 1.5 billion where the same PC without it has one of four."""
    assert_no_worse(card, 16)


@pytest.mark.slow
@pytest.mark.parametrize(("card", "ram"), [(spec.name, ram) for spec in known_gpus() for ram in RAMS])
def test_a_pc_with_any_card_is_recommended_nothing_worse(card: str, ram: int):
    assert_no_worse(card, ram)


def test_where_the_cpu_is_chosen_that_is_said_and_the_card_can_be_had():
    pc, small = imagined_hardware(gpu="GTX 1650", ram_gib=16), find("Qwen3-4B-Instruct-2507-Q4_K_M")
    found = plan_model(pc, Settings(), small).plan
    assert found.device == "cpu" and any("device: cuda" in note for note in found.notes)
    with pytest.raises(PlanError):
        plan_model(pc, Settings(device="cuda"), small)
    forced = plan_model(pc, Settings(device="cuda"), find("Qwen3-0.6B")).plan
    assert forced.device == "cuda" and not any("device: cuda" in note for note in forced.notes)
    asked = plan_model(pc, Settings(device="cpu"), small).plan
    assert not any("device: cuda" in note for note in asked.notes)


def test_what_would_crawl_on_the_cpu_is_nothing_to_fetch_for_a_pc_with_a_card():
    """The list of a PC with a card showed readings of hours; who has such a model can use it all the same."""
    pc, large = imagined_hardware(gpu="RTX 4090", ram_gib=64), find("Qwen2.5-14B-Instruct-1M")
    offered, had = (offer_for(pc, Settings(), large, downloaded=one, known=NOTHING) for one in (False, True))
    assert offered.plan is None and "VRAM" in offered.reason
    assert had.plan is not None and (had.plan.device, had.plan.weights_bits) == ("cuda", 4)
    strict = offer_for(pc, Settings(weights=16), large, downloaded=True, known=NOTHING)
    assert strict.plan.device == "cpu"


def test_what_is_loaded_is_planned_anew_for_the_same_device():
    """Weights that lie on the card cannot be used by a plan for the CPU."""
    pc = imagined_hardware(gpu="RTX 4070", ram_gib=32)
    for device in ("cuda", "cpu"):
        choice = plan_model(pc, Settings(device=device), find("Qwen3-4B-Instruct-2507-Q4_K_M"))
        assert as_planned(Settings(), choice).device == choice.plan.device == device


@pytest.mark.parametrize("card", ["GTX 1660 SUPER", "RTX 2080 Ti"])
def test_a_card_before_the_rtx_30_computes_in_float16_and_that_is_said(card: str):
    """It knows no bfloat16, none of our kernels is compiled for it, and what that may do to answers is known
    before the first one.
    """
    found = plan_model(
        imagined_hardware(gpu=card, ram_gib=32), Settings(device="cuda"), find("Qwen3-0.6B")
    ).plan
    assert found.dtype == "float16" and any("65,504" in note for note in found.notes)
    newer = plan_model(imagined_hardware(gpu="RTX 3060", ram_gib=32), Settings(), find("Qwen3-0.6B")).plan
    assert newer.dtype == "bfloat16" and not any("65,504" in note for note in newer.notes)


def test_a_card_that_is_not_in_the_table_is_planned_for_and_that_is_said():
    pc = imagined_hardware(gpu="RTX 4060", ram_gib=32)
    unknown = replace(pc, gpus=(replace(pc.gpus[0], name="NVIDIA Unheard Of", known=False),))
    plans: list[Plan] = [plan_model(one, Settings(), find("Qwen3-0.6B")).plan for one in (pc, unknown)]
    assert [len(worded_by(notes._where, *one.notes)) for one in plans] == [1, 2]
