"""A Windows job object around the child process: it ends with this process, however that ends, and the kernel
limits its memory.

https://learn.microsoft.com/windows/win32/procthread/job-objects; the structures are those of winnt.h. On
other systems the child limits itself (child.py) and nothing here does anything.
"""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from typing import Any

log = logging.getLogger(__name__)
_EXTENDED_LIMIT_INFORMATION = 9  # JobObjectExtendedLimitInformation
_PROCESS_MEMORY, _KILL_ON_JOB_CLOSE = 0x100, 0x2000  # JOB_OBJECT_LIMIT_...


class _BasicLimits(ctypes.Structure):
    _fields_ = [
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    ]


class _ExtendedLimits(ctypes.Structure):
    _fields_ = [
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    ]


class WindowsJob:
    """A job for one process. The process ends when the job's only handle is closed: by `close`, or by the end
    of this process.
    """

    def __init__(self, process_handle: int, *, memory_bytes: int | None, kernel32: Any) -> None:
        """`memory_bytes` of committed memory, None for no limit. Where Windows refuses, the caller's own
        watch has to do.
        """
        self._kernel32 = kernel32
        self._job = kernel32.CreateJobObjectW(None, None)
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE | (
            _PROCESS_MEMORY if memory_bytes else 0
        )
        limits.ProcessMemoryLimit = memory_bytes or 0
        if not (
            self._job
            and kernel32.SetInformationJobObject(
                self._job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            and kernel32.AssignProcessToJobObject(self._job, process_handle)
        ):
            log.warning("Windows gave the child process no job object: its memory is watched, not limited")

    def close(self) -> None:
        """End whatever still runs in the job."""
        if self._job:
            self._kernel32.CloseHandle(self._job)
            self._job = None


def contained(process: subprocess.Popen[bytes], *, memory_bytes: int | None) -> WindowsJob | None:
    """The process in a job of its own; None on systems that have none. Call it before the process is given
    anything to do.
    """
    if sys.platform != "win32":
        return None
    return WindowsJob(int(process._handle), memory_bytes=memory_bytes, kernel32=_kernel32())


def interpreter() -> tuple[str, dict[str, str]]:
    """The command of this Python and what its environment needs. On Windows the python.exe of a virtual
    environment only starts another one, which limits and measurements would miss, so that one is started
    directly, as multiprocessing does.
    """
    base = getattr(sys, "_base_executable", sys.executable)
    if sys.platform == "win32" and base != sys.executable:
        return base, {"__PYVENV_LAUNCHER__": sys.executable}
    return sys.executable, {}


def _kernel32() -> Any:
    """kernel32 with the types that ctypes would otherwise cut to 32 bits."""
    kernel32 = ctypes.WinDLL("kernel32")
    kernel32.CreateJobObjectW.restype = ctypes.c_void_p
    kernel32.CreateJobObjectW.argtypes = (ctypes.c_void_p, ctypes.c_wchar_p)
    kernel32.SetInformationJobObject.argtypes = (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint32,
    )
    kernel32.AssignProcessToJobObject.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    kernel32.CloseHandle.argtypes = (ctypes.c_void_p,)
    return kernel32
