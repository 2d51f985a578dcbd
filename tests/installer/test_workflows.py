"""The workflows for systems that nobody here has: what they run is there, and that they never ran is said."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.installer import on_this_machine
from tests.installer.awkward import PLACES, laid_out, pythons

REPO = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
NAMES = [path.stem for path in WORKFLOWS]


@pytest.fixture(params=WORKFLOWS, ids=NAMES)
def workflow(request) -> Path:
    return request.param


def jobs(workflow: Path) -> dict[str, dict]:
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]


def test_there_is_one_for_each_system_that_was_not_at_hand():
    assert NAMES == ["macos", "windows"]


def test_a_workflow_that_nobody_ran_says_so(workflow: Path):
    """The guide calls it not run as long as it does."""
    never = workflow.read_text(encoding="utf-8").startswith("# NEVER RUN")
    assert never == ("**not been run yet**" in (REPO / "docs" / "setup.md").read_text(encoding="utf-8"))


def test_what_it_runs_is_there(workflow: Path):
    """A workflow with a wrong path is not even a plan."""
    ran = "\n".join(step.get("run", "") for job in jobs(workflow).values() for step in job["steps"])
    modules = set(re.findall(r"-m (tests[\w.]+)", ran))
    assert modules == {on_this_machine.__name__}
    assert all((REPO / name).exists() for name in re.findall(r"(?<!\S)tests/[\w/]+", ran))
    assert "launcher.py test tests/installer" in ran


def test_every_awkward_place_is_tried(workflow: Path):
    """OneDrive's folders are where its program sets them up: on Windows."""
    places = jobs(workflow)["from-nothing"]["strategy"]["matrix"]["place"]
    assert set(places) == set(PLACES) - ({"onedrive"} if workflow.stem == "macos" else set())


def test_macs_of_both_kinds_and_both_systems_are_asked():
    matrices = {
        name: job["strategy"]["matrix"] for name, job in jobs(WORKFLOWS[0]).items() if "strategy" in job
    }
    assert matrices["from-nothing"]["image"] == ["macos-15", "macos-26"]
    assert matrices["intel"]["image"] == ["macos-15-intel", "macos-26-intel"]


@pytest.mark.skipif(not shutil.which("actionlint"), reason="actionlint is not installed")
def test_actionlint_has_no_objection(workflow: Path):
    said = subprocess.run(["actionlint", str(workflow)], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout


# ---- what the story stands on ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLACES)
def test_a_place_is_as_awkward_as_its_name_says(name: str, tmp_path: Path):
    place = laid_out(name, tmp_path / "of a user")
    assert place.program.is_relative_to(place.profile) and place.profile.is_dir()
    assert not place.program.exists()
    assert (name == "profile") is (place.profile.name == "Jörg Müller")
    assert (name == "long") is (len(str(place.program)) > 200)
    assert (name == "onedrive") is (place.cloud in place.program.parents)
    assert not [one for one in place.environ if one == "CI" or one.startswith(("GITHUB_", "RUNNER_"))]


def test_a_python_that_can_be_found_is_seen(tmp_path: Path):
    """The proof that none is there must fail where one is."""
    place = laid_out("plain", tmp_path / "of a user")
    assert pythons({**place.environ, "PATH": str(tmp_path)}) == []
    for name in ("python3.12", "py.exe", "python.exe"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert pythons({**place.environ, "PATH": str(tmp_path)})


def test_an_installer_that_could_know_where_it_runs_is_refused(tmp_path: Path):
    place = laid_out("plain", tmp_path / "of a user")
    with pytest.raises(AssertionError, match="RUNNER_OS"):
        on_this_machine.Machine(place, RUNNER_OS="Windows")


def test_a_file_that_stays_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Uninstalling is compared with what was there before, name by name."""
    monkeypatch.setattr(on_this_machine, "PATIENCE_S", 0)
    place = laid_out("plain", tmp_path / "of a user")
    (place.profile / "notes.txt").write_text("mine")
    machine = on_this_machine.Machine(place)
    before = machine.files()
    on_this_machine.nothing_left(machine, before)
    (place.profile / ".cache").mkdir()
    on_this_machine.nothing_left(machine, before)
    (place.profile / ".cache" / "left").write_text("")
    with pytest.raises(AssertionError):
        on_this_machine.nothing_left(machine, before)
