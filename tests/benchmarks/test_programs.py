"""Programs that measure: each starts by its name wherever it lies, and is imported by its place alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import OLD_NAMES

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / "benchmarks"
FILES = sorted(FOLDER.glob("*/*.py"))
PROGRAMS = sorted(
    path.stem
    for path in FILES
    if path.stem != "__main__" and "\nif __name__ ==" in path.read_text(encoding="utf-8")
)
# what pages, and issues that are open, tell people to start
NAMED = (
    "attention",
    "decode",
    "documents",
    "first_contact",
    "formats",
    "gpu",
    "kv",
    "overview",
    "peers",
    "prefill",
    "quality",
    "summaries",
    "tables",
    "told",
    "wheels",
)
FIRST = ("first_contact", "peers", "tables")  # the others by --all


def start(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPO,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.wide)
        for name in sorted({*PROGRAMS, *OLD_NAMES, *NAMED})
    ],
)
def test_a_program_starts_by_its_name(name: str):
    """A page that says `python -m benchmarks.peers` was written before the program moved."""
    said = start(name)
    assert said.returncode == 0 and "usage:" in said.stdout, said.stderr


def test_a_name_that_is_no_program_is_refused():
    """And `python -m benchmarks` starts none of them by chance."""
    assert "No module named benchmarks.nothing" in start("nothing").stderr
    assert "No module named benchmarks.__main__" in start("__main__").stderr


def test_pages_name_programs_that_there_are():
    """A command in a page that ends with "No module named" helps nobody."""
    pages = [*REPO.glob("*.md"), *REPO.glob("docs/**/*.md"), REPO / "benchmarks"]
    files = [file for page in pages for file in (page.rglob("*.py") if page.is_dir() else [page])]
    named = {
        name for file in files for name in re.findall(r"-m benchmarks\.([\w.]+)", file.read_text("utf-8"))
    }
    assert named - {*PROGRAMS, *OLD_NAMES} == set()


def test_no_two_programs_have_one_name():
    """The finder would start whichever comes first."""
    stems = [path.stem for path in FILES if not path.stem.startswith("__")]
    assert sorted(stems) == sorted(set(stems)) and not set(OLD_NAMES) & set(stems)


def test_code_imports_a_module_by_its_place():
    """Under its short name it would be there twice, with classes that are not equal."""
    folders = {path.parent.name for path in FILES}
    wrong = []
    for path in [*FOLDER.rglob("*.py"), *(REPO / "tests").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("benchmarks"):
                continue
            places = [node.module] if "." in node.module else [f"benchmarks.{a.name}" for a in node.names]
            wrong += [
                f"{path.name}: {place}"
                for place in places
                if place.split(".")[1] not in {*folders, "OLD_NAMES"}
            ]
    assert wrong == []


def test_no_file_of_a_program_stands_in_for_a_module_of_python():
    """Python puts the folder of a started file first: `profile.py` beside it would be torch's profile."""
    assert {path.stem for path in FILES} & sys.stdlib_module_names - {"__main__"} == set()
