"""First contact on a machine without a card: its stand-in, steps that break, and the page."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.card import contact_steps, first_contact, gpu, kernel_rates
from benchmarks.card.contact_drills import drilled, sanitized
from benchmarks.card.contact_report import contact_page
from benchmarks.card.contact_steps import OutcomeCounter, Sheet
from benchmarks.card.first_contact import DIED, DONE, HUNG, NO_TIME, STEPS, Step
from benchmarks.speed.forward_times import OutOfTime, verification_replays
from core.backend.base import Replay
from core.backend.cpu.backend import CpuBackend
from core.backend.cuda.triton.driver import CudaDriver
from core.cache.full import FullKVCache
from core.hardware.facts import GIB
from core.hardware.gpus import imagined_hardware
from core.model.recorded_verification import RecordedVerification
from tests.support.recording import OneAttention
from tests.support.tiny import oracle, ours

SAYS = 'import pathlib, sys; pathlib.Path(sys.argv[3]).write_text(\'{"passed": 3, "failed": 0, '
SAYS += '"skipped": 0, "failures": {}, "running": "the fourth"}\'); '


def step(name: str) -> Step:
    return next(one for one in STEPS if one.name == name)


def run(folder: Path, *steps: Step, minutes: float = 30.0) -> dict[str, dict]:
    """By name what became of them; nothing here takes as long as half an hour."""
    given = ["--stand-in", "--out", str(folder), "--minutes", str(minutes)]
    code = first_contact.main(given, steps)
    records = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))]
    assert [record["step"] for record in records] == [one.name for one in steps]
    assert code == int(any(record["state"] != DONE for record in records))
    return {record["step"]: record for record in records}


def record(name: str, found: dict, *, state: str = DONE) -> dict:
    return {"step": name, "what": name, "state": state, "seconds": 2.0, "found": found, "last_words": []}


@pytest.mark.wide
def test_a_step_that_dies_leaves_the_others_and_what_it_had_found(tmp_path: Path):
    """A kernel that faults must not take the machine's facts, or the times of the next step, with it."""
    dies = Step("tests", "the tests", 1, ("-c", SAYS + "print('illegal access'); sys.exit(3)"))
    records = run(tmp_path, step("machine"), dies, step("llama-8b"))
    assert [record["state"] for record in records.values()] == [DONE, DIED, DONE]
    machine, tests, llama = (record["found"] for record in records.values())
    assert machine["hardware"]["ram_bytes"] > 0 and machine["torch"]["version"] and "nvidia_smi" in machine
    assert tests["passed"] == 3 and records["tests"]["last_words"] == ["illegal access"]
    assert llama["acceptance"] == "stated"
    whole, capped = (llama[f"{card}, behind 300 tokens"] for card in ("the whole card", "a card of 24 GiB"))
    plain, triforce = capped["decoded"]["answers"]
    assert plain["tokens_per_round"] == 1 < triforce["tokens_per_round"] and plain["tbt_ms"] > 0
    assert triforce["bytes_moved"] > 0 == whole["decoded"]["answers"][1]["bytes_moved"]
    assert capped["verify_ms"] and capped["prefill_bytes_moved"] > 0
    said = (tmp_path / "report.md").read_text("utf-8")
    assert "Not sound: the tests (died)" in said and "broke off in the fourth" in said
    assert "illegal access" in said and "acceptance stated: a stand-in" in said


def test_a_step_that_hangs_is_ended(tmp_path: Path):
    """Nine minutes on a rented card, and not one of them more."""
    hangs = Step("tests", "the tests", 1, ("-c", "import time; time.sleep(900)"))
    assert run(tmp_path, hangs, minutes=0.02)["tests"]["state"] == HUNG


def test_without_time_nothing_is_started(tmp_path: Path):
    """What is left out is said to be."""
    assert run(tmp_path, step("llama-8b"), minutes=0.0)["llama-8b"]["state"] == NO_TIME


