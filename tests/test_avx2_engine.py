"""Most PCs: AVX2 and no 16-bit products. The whole engine, in a process that has nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.backend.cpu.native.library import instruction_sets, library_path
from core.hardware.cpu import cpu_flags
from tests.support.avx2_engine import IDS
from tests.support.gguf_models import as_stored, wide
from tests.support.modes import GRID_MODES

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What such a PC says, and the GGUF it said it of."""
    if library_path("attention") is None or "avx2" not in instruction_sets(cpu_flags(), "attention"):
        pytest.skip("this computer has no AVX2")
    root = tmp_path_factory.mktemp("pc")
    limited = {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "TRIFORCE_HOME": str(root / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.avx2_engine", str(root)],
        env={**os.environ, **limited},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "root": root}


def test_16_bits_are_held_and_float32_is_computed(found: dict):
    """Half the memory of float32, for weights and KV cache alike, in the plan and in fact."""
    assert found["capability"] == "AVX2"
    for name in ("numbers", "codes"):
        plan = found[name]["plan"]
        assert (plan["device"], plan["dtype"], plan["computes"]) == ("cpu", "bfloat16", "float32")
        layers, kv_heads, head_dim = 2, 2, 64
        assert found[name]["kv_bytes_per_token"] == 2 * layers * kv_heads * head_dim * 2
    weights = next(line for line in found["numbers"]["plan"]["budget"] if line["name"] == "weights")
    assert weights["bytes"] == 2 * sum(one.numel() for one in wide().parameters())
    assert found["codes"]["plan"]["weights_kernel"] == "codes"


def test_every_mode_says_what_plain_decoding_says(found: dict):
    """Lossless for what is held; prefill takes decoded pieces and drafts are of several rows."""
    for name in ("numbers", "codes", "8-bit codes"):
        answers = found[name]["answers"]
        assert (
            answers == dict.fromkeys(answers, answers["autoregressive"])
            and len(answers["autoregressive"]) == 16
        )


def test_every_mode_says_what_plain_decoding_over_8_bit_rows_says(found: dict):
    """The likeliest token of a plain pass over the same rows, or one level with it: a rounding may flip a
    code.
    """
    for name in ("numbers", "codes", "8-bit codes"):
        of = found[f"{name}, 8-bit KV"]
        assert of["plan"]["kv_bits"] == 8
        # 64 codes and their factor, up to the next 16 bytes
        assert of["kv_bytes_per_token"] == 2 * 2 * 2 * 80
        assert set(of["gaps"]) == set(GRID_MODES) and max(of["gaps"].values()) < 0.05, (name, of["gaps"])


def test_the_answers_are_those_of_transformers(found: dict):
    """From the same weights in float32: rows of the cache in 16 bits may not move a greedy answer far."""
    for name, model in (
        ("numbers", wide().bfloat16().float()),
        ("codes", as_stored(wide(), found["root"] / "model.gguf")),
        ("8-bit codes", as_stored(wide(), found["root"] / "eight.gguf")),
    ):
        with torch.inference_mode():
            said = [*IDS, *found[name]["answers"]["autoregressive"]]
            logits = model(torch.tensor([said])).logits[0, len(IDS) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(said[len(IDS) :]).unsqueeze(1))
        assert float((logits.amax(1, keepdim=True) - chosen).max()) < 0.05, name


def test_passes_of_few_rows_run_on_the_compiled_kernels(found: dict):
    """One row and several, of all layers at once and of the head, and a draft's attention over its window,
    with the instructions that this PC has.
    """
    for name in ("numbers", "codes", "8-bit codes", "codes, 8-bit KV", "8-bit codes, 8-bit KV"):
        for kind, rows in (("passed", {1, 4}), ("multiplied", {1, 4}), ("attended", {1})):
            calls = found[name][kind]
            assert {instructions for instructions, _ in calls} == {"avx2"}
            assert rows <= {many for _, many in calls} and max(many for _, many in calls) <= 40
