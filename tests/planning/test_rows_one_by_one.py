"""Where torch computes on a CPU, the rows of a short pass are computed one by one, and the plan says what
that takes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.backend.shared.compiled import ATTENTION, COARSE, PRODUCTS, SHORT_PASS_ROWS
from core.config import Settings
from core.hardware.facts import Hardware
from core.hardware.gpus import imagined_hardware
from core.model.shapes import ModelShape
from core.model.store.catalogue import find
from core.planning.costs import TORCH_ATTENTION, cpu_speeds, pass_s
from core.planning.planner import make_plan

SHAPE = find("Llama-3.2-1B-Instruct").shape  # heads of 64
PC = replace(imagined_hardware(), cpu_flags=frozenset({"avx2", "fma", "f16c"}), gpus=())
BARE = replace(PC, refused=frozenset({ATTENTION, PRODUCTS, COARSE}))
BEHIND = 32_768


def times(hardware: Hardware, shape: ModelShape, dtype: str) -> tuple[float, float]:
    """Seconds of a pass of one row and of one of eight."""
    speeds = cpu_speeds(hardware, 2, "float32")
    one, eight = (pass_s(shape, dtype, rows=n, kv_tokens=BEHIND, speeds=speeds) for n in (1, 8))
    return one, eight


def test_rows_share_what_a_compiled_kernel_reads():
    one, eight = times(PC, SHAPE, "bfloat16")
    assert eight < 3 * one


@pytest.mark.parametrize(
    ("hardware", "shape", "dtype"),
    [
        (BARE, SHAPE, "float32"),
        (BARE, SHAPE, "bfloat16"),
        (PC, replace(SHAPE, head_dim=96), "bfloat16"),  # attention alone, which is most of it here
        (PC, SHAPE, "float32"),
    ],
    ids=["no kernel, 32 bits", "no kernel, 16 bits", "heads of 96", "weights of 32 bits"],
)
def test_rows_by_torch_are_paid_for_one_by_one(hardware: Hardware, shape: ModelShape, dtype: str):
    """Else speculation would be promised to gain what it cannot."""
    one, eight = times(hardware, shape, dtype)
    assert eight > 4 * one


def test_heads_of_a_size_that_no_kernel_knows_are_attended_to_at_torchs_rate():
    """Heads of 32: the same bytes and operations as a quarter as many of 128."""
    known = replace(SHAPE, heads=16, kv_heads=8, head_dim=128)
    narrow = replace(known, heads=64, kv_heads=32, head_dim=32)
    one, torchs = times(PC, known, "bfloat16")[0], times(PC, narrow, "bfloat16")[0]
    weights = pass_s(known, "bfloat16", rows=1, kv_tokens=0, speeds=cpu_speeds(PC, 2, "float32"))
    assert (torchs - weights) / (one - weights) == pytest.approx(1 / TORCH_ATTENTION, rel=1e-4)


def test_passes_of_a_prompt_are_not():
    """Longer ones are computed together."""
    speeds = cpu_speeds(BARE, 2, "float32")
    short, longer = (
        pass_s(SHAPE, "float32", rows=n, kv_tokens=BEHIND, speeds=speeds)
        for n in (SHORT_PASS_ROWS, SHORT_PASS_ROWS + 1)
    )
    assert longer < short


def test_a_plan_says_where_it_is_exact_to_the_bit():
    """On a card passes of several rows round otherwise than passes of one."""
    on_cpu = make_plan(PC, Settings(device="cpu"), target=SHAPE, draft=None)
    on_card = make_plan(imagined_hardware(gpu="RTX 4090"), Settings(), target=SHAPE, draft=None)
    assert "rounding" not in on_cpu.exact_for
    assert on_card.device == "cuda" and "rounding" in on_card.exact_for