def test_every_step_has_its_program_and_its_part_of_the_page():
    """A step that is added in one place alone would be found out on the card."""
    names = [one.name for one in STEPS]
    assert names == list(contact_steps.STEPS) and sum(one.seconds for one in STEPS) == 660
    assert contact_page([record(name, {}, state=DIED) for name in names]).count("(died)") == len(names)


def test_tests_are_counted_while_they_run(tmp_path: Path):
    """Also by a module that cannot be imported, and what kills the process is named."""
    counter = OutcomeCounter(Sheet(tmp_path / "x.json"))

    def report(**facts: object) -> SimpleNamespace:
        facts = {"outcome": "passed", "when": "call", "longreprtext": "", "nodeid": "x", **facts}
        return SimpleNamespace(**facts, failed=facts["outcome"] == "failed")

    counter.pytest_collectreport(report(outcome="failed", nodeid="a.py", longreprtext="x\nno module\n"))
    for when, outcome in (("setup", "passed"), ("call", "passed"), ("setup", "skipped"), ("call", "failed")):
        counter.pytest_runtest_logreport(report(when=when, outcome=outcome, longreprtext="assert 1 == 2"))
    counter.pytest_runtest_logstart("b.py::last")
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "failures": {"a.py": "no module", "x": "assert 1 == 2"},
        "running": "b.py::last",
    }


def test_the_page_of_a_card():
    """What is read first: whether it is sound, the card, its bus, and the times."""
    hardware = imagined_hardware(gpu="RTX 4090", ram_gib=64).to_json()
    bus = {"pcie_measured": True, "pcie_gb_per_s": 24.9, "pcie_back_gb_per_s": 25.5}
    hardware["gpus"] = [{**hardware["gpus"][0], **bus}]
    machine = {"cpu": "a CPU", "system": "Linux", "python": "3.12", "packages": {"transformers": "5"}}
    answers = [{"tbt_ms": 27.71, "tokens_per_round": 1.0}, {"tbt_ms": 12.9, "tokens_per_round": 6.2}]
    case = {"decoded": {"answers": answers}, "on_chip_layers": 3, "layers": 32, "prefill_s": 50.0}
    case |= {"context": 8_192, "prefill_bytes_moved": 3 * 10**9, "verify_ms": {"1": 26.5}}
    graphs = {"middle": [{"rows": 1, "eager_ms": 9.0, "replay_ms": 7.5}]}
    case |= {"graphs": {**graphs, "verification": [{"rows": 1, "eager_ms": 26.0, "replay_ms": 25.1}]}}
    rates = [{"kind": "codes", "tokens": 4_608, "rows": n, "gb_per_s": 10.0 * n} for n in (1, 9)]
    drill = {"pieces": 90, "said": "out of memory", "understood": False, "left_bytes": 0, "computes": True}
    found = {
        "machine": {**machine, "hardware": hardware},
        "self-test": {"findings": [{"what": "copies", "ok": False, "said": "What arrives is not it"}]},
        "llama-8b": {
            "a card of 24 GiB, behind 8,192 tokens": {**case, "peak_bytes": 10**10},
            "the whole card, behind 130,048 tokens": {"refused": "out of time"},
        },
        "tests-by-library": {"passed": 3, "failed": 1, "skipped": 0, "exit_code": 1, "failures": {"x": "y"}},
        "kernels": {"attention": rates},
        "full-device": {"first": drill},
        "sanitizer": {"memcheck": {"exit_code": 9, "said": []}, "racecheck": {"exit_code": 0, "said": []}},
    }
    said = contact_page([record(name, one) for name, one in found.items()])
    assert "copies is broken" in said and "24.9 GB/s from host, 25.5 back" in said
    row = "| 3 of 32 | 163.8 | 3.0 | 26.5 | 25.1 | 9.0 | 7.5 | 27.7 | 12.9 | 6.2 | 10.0 |"
    assert f"behind 8,192 tokens {row}" in said.partition("| a card of 24 GiB, ")[2]
    assert "the whole card, behind 130,048 tokens: out of time" in said
    assert "1 tests failed by the library's kernels" in said and "a full device is not survived" in said
    assert "memcheck found something" in said and "racecheck found" not in said
    assert "| codes | 4,608 | 10.0 | 90.0 |" in said


