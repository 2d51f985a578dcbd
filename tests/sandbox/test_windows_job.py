"""The job object of a child with limits, on a kernel32 by script: which limits are asked for, and that it
closes.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from core.sandbox import windows_job
from core.sandbox.windows_job import WindowsJob, contained, interpreter

JOB, PROCESS = 77, 1234


class Kernel32:
    """Grants everything but `refused`, and keeps what was asked."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.calls, self.limits = refused, [], None

    def __getattr__(self, name: str):
        def call(*given):
            self.calls.append((name, given[:2]))
            if name == "SetInformationJobObject":
                self.limits, size = given[2]._obj, given[3]
                assert size == ctypes.sizeof(self.limits)
            return 0 if name == self.refused else JOB if name == "CreateJobObjectW" else 1

        return call


@pytest.mark.parametrize(("memory_bytes", "flags"), [(2 << 30, 0x2100), (None, 0x2000)])
def test_process_is_put_into_a_job_that_ends_it_and_limits_its_memory(memory_bytes: int | None, flags: int):
    kernel32 = Kernel32()
    job = WindowsJob(PROCESS, memory_bytes=memory_bytes, kernel32=kernel32)
    assert kernel32.calls == [
        ("CreateJobObjectW", (None, None)),
        ("SetInformationJobObject", (JOB, 9)),
        ("AssignProcessToJobObject", (JOB, PROCESS)),
    ]
    assert (kernel32.limits.BasicLimitInformation.LimitFlags, kernel32.limits.ProcessMemoryLimit) == (
        flags,
        memory_bytes or 0,
    )
    job.close()
    job.close()
    assert [name for name, _ in kernel32.calls].count("CloseHandle") == 1, (
        "a handle closed twice may be another's by then"
    )


@pytest.mark.parametrize(
    "refused", ["CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject"]
)
def test_a_refusal_is_logged_and_the_book_is_read_all_the_same(
    refused: str, caplog: pytest.LogCaptureFixture
):
    kernel32 = Kernel32(refused)
    with caplog.at_level(logging.WARNING):
        WindowsJob(PROCESS, memory_bytes=1, kernel32=kernel32).close()
    assert "no job object" in caplog.text
    assert ("CloseHandle" in [name for name, _ in kernel32.calls]) == (refused != "CreateJobObjectW")


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of the 64-bit structures")
def test_structures_have_the_sizes_of_winnt_h():
    """Windows refuses another size without saying why."""
    assert (ctypes.sizeof(windows_job._BasicLimits), ctypes.sizeof(windows_job._ExtendedLimits)) == (64, 144)


def test_only_windows_has_jobs(monkeypatch: pytest.MonkeyPatch):
    process = SimpleNamespace(_handle=PROCESS)
    monkeypatch.setattr(windows_job.sys, "platform", "linux")
    assert contained(process, memory_bytes=1) is None and interpreter() == (sys.executable, {})
    kernel32 = Kernel32()
    monkeypatch.setattr(windows_job.sys, "platform", "win32")
    monkeypatch.setattr(windows_job, "_kernel32", lambda: kernel32)
    assert contained(process, memory_bytes=1) is not None
    assert kernel32.calls[-1] == ("AssignProcessToJobObject", (JOB, PROCESS))


def test_in_a_virtual_environment_of_windows_the_real_python_is_started(monkeypatch: pytest.MonkeyPatch):
    """Its python.exe is a starter: a job around that one would not hold its child."""
    monkeypatch.setattr(windows_job.sys, "platform", "win32")
    monkeypatch.setattr(windows_job.sys, "_base_executable", r"C:\Python\python.exe", raising=False)
    monkeypatch.setattr(windows_job.sys, "executable", r"C:\venv\Scripts\python.exe")
    assert interpreter() == (r"C:\Python\python.exe", {"__PYVENV_LAUNCHER__": r"C:\venv\Scripts\python.exe"})


@pytest.mark.skipif(sys.platform != "win32", reason="needs Windows")
def test_windows_ends_the_process_with_its_job():
    process = subprocess.Popen([interpreter()[0], "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE)
    contained(process, memory_bytes=1 << 30).close()
    assert process.wait(timeout=10) is not None
