"""The self-check finds what works, and what does not: a check that never fails would only reassure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from core.assembly.models import cpu_backend
from core.backend.base import DeltaParts, DeltaRows, DeltaSteps, ServedDelta
from core.backend.cpu.at_once import PlainCopies
from core.backend.cpu.backend import CpuBackend
from core.backend.shared.compiled import HEAD_DIMS
from core.backend.shared.quantized import QuantizedMatrix
from core.hardware.gpus import imagined_gpu
from core.selftest import device
from core.selftest.device import CheckResult, check_device, devices, format_findings, verdict
from tests.support.fake_cuda import FakeCuda
from tests.support.recording import OneAttention, RecordingBackend
from tests.support.said import figures, values, worded_by


def findings(backend: CpuBackend, exact: CpuBackend | None = None, **more: object) -> dict[str, CheckResult]:
    return {one.what: one for one in check_device(backend, exact or CpuBackend(), **more)}


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are not looked at here."""
    monkeypatch.setattr(device, "_BLOCK_BYTES", 1 << 16)


def test_all_is_well_on_the_cpu():
    """Everything runs; what a CPU has not is said to be not here."""
    found = findings(CpuBackend())
    good = {"numbers", "attention", "weights in codes", "layers with a state", "copies", "answers"}
    assert {what for what, one in found.items() if one.ok} == good
    assert all(one.ok is not False for one in findings(CpuBackend(torch.bfloat16)).values())
    assert not [one for one in found.values() if one.ok is False]
    assert findings(RecordingBackend())["recordings"].ok
    assert worded_by(verdict, verdict(list(found.values()))) and not verdict(list(found.values())).values
    text = format_findings(list(found.values()))
    assert "48 tokens by TriForce" in text and "BROKEN" not in text
    # no word of a card that is not there: one rate, of three
    assert len(figures(found["copies"].said)) == 1


@torch.inference_mode()
def test_whether_verification_is_recorded_is_said():
    """And why not, where it is not: the attention, or the card, which says what it was that failed."""
    found = device._recordings(OneAttention())
    assert found.ok and found.figures == {"verification_launched": ""}
    found = device._recordings(RecordingBackend())
    said = "verification is launched operation by operation: a CPU has no recordings"
    assert found.ok and said in found.said

    class CannotRecord(CpuBackend):
        def capture(self, run: Callable[[], torch.Tensor]) -> None:
            self.notes = (*self.notes, "CUDA graphs are not used (not permitted).")

    found = device._recordings(CannotRecord())
    assert found.ok is None and "(not permitted)" in found.said


def test_without_a_card_the_kernels_are_tried_that_answer(monkeypatch: pytest.MonkeyPatch):
    """Not torch's in the place of the compiled ones, and from numbers held as an engine holds them."""
    site = SimpleNamespace(gpu=None, computes="float32", dtype="bfloat16")
    monkeypatch.setattr(device, "site_of", lambda *_given: site)
    tried, exact, gpu = devices(None, None)
    answers = cpu_backend(torch.float32, storage=torch.bfloat16)
    assert (tried.notes, tried.dtype, tried.storage) == (answers.notes, torch.float32, torch.bfloat16)
    assert exact.storage == torch.float32 and gpu is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.wide
def test_a_cache_is_measured_against_its_plan(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    """The lines that the planner adds up are what the cache makes; a card that holds more is said."""
    made = findings(CpuBackend(dtype), CpuBackend())["memory"].figures
    assert made["planned_bytes"] == made["counted_bytes"] > 40 << 20
    apart = findings(cpu_backend(torch.float32, storage=dtype), CpuBackend())["memory"].figures
    assert apart["planned_bytes"] == apart["counted_bytes"] == made["counted_bytes"]
    cuda = FakeCuda().install(monkeypatch)
    backend, held = cuda.backend(dtype), iter((0, 0.5 * made["planned_bytes"]))
    backend.device = torch.device("meta")  # its tensors take nothing here
    backend.host_memory = lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype, device="meta")
    backend.memory = lambda: SimpleNamespace(used_bytes=next(held))
    assert device._memory(backend).ok is False
    held = iter((0, made["planned_bytes"]))
    assert device._memory(backend).ok


class LosesRows(PlainCopies):
    def to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        super().to_device(target[1:], source[1:])


class Broken(CpuBackend):
    """With one of its verbs in another way."""

    def __init__(self, verb: str, other: Callable[..., object]) -> None:
        super().__init__()
        setattr(self, verb, other)


