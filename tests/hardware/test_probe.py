"""The probe: facts on every machine, whatever its driver does; measurements kept and made again on demand."""

from __future__ import annotations

import json
import subprocess
import sys
import types

import psutil
import pytest

from core.hardware import child, measured, nvml, probe
from core.hardware.facts import GIB, Hardware
from core.hardware.gpus import imagined_gpu
from core.hardware.measured import CPU, PAGE_LOCKED, DeviceTrials, Measurements, kernels_on
from core.paths import ROOT
from core.text.words import duration
from tests.support.said import values, worded_by


class NVMLError(Exception):
    """Stands for the driver library's error."""


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801 (the library's own name)
    """No driver on this machine."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    """This GPU does not know the question."""


def fake_driver(cards: list[dict], *, init_error: Exception | None = None) -> types.ModuleType:
    """A driver library that answers as `cards` say. A missing answer raises, as the real one does."""
    module = types.ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.NVML_CLOCK_MEM, module.NVML_CLOCK_SM = 2, 1

    def init() -> None:
        if init_error is not None:
            raise init_error

    def ask(key: str):
        def answer(handle: dict, *rest: int):
            value = handle.get((key, *rest), handle.get(key))
            if value is None:
                raise NVMLError_NotSupported("Not Supported")
            return value

        return answer

    module.nvmlInit, module.nvmlShutdown = init, lambda: None
    module.nvmlSystemGetDriverVersion = lambda: b"575.64"
    module.nvmlDeviceGetCount = lambda: len(cards)
    module.nvmlDeviceGetHandleByIndex = lambda index: cards[index]
    for name, key in {
        "Name": "name",
        "MemoryInfo": "memory",
        "CudaComputeCapability": "capability",
        "MaxPcieLinkGeneration": "generation",
        "CurrPcieLinkWidth": "lanes",
        "MemoryBusWidth": "bits",
        "MaxClockInfo": "clock",
        "NumGpuCores": "cores",
        "UUID": "uuid",
    }.items():
        setattr(module, f"nvmlDeviceGet{name}", ask(key))
    return module


def memory(total_gib: float, free_gib: float) -> types.SimpleNamespace:
    return types.SimpleNamespace(total=int(total_gib * GIB), free=int(free_gib * GIB))


CARD = {
    "name": b"NVIDIA GeForce RTX 4090",
    "memory": memory(23.99, 22.5),
    "capability": (8, 9),
    "generation": 4,
    "lanes": 16,
}


def test_a_known_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([CARD]))
    (gpu,), problems = nvml.read_gpus()
    assert (gpu.name, gpu.driver, gpu.known, problems) == ("NVIDIA GeForce RTX 4090", "575.64", True, ())
    assert (gpu.memory_gb_per_s, gpu.tflops, gpu.pcie_gb_per_s, gpu.compute_capability) == (
        1008,
        165.2,
        25.0,
        (8, 9),
    )
    assert gpu.free_bytes == int(22.5 * GIB)


def test_a_narrow_slot_is_seen(monkeypatch):
    """The link's width is this machine's, not the table's."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([{**CARD, "lanes": 8}]))
    assert nvml.read_gpus()[0][0].pcie_gb_per_s == 12.5


def test_an_unknown_card_is_judged_by_clocks_and_bus_width(monkeypatch):
    card = {
        **CARD,
        "name": "NVIDIA RTX 9999",
        "bits": 384,
        ("clock", 2): 10_501,
        ("clock", 1): 2520,
        "cores": 16_384,
    }
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([card]))
    gpu = nvml.read_gpus()[0][0]
    assert not gpu.known
    assert gpu.memory_gb_per_s == pytest.approx(1008, rel=0.01)  # 384 bit x 21 Gbit/s
    assert 100 < gpu.tflops < 165  # cautious, in the right place


