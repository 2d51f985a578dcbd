"""What can be set or typed is written down, and what is written down can be typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parent.parent
LAUNCHER_COMMANDS = ("test", "repair")


@cache
def docs() -> str:
    """README and every page below docs/."""
    pages = [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@cache
def help_of(*command: str) -> str:
    """What `launcher.py COMMAND --help` prints."""
    environ = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "200", "NO_COLOR": "1"}
    said = subprocess.run(
        [sys.executable, "-m", "app.cli", *command, "--help"],
        cwd=REPO,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@cache
def commands() -> tuple[str, ...]:
    """The commands that the program itself names."""
    listed = re.search(r"\{([a-z,-]+)\}", help_of())
    assert listed, "the help names no commands"
    return tuple(listed[1].split(","))


def test_readme_names_the_two_commands():
    """A stranger starts and tests it with one line each."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    assert "python3 launcher.py\n" in readme
    assert "python3 launcher.py test" in readme


def test_every_key_of_the_settings_file_is_documented():
    """A key that only the source explains is a key nobody uses."""
    settings = yaml.safe_load((REPO / "config.yaml").read_text(encoding="utf-8"))
    keys = [
        f"{name}.{inner}" for name, value in settings.items() if isinstance(value, dict) for inner in value
    ]
    keys += [name for name, value in settings.items() if not isinstance(value, dict)]
    assert keys
    assert [key for key in keys if f"`{key}`" not in docs()] == []


def test_every_command_is_documented():
    """A command that the help lists and the README does not."""
    hidden = {"app"}  # what a start without arguments runs
    wanted = [*(name for name in commands() if name not in hidden), *LAUNCHER_COMMANDS]
    assert [name for name in wanted if not re.search(rf"launcher\.py {name}\b", docs())] == []


def test_documented_commands_exist():
    """A command renamed in the program and not in the README."""
    named = set(re.findall(r"(?:`|python3 |py )launcher\.py ([a-z][a-z-]+)\b", docs()))
    assert named - {*commands(), *LAUNCHER_COMMANDS} == set()


def test_every_flag_is_documented():
    """A flag is documented where its name stands, in README or docs."""
    flags = {flag for name in commands() for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_of(name))}
    assert len(flags) > 10
    assert sorted(flag for flag in flags - {"--help"} if flag not in docs()) == []


def test_every_link_inside_the_docs_leads_somewhere():
    """A moved page or picture leaves a dead link behind."""
    dead = []
    for page in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)\s#]+)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                dead.append(f"{page.relative_to(REPO)}: {target}")
    assert dead == []


def test_no_environment_variable_of_ours_is_a_secret():
    """Variables the program reads under its own prefix are explained in README or docs."""
    sources = [path for folder in ("core", "app", "installer") for path in (REPO / folder).rglob("*.py")]
    read = {
        name
        for path in sources
        for name in re.findall(r"\"(TRIFORCE_[A-Z_]+)\"", path.read_text(encoding="utf-8"))
    }
    internal = {"TRIFORCE_SHIM"}
    assert sorted(name for name in read - internal if name not in docs()) == []
