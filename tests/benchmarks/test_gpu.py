"""The GPU benchmark's own logic, on the CPU: every case runs, what is missing is taken up again, and the time
limit holds.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.card import gpu, gpu_tables
from benchmarks.card.four_bit_backends import RoundingCpu, rounded_weight
from benchmarks.lib.results import load_result
from benchmarks.speed.forward_times import expectation, interpolated
from core.backend.cpu.backend import CpuBackend
from core.hardware.gpus import imagined_hardware
from core.model.gguf.size_estimates import ROUNDED, in_format
from core.planning.planner import make_plan
from tests.support.fake_cuda import GIB, FakeCuda
from tests.support.imagined import planned

pytestmark = pytest.mark.wide


def run(folder: Path, *more: str) -> int:
    return gpu.main(
        ["--tiny", "--state", str(folder / "state.json"), "--save", "gpu", "--folder", str(folder), *more]
    )


def test_every_case_runs_and_is_tabled(tmp_path: Path):
    """From a random small model to the tables, with the bytes that offloading must move and no others."""
    assert run(tmp_path) == 0
    cases = json.loads((tmp_path / "state.json").read_text())
    assert list(cases) == [case.name for case in gpu.TINY_CASES]
    offloaded, on_chip, by_blocks, texts, coded = cases.values()
    row_bytes = 2 * gpu.TINY.kv_heads * gpu.TINY.head_dim * 4
    assert offloaded["verify_bytes_moved"] == 300 * 2 * row_bytes and on_chip["verify_bytes_moved"] == 0
    assert (
        offloaded["prefill_bytes_moved"]
        == offloaded["prefill_bytes_of_earlier_segments"]
        == (128 + 256) * 2 * row_bytes
    )
    assert on_chip["prefill_bytes_moved"] == 0
    assert 0 < by_blocks["verify_bytes_moved"] <= 300 * 3 * row_bytes and by_blocks["on_chip_layers"] == 1
    # 16 codes and their factor, up to the next 16 bytes; weights of 4 bits and a half
    assert coded["verify_bytes_moved"] == 300 * 2 * 2 * gpu.TINY.kv_heads * 32
    assert coded["weight_bytes"] < offloaded["weight_bytes"] / 6
    assert {one["mode"] for one in texts["answers"]} == {"autoregressive", "retrieval", "triforce"}
    result = load_result(tmp_path / "gpu.json")
    assert [len(table.rows) for table in result.tables] == [4, 8 + len(gpu_tables.PAPER), 12, 2, 6]
    assert (
        all(0 < one["acceptance"] <= 1 for one in texts["along"]["rates"])
        and texts["along"]["perplexity"] > 1
    )
    assert {row[-1] for row in result.tables[2].rows} == {"no graphs here"}
    assert result.details["left"] == []


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nine minutes may not suffice; the second run measures only what is missing."""
    run(tmp_path)
    state = tmp_path / "state.json"
    cases = json.loads(state.read_text())
    gone = gpu.TINY_CASES[1].name
    del cases[gone]
    state.write_text(json.dumps(cases))
    capsys.readouterr()
    run(tmp_path)
    said = capsys.readouterr().out
    assert [line.startswith(gone) for line in said.splitlines()] == [True, False]
    kept = json.loads(state.read_text())
    assert {name: kept[name] for name in cases} == cases


class Full(CpuBackend):
    """A device that is full whenever it says so."""

    def out_of_memory(self, error: BaseException) -> bool:
        return "full" in str(error)