def test_a_card_that_answers_almost_nothing(monkeypatch):
    """An old or virtual GPU must give cautious figures, not an exception."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([{"name": "GRID X", "memory": memory(8, 7)}]))
    (gpu,), problems = nvml.read_gpus()
    assert not gpu.known
    assert gpu.compute_capability is None
    assert 0 < gpu.memory_gb_per_s <= 500
    assert problems == ()


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (None, ["A", "B", "C"]),
        ("2,0", ["C", "A"]),
        ("GPU-bb, 0", ["B", "A"]),
        ("1,7,0", ["B"]),
        ("-1", []),
        ("", []),
        ("MIG-cc-1", ["A", "B", "C"]),
    ],
)
def test_cards_that_cuda_does_not_show_are_not_counted(monkeypatch, shown: str | None, names: list[str]):
    """The library counts all of them: the plan would be for one card, and torch would not see it."""
    cards = [{**CARD, "name": name, "uuid": f"GPU-{2 * name.lower()}-1"} for name in "ABC"]
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver(cards))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    gpus, problems = nvml.read_gpus()
    assert [(gpu.name, gpu.index) for gpu in gpus] == [(name, n) for n, name in enumerate(names)]
    assert problems == ()


def test_one_fallen_card_does_not_hide_the_other(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([{}, CARD]))
    gpus, problems = nvml.read_gpus()
    assert [gpu.index for gpu in gpus] == [1]
    assert "GPU 0 does not answer" in problems[0]


@pytest.mark.parametrize(
    ("error", "expected"), [(NVMLError_LibraryNotFound("no library"), 0), (NVMLError("Unknown Error"), 1)]
)
def test_no_driver_is_no_problem_and_a_broken_one_is(monkeypatch, error, expected):
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([], init_error=error))
    gpus, problems = nvml.read_gpus()
    assert (gpus, len(problems)) == ((), expected)


def test_missing_nvml_package_is_a_fact(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in nvml.read_gpus()[1][0]


def child_says(monkeypatch, words: str) -> list[tuple[str, ...]]:
    """Replaces the child; returns what is asked of it."""
    asked: list[tuple[str, ...]] = []

    def run(command, **options):
        asked.append(tuple(command[3:]))
        return subprocess.CompletedProcess(command, 0, words, "")

    monkeypatch.setattr(probe.subprocess, "run", run)
    return asked


@pytest.mark.parametrize(
    ("name", "known"), [("NVIDIA GeForce RTX 4090", True), ("NVIDIA Something 99", False)]
)
def test_torch_is_asked_where_the_management_library_is_silent(monkeypatch, name, known):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = {
        "name": name,
        "vram_bytes": 24 * GIB,
        "free_bytes": 23 * GIB,
        "compute_capability": [8, 9],
        "index": 0,
    }
    asked = child_says(monkeypatch, json.dumps({"gpus": [found]}))
    (gpu,) = probe.probe().gpus
    assert asked == [("--gpus",)]
    assert (gpu.name, gpu.free_bytes, gpu.compute_capability, gpu.known) == (name, 23 * GIB, (8, 9), known)
    assert gpu.memory_gb_per_s == (1008 if known else 936)  # the slowest of 24 GB of its generation


def test_torch_is_not_asked_where_there_is_no_driver(monkeypatch):
    """That costs seconds at every start of a PC without a card."""
    monkeypatch.setitem(
        sys.modules, "pynvml", fake_driver([], init_error=NVMLError_LibraryNotFound("no library"))
    )
    asked = child_says(monkeypatch, "{}")
    assert (probe.probe().gpus, asked) == ((), [])


def test_a_driver_that_torch_cannot_use_either_is_a_fact(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([], init_error=NVMLError("Unknown Error")))
    child_says(monkeypatch, json.dumps(child.gpus()))
    found = probe.probe()
    assert found.gpus == () and worded_by(nvml._silent, found.problems[0])


def test_this_machine(tmp_path):
    """Real facts of the machine the test runs on, against the system's own answers."""
    found = probe.probe(tmp_path)
    assert 1 <= found.physical_cores <= found.logical_cores <= psutil.cpu_count()
    assert 0 < found.ram_available_bytes <= found.ram_bytes <= psutil.virtual_memory().total
    assert 0 < found.pinnable_bytes <= found.ram_bytes
    assert found.disk_gb_per_s > 0
    assert found.disk_free_bytes > 0
    assert list(tmp_path.glob(".speed*")) == []
    json.dumps(found.to_json())


