"""Plans of models whose layers mostly keep a state: what a book takes, and what is accepted where."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from core.backend.shared.compiled import CODED_KV, DELTA
from core.cache.layered import with_side
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.config import from_source
from core.model.families import text_config
from core.model.gguf.size_estimates import matrix_bytes
from core.model.shapes import ModelShape
from core.model.store.catalogue import find
from core.planning import budget, notes
from core.planning.costs import ACCEPTANCE_NGRAM, cpu_speeds, gpu_speeds, pass_s, prefill_seconds
from core.planning.offers import plan_model
from core.planning.plan import Plan
from core.planning.planner import make_plan
from tests.support.said import worded_by
from tests.support.tiny import oracle, ours, whole_cache

BOOK = 131_072


def shape(name: str) -> ModelShape:
    return find(f"Qwen3.5-{name}").shape


def planned(
    name: str, asked: dict | None = None, *, refused: tuple[str, ...] = (), **machine: object
) -> Plan:
    """`refused`: kernels that failed their trial on the card."""
    settings, pc = Settings(context_tokens=BOOK, **(asked or {})), imagined_hardware(**machine)
    pc = replace(pc, gpus=tuple(replace(one, refused=refused) for one in pc.gpus))
    return make_plan(pc, settings, target=find(f"Qwen3.5-{name}-Q4_K_M").shape)


@pytest.mark.parametrize(
    ("name", "weights", "kib", "states_mb"),
    [("2B", 1.88e9, 12, 18.9), ("4B", 4.2e9, 32, 50.3), ("9B", 8.95e9, 32, 50.3), ("27B", 26.9e9, 64, 151.0)],
)
def test_a_token_leaves_little_and_states_do_not_grow(name: str, weights: float, kib: int, states_mb: float):
    found = shape(name)
    assert found.parameters == pytest.approx(weights, rel=0.005)
    assert found.kv_bytes_per_token("bfloat16") == kib * 1024
    assert found.state_bytes / 1e6 == pytest.approx(states_mb, rel=0.01)
    assert found.full_layers == found.layers // 4


@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2"])
def test_all_weights_are_counted(family: str):
    """Every matrix of a checkpoint, and of its layers nothing twice."""
    reference = oracle(family)
    config = {**reference.config.to_dict(), "tie_word_embeddings": False}
    found = ModelShape.from_hf_config(config, name="tiny")
    matrices = [value for value in reference.parameters() if value.ndim == 2]
    assert 0 <= found.parameters - sum(value.numel() for value in matrices) < 12 * found.hidden
    assert from_source(text_config(config), name="tiny", eos=None).states == found.states


def test_the_weights_of_a_file_are_counted():
    assert matrix_bytes(shape("9B"), "Q4_K_M") == pytest.approx(5.6e9, rel=0.03)  # published: 5.68 GB


def test_a_book_of_the_4b_is_on_a_card_of_8_gb():
    """In rows of 8 bits: six of eight layers beside the longest segments, all of them beside shorter ones."""
    usual = planned("4B", {"kv": 8}, gpu="RTX 4060", ram_gib=16)
    assert (usual.device, usual.context_tokens, usual.kv_bits) == ("cuda", BOOK, 8)
    assert usual.on_chip_layers >= 6
    plan = planned("4B", {"on_chip_layers": 8}, gpu="RTX 4060", ram_gib=16)
    assert plan.on_chip_layers == plan.layers == 8 and plan.kv_bits == 8
    assert plan.expected_tbt_ms < usual.expected_tbt_ms < 25 < 1.3 * plan.expected_tbt_ms
    by_name = {line.name: line.bytes for line in plan.budget if line.place == "VRAM"}
    assert by_name[budget.KV_ON_CHIP] == pytest.approx(2.28e9, rel=0.01)
    assert by_name[budget.STATES] < 0.3e9


@pytest.mark.parametrize("name", ["2B", "4B"])
def test_a_book_is_in_the_context_of_a_pc_of_16_gb_without_a_card(name: str):
    plan = planned(name, ram_gib=16)
    assert (plan.device, plan.context_tokens, plan.layers) == ("cpu", BOOK, shape(name).full_layers)


def test_only_layers_that_see_every_token_leave_a_card():
    """The 9B beside a card of 12 GB: some of its eight, and no state."""
    plan = planned("9B", gpu="RTX 4070", ram_gib=32)
    assert 0 < plan.on_chip_layers <= plan.layers == 8
    away = [line.name for line in plan.budget if line.place == "pinned RAM"]
    assert away in ([], [budget.KV_PINNED])


@pytest.mark.parametrize(
    ("name", "machine", "refused", "straight"),
    [
        ("2B", {"gpu": "RTX 4060", "ram_gib": 16}, (DELTA,), True),  # all of its cache on the card
        ("4B", {"gpu": "RTX 4060", "ram_gib": 16}, (DELTA,), False),  # two layers of eight cross a bus
        ("9B", {"gpu": "RTX 4080", "ram_gib": 32}, (DELTA,), True),
        ("9B", {"gpu": "RTX 4070", "ram_gib": 32}, (DELTA,), True),  # in rows of 8 bits
        # where a state costs next to nothing, the pass over few tokens is worth a level
        ("2B", {"gpu": "RTX 4060", "ram_gib": 16}, (), False),
        ("9B", {"gpu": "RTX 4070", "ram_gib": 32}, (), False),
    ],
)
def test_two_levels_or_three_are_what_is_faster(name: str, machine: dict, refused: tuple, straight: bool):
    """By the same times of passes; the plan says which, and why."""
    plan = planned(name, refused=refused, **machine)
    assert plan.straight == straight
    if refused:
        assert straight == (plan.on_chip_layers == plan.layers)
    full, row = plan.verification_ms, plan.expected_row_ms
    two = (full + row) / (1 + ACCEPTANCE_NGRAM)  # one token of lookup and the pass over both rows
    assert plan.expected_tbt_ms < full
    if straight:
        assert plan.expected_tbt_ms == pytest.approx(two, rel=0.05) and plan.gamma == 1
    else:
        assert plan.expected_tbt_ms < two
    said = [note for note in plan.notes if note.startswith(("Two levels:", "Three levels:"))]
    assert len(said) == 1 and said[0].startswith("Two" if straight else "Three")
    assert f"{plan.expected_middle_ms:.0f} ms" in said[0] and f"{full:.0f}" in said[0]


@pytest.mark.parametrize("asked", [{"gamma": 4}, {"middle_gamma": 2}, {"mode": "retrieval"}], ids=str)
def test_levels_that_the_user_chose_are_kept(asked: dict):
    assert not planned("2B", asked, gpu="RTX 4060", ram_gib=16).straight


def test_other_models_have_three_levels():
    plan = plan_model(imagined_hardware(gpu="RTX 4090", ram_gib=64), Settings(), find("Qwen3-8B-Q4_K_M")).plan
    assert not plan.straight and not any("levels:" in note for note in plan.notes)


def test_each_row_of_a_draft_is_paid_for():
    """By torch, row by row: a pass of nine takes longer than one by more than what is read again. A card's
    kernel takes all rows at once; what was read of a state is read once.
    """
    whole = {"kv": 8, "on_chip_layers": 8}
    plan = planned("4B", whole, refused=(DELTA,), gpu="RTX 4060", ram_gib=16)
    ours = planned("4B", whole, gpu="RTX 4060", ram_gib=16)
    assert plan.expected_row_ms > 24 * 0.15 > 0.5 > ours.expected_row_ms > 24 * 0.001
    assert plan.expected_plain_tbt_ms > ours.expected_plain_tbt_ms + 24 * 0.1
    assert plan.expected_prefill_s == ours.expected_prefill_s, "whole steps are torch's"
    (by_torch,), (by_ours,) = (worded_by(notes._states, *one.notes) for one in (plan, ours))
    assert "torch" in by_torch and "torch" not in by_ours and "kernel" in by_ours
    assert not worded_by(notes._states, *planned("2B", ram_gib=16).notes)


def test_none_of_our_kernels_is_counted_on_where_the_person_wants_none():
    plans = [planned("2B", {"kernels": one}, gpu="RTX 4060", ram_gib=16) for one in ("auto", "library")]
    assert plans[0].expected_row_ms < 0.5 < 24 * 0.15 / 2 < plans[1].expected_row_ms


def test_rows_read_their_windows_together_by_a_cards_kernel():
    """Each by itself where that does not serve: five layers of six of a Gemma have one."""
    gpu, gemma = imagined_hardware(gpu="RTX 4090", ram_gib=64).gpus[0], find("gemma-4-12b-it-Q4_K_M").shape
    one_by_one = gpu_speeds(replace(gpu, refused=(CODED_KV,)), "bfloat16")
    gemma = replace(gemma, head_dim=256, kv_heads=8)  # else its other layers are read again for each row
    more = []
    for speeds in (gpu_speeds(gpu, "bfloat16"), one_by_one):
        few, many = (
            pass_s(gemma, "bfloat16", rows=n, kv_tokens=8192, speeds=speeds, kernel="compiled")
            for n in (1, 16)
        )
        more.append(many - few)
    window_s = 15 * gemma.window_bytes("bfloat16", gemma.window) / one_by_one.kv
    assert more[0] == 0 and more[1] == pytest.approx(window_s)


def test_a_kernel_reads_a_state_once_for_all_rows_and_reads_a_book_sooner():
    """On a CPU; where it was refused, rows are paid for one by one, as torch computes them."""
    pc = replace(imagined_hardware(), cpu_flags=frozenset({"avx2", "fma", "f16c"}), gpus=())
    found = {}
    for refused in (frozenset(), frozenset({DELTA})):
        speeds = cpu_speeds(replace(pc, refused=refused), 2, "float32")
        one, nine = (
            pass_s(shape("4B"), "bfloat16", rows=n, kv_tokens=0, speeds=speeds)
            - pass_s(replace(shape("4B"), stateful=0), "bfloat16", rows=n, kv_tokens=0, speeds=speeds)
            for n in (1, 9)
        )
        read = prefill_seconds(shape("4B"), "bfloat16", tokens=1024, segment=1024, chunk=512, speeds=speeds)
        found[bool(refused)] = (one, nine, read)
    (one, nine, read), (torchs, torchs_nine, torchs_read) = found[False], found[True]
    assert one < torchs and nine < torchs_nine / 2 and read < torchs_read


@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2"])
def test_what_is_planned_for_states_is_what_they_take(family: str):
    model = ours(oracle(family))
    held = whole_cache(model, 64).side
    found, sizes = model.config.kv_shape.states, model.config.states
    states = len(found.layers) * math.prod(sizes.size) * 4
    assert held.nbytes == 2 * states + len(found.layers) * (sizes.kernel - 1 + 64) * sizes.width * 4
    assert with_side(model.config.kv_shape.of_full, None, room=1) is None


def test_short_convolutions_take_next_to_nothing():
    """What a book takes is of the six layers that attend, and a row of a draft costs no pass of its own."""
    entry = find("LFM2.5-1.2B-Instruct-Q4_K_M")
    plan = make_plan(imagined_hardware(ram_gib=16), Settings(context_tokens=BOOK // 2), target=entry.shape)
    by_name = {line.name: line.bytes for line in plan.budget}
    assert plan.layers == 6 and by_name[budget.STATES] < 12e6 and by_name[budget.KEPT_STATES] < 1e6
    assert entry.shape.kv_bytes_per_token("bfloat16") == 12 * 1024
    assert entry.shape.parameters == pytest.approx(1.17e9, rel=0.005)
    speeds = cpu_speeds(replace(imagined_hardware(), gpus=()), 2, "float32")
    short, slow = (
        pass_s(entry.shape, "float32", rows=9, kv_tokens=0, speeds=replace(speeds, state_row_s=row_s))
        for row_s in (0.0, 1.0)
    )
    assert short == slow
