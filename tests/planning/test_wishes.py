"""What the person sets reaches the plan, and what the plan's notes say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import Settings
from core.hardware.facts import GIB
from core.hardware.gpus import imagined_gpu, imagined_hardware
from core.model.store.catalogue import draft_for, find
from core.planning import budget, notes
from core.planning.fitting import site_of
from core.planning.planner import make_plan
from core.text.words import size
from tests.support.imagined import PINNED, planned
from tests.support.said import figures, values, worded_by


def test_every_override_reaches_the_plan():
    figures = {
        "retrieval_budget": 2048,
        "retrieval_chunk": 16,
        "gamma": 9,
        "middle_gamma": 3,
        "draft_sinks": 4,
        "draft_window": 500,
        "on_chip_layers": 3,
        "threads": 5,
        "dtype": "float16",
        "staging_blocks": 4,
        "prefill_chunk_tokens": 1024,
        "assumed_acceptance": 0.8,
    }
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=64),
        "Llama-3.1-8B-Instruct",
        context=65_536,
        prefill_segment_tokens=8192,
        staging_block_mib=64,
        pcie_gb_per_s=20,
        **figures,
    )
    assert {key: getattr(found, key) for key in figures} == figures
    assert (found.prefill_segment_tokens, found.pcie_gb_per_s) == (8192, 20)
    assert found.staging_block_bytes <= 64 << 20


def test_cpu_override_ignores_the_gpu():
    found = planned(
        imagined_hardware(gpu="RTX 4090", ram_gib=64), "SmolLM2-135M-Instruct", context=None, device="cpu"
    )
    assert found.device == "cpu"
    (note,) = worded_by(notes._gpus_left, *found.notes)
    assert values(note) == {"names": "RTX 4090"}


def test_draft_model_none_means_none():
    settings = Settings(context_tokens=32_768, draft_model="none")
    entry = find("LWM-Text-Chat-128K")
    assert draft_for(entry, settings.draft_model) is None
    found = make_plan(imagined_hardware(gpu="RTX 4090", ram_gib=64), settings, target=entry.shape)
    assert found.draft_model is None


@pytest.mark.parametrize("wsl", [True, False])
def test_linux_inside_windows_keeps_the_cards_memory_free(wsl: bool):
    """WSL2 moves it into the system's without a word, as Windows does."""
    machine = replace(imagined_hardware(gpu="RTX 4090", ram_gib=96), wsl=wsl)
    found = planned(machine, "Llama-3.1-8B-Instruct", context=32_768)
    assert found.keep_free_bytes == (int(1.5 * GIB) if wsl else None)


def test_windows_pins_two_fifths():
    """The part that cannot be pinned is a line of its own, slower, and said."""
    entry = find("LWM-Text-Chat-128K")
    linux, windows = (
        planned(
            imagined_hardware(gpu="RTX 4090", ram_gib=96, system=system), entry.name, context=131_072, kv=16
        )
        for system in ("Linux", "Windows")
    )
    pageable = [line for line in windows.budget if line.name == budget.KV_PAGEABLE]
    assert windows.bytes_in(PINNED) == int(0.4 * 96 * GIB)
    assert pageable[0].bytes > 0
    # what no code makes, such as blocks on the way to the card, has no line
    in_ram = {line.name for line in windows.budget if line.place == "RAM"}
    assert in_ram == {budget.KV_PAGEABLE, budget.PROGRAM, budget.KEPT_FREE}
    assert windows.expected_tbt_ms > linux.expected_tbt_ms
    (note,) = worded_by(notes._pageable, *windows.notes)
    said = {"system": "Windows", "pinnable": size(0.4 * 96 * GIB), "pageable": size(pageable[0].bytes)}
    assert values(note) == said
    assert not worded_by(notes._pageable, *linux.notes)


def test_stretched_context_is_labelled():
    found = planned(imagined_hardware(ram_gib=16), "SmolLM2-135M-Instruct", context=16_384)
    assert found.context_stretch == 2.0
    assert any("beyond the 8,192" in note for note in found.notes)


def test_automatic_context_is_what_memory_allows_and_says_so():
    entry = find("LWM-Text-Chat-128K")
    found = planned(imagined_hardware(gpu="RTX 4090", ram_gib=64), entry.name, context=None, weights=16)
    assert found.context_tokens < 131_072
    (note,) = worded_by(notes._context, *found.notes)
    assert figures(note) == [f"{found.context_tokens:,}", "131,072"] and "context_tokens" not in note
    million = planned(
        imagined_hardware(gpu="A100 80 GB", ram_gib=128), "Qwen2.5-7B-Instruct-1M", context=None
    )
    assert million.context_tokens == 131_072
    (note,) = worded_by(notes._context, *million.notes)
    assert figures(note) == ["262,144", "131,072"] and "context_tokens" in note


def test_no_gain_is_claimed_where_plain_decoding_is_faster():
    """With an acceptance near zero nothing is gained; drafts of a length that the user fixed even lose."""
    hardware, poor = (
        imagined_hardware(gpu="RTX 4090", ram_gib=64),
        {"context": 8192, "assumed_acceptance": 0.1},
    )
    free, fixed = (
        planned(hardware, "Llama-3.2-1B-Instruct", **poor),
        planned(hardware, "Llama-3.2-1B-Instruct", gamma=4, **poor),
    )
    assert free.expected_tbt_ms == free.expected_plain_tbt_ms
    assert fixed.expected_tbt_ms > fixed.expected_plain_tbt_ms and fixed.gamma == 4
    (_said, than_free), (_also, than_fixed) = (worded_by(notes._speed, *one.notes) for one in (free, fixed))
    assert figures(than_free) == [] and "gamma" not in than_free
    assert figures(than_fixed) == [f"{fixed.expected_plain_tbt_ms:.0f}"] and "gamma" in than_fixed


def test_offloading_can_be_tried_on_the_cpu():
    """The CPU backend runs the offloaded cache too, when told how many layers stay."""
    found = planned(imagined_hardware(ram_gib=16), "SmolLM2-135M-Instruct", context=None, on_chip_layers=10)
    assert found.on_chip_layers == 10
    assert found.staging_blocks >= 2
    assert found.staging_block_bytes > 0


def test_the_gpu_with_most_free_memory_is_taken():
    base = imagined_hardware(gpu="RTX 4090", ram_gib=64)
    busy = replace(base.gpus[0], free_bytes=GIB, index=0)
    idle = replace(imagined_gpu("RTX 3060"), index=1)
    hardware = replace(base, gpus=(busy, idle))
    assert site_of(hardware, Settings()).gpu.index == 1
    (note,) = worded_by(notes._gpus_left, *planned(hardware, "Llama-3.2-1B-Instruct", context=8192).notes)
    assert values(note) == {"names": "RTX 4090"}


def test_tiny_models_of_tests_can_be_planned():
    """A context smaller than every default (block, segment, window) must still give a whole plan."""
    shape = replace(find("SmolLM2-135M-Instruct").shape, native_context=300, longest_context=300)
    found = make_plan(imagined_hardware(ram_gib=8), Settings(), target=shape)
    assert found.context_tokens == 300
    assert found.retrieval_budget <= 300
    assert found.prefill_chunk_tokens <= found.prefill_segment_tokens <= 300


def test_planning_is_pure():
    """Same facts, same plan: nothing of this machine may leak in."""
    hardware = imagined_hardware(gpu="RTX 3090", ram_gib=64)
    assert planned(hardware, "Qwen3-8B", context=32_768) == planned(hardware, "Qwen3-8B", context=32_768)
