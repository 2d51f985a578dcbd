"""The C library's heap of this process, which keeps what was freed for later."""

from __future__ import annotations

import ctypes
import sys


def trim_heap() -> None:
    """Gives freed memory back to the system where the C library can be asked to: glibc.

    Caches and activations of tens of megabytes, allocated and freed with every answer, otherwise leave holes
    that the next ones do not fit into, and the process grows from answer to answer.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none, and frees at once
    if trim is not None:
        trim(0)
