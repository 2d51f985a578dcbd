"""Which models a machine is offered, what runs by default, and the health report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import Settings
from core.errors import PlanError, UserError
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import EMBEDDED, find
from core.planning import doctor
from core.planning import offers as offering
from core.planning.offers import choose_model, offers, plan_model
from core.planning.wording import format_plan
from tests.support.imagined import PINNED
from tests.support.said import values, worded_by

PC_4090 = imagined_hardware(gpu="RTX 4090", ram_gib=64)
PC_3060 = imagined_hardware(gpu="RTX 3060", ram_gib=32)
NO_GPU = imagined_hardware(ram_gib=16)


def everything(entry):
    return True


def only_embedded(entry):
    return entry.embedded


def test_what_runs_is_the_best_downloaded_model_that_answers_soon():
    """Larger ones that lie on the disk would be too slow to be a default, most of all on a CPU."""
    assert choose_model(NO_GPU, Settings(), is_downloaded=only_embedded).entry.name == EMBEDDED
    slow = {"Qwen3-8B-Q4_K_M", "Mistral-7B-Instruct-v0.3-Q4_K_M", EMBEDDED}
    assert choose_model(NO_GPU, Settings(), is_downloaded=lambda one: one.name in slow).entry.name == EMBEDDED
    soon = slow | {"Qwen3-0.6B-Q8_0"}
    chosen = choose_model(NO_GPU, Settings(), is_downloaded=lambda one: one.name in soon)
    assert chosen.entry.name == "Qwen3-0.6B-Q8_0"


def test_with_gpu_a_model_that_reads_books_whole_runs_before_a_larger_one():
    assert choose_model(PC_4090, Settings(), is_downloaded=only_embedded).entry.name == EMBEDDED
    there = {EMBEDDED, "Qwen3-8B", "Qwen2.5-7B-Instruct-1M", "Qwen3-4B-Instruct-2507"}
    chosen = choose_model(PC_4090, Settings(), is_downloaded=lambda one: one.name in there)
    assert chosen.entry.name == "Qwen2.5-7B-Instruct-1M"
    fluent = choose_model(PC_3060, Settings(), is_downloaded=everything)
    assert fluent.entry.name == "gemma-4-12b-it-Q4_K_M" and fluent.plan.expected_tbt_ms <= 50
    on_cpu = choose_model(PC_4090, Settings(device="cpu"), is_downloaded=lambda one: one.name in there)
    assert on_cpu.entry.name == EMBEDDED


def test_the_users_model_wins_and_is_refused_when_it_does_not_fit():
    chosen = choose_model(PC_4090, Settings(model="llama-3.1-8b-instruct"), is_downloaded=only_embedded)
    assert chosen.entry.name == "Llama-3.1-8B-Instruct"
    on_card = Settings(device="cuda", model="Qwen3-8B", weights=16)
    with pytest.raises(PlanError, match="choose Gemma-4-E4B-it"):
        choose_model(PC_3060, on_card, is_downloaded=everything)
    with pytest.raises(UserError, match="nearest is Qwen3-8B"):
        choose_model(PC_3060, Settings(model="Qwen3-8"), is_downloaded=everything)


def test_offers_put_what_fits_first_and_say_why_not():
    found = offers(PC_3060, Settings())
    fits = [offer.plan is not None for offer in found]
    assert fits == sorted(fits, reverse=True)
    assert all(offer.reason for offer in found if offer.plan is None)
    assert {"Llama-3.1-8B-Instruct", "Mistral-Nemo-Instruct-2407"} <= {
        one.entry.name for one in found if one.plan is None
    }
    assert "llama-68m" not in {offer.entry.name for offer in found}


def test_a_model_left_with_a_scrap_of_context_is_not_offered():
    """13B weights fit a 32 GB card; what is left must be worth reading with."""
    tight = imagined_hardware(gpu="RTX 5090", vram_gib=28.8, ram_gib=64)
    offer = next(
        one for one in offers(tight, Settings(weights=16)) if one.entry.name == "Yarn-Llama-2-13b-128k"
    )
    assert offer.plan is None
    assert worded_by(offering._offer, offer.reason) and values(offer.reason).keys() == {"tokens"}


def test_plan_for_names_the_draft_only_when_it_is_used():
    large = imagined_hardware(gpu="RTX 4090", vram_gib=25, ram_gib=128)
    choice = plan_model(large, Settings(context_tokens=131_072), find("LWM-Text-Chat-128K"))
    assert choice.draft.name == choice.plan.draft_model == "llama-68m"
    none = plan_model(
        PC_4090, Settings(draft_model="none", context_tokens=32_768), find("LWM-Text-Chat-128K")
    )
    assert none.draft is None


def test_a_base_model_is_labelled_in_its_plan():
    choice = plan_model(PC_4090, Settings(context_tokens=32_768), find("Yarn-Llama-2-7b-128k"))
    (note,) = worded_by(offering._planned, *choice.plan.notes)
    assert values(note) == {"model": "Yarn-Llama-2-7b-128k"} and choice.entry.frame == "completion"
    assert not worded_by(offering._planned, *plan_model(PC_4090, Settings(), find("Qwen3-8B")).plan.notes)


def test_a_draft_that_was_not_downloaded_is_done_without_and_said():
    """The engine cannot load what is not there, and must not refuse the model for it."""
    large = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    settings = Settings(model="LWM-Text-Chat-128K", context_tokens=131_072)
    choice = choose_model(large, settings, is_downloaded=lambda entry: entry.name == "LWM-Text-Chat-128K")
    assert choice.draft is None and choice.plan.draft_model is None
    assert any("llama-68m could draft" in note and "models download" in note for note in choice.plan.notes)
    named = choose_model(large, replace(settings, draft_model="llama-68m"), is_downloaded=only_embedded)
    assert named.draft.name == "llama-68m"


def test_plan_as_text_names_every_line():
    plan = plan_model(
        imagined_hardware(gpu="RTX 4090", ram_gib=128), Settings(), find("LWM-Text-Chat-128K")
    ).plan
    text = format_plan(plan)
    assert all(line.name in text for line in plan.budget)
    assert all(note in text for note in plan.notes)
    assert PINNED in text
    assert f"{plan.on_chip_layers} of 32 layers" in text


# ---- doctor ------------------------------------------------------------------------------------------------


def test_what_is_sent_with_a_problem_holds_settings_and_nothing_of_the_person():
    """The report is asked for in public: a path has a name in it, an instruction may say anything."""
    private = {
        "instructions": "I am Ann.",
        "stop": ("Ann",),
        "data_dir": Path("/home/ann/x"),
        "model": "/home/ann/m",
    }
    chosen = Settings(seed=7, verify=True, kv=8, theme="dark", **private)
    report = doctor.doctor_report(NO_GPU, replace(chosen, model=None))
    assert report["settings"]["seed"] == 7 and report["settings"]["theme"] == "dark"
    assert report["settings"]["instructions"] == report["settings"]["data_dir"] == "set"
    assert "Ann" not in json.dumps(report) and "/home/ann" not in json.dumps(report["settings"])
    assert doctor._chosen(chosen)["model"] == "set"


def test_a_healthy_machine():
    report = doctor.doctor_report(NO_GPU, Settings())
    json.dumps(report)
    assert report["would_run"]["model"] == EMBEDDED
    assert report["problems"] == [] and report["settings"] == {}
    assert re.fullmatch(r"\d+\.\d+\.\d+", report["system"]["program"])
    text = doctor.format_doctor({**report, "measured": ("middle passes of a model: no faster",)})
    assert "measured  middle passes of a model: no faster" in text
    assert EMBEDDED in text
    assert "GPU       none" in text
    assert text.endswith("none")


def test_what_is_wrong_is_said(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("psutil", "a-package-nobody-has"))
    slow = replace(PC_4090.gpus[0], pcie_gb_per_s=6.2, pcie_measured=True)
    sick = replace(
        PC_4090,
        gpus=(slow,),
        disk_path="/data",
        disk_free_bytes=10**9,
        problems=("GPU 1 does not answer (lost).",),
    )
    large = Settings(device="cuda", model="Yarn-Llama-2-13b-128k", weights=16)
    report = doctor.doctor_report(sick, large)
    text = doctor.format_doctor(report)
    assert report["would_run"] is None
    assert "GPU 1 does not answer" in text
    assert "a-package-nobody-has" in text
    (little,) = worded_by(doctor._disk_problems, *report["problems"])
    assert values(little) == {"free": "1.0 GB", "folder": "/data"} and little in text
    assert "6.2 GB/s" in text
    assert "needs 30" in text