def attends_to_too_much(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool):
    return CpuBackend().attend_part(q, k, v, length=length, causal=False)


def has_none(*args: object, **more: object) -> object:
    raise RuntimeError("no kernel image is available for execution on the device")


def sees_codes_badly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool):
    """A kernel that multiplies by no factor."""
    backend = CpuBackend()
    if k.dtype == torch.int8:
        k = k[..., : q.shape[-1]].float()
    return backend.attend_part(q, k, v, length=length, causal=causal)


def another_matrix(parts: list[QuantizedMatrix], bias: torch.Tensor | None):
    return CpuBackend().coded([replace(part, middle=part.middle + 1) for part in parts], bias)


def other_rows(planes: QuantizedMatrix):
    return CpuBackend().coded_rows(planes.picked(torch.arange(planes.rows - 1, -1, -1)))


def forgets_too_much(parts: DeltaParts, by_torch: DeltaRows, _steps: DeltaSteps) -> ServedDelta:
    """A kernel of few rows that leaves less of a state than is to be kept."""

    def rows(source: torch.Tensor, target: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        found = by_torch(source, target, given)
        target.mul_(0.99)
        return found

    return ServedDelta(rows, None)


def forgets_its_past(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool):
    """A slip that only passes of several rows show."""
    out, lse = CpuBackend().attend_part(q, k, v, length=length, causal=causal)
    return (out.flip(0), lse) if 1 < q.shape[0] < 8 else (out, lse)


class TriesAKernel(CpuBackend):
    """As a card's: tries the compiled kernel when it first attends, and notes what came of it."""

    def attend_part(self, q: torch.Tensor, *given: torch.Tensor, **how: object) -> object:
        note = f"Heads of {q.shape[2]}: the compiled kernel (1.00 ms, the library's 2.00 ms)."
        if note not in self.notes:
            self.notes = (*self.notes, note)
        return super().attend_part(q, *given, **how)


def test_which_kernel_serves_short_passes_is_said():
    """The decision of its trial on this card, with its times, and the error of each kind of pass."""
    found = findings(TriesAKernel())["attention"]
    assert found.ok and all(
        f"Heads of {dim}: the compiled kernel (1.00 ms" in found.said for dim in HEAD_DIMS
    )
    assert len(found.figures["short_passes"]) == len(HEAD_DIMS)
    assert len(found.figures["errors"]) == 8 * len(HEAD_DIMS)
    assert found.figures["largest_error"] == max(found.figures["errors"].values())


@pytest.mark.parametrize(
    ("what", "verb", "other"),
    [
        ("attention", "attend_part", attends_to_too_much),
        ("attention", "attend_part", has_none),
        ("attention", "attend_part", sees_codes_badly),
        ("weights in codes", "coded", another_matrix),
        ("weights in codes", "coded_rows", other_rows),
        ("layers with a state", "delta_rows", forgets_too_much),
        ("copies", "copies", LosesRows),
        ("recordings", "capture", lambda run: lambda: run() * 0),
    ],
)
@pytest.mark.wide
def test_what_is_broken_is_found(what: str, verb: str, other: Callable[..., object]):
    """In words, and the other trials go on."""
    found = findings(Broken(verb, other))
    assert found[what].ok is False and found["answers"].ok
    assert "BROKEN" in format_findings(list(found.values()))


def test_answers_that_differ_are_found():
    """The whole loop, over copies and kernels; the verdict names what broke."""
    found = findings(CpuBackend(), Broken("attend_part", forgets_its_past))
    assert found["answers"].ok is False
    assert verdict(list(found.values())).startswith("Not sound: answers.")


def test_a_card_that_fails_for_good_ends_the_check():
    """All that is tried behind it would be called broken."""
    one = Broken("attend_part", has_none)
    lost = iter((False, True))  # behind the numbers, and behind attention
    one.lost = lambda: next(lost)
    found = list(check_device(one, CpuBackend()))
    assert [finding.ok for finding in found] == [True, False, False]
    assert len(worded_by(check_device, found[-1].what, found[-1].said)) == 2
    assert values(verdict(found))["parts"].endswith(found[-1].what)


@pytest.mark.wide
def test_what_an_old_card_gets_is_said():
    """float16 alone: some models overflow, and reading is slower."""
    old = replace(imagined_gpu("RTX 4090"), compute_capability=(7, 5))
    assert "65,504" in findings(CpuBackend(), gpu=old)["numbers"].said
    assert "65,504" not in findings(CpuBackend(), gpu=imagined_gpu("RTX 4090"))["numbers"].said
