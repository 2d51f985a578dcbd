"""What `pip install -e .` and a contributor read: it names things that are there."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import yaml

from core.paths import program_version

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no tomllib")
def test_the_command_is_the_command_line_and_the_requirements_are_those_of_the_launcher():
    import tomllib

    made = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, name = made["project"]["scripts"]["triforce-chat"].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    dynamic = made["tool"]["setuptools"]["dynamic"]
    files = [dynamic["dependencies"], *dynamic["optional-dependencies"].values()]
    assert all((ROOT / file).is_file() for one in files for file in one["file"])


def test_version_and_changelog_agree():
    """One rule: what is not released stands under Unreleased, at the top; every release has its heading, the
    newest first, and pyproject.toml names that one.
    """
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    released = [
        re.match(r"(\d+)\.(\d+)\.(\d+)(?:, \d{4}-\d{2}-\d{2})?$", one) for one in heads if one != "Unreleased"
    ]
    assert heads.count("Unreleased") <= 1 and "Unreleased" not in heads[1:]
    assert released and all(released), heads
    numbers = [tuple(map(int, one.groups())) for one in released]
    assert numbers == sorted(set(numbers), reverse=True)
    assert ".".join(map(str, numbers[0])) == program_version()


def test_a_contributors_commands_are_there():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(re.search(r"```\n(.*?)```", page, re.S)[1].splitlines()) == 7
    for path in re.findall(r"\]\(([^)]+)\)|(?<!\S)(tests/[\w.]*\w|launcher\.py)", page):
        assert (ROOT / "".join(path)).exists(), path


def test_the_form_for_a_problem_asks_for_what_finds_it():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "problem.yml").read_text(encoding="utf-8"))
    asked = {one["id"]: one for one in form["body"]}
    assert asked["doctor"]["attributes"]["label"] == "python3 launcher.py doctor --json"
    assert asked["doctor"]["validations"]["required"]