def test_what_could_be_page_locked_is_remembered(tmp_path):
    """An earlier run learned it from the system's refusal; measuring again forgets it, because memory may
    have been short that day.
    """
    usual = probe.probe(tmp_path, measure=False).pinnable_bytes
    Measurements(tmp_path).put(PAGE_LOCKED, {"bytes": 5})
    assert probe.probe(tmp_path, measure=False).pinnable_bytes == 5
    assert probe.probe(tmp_path, measure=False, again=True).pinnable_bytes == usual
    assert probe.probe(tmp_path, measure=False).pinnable_bytes == usual


def test_a_card_that_refused_a_kernel_is_planned_for_without_it(tmp_path, monkeypatch):
    """Known from the last engine, of this card alone; measuring again forgets it."""
    cards = tuple(imagined_gpu(name) for name in ("RTX 4090", "RTX 3060"))
    monkeypatch.setattr(probe, "read_gpus", lambda: (cards, ()))
    Measurements(tmp_path).put(kernels_on(cards[0].name), {"refused": ["a kernel"]})
    Measurements(tmp_path).put(kernels_on(CPU), {"refused": ["another"]})
    trials = DeviceTrials(Measurements(tmp_path), cards[0].name)
    trials.fail("a kernel")
    found = probe.probe(tmp_path, measure=False)
    assert [one.refused for one in (*found.gpus, found)] == [("a kernel",), (), ("another",)]
    assert trials.broke("a kernel")
    Measurements(tmp_path).put(PAGE_LOCKED, {"bytes": 5})
    for _start in ("tried again", "and later"):
        found = probe.probe(tmp_path, measure=False, retry_kernels=_start == "tried again")
        assert (found.gpus, found.refused, trials.broke("a kernel")) == (cards, (), False)
    assert Measurements(tmp_path).get(PAGE_LOCKED), "of nothing else"
    trials.fail("a kernel")
    assert probe.probe(tmp_path, measure=False, again=True).gpus == cards and not trials.broke("a kernel")


def test_without_a_folder_nothing_is_measured_or_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = probe.probe()
    assert (found.disk_gb_per_s, found.disk_free_bytes) == (None, None)
    assert list(tmp_path.iterdir()) == []


# ---- measured once, kept, measured again -------------------------------------------------------------------


@pytest.fixture
def bus(monkeypatch):
    """A machine with one GPU whose bus gets faster with every measurement, and those measurements."""
    calls: list[int] = []

    def measure(index: int) -> dict:
        calls.append(index)
        return {"h2d_gb_per_s": 20.0 + len(calls), "d2h_gb_per_s": 21.0}

    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([CARD]))
    monkeypatch.setattr(probe, "measure_bus", measure)
    return calls


def test_bus_is_measured_once_and_again_on_demand(bus, tmp_path):
    assert probe.probe(tmp_path).gpus[0].pcie_gb_per_s == 21.0
    assert probe.probe(tmp_path).gpus[0].pcie_gb_per_s == 21.0
    assert len(bus) == 1
    again = probe.probe(tmp_path, again=True).gpus[0]
    assert again.pcie_back_gb_per_s == 21.0
    assert (again.pcie_gb_per_s, again.pcie_measured, len(bus)) == (22.0, True, 2)
    assert probe.probe(tmp_path).gpus[0].pcie_gb_per_s == 22.0


def test_measurements_of_another_machine_do_not_count(bus, tmp_path):
    """A data folder on a stick or a network drive."""
    probe.probe(tmp_path)
    path = tmp_path / measured.FILE
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "machine": "elsewhere"}))
    probe.probe(tmp_path)
    assert len(bus) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"machine": 3}', "\x00\x01"])
