"""A machine with torch and transformers and none of the app's packages: tests/gpu is collected there, and
first contact runs.
"""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import platformdirs
import pytest
from packaging.requirements import Requirement

from benchmarks.card.first_contact import STEPS
from benchmarks.card.wheels import OURS, fetch_wheels

REPO = Path(__file__).resolve().parents[2]
THERE = ("torch", "transformers", "safetensors", "numpy")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="links to packages need rights that a user lacks"),
]


def with_what_they_bring(*names: str) -> dict[str, metadata.Distribution]:
    """The installed packages of these names and those that they require."""
    found: dict[str, metadata.Distribution] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        requirements = map(Requirement, found[name].requires or ())
        wanted += [one.name for one in requirements if not one.marker or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with exactly these and the small wheels. Links in the place of gigabytes."""
    kept = os.environ.get("TRIFORCE_TEST_CACHE") or platformdirs.user_cache_dir(
        "triforce-chat-tests", appauthor=False
    )
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for wheel in fetch_wheels(Path(kept) / "bare-wheels"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    for one in with_what_they_bring(*THERE).values():
        for name in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(one.locate_file(name))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-s", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=REPO, env=environ)


def test_nothing_else_is_there(python: Path):
    """Else the tests below would show nothing."""
    for package in ("gradio", "gguf", "hypothesis", "ebooklib", "pypdf", "xdist"):
        assert run(python, "-c", f"import {package}").returncode == 1


def test_the_tests_of_a_card_are_collected(python: Path):
    """One import too many, and ten minutes on a card show nothing."""
    said = run(python, "-m", "pytest", "tests/gpu", "--collect-only")
    assert said.returncode == 0, said.stdout
    assert "tests/gpu/test_cuda.py" in said.stdout and "tests/gpu/test_reads.py" in said.stdout


def test_first_contact_runs(python: Path, tmp_path: Path):
    """All of its steps."""
    said = run(
        python, "-m", "benchmarks.first_contact", "--stand-in", "--minutes", "30", "--out", str(tmp_path)
    )  # fmt: skip
    assert said.returncode == 0, (tmp_path / "report.md").read_text("utf-8") + said.stderr
    assert len(list(tmp_path.glob("*.json"))) == len(STEPS)


def test_the_wheels_are_small(python: Path, tmp_path: Path):
    """They travel with the repository."""
    wheels = {wheel.name.split("-")[0]: wheel.stat().st_size for wheel in fetch_wheels(tmp_path)}
    assert sum(size for name, size in wheels.items() if name.replace("_", "-") in OURS) < 1_000_000
    assert sum(wheels.values()) < 4_000_000
