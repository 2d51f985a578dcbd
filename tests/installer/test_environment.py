"""The environment: made once, finished when interrupted, made anew when broken. Venvs are real."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installer import environment as environment_module
from installer import places, torch_build
from installer.environment import Environment, Record
from installer.packages import Pip, SetupError
from installer.progress import SetupProgress
from installer.torch_build import NvidiaDriver

ALL = ["torch cpu", "requirements.txt"]
posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX file locks")


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every package installation asked for, none done; the environment is real but its pip is a stub."""
    asked: list[str] = []
    monkeypatch.setattr(
        Pip, "install_torch", lambda self, build, *, replace, progress: asked.append(f"torch {build.name}")
    )
    monkeypatch.setattr(Pip, "check_torch", lambda self: None)
    monkeypatch.setattr(
        Pip, "install", lambda self, title, arguments, progress: asked.append(Path(arguments[-1]).name)
    )
    monkeypatch.setattr(torch_build, "find_driver", lambda: None)
    monkeypatch.setattr(torch_build, "driver_in_sight", lambda: False)
    monkeypatch.setattr(environment_module, "FREE_BYTES_NEEDED", {"cpu": 1, "cuda": 1})

    def stub_pip(self: Environment, command: list[object]) -> bool:
        package = places.site_packages(self.folder) / "pip"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        return True

    monkeypatch.setattr(Environment, "_quietly", stub_pip)
    return asked


def test_first_start_installs_once_and_the_second_does_nothing(
    root: Path, installs: list[str], silent: SetupProgress
):
    """A second start must not look at anything but the record."""
    environment = Environment(root)
    assert not environment.is_ready(extras=False)
    environment.make_ready(extras=False, progress=silent)
    assert installs == ALL
    assert environment.is_ready(extras=False) and not environment.is_ready(extras=True)
    environment.make_ready(extras=False, progress=silent)
    assert installs == ALL


def test_test_extras_are_added_to_the_same_environment(
    root: Path, installs: list[str], silent: SetupProgress
):
    """`launcher.py test` after the app must not install the app's packages again."""
    environment = Environment(root)
    environment.make_ready(extras=False, progress=silent)
    environment.make_ready(extras=True, progress=silent)
    assert installs == [*ALL, "requirements-test.txt"]


def test_changed_requirements_are_installed_and_torch_is_left_alone(
    root: Path, installs: list[str], silent: SetupProgress
):
    """An update of the program must not fetch gigabytes of torch again."""
    environment = Environment(root)
    environment.make_ready(extras=False, progress=silent)
    (root / "requirements.txt").write_text("torch\nrich\n")
    assert not environment.is_ready(extras=False)
    environment.make_ready(extras=False, progress=silent)
    assert installs == [*ALL, "requirements.txt"]


def test_an_interrupted_setup_goes_on_where_it_stopped(root, installs, monkeypatch, silent):
    """Torch was there, the packages were not: torch is not fetched a second time."""
    environment = Environment(root)

    def interrupted(self: Pip, title: str, arguments: list[object], progress: SetupProgress) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pip, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            environment.make_ready(extras=False, progress=silent)
    assert not environment.is_ready(extras=False)
    environment.make_ready(extras=False, progress=silent)
    assert installs == ALL


@pytest.mark.parametrize("damage", ["no python", "no pip", "empty folder", "a file in its place"])
def test_an_unusable_environment_is_made_anew(
    root: Path, installs: list[str], damage: str, silent: SetupProgress
):
    """Half-made or broken: the user sees a working start, not an error."""
    environment = Environment(root)
    if damage == "a file in its place":
        environment.folder.mkdir()
        environment.python.parent.mkdir()
        environment.python.write_text("not a program")
    elif damage == "empty folder":
        environment.folder.mkdir()
    else:
        environment.make_ready(extras=False, progress=silent)
        installs.clear()
        if damage == "no python":
            environment.python.unlink()
        else:
            shutil.rmtree(places.site_packages(environment.folder) / "pip")
            (environment.folder / "triforce.json").unlink()
    assert not environment.is_ready(extras=False)
    environment.make_ready(extras=False, progress=silent)
    assert installs == ALL
    assert environment.is_ready(extras=False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1, "unknown": 2}', "null"])
def test_a_torn_or_foreign_record_counts_as_none(root: Path, text: str):
    """A record cut off by a full disk must not stop every later start."""
    environment = Environment(root)
    environment.folder.mkdir()
    (environment.folder / "triforce.json").write_text(text)
    assert environment.record() == Record()
    assert not environment.is_ready(extras=False)


