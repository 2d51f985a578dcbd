"""What the system tells of the CPU."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.backend.cpu.native.library import instruction_sets
from core.errors import UserError
from core.hardware import cpu

CPUINFO = (
    "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor\t: "
    "1\nflags\t\t: other\n"
)


def test_cpu_facts_from_text(monkeypatch, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    monkeypatch.setattr(cpu, "CPUINFO", path)
    assert cpu.cpu_name() == "A CPU @ 3 GHz"
    assert cpu.cpu_flags() == {"fpu", "avx2", "avx512_bf16"}


def test_a_cap_hides_what_is_newer(monkeypatch, tmp_path):
    """Kernels are chosen and times planned by the flags: what must be tried is a PC with AVX2 alone."""
    path = tmp_path / "cpuinfo"
    newer = "avx512f avx512_bf16 avx_vnni avx10_1 amx_bf16"
    path.write_text(f"flags\t\t: avx avx2 fma f16c {newer}\n\n")
    monkeypatch.setattr(cpu, "CPUINFO", path)
    monkeypatch.setenv(cpu.ISA_CAP, "avx2")
    assert cpu.cpu_flags() == {"avx", "avx2", "fma", "f16c"}
    assert cpu.all_cpu_flags() == {"avx", "avx2", "fma", "f16c", *newer.split()}
    monkeypatch.setenv(cpu.ISA_CAP, "none")
    assert cpu.cpu_flags() == {"avx", "fma", "f16c"}
    monkeypatch.setenv(cpu.ISA_CAP, "avx3")
    with pytest.raises(UserError, match="Set it to avx2"):
        cpu.cpu_flags()


def test_cpu_facts_where_the_system_tells_nothing(monkeypatch):
    monkeypatch.setattr(cpu, "CPUINFO", Path("/nonexistent"))
    monkeypatch.setattr(cpu.platform, "system", lambda: "Plan9")
    assert cpu.cpu_flags() == frozenset()
    assert isinstance(cpu.cpu_name(), str)


def test_one_thread_per_core_within_the_container(monkeypatch):
    monkeypatch.setattr(cpu.psutil, "cpu_count", lambda logical: 32 if logical else 16)
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: set(range(32)), raising=False)
    monkeypatch.setattr(cpu, "_cgroup_quota", lambda: None)
    assert cpu.cores() == (16, 32)
    monkeypatch.setattr(cpu, "_cgroup_quota", lambda: 3.5)
    assert cpu.cores() == (4, 4)
    monkeypatch.setattr(cpu.psutil, "cpu_count", lambda logical: None)
    assert cpu.cores() == (1, 1)


@pytest.mark.parametrize(
    ("told", "sets", "attention"),
    [({39}, [], []), ({39, 40}, ["avx2"], ["avx2"]), ({39, 40, 41}, ["avx512", "avx2"], ["avx2"])],
)
def test_windows_names_a_few_flags_that_stand_for_others(monkeypatch, told, sets, attention):
    """IsProcessorFeaturePresent knows three; by them the compiled kernels are chosen as on Linux, but for
    those that need a dot product, of which it says nothing.
    """
    kernel32 = SimpleNamespace(IsProcessorFeaturePresent=lambda number: number in told)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(cpu, "CPUINFO", Path("/nonexistent"))
    monkeypatch.setattr(cpu.platform, "system", lambda: "Windows")
    monkeypatch.setattr(cpu.platform, "machine", lambda: "AMD64")
    flags = cpu.cpu_flags()
    assert instruction_sets(flags) == sets and instruction_sets(flags, "attention") == attention
    monkeypatch.setenv(cpu.ISA_CAP, "avx2")
    assert instruction_sets(cpu.cpu_flags()) == sets[-1:]