@pytest.mark.wide
def test_decoding_over_the_bus_comes_before_the_book_is_read(tmp_path: Path):
    """Reading 128K tokens may take all the time there is: the rows behind which LWM decodes are made."""
    found = run(tmp_path, step("llama-7b"))["llama-7b"]["found"]
    names = [name for name, one in found.items() if isinstance(one, dict)]
    made, read = (found[name] for name in names)
    assert names == [f"{names[1]} that were not read", names[1]]
    assert "prefill_s" in read and "prefill_s" not in made
    for one in (made, read):
        plain, triforce = one["decoded"]["answers"]
        assert plain["tokens_per_round"] == 1 < triforce["tokens_per_round"]
        assert triforce["bytes_moved"] > 0
    said = (tmp_path / "report.md").read_text("utf-8")
    assert "that were not read | 1 of 3 |  |  |  |" in said


@pytest.mark.slow
def test_all_of_it_runs_without_a_card(tmp_path: Path):
    """Every step in the order in which a card tells most, soonest."""
    records = run(tmp_path, *STEPS)
    assert {record["state"] for record in records.values()} == {DONE}
    tests = [records[name]["found"] for name in ("tests-by-library", "tests")]
    assert all(one["failed"] == one["passed"] == 0 < one["skipped"] for one in tests)
    assert tests[0]["skipped"] < tests[1]["skipped"]  # ours are left out there
    kernels = records["kernels"]["found"]
    assert {one["rows"] for one in kernels["attention"]} == set(kernel_rates.ROWS)
    assert len({one["kind"] for one in kernels["products"]}) == 7
    assert [one["rows"] for one in kernels["states"]] == [*kernel_rates.ROWS, kernel_rates.TINY.prefill]
    assert (tmp_path / "report.md").read_text("utf-8").startswith("# First contact\n\n**All steps ended well")


def test_states_are_timed_by_the_kernel_that_serves():
    """More of them than a cache holds, each pass from one to another: rows, and what is read and written."""
    backend = Recording(torch.float32)
    sizes = replace(kernel_rates.TINY, cold_bytes=3 << 20)
    found = list(kernel_rates.state_rates(backend, sizes))
    assert [one["rows"] for one in found] == [*kernel_rates.ROWS, sizes.prefill]
    assert backend.recorded == len(found)
    for one in found:
        nbytes = 2 * 8 * 128 * 128 * 4
        assert one["gb_per_s"] == pytest.approx(nbytes / 1e9 / (one["microseconds"] / 1e6))
        assert one["kind"] == "8 value heads"


def test_the_librarys_kernels_are_tried_without_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A fault in one of ours is told apart from a card on which nothing works."""
    monkeypatch.setattr(CudaDriver, "open", CudaDriver.open)
    given = []
    monkeypatch.setattr(contact_steps, "_tested", lambda sheet, *more: given.append(more))
    contact_steps.tests_by_library(Sheet(tmp_path / "x.json"), argparse.Namespace())
    assert given == [("-m", "not compiled")]
    with pytest.raises(OSError, match="left out"):
        CudaDriver.open()


class Recording(CpuBackend):
    """Records as a card does: what was run once is run again, and nobody else's."""

    recorded = 0

    def capture(self, run: object) -> Replay:
        self.recorded += 1
        return run