def test_a_full_device_gets_fewer_layers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The headline is not lost to a plan that was a little too large; the table says with how many layers."""
    monkeypatch.setattr(gpu, "TINY_CASES", gpu.TINY_CASES[1:2])
    monkeypatch.setattr(gpu, "_backend", lambda *given: Full())
    errors, measure = [RuntimeError("full"), RuntimeError("full")], gpu.measure_forward

    def measured(*given: object, **more: object) -> dict:
        if errors:
            raise errors.pop()
        return measure(*given, **more)

    monkeypatch.setattr(gpu, "measure_forward", measured)
    assert run(tmp_path) == 0
    (found,) = json.loads((tmp_path / "state.json").read_text()).values()
    assert found["full_with_layers"] == [3, 2] and found["on_chip_layers"] == 1 and "refused" not in found


def test_what_breaks_one_case_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """What breaks on a card is broken for the whole process: the rest runs in another one."""
    monkeypatch.setattr(gpu, "TINY_CASES", gpu.TINY_CASES[:2])
    errors, measure, started = [RuntimeError("illegal memory access")], gpu.measure_forward, []

    def measured(*given: object, **more: object) -> dict:
        if errors:
            raise errors.pop()
        return measure(*given, **more)

    def in_this_one(command: list[str], check: bool) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(returncode=gpu.main(command[3:]))

    monkeypatch.setattr(gpu, "measure_forward", measured)
    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(run=in_this_one))
    assert run(tmp_path) == 0 and len(started) == 1
    broken, other = json.loads((tmp_path / "state.json").read_text()).values()
    assert "illegal memory access" in broken["refused"] and "verify_ms" in other


def test_quick_is_the_headline_alone(tmp_path: Path):
    """128K under a 24 GB card's memory: 7B as the paper's, and what most people would run."""
    assert run(tmp_path, "--quick") == 0
    assert list(json.loads((tmp_path / "state.json").read_text())) == [
        case.name for case in gpu.TINY_CASES[: gpu.QUICK]
    ]
    assert gpu.CASES[: gpu.QUICK] == (
        gpu.CardCase(gpu.LLAMA_2_7B, 130_048, True),
        gpu.CardCase(gpu.LLAMA_3_8B, 130_048, True, coded=True),
    )


@pytest.mark.parametrize(("case", "share"), [(gpu.CASES[0], 22.5 / 80), (gpu.CASES[4], 0.5)])
def test_a_card_is_used_within_the_plan(monkeypatch: pytest.MonkeyPatch, case: gpu.CardCase, share: float):
    """On Windows nothing else says where to stop: page-locking until graphics calls fail, or a device whose
    memory spills, would be measured as the product's.
    """
    cuda = FakeCuda().install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=96, system="Windows")
    plan = replace(
        planned(machine, "Llama-3.2-1B-Instruct", context=4096),
        page_lock_bytes=10_000,
        keep_free_bytes=10 * GIB,
    )
    backend = gpu._backend(case, plan, SimpleNamespace(tiny=False, card_gib=24.0))
    assert cuda.fractions == [share]
    tensors = [backend.host_memory((1000,), torch.float16) for _ in range(6)]
    assert cuda.driver.locked_bytes == 10_000 and len(tensors) == 6


def test_gpus_are_numbered_before_torch_is_asked(monkeypatch: pytest.MonkeyPatch):
    """It asks the driver once: what is set later comes too late, and another card is measured."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "x")  # restored afterwards
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setattr(gpu, "probe", lambda measure: imagined_hardware(gpu="RTX 4090", ram_gib=96))
    monkeypatch.setattr(gpu, "measure_bus", lambda index: {"h2d_gb_per_s": 25.0})
    monkeypatch.setattr(gpu, "_source", lambda options: None)
    orders = []
    monkeypatch.setattr(
        gpu, "measured_speeds", lambda device, rate: orders.append(os.environ.get("CUDA_DEVICE_ORDER"))
    )
    gpu._bench(SimpleNamespace(tiny=False, ram_gib=None), lambda: False)
    assert orders == ["PCI_BUS_ID"]


