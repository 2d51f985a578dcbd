"""What can be set or typed is written down, and what is written down can be typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import imports, modules

REPO = Path(__file__).resolve().parent.parent
LAUNCHER_COMMANDS = ("test", "repair", "update", "uninstall")
PAGES = [REPO / "README.md", REPO / "CHANGELOG.md", *sorted((REPO / "docs").rglob("*.md"))]
LONGEST_LINE = 130  # characters; tables and what programs write go on as far as they must


@cache
def docs() -> str:
    """All pages."""
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


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


def test_the_readme_fits_on_a_page():
    """A first page of a hundred tables tells a stranger nothing."""
    readme = (REPO / "README.md").read_bytes()
    assert len(readme.splitlines()) <= 260
    assert len(readme) <= 16_384


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())
def test_lines_end_where_a_person_can_read_them(page):
    """A paragraph of three hundred columns is skipped by whoever opens the file."""
    written = re.sub(r"(<!-- (\w+):begin -->).*?<!-- \2:end -->", r"\1", page.read_text("utf-8"), flags=re.S)
    lines = enumerate(written.splitlines(), start=1)
    free = ("|", "![", "<")  # a table, a picture, HTML
    assert [n for n, line in lines if len(line) > LONGEST_LINE and not line.startswith(free)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())
def test_every_file_and_module_that_is_named_exists(page):
    """A room that moved leaves its old address behind in the pages."""
    text = page.read_text("utf-8")
    rooms = "app|assets|benchmarks|core|docs|examples|installer|tests|tools"
    paths = set(re.findall(rf"(?<![\w/.<])((?:{rooms})/[\w./-]*\w)", text))
    assert sorted(path for path in paths if not (REPO / path).exists()) == []
    modules = set(re.findall(r"`((?:app|benchmarks|core|installer|tools)(?:\.[a-z_]+)+)", text))
    assert sorted(module for module in modules if not stands(module)) == []


def test_the_rooms_stand_in_the_order_that_is_drawn():
    """A diagram of imports that no longer hold sends the next change the wrong way."""
    page = (REPO / "docs" / "architecture.md").read_text("utf-8")
    drawn = page.split("## Rooms")[1].split("```")[1].strip().splitlines()
    rows = [re.split(r"  +", line)[0].split(", ") for line in drawn]
    height = {f"core.{room}": -row for row, rooms in enumerate(rows) for room in rooms}
    rooms = {module: ".".join(module.split(".")[:2]) for module in modules("core") if module != "core"}
    assert set(rooms.values()) - set(height) == set()
    upwards = {
        f"{module} -> {name}"
        for module, room in rooms.items()
        for name in imports(module, typing=True)
        if name != "core" and height.get(".".join(name.split(".")[:2]), -99) > height[room]
    }
    assert upwards == set()


def test_the_walks_are_as_long_as_is_said():
    """Files come and go, and a number in brackets stays: nobody would see that a way has grown longer."""
    page = (REPO / "docs" / "architecture.md").read_text("utf-8")
    walks = page.split("## Three walks")[1].split("\n## ")[0].split("\n**")[1:]
    ways = [re.findall(r"(\*?)`([\w/.]+\.(?:py|yaml))`", re.split(r"`\.\s", one)[0] + "`") for one in walks]
    said = [int(re.search(r"\*\* \((\d+)", one)[1]) for one in walks]
    assert [len({file for _, file in way}) for way in ways] == [len(way) for way in ways] == said

    decision = (REPO / "docs" / "decisions" / "0084-walks.md").read_text("utf-8")
    without = [sum(not handed_on for handed_on, _ in way) for way in ways]
    assert list(map(int, re.findall(r"\d+", decision.split("A file left")[0])))[-6:] == [*said, *without]


def stands(module: str) -> bool:
    """Whether the dotted name is a package, a module, or something in one."""
    path = REPO.joinpath(*module.split("."))
    return any(place.is_dir() or place.with_suffix(".py").is_file() for place in (path, path.parent))


def test_every_key_of_the_settings_file_is_documented():
    """A key that only the source explains is a key nobody uses."""
    keys = re.findall(r"(?m)^#(\w+): ", (REPO / "config.yaml").read_text(encoding="utf-8"))
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
    for page in PAGES:
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
    internal = {"TRIFORCE_SHIM", "TRIFORCE_AGAIN_AT", "TRIFORCE_LET_GO", "TRIFORCE_SETUP_WINDOW"}
    assert sorted(name for name in read - internal if name not in docs()) == []
