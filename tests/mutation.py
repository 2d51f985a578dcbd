"""Mutation testing: puts one slip of tests/slips/ after the other into a copy of the tree and sees whether
the tests named beside it fail.

    python -m tests.mutation                      each slip meets the first tier; one that lives meets --all
    python -m tests.mutation --tier whole         and what lives then, the full product of every grid
    python -m tests.mutation --only sampling      the slips of files whose path holds this
    python -m tests.mutation --tree ../before     the slips put into another tree, with its own tests

Ends with 1 when a slip lives, or its place is no more in the code.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.slips import SLIPS, Slip

REPO = Path(__file__).resolve().parent.parent
TIERS = {  # as in installer/start.py; a tree without these markers runs all of its tests in each
    "first": "not e2e and not slow and not wide",
    "all": "not e2e and not slow and not whole",
    "whole": "not e2e and not slow",
}
_FAILED, _NONE_RAN, _PASSED = 1, 5, 0  # pytest's exit statuses
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache")


def main() -> int:
    """The exit status: 0 every slip was noticed, 1 one lived."""
    asked = _arguments()
    slips = [slip for slip in SLIPS if asked.only in slip.file]
    tiers = list(TIERS)[: list(TIERS).index(asked.tier) + 1]
    lived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(asked.tree, copy, ignore=_LEFT_OUT, symlinks=True)
        for number, slip in enumerate(slips, 1):
            caught = caught_by(slip, copy, tiers)
            lived += caught not in tiers
            sys.stdout.write(f"{number:3} {caught:6} {slip.file}: {slip.wrong}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(slips) - lived} of {len(slips)} slips were noticed.\n")
    return 1 if lived else 0


def caught_by(slip: Slip, tree: Path, tiers: list[str]) -> str:
    """The first of the tiers that notices the slip in this tree, which is left as it was found; LIVES where
    none does, STALE where the code does not have that place, or has it several times.
    """
    file = tree / slip.file
    sound = file.read_text(encoding="utf-8") if file.is_file() else ""
    if sound.count(slip.text) != 1:
        return "STALE"
    file.write_text(sound.replace(slip.text, slip.wrong), encoding="utf-8")
    try:
        return next((tier for tier in tiers if _fails(tree, slip.tests, TIERS[tier])), "LIVES")
    finally:
        file.write_text(sound, encoding="utf-8")


def _fails(tree: Path, tests: tuple[str, ...], marks: str) -> bool:
    there = [test for test in tests if (tree / test).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", marks, *there]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if done.returncode not in (_FAILED, _NONE_RAN, _PASSED):
        raise RuntimeError(f"the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == _FAILED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tier", choices=TIERS, default="all")
    parser.add_argument("--only", default="")
    parser.add_argument("--tree", type=Path, default=REPO)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