def test_rates_are_of_recordings_over_more_than_a_cache_holds():
    """One matrix again and again would lie in the card's cache, and launches would be timed."""
    backend, seen = Recording(torch.float32), []

    def turn(number: int) -> torch.Tensor:
        seen.append(number)
        return torch.zeros(1)

    found = kernel_rates.cold_seconds(backend, turn, 3)
    assert backend.recorded == 1 and found["recorded"] and found["microseconds"] > 0
    assert seen[:6] == [0, 1, 2, 0, 1, 2] and len(seen) % 3 == 0
    sizes = kernel_rates.TINY
    keys, _ = kernel_rates._keys(backend, sizes.heads[0], sizes.tokens[0], torch.float32, sizes.cold_bytes)
    assert sum(part.nbytes for layer in keys for part in layer) >= sizes.cold_bytes
    assert len({part.data_ptr() for layer in keys for part in layer}) == 2 * len(keys)
    assert (
        kernel_rates.TimedSizes().cold_bytes > 128 << 20
    )  # an RTX 5090 has 96 MiB, a data centre's 50 to 126


class Filled(CpuBackend):
    """Says that it is full in the words of a card."""

    def out_of_memory(self, error: BaseException) -> bool:
        return "out of memory" in str(error)


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried\nmore", "an illegal memory access"])
def test_a_full_device_is_drilled(monkeypatch: pytest.MonkeyPatch, words: str):
    """Whether its refusal is understood, and whether it computes on."""
    backend, ones, made = Filled(torch.float32), torch.ones, []

    def full_with_three(*size: int, **how: object) -> torch.Tensor:
        if how["dtype"] == torch.uint8:
            made.append(size)
            if len(made) > 3:
                raise RuntimeError(words)
        return ones(*size, **how)

    monkeypatch.setattr(torch, "ones", full_with_three)
    found = drilled(backend, piece_bytes=16, most=9)
    assert found["pieces"] == 3 and found["said"] == words.splitlines()[0]
    assert found["understood"] is (words != "an illegal memory access") and found["computes"]


def test_what_a_sanitizer_finds_is_kept(tmp_path: Path):
    """Its exit code, and the end of what it says."""
    program = tmp_path / "sanitizer"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:])\nsys.exit(9)\n")
    program.chmod(0o755)
    found = sanitized(str(program), "racecheck", ["tests/gpu", "-m", "compiled"])
    assert found["exit_code"] == 9
    assert found["said"][0].startswith("--tool racecheck --error-exitcode 9 ")
    assert "-m pytest tests/gpu -m compiled" in found["said"][0]


@torch.inference_mode()
def test_verifications_are_timed_both_ways():
    """Each number of rows as recordings where the whole cache is on the device; none over the bus."""
    backend = OneAttention()
    model = ours(oracle(), backend=backend)
    for block, rows in ((200, [1, 9, 17, 33]), (50, [])):
        cache = FullKVCache(model.config.kv_shape, 200, backend, block_tokens=block)
        model.forward(range(40), cache)
        passes = RecordedVerification(model, most_rows=33)
        found = verification_replays(passes, model, cache, list(range(40)), lambda: False)
        assert [one["rows"] for one in found] == rows and cache.length == 40
        assert all(one["eager_ms"] > 0 < one["replay_ms"] for one in found)
    with pytest.raises(OutOfTime):
        cache = FullKVCache(model.config.kv_shape, 200, backend, block_tokens=200)
        verification_replays(passes, model, cache, list(range(40)), lambda: True)


@pytest.mark.parametrize(("told", "expected"), [(None, 64), (200.0, 200)])
def test_memory_that_a_virtual_machine_does_not_tell(monkeypatch: pytest.MonkeyPatch, told, expected):
    """7B over the bus is refused where the machine says too little."""
    monkeypatch.setattr(contact_steps, "probe", lambda folder: imagined_hardware(gpu="RTX 4090", ram_gib=64))
    monkeypatch.setattr("benchmarks.speed.forward_times.measured_speeds", lambda *given: gpu.MeasuredSpeeds())
    options = argparse.Namespace(stand_in=False, seconds=60.0, cap_gib=24.0, ram_gib=told)
    machine = contact_steps._bench(options).machine
    assert machine.ram_bytes == expected * GIB and machine.gpus[0].name.endswith("4090")
