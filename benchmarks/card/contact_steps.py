"""The steps of benchmarks.card.first_contact, each in the process that `python -m benchmarks.contact_steps
NAME` starts: what it finds is in its file as soon as it is found.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lib import results
from core import paths
from core.config import Settings
from core.hardware.facts import GIB, Hardware
from core.hardware.probe import probe

if TYPE_CHECKING:
    import pytest

REPO = Path(__file__).resolve().parents[2]
SHORT, LONG, TINY_CONTEXT = 32_768, 130_048, 300  # tokens read before decoding
CONTEXTS = (SHORT, LONG)
GPU_TESTS = ("tests/gpu",)
NO_CARD = "No CUDA GPU was found; --stand-in tests the program without one."
OURS = "compiled"  # mark of those that launch our kernels themselves
_SPARE_S = 15.0  # that a step stops before its process would be ended


class Sheet:
    """What a step has found, whole in its file after each finding."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, Any] = {}

    def put(self, **found: Any) -> None:
        """Adds to it."""
        self._found |= found
        paths.write_whole(self._file, json.dumps(self._found, indent=1, ensure_ascii=False))


def machine_step(sheet: Sheet, options: argparse.Namespace) -> None:
    """Versions, memory, and the bus in both directions; torch last, since it may not load."""
    sheet.put(**results.machine_facts(), python_path=sys.executable)
    sheet.put(hardware=probe(paths.data_dir(), again=True).to_json())
    sheet.put(nvidia_smi=_nvidia_smi())
    import torch

    cuda = torch.cuda.is_available()
    devices = range(torch.cuda.device_count() if cuda else 0)
    sheet.put(
        torch={
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "architectures": torch.cuda.get_arch_list() if cuda else [],
            "devices": [str(torch.cuda.get_device_properties(index)) for index in devices],
        }
    )


def _nvidia_smi() -> str:
    try:
        said = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return said.stdout


def self_test(sheet: Sheet, options: argparse.Namespace) -> None:
    """What `doctor --gpu` tries."""
    from core.selftest.device import check_device, devices, verdict

    settings = Settings(device="cpu") if options.stand_in else Settings()
    findings = []
    for one in check_device(*devices(probe(paths.data_dir()), settings)):
        findings.append(one)
        sheet.put(findings=[found.to_json() for found in findings])
    sheet.put(verdict=verdict(findings))


def tests(sheet: Sheet, options: argparse.Namespace) -> None:
    """tests/gpu; all are skipped where there is no card."""
    _tested(sheet)


def _tested(sheet: Sheet, *more: str) -> None:
    import pytest

    counter = OutcomeCounter(sheet)
    code = pytest.main([*GPU_TESTS, *more, "--tb=short", "-p", "no:cacheprovider"], plugins=[counter])
    sheet.put(exit_code=int(code))


def tests_by_library(sheet: Sheet, options: argparse.Namespace) -> None:
    """The same without any compiled kernel of ours, so that what a fault of one breaks is known to work."""
    from core.backend.cuda.triton.driver import CudaDriver

    def refuse() -> CudaDriver:
        raise OSError("left out, to try the library's kernels")

    CudaDriver.open = refuse
    _tested(sheet, "-m", f"not {OURS}")


def kernels(sheet: Sheet, options: argparse.Namespace) -> None:
    """Rates of attention, of products and of layers with a state by themselves."""
    import torch

    from benchmarks.card import kernel_rates
    from core.selftest.device import devices

    backend, _exact, gpu = devices(
        probe(paths.data_dir()), Settings(device="cpu") if options.stand_in else Settings()
    )
    if gpu is None and not options.stand_in:
        sheet.put(refused=NO_CARD)
        return
    sizes = kernel_rates.TINY if options.stand_in else kernel_rates.TimedSizes()
    with torch.inference_mode():
        for name, rates in (
            ("attention", kernel_rates.attention_rates),
            ("products", kernel_rates.product_rates),
            ("states", kernel_rates.state_rates),
        ):
            found = []
            for one in rates(backend, sizes):
                found.append(one)
                sheet.put(**{name: found})
    sheet.put(kernels=list(backend.notes))


