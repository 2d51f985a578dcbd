"""What must hold to the bit holds on every PC: the suites marked `every_isa` once more in processes that are
held to less than this computer has.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.lib.isa import LIMITS
from core.hardware.cpu import ISA_CAP, all_cpu_flags
from core.paths import ROOT

pytestmark = pytest.mark.wide

CAPS = {"avx2": LIMITS["avx2"], "none": {ISA_CAP: "none"}}
# by torch alone, which no usual PC computes with, each value of each axis once; by AVX2 each pair of values
CASES = {"avx2": "every_isa and not slow and not whole", "none": "every_isa and not slow and not wide"}
LEAST_PASSED = {"avx2": 30, "none": 15}  # tests: the marker is not lost
PATIENCE_S = 3000  # a machine may be busy


def newer_than(cap: str) -> bool:
    """Whether this computer has more than the cap leaves it."""
    flags = all_cpu_flags()
    if cap == "avx2":
        return "avx2" in flags and any(flag.startswith("avx512") for flag in flags)
    return bool({"avx2", "asimd"} & flags)


@pytest.mark.skipif(ISA_CAP in os.environ, reason="this run is itself held to an instruction set")
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("cap", CAPS)
def test_the_exact_suites(cap: str):
    """The law, greedy answers, precision and rows, by AVX2 and by torch alone: a fault of either dies on a PC
    that uses neither.
    """
    if not newer_than(cap):
        pytest.skip(f"this computer has nothing beyond {cap}: the suites ran so already")
    suites = ["-m", CASES[cap], "-p", "no:cacheprovider", "tests/decoding"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *suites],
        env={**os.environ, **CAPS[cap]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert passed(done.stdout) >= LEAST_PASSED[cap], done.stdout[-500:]


def passed(said: str) -> int:
    """The number before the word, in pytest's last line."""
    words = said.split()
    return int(words[words.index("passed,") - 1] if "passed," in words else words[words.index("passed") - 1])