@pytest.mark.parametrize("system", ["Linux", "Windows"])
@pytest.mark.parametrize("case", gpu.CASES[: gpu.QUICK], ids=lambda case: case.name)
def test_the_headline_has_a_plan_on_the_card_it_is_for(case: gpu.CardCase, system: str):
    """A refusal there would be found out by whoever has the card, after minutes."""
    shape = in_format(case.shape, case.shape.name, ROUNDED[4]) if case.coded else case.shape
    settings = gpu._settings(case, case.context + 300, SimpleNamespace(tiny=False, card_gib=24.0))
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=128, system=system)
    assert make_plan(machine, settings, target=shape).context_tokens >= case.context


def test_matrices_are_rounded_to_the_nearest_codes():
    """Else figures of a file of 4 bits would be those of something else."""
    weight = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    planes = rounded_weight(weight)
    steps = planes.scale.float().abs().repeat_interleave(32, 1)
    # at the far end a code less than the largest is missing
    assert float(((planes.decoded() - weight).abs() / steps).max()) <= 1.01 and planes.bits == 4
    assert float(((planes.decoded() - weight).abs() / steps).mean()) < 0.3
    x = torch.randn(3, 64)
    assert torch.allclose(RoundingCpu().linear(weight)(x), x @ planes.decoded().t(), atol=1e-4)


def test_the_time_limit_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A machine that is paid by the minute: nothing is begun when the time is over, and what is left is
    named.
    """
    run(tmp_path, "--minutes", "0")
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["left"] == [case.name for case in gpu.TINY_CASES]


def test_a_prefill_ends_with_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Also within a case: half a prefill is no result."""
    ticks = iter([0.0, 1.0, 2.0] + [1e9] * 1000)
    monkeypatch.setattr(gpu.time, "monotonic", lambda: next(ticks))
    run(tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["left"] == [
        case.name for case in gpu.TINY_CASES
    ]


def test_times_between_the_measured_ones():
    """On the line between the neighbours, and exactly at them."""
    assert [interpolated({1: 10.0, 9: 18.0, 17: 50.0}, rows) for rows in (1, 5, 9, 13, 17)] == [
        10,
        14,
        18,
        34,
        50,
    ]


def test_the_projection_is_bytes_over_bandwidth():
    """By hand: 60 GB at 25 GB/s, middle passes of 15 GB at 920 GB/s and half the floor's speed, a draft of 1
    ms a token.
    """
    rows = {1: 30.0, 2: 30.0, 4: 30.0, 9: 30.0}
    found = {
        "verify_ms": {1: 2400.0, 9: 2400.0, 17: 2400.0, 33: 2400.0},
        "middle_ms": rows,
        "verify_bytes_moved": 60 * 10**9,
        "middle_bytes": 15 * 10**9,
        "speeds": {"memory_gb_per_s": 1000.0},
    }
    made = expectation(found, 0.9234)
    passes = made["gamma"] / made["tokens_per_middle_pass"]
    tokens = (1 - 0.9234 ** (made["gamma"] + 1)) / (1 - 0.9234)
    middle_s = 15 / (920 * 0.5)
    assert made["tbt_4090_ms"] == pytest.approx(
        (2.4 + passes * (middle_s + made["middle_gamma"] * 1e-3)) / tokens * 1e3
    )
    assert made["tbt_ms"] == pytest.approx(
        (2.4 + passes * (0.030 + made["middle_gamma"] * 1e-3)) / tokens * 1e3
    )
    assert made["against_plain"] == pytest.approx(2400 / made["tbt_ms"])


@pytest.mark.parametrize("case", gpu.RANDOM_CASES, ids=lambda case: case.name)
def test_the_plan_is_of_the_weights_that_are_made(case: gpu.CardCase):
    """It would round a checkpoint to 4 bits, and the benchmark would fill the card with 16."""
    settings = gpu._settings(case, case.context + 300, SimpleNamespace(tiny=False, card_gib=24.0))
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=128)
    shape = in_format(case.shape, case.shape.name, ROUNDED[4]) if case.coded else case.shape
    found = make_plan(machine, settings, target=shape)
    assert found.weights_bits == (4 if case.coded else 16) and not found.rounded