class OutcomeCounter:
    """What came of each test, as a plugin of pytest."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._outcomes: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0}
        self._failed: dict[str, str] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What kills the process is named by it."""
        self._sheet.put(running=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The call's outcome, and whatever did not pass around it."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.outcome] += 1
        if report.failed:
            self._failed[report.nodeid] = (report.longreprtext.strip().splitlines() or [""])[-1]
        self._sheet.put(**self._outcomes, failures=self._failed)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported has no tests."""
        if report.failed:
            self._outcomes["failed"] += 1
            self._failed[report.nodeid] = (report.longreprtext.strip().splitlines() or [""])[-1]
            self._sheet.put(**self._outcomes, failures=self._failed)


def llama_8b(sheet: Sheet, options: argparse.Namespace) -> None:
    """Its shape on the whole card, then on a smaller one where the card is larger: passes launched one by one
    and as recordings, then decoding at a stated acceptance.
    """
    _decoded(sheet, options, "LLAMA_3_8B", (("stated", LONG),), cards=("whole", "capped"))


def llama_7b(sheet: Sheet, options: argparse.Namespace) -> None:
    """LWM's shape, whose KV cache leaves a card of 24 GiB: decoding over the bus, then reading."""
    read = [("stated", context) for context in CONTEXTS]
    _decoded(sheet, options, "LLAMA_2_7B", (("made", LONG), *read), cards=("capped",))


def _decoded(
    sheet: Sheet,
    options: argparse.Namespace,
    shape: str,
    wanted: Sequence[tuple[str, int]],
    *,
    cards: tuple[str, ...],
) -> None:
    """Random weights and ids, each case as soon as it is through. `wanted`: as CardCase.what, and tokens."""
    from benchmarks.card import gpu
    from benchmarks.speed.forward_times import OutOfTime

    bench = _bench(options)
    if bench is None:
        sheet.put(refused=NO_CARD)
        return
    sheet.put(acceptance="stated", stand_in=bench.tiny)
    if not _larger(bench, options.cap_gib):
        cards = ("whole",)
    if bench.tiny:
        wanted = dict.fromkeys((what, TINY_CONTEXT) for what, _context in wanted)
    for what, context in wanted:
        for card in cards:
            capped = card == "capped"
            on = f"a card of {options.cap_gib:g} GiB" if capped else "the whole card"
            named = f"{on}, behind {context:,} tokens" + (" that were not read" if what == "made" else "")
            case = gpu.CardCase(gpu.TINY if bench.tiny else getattr(gpu, shape), context, capped, what)
            try:
                found = gpu.run_case(case, bench)
                if "refused" in found:  # by a card that is too small for 16 bits
                    sheet.put(**{f"{named}, weights of 16 bits": found})
                    found, named = (
                        gpu.run_case(replace(case, coded=True), bench),
                        f"{named}, weights of 4 bits",
                    )
            except OutOfTime:
                found = {"refused": "out of time"}
            sheet.put(**{named: found})


def _larger(bench: Any, cap_gib: float) -> bool:
    return bench.tiny or bench.machine.gpus[0].vram_bytes > cap_gib * GIB


def full_device(sheet: Sheet, options: argparse.Namespace) -> None:
    """The device is filled until it refuses; then it must compute as before, and hold no more than before."""
    import torch

    from benchmarks.card.contact_drills import drilled
    from core.backend.cuda.backend import CudaBackend

    if not torch.cuda.is_available():
        sheet.put(refused=NO_CARD)
        return
    backend = CudaBackend(torch.bfloat16, memory_cap_bytes=int(options.cap_gib * GIB))
    for drill in ("first", "again"):
        sheet.put(**{drill: drilled(backend, piece_bytes=GIB // 4, most=int(4 * options.cap_gib) + 8)})


def sanitizer(sheet: Sheet, options: argparse.Namespace) -> None:
    """compute-sanitizer over the tests of our kernels, where it is installed."""
    from benchmarks.card.contact_drills import TOOLS, sanitized

    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if program is None:
        sheet.put(refused="compute-sanitizer is not installed.")
        return
    for tool in TOOLS:
        sheet.put(**{tool: sanitized(program, tool, [*GPU_TESTS, "-m", OURS])})


def _bench(options: argparse.Namespace) -> Any:
    """None without a card."""
    import torch

    from benchmarks.card import gpu
    from benchmarks.card.sources import Random, random_ids
    from benchmarks.speed.forward_times import VERIFY_ROWS, measured_speeds
    from core.hardware.gpus import imagine, imagined_hardware

    ends = time.monotonic() + options.seconds - _SPARE_S

    def bench(vocab: int, longest: int, hardware: Hardware, speeds: gpu.MeasuredSpeeds) -> gpu.CardBench:
        source = Random(random_ids(vocab, longest + max(VERIFY_ROWS)))
        late = (lambda: False) if options.stand_in else (lambda: time.monotonic() > ends)
        return gpu.CardBench(source, hardware, speeds, options.stand_in, late, options.cap_gib)

    if options.stand_in:
        return bench(gpu.TINY.vocab, TINY_CONTEXT, imagined_hardware(ram_gib=16), gpu.MeasuredSpeeds())
    hardware = imagine(probe(paths.data_dir()), ram_gib=options.ram_gib)
    if not hardware.gpus:
        return None
    card = hardware.gpus[0]
    speeds = measured_speeds(torch.device("cuda", card.index), card.pcie_gb_per_s)
    return bench(gpu.RANDOM_VOCAB, max(CONTEXTS), hardware, speeds)


STEPS: dict[str, Callable[[Sheet, argparse.Namespace], None]] = {
    "machine": machine_step,
    "self-test": self_test,
    "tests-by-library": tests_by_library,
    "tests": tests,
    "kernels": kernels,
    "llama-8b": llama_8b,
    "llama-7b": llama_7b,
    "full-device": full_device,
    "sanitizer": sanitizer,
}


def main(arguments: list[str] | None = None) -> None:
    """The process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cap-gib", type=float, required=True)
    parser.add_argument("--ram-gib", type=float)
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args(arguments)
    # before torch is asked for the first time: GPUs are numbered as the driver's management library does
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.chdir(REPO)
    STEPS[options.step](Sheet(options.file), options)


if __name__ == "__main__":
    main()
