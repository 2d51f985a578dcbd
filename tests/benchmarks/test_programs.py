"""The benchmarks as programs: a file of theirs named like a module of Python's must not stand in for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wide

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = [
    path for path in sorted(FOLDER.glob("*.py")) if "\nif __name__ ==" in path.read_text(encoding="utf-8")
]
SAME_NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} & sys.stdlib_module_names)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_takes_its_own_folder_off_the_path(program: Path):
    """Python puts the folder of a started file first; torch loads cProfile, and that loads `profile`."""
    text = program.read_text(encoding="utf-8")
    assert "sys.path.insert(" not in text and "sys.path.append(" not in text
    # then it needs the standard library only, or runs as a module and says so
    if "sys.path" not in text:
        ours = re.search(r"^(from|import) (benchmarks|core|torch)\b", text, re.MULTILINE)
        assert not ours or f"python -m benchmarks.{program.stem}" in text


@pytest.mark.parametrize(
    "program", [path for path in PROGRAMS if path.stem in ("decode", *SAME_NAMES)], ids=lambda path: path.stem
)
def test_modules_of_python_stay_pythons(program: Path):
    """Started as a file, as the shell does it."""
    script = f"""
import runpy, sys
sys.path[0] = {str(FOLDER)!r}
sys.argv = [{str(program)!r}, "--help"]
try:
    runpy.run_path({str(program)!r}, run_name="__main__")
except SystemExit:
    pass
for name in {SAME_NAMES or ["profile"]!r}:
    print(__import__(name).__file__)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, cwd=FOLDER.parent
    )
    assert said.returncode == 0, said.stderr
    origins = said.stdout.splitlines()[-len(SAME_NAMES or ["profile"]) :]
    assert all(FOLDER not in Path(origin).parents for origin in origins)
