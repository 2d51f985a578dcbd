"""The steps of benchmarks.card.first_contact, each in the process that `python -m benchmarks.contact_steps
NAME` starts: what it finds is in its file as soon as it is found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
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
CONTEXTS, TINY_CONTEXT = (8_192, 130_048), 300  # tokens read before decoding
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
    import pytest

    counter = OutcomeCounter(sheet)
    code = pytest.main(["tests/gpu", "--tb=short", "-p", "no:cacheprovider"], plugins=[counter])
    sheet.put(exit_code=int(code))


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
    """Its shape with random weights, under the cap where the card is larger: passes, then decoding at a
    stated acceptance, behind a short context and a long one.
    """
    from benchmarks.card import gpu
    from benchmarks.speed.forward_times import OutOfTime

    bench = _bench(options)
    if bench is None:
        sheet.put(refused="No CUDA GPU was found; --stand-in tests the program without one.")
        return
    capped = not bench.tiny and bench.machine.gpus[0].vram_bytes > options.cap_gib * GIB
    card = f"a card of {options.cap_gib:g} GiB" if capped else "the whole card"
    sheet.put(acceptance="stated", runs_on="a stand-in of a few rows, on the CPU" if bench.tiny else card)
    shape = gpu.TINY if bench.tiny else gpu.LLAMA_3_8B
    for context in (TINY_CONTEXT,) if bench.tiny else CONTEXTS:
        case, named = (
            gpu.CardCase(shape, context, capped or bench.tiny, "stated"),
            f"behind {context:,} tokens",
        )
        try:
            found = gpu.run_case(case, bench)
            if "refused" in found:  # by a card that is too small for 16 bits
                sheet.put(**{f"{named}, weights of 16 bits": found})
                found, named = gpu.run_case(replace(case, coded=True), bench), f"{named}, weights of 4 bits"
        except OutOfTime:
            found = {"refused": "out of time"}
        sheet.put(**{named: found})


def _bench(options: argparse.Namespace) -> Any:
    """None without a card."""
    import torch

    from benchmarks.card import gpu
    from benchmarks.card.sources import Random, random_ids
    from benchmarks.speed.forward_times import VERIFY_ROWS, measured_speeds
    from core.hardware.gpus import imagined_hardware

    ends = time.monotonic() + options.seconds - _SPARE_S

    def bench(vocab: int, longest: int, hardware: Hardware, speeds: gpu.MeasuredSpeeds) -> gpu.CardBench:
        source = Random(random_ids(vocab, longest + max(VERIFY_ROWS)))
        late = (lambda: False) if options.stand_in else (lambda: time.monotonic() > ends)
        return gpu.CardBench(source, hardware, speeds, options.stand_in, late, options.cap_gib)

    if options.stand_in:
        return bench(gpu.TINY.vocab, TINY_CONTEXT, imagined_hardware(ram_gib=16), gpu.MeasuredSpeeds())
    hardware = probe(paths.data_dir())
    if not hardware.gpus:
        return None
    card = hardware.gpus[0]
    speeds = measured_speeds(torch.device("cuda", card.index), card.pcie_gb_per_s)
    return bench(gpu.RANDOM_VOCAB, max(CONTEXTS), hardware, speeds)


STEPS: dict[str, Callable[[Sheet, argparse.Namespace], None]] = {
    "machine": machine_step,
    "self-test": self_test,
    "tests": tests,
    "llama-8b": llama_8b,
}


def main(arguments: list[str] | None = None) -> None:
    """The process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cap-gib", type=float, required=True)
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args(arguments)
    # before torch is asked for the first time: GPUs are numbered as the driver's management library does
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.chdir(REPO)
    STEPS[options.step](Sheet(options.file), options)


if __name__ == "__main__":
    main()