def test_a_package_cut_off_while_unpacking_is_installed_again(
    root: Path, installs: list[str], silent: SetupProgress
):
    """pip takes metadata without its last file for an installed package."""
    environment = Environment(root)
    environment.make_ready(extras=False, progress=silent)
    site = places.site_packages(environment.folder)
    for name, whole in (("whole-1.0.dist-info", True), ("torn-1.0.dist-info", False)):
        (site / name).mkdir()
        (site / name / "METADATA").touch()
        if whole:
            (site / name / "INSTALLER").touch()
    (root / "requirements.txt").write_text("torch\nx\n")
    environment.make_ready(extras=False, progress=silent)
    assert (site / "whole-1.0.dist-info").exists()
    assert not (site / "torn-1.0.dist-info").exists()


def test_a_gpu_that_came_later_is_noticed(
    root: Path, installs: list[str], monkeypatch: pytest.MonkeyPatch, silent: SetupProgress
):
    """The CPU build would otherwise stay for ever."""
    environment = Environment(root)
    environment.make_ready(extras=False, progress=silent)
    monkeypatch.setattr(torch_build, "driver_in_sight", lambda: True)
    monkeypatch.setattr(torch_build, "find_driver", lambda: NvidiaDriver((580, 65), (8, 9)))
    assert not environment.is_ready(extras=False)
    environment.make_ready(extras=False, progress=silent)
    assert installs == [*ALL, "torch cu130"]
    assert environment.is_ready(extras=False)


def test_too_little_space_is_said_before_the_download(root, installs, monkeypatch, silent):
    """Gigabytes into a full disk end in pip's traceback."""
    monkeypatch.setattr(environment_module, "FREE_BYTES_NEEDED", {"cpu": 1 << 60, "cuda": 1 << 60})
    with pytest.raises(SetupError, match="GB is free"):
        Environment(root).make_ready(extras=False, progress=silent)
    assert installs == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "write to"), (errno.EROFS, "write to"), (errno.ENOSPC, "disk is full")],
)
def test_a_folder_that_takes_no_files_is_told(
    root: Path, installs, monkeypatch, silent: SetupProgress, number: int, words: str
):
    """A program folder on a read-only or full drive must not end in a traceback."""

    def refuse(self: Environment, record: Record, **changes: object) -> Record:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Environment, "_write", refuse)
    with pytest.raises(SetupError, match=words):
        Environment(root).make_ready(extras=False, progress=silent)


def test_a_python_without_ensurepip_and_pip_names_the_package(root, installs, monkeypatch, silent):
    """Debian splits Python: the remedy is one apt command."""
    monkeypatch.setattr(environment_module, "_has", lambda module: False)
    with pytest.raises(SetupError, match=r"apt install python3\.\d+-venv"):
        Environment(root).make_ready(extras=False, progress=silent)


def test_a_python_without_ensurepip_uses_the_pip_outside(root, installs, monkeypatch, silent):
    """The first way fails, the second works: nothing to install by hand."""
    commands: list[list[str]] = []
    stub = Environment._quietly

    def quietly(self: Environment, command: list[object]) -> bool:
        commands.append([str(part) for part in command])
        return "--target" in command and stub(self, command)

    monkeypatch.setattr(Environment, "_quietly", quietly)
    monkeypatch.setattr(environment_module, "_has", lambda module: module == "pip")
    Environment(root).make_ready(extras=False, progress=silent)
    assert ["--python" in command for command in commands] == [True, False]
    assert installs == ALL


@posix_only
def test_two_starts_at_once_make_one_environment(root, installs, monkeypatch, silent):
    """A double double-click must not run two pips in one folder."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; file = open(sys.argv[1], 'a+b'); fcntl.flock(file, fcntl.LOCK_EX);"
            "print('held', flush=True); sys.stdin.read()",
            str(root / ".venv.lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"held\n"

    def waits(title: str) -> None:
        """What the second start says of the first ends that one."""
        silent.steps.append(title)
        holder.stdin.close()

    monkeypatch.setattr(silent, "step", waits)
    Environment(root).make_ready(extras=False, progress=silent)
    assert silent.steps[0].startswith("Another start")
    assert installs == ALL
    holder.wait(300)


def test_the_wheels_are_those_beside_the_program_and_the_cache_goes_at_the_end(
    root, installs, monkeypatch, silent
):
    """A folder under another name would be passed by without a word."""
    seen: list[Path] = []

    def install(self: Pip, title: str, arguments: list[object], progress: SetupProgress) -> None:
        seen.append(self._wheels)
        self._cache.mkdir()

    monkeypatch.setattr(Pip, "install", install)
    environment = Environment(root)
    environment.make_ready(extras=False, progress=silent)
    assert seen == [root / "wheels"]
    assert not (environment.folder / "cache").exists() and not (environment.folder / "tmp").exists()


def test_windows_gets_the_visual_c_runtime_before_torch(root, installs, monkeypatch, silent):
    """torch does not load without it, and is tried as soon as it is there."""
    monkeypatch.setattr(
        Pip,
        "install_runtime",
        lambda self, requirements, environment, progress: installs.append(environment.name),
    )
    monkeypatch.setattr(environment_module.sys, "platform", "win32")
    Environment(root).make_ready(extras=False, progress=silent)
    assert installs == [".venv", *ALL]
