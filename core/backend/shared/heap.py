"""What this process keeps of memory for later: the C library's heap, which has what was freed, and compiled
products.
"""

from __future__ import annotations

import ctypes
import os
import sys

SHAPES = (
    "64"  # of a pass 5 or 6, of each length of text another 5 or 6; half a megabyte each, and in both caches
)


def bound_products() -> None:
    """Bounds what oneDNN keeps compiled, which torch multiplies 16-bit numbers with on a CPU; a setting of
    the user's own is left alone. Must run before torch is imported.

    It compiles a product for every shape, and almost every text has another length. oneDNN keeps 1,024 of
    them and torch as many again, which is 800 MB (docs/LOG.md); one that comes again takes 3 ms.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, SHAPES)


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
