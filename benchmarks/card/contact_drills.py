"""What benchmarks.card.first_contact does to a card on purpose: fills it, and has its kernels watched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch

from core.backend.base import Backend

TOOLS = ("memcheck", "racecheck")  # of compute-sanitizer
_LAST_LINES = 12  # of its report
_FOUND = 9  # its exit code where it found something; pytest has others


def drilled(backend: Backend, *, piece_bytes: int, most: int) -> dict[str, Any]:
    """Takes up to `most` pieces: how many there were, what was said of the next and whether that is
    understood (None: nothing was refused), whether the device still computes, and what is left of them.
    """
    held, said, understood = [], "", None
    before = backend.memory().used_bytes
    try:
        for _piece in range(most):
            held.append(torch.ones(piece_bytes, dtype=torch.uint8, device=backend.device))
    except RuntimeError as error:
        said, understood = str(error).splitlines()[0], backend.out_of_memory(error)
    pieces = len(held)
    held.clear()
    backend.release()
    x = torch.ones(64, 64, dtype=backend.dtype, device=backend.device)
    return {
        "pieces": pieces,
        "said": said,
        "understood": understood,
        "computes": bool((x @ x == 64).all()) and not backend.lost(),
        "left_bytes": backend.memory().used_bytes - before - 2 * x.nbytes,
    }


def sanitized(program: str, tool: str, tests: Sequence[str]) -> dict[str, Any]:
    """What a tool of compute-sanitizer says of these tests: {"exit_code", "said"}."""
    tried = [sys.executable, "-m", "pytest", *tests, "-p", "no:cacheprovider", "-x"]
    command = [program, "--tool", tool, "--error-exitcode", str(_FOUND), *tried]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"exit_code": done.returncode, "said": done.stdout.splitlines()[-_LAST_LINES:]}
