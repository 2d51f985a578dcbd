"""Times of a CPU are those of this computer: of its instruction set, or as they were measured on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.assembly import rates
from core.assembly.models import cpu_backend
from core.backend.shared.compiled import ATTENTION
from core.config import Settings
from core.conversation.time_estimates import TimeEstimate
from core.hardware import probe
from core.hardware.facts import CpuRates, Hardware
from core.hardware.gpus import imagined_hardware
from core.hardware.measured import Measurements
from core.model.store.catalogue import find
from core.planning.cpu_rates import usual_rates
from core.planning.offers import offers, plan_model
from core.planning.plan import Plan
from core.planning.recommended import first_answer

AVX2 = frozenset({"avx2", "fma"})
AVX512 = AVX2 | {"avx512f"}
FOUR_B = "Qwen3-4B-Instruct-2507-Q4_K_M"


def pc(flags: frozenset[str], measured: CpuRates | None = None) -> Hardware:
    return replace(imagined_hardware(ram_gib=16), cpu_flags=flags, cpu_rates=measured)


def planned(hardware: Hardware, name: str = FOUR_B) -> Plan:
    return plan_model(hardware, Settings(), find(name)).plan


def of(flags: frozenset[str], times: float = 1.0) -> CpuRates:
    """The usual rates of eight cores as if they had been measured, so many times as fast."""
    usual = usual_rates(flags, 8, "float32")
    rates_of = {
        name: times * getattr(usual, name) for name in CpuRates.__slots__ if name.endswith(("_s", "flops"))
    }
    return replace(usual, **rates_of)


def test_each_instruction_set_has_its_own_times():
    """A server's registers read and compute twice as fast as most PCs': the book's card, the recommendation
    and the time left went by the server's.
    """
    wide, narrow = planned(pc(AVX512)), planned(pc(AVX2))
    assert narrow.expected_book_s > 1.9 * wide.expected_book_s
    assert narrow.expected_passage_tbt_ms > wide.expected_passage_tbt_ms
    assert first_answer(narrow).seconds > 1.3 * first_answer(wide).seconds


@pytest.mark.parametrize("flags", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_what_was_measured_here_counts_instead(flags: frozenset[str]):
    """Both kernels' rates, as usual and half of that, through the plan to what the reader is told."""
    usual, as_usual, half = (planned(pc(flags, one)) for one in (None, of(flags), of(flags, 0.5)))
    assert replace(usual, notes=()) == replace(as_usual, notes=())
    assert half.expected_book_s == pytest.approx(2 * usual.expected_book_s, rel=0.01)
    assert TimeEstimate(half).reading_s(10_000) == pytest.approx(
        2 * TimeEstimate(usual).reading_s(10_000), rel=0.01
    )
    assert half.expected_passage_tbt_ms == pytest.approx(2 * usual.expected_passage_tbt_ms, rel=0.1)


def test_the_recommendation_is_this_computers():
    """On a PC that is 2.5 times as slow the model of four billion takes too long: a smaller one is."""
    names = [
        next(offer.entry.name for offer in offers(pc(AVX2, of(AVX2, times)), Settings()) if offer.recommended)
        for times in (1.0, 0.4)
    ]
    sizes = [find(name).shape.parameters for name in names]
    assert sizes[1] < sizes[0]


def test_rates_of_other_conditions_do_not_count():
    """Fewer threads, another type, or a kernel that failed since: then those of the instruction set do."""
    usual, slow = planned(pc(AVX2)), of(AVX2, 0.5)
    for other in (replace(slow, threads=4), replace(slow, computes="bfloat16")):
        assert planned(pc(AVX2, other)).expected_book_s == usual.expected_book_s
    refused = replace(pc(AVX2, slow), refused=(ATTENTION,))
    assert planned(refused).expected_book_s == planned(replace(refused, cpu_rates=None)).expected_book_s


# ---- measured and kept -------------------------------------------------------------------------------------


@pytest.fixture
def plan() -> Plan:
    return replace(planned(pc(AVX2)), threads=1, computes="float32")


def slower(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every measurement takes so long."""
    monkeypatch.setattr(rates, "_seconds", lambda run: seconds)
    monkeypatch.setattr(rates, "_others_s", lambda: 0.0)


def test_rates_are_kept_of_the_better_of_two_loads(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
):
    """At the first start everything else is busy, too; the next plan on this computer knows the better."""
    backend, kept = cpu_backend(torch.float32, storage=torch.bfloat16, threads=1), Measurements(tmp_path)
    if backend.refused:
        pytest.skip("torch does a kernel's work here")
    found = []
    for seconds in (0.2, 0.1, 0.4):
        slower(monkeypatch, seconds)
        rates.keep_rates(backend, plan, kept)
        found.append(probe.probe(tmp_path, measure=False).cpu_rates)
    first, second, third = found
    assert second == third and second.linear_gflops == pytest.approx(2 * first.linear_gflops)
    assert second.kv_gb_per_s == pytest.approx(2 * first.kv_gb_per_s)
    assert (second.threads, second.computes) == (1, "float32")
    assert probe.probe(tmp_path, measure=False, again=True).cpu_rates is None, "measured anew on demand"


def test_beside_other_programs_nothing_is_kept(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch):
    """A first start on a busy computer would recommend a smaller model until the second."""
    slower(monkeypatch, 0.1)
    taken = iter((0.0, 1e6))
    monkeypatch.setattr(rates, "_others_s", lambda: next(taken))
    backend = cpu_backend(torch.float32, storage=torch.bfloat16, threads=1)
    rates.keep_rates(backend, plan, Measurements(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_rates_of_another_instruction_set_are_not_this_computers(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
):
    """A cap at AVX2, or a data folder that moved with its disk into another PC."""
    slower(monkeypatch, 0.1)
    rates.keep_rates(
        cpu_backend(torch.float32, storage=torch.bfloat16, threads=1), plan, Measurements(tmp_path)
    )
    monkeypatch.setattr(probe, "cpu_flags", lambda: frozenset({"sse4_2"}))
    assert probe.probe(tmp_path, measure=False).cpu_rates is None


def test_a_card_and_torchs_own_kernels_leave_nothing(tmp_path: Path, plan: Plan):
    backend = cpu_backend(torch.float32, threads=1)
    for other in (replace(plan, device="cuda"), replace(plan, dtype="float32")):
        rates.keep_rates(backend, other, Measurements(tmp_path))
    backend.refused = frozenset({ATTENTION})
    rates.keep_rates(backend, plan, Measurements(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_kernels_themselves_are_measured(plan: Plan):
    """What is timed runs: a matrix or a cache of a wrong form would fail at the first load."""
    backend = cpu_backend(torch.float32, storage=torch.bfloat16, threads=1)
    if backend.refused:
        pytest.skip("torch does a kernel's work here")
    found = rates.measured_rates(backend, plan)
    assert min(getattr(found, name) for name in CpuRates.__slots__ if name.endswith(("_s", "flops"))) > 0
