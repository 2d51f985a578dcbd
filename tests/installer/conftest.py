"""A folder like the project's, for tests that set up and start it without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from installer import torch_build
from installer.environment import Environment, Record
from installer.progress import SetupProgress

REPO = Path(__file__).resolve().parents[2]
CONFIG = """
from pathlib import Path
def Settings(): return "port: 7860\\n"
def load_settings(*_): return (Path(__file__).parents[1] / "config.yaml").read_text()
def use_data_dir(settings): pass
"""
PATHS = """
import os
from pathlib import Path
def data_dir():
    folder = Path(os.environ["TRIFORCE_HOME"])
    folder.mkdir(exist_ok=True)
    return folder
"""


class Silent(SetupProgress):
    """Keeps what would be shown."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, title: str) -> None:
        self.steps.append(title)

    update = note = done = step


@pytest.fixture
def silent() -> Silent:
    """A progress line that nobody sees; `steps` keeps what was said."""
    return Silent()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder like the project's, with a space and letters that are not ASCII in its path."""
    folder = tmp_path / "Bücher und mehr 漢字"
    folder.mkdir()
    for name in ("launcher.py", "installer"):
        source = REPO / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / "requirements.txt").write_text("torch\n")
    (folder / "requirements-test.txt").write_text("pytest\n")
    (folder / "app").mkdir()
    (folder / "app" / "__init__.py").touch()
    (folder / "app" / "cli.py").write_text("import sys\nprint(sys.argv[1:])\n")
    (folder / "core").mkdir()
    (folder / "core" / "__init__.py").touch()
    (folder / "core" / "config.py").write_text(CONFIG)
    (folder / "core" / "paths.py").write_text(PATHS)
    (folder / "config.yaml").write_text("port: 7860\n")
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    return folder


@pytest.fixture
def ready(root: Path) -> Callable[[str], Path]:
    """Makes an environment that counts as ready, whose app is the given program. Returns the launcher."""

    def make(program: str) -> Path:
        environment = Environment(root)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
        record = Record(
            python=environment._interpreter(),
            torch="cpu",
            requirements=environment._hash("requirements.txt"),
            driver_in_sight=torch_build.driver_in_sight(),
        )
        environment._write(record)
        (root / "app" / "cli.py").write_text(textwrap.dedent(program))
        return root / "launcher.py"

    return make