def test_a_damaged_cache_counts_as_empty(bus, tmp_path, content):
    (tmp_path / measured.FILE).write_text(content)
    assert probe.probe(tmp_path).gpus[0].pcie_measured
    assert len(bus) == 1


def test_a_failed_measurement_leaves_the_nominal_rate_and_says_so(bus, tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "measure_bus", lambda index: {"problem": "the child crashed"})
    found = probe.probe(tmp_path)
    assert (found.gpus[0].pcie_gb_per_s, found.gpus[0].pcie_measured) == (25.0, False)
    assert "the child crashed" in found.problems[0]
    assert "RTX" not in (tmp_path / measured.FILE).read_text()


def test_measure_false_does_not_measure(bus, tmp_path):
    assert not probe.probe(tmp_path, measure=False).gpus[0].pcie_measured
    assert bus == []


def answer_of(monkeypatch, **outcome) -> dict:
    def run(command, **options):
        if "error" in outcome:
            raise outcome["error"]
        return subprocess.CompletedProcess(command, outcome["code"], outcome["out"], outcome.get("err", ""))

    monkeypatch.setattr(probe.subprocess, "run", run)
    return probe.measure_bus(0)


def test_what_the_measuring_child_may_do(monkeypatch):
    """Crash, hang, babble: words, never an exception."""
    good = answer_of(monkeypatch, code=0, out='a warning\n{"h2d_gb_per_s": 25.1, "d2h_gb_per_s": 26.0}\n')
    assert good["h2d_gb_per_s"] == 25.1
    assert (
        "code -11: Segmentation"
        in answer_of(monkeypatch, code=-11, out="", err="Segmentation fault")["problem"]
    )
    late = answer_of(monkeypatch, error=subprocess.TimeoutExpired("x", 1))
    assert values(late["problem"]) == {"time": duration(probe.CHILD_TIMEOUT_S)}
    assert "problem" in answer_of(monkeypatch, error=OSError("no such file"))
    assert "problem" in answer_of(monkeypatch, code=0, out="[1]\n")


def test_a_folder_that_cannot_be_written_costs_only_the_measurement(tmp_path):
    absent = tmp_path / "absent"
    found = probe.probe(absent)
    assert (found.disk_gb_per_s, found.disk_free_bytes) == (None, None)


# ---- memory and cores --------------------------------------------------------------------------------------


def test_a_containers_memory_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 300\n")
    assert probe._cgroup_memory(tmp_path) == (1000, 400)
    (tmp_path / "memory.max").write_text("max\n")
    assert probe._cgroup_memory(tmp_path) == (None, 0)
    assert probe._cgroup_memory(tmp_path / "absent") == (None, 0)


@pytest.mark.parametrize(
    ("release", "share"), [("5.15.167.4-microsoft-standard-WSL2", 0.4), ("6.8.0-generic", 0.9)]
)
def test_wsl_pins_and_spills_by_windows_rules(monkeypatch: pytest.MonkeyPatch, release: str, share: float):
    """Its driver is Windows' own: a full card is never said to be full there either."""
    monkeypatch.setattr(probe.platform, "system", lambda: "Linux")
    monkeypatch.setattr(probe.platform, "release", lambda: release)
    found = probe.probe(measure=False)
    assert found.pinnable_bytes == int(found.ram_bytes * share)
    assert (found.system, found.wsl, found.spills) == ("Linux", share == 0.4, share == 0.4)


def test_probing_imports_no_torch():
    """The UI process and the launcher probe; torch's memory and CUDA context must not end up in them."""
    code = "import sys; from core.hardware.probe import probe; probe(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_hardware_flags_in_json_are_those_of_interest():
    hardware = Hardware("Linux", "x", 1, 1, frozenset({"avx2", "fpu"}), GIB, GIB, GIB)
    assert hardware.to_json()["cpu_flags"] == ["avx2"]
