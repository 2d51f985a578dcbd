"""Uninstalling removes what is the program's, says what that is first, and keeps what is the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.model.store.manifest import MARKER
from core.model.store.manifest import MOVED as MODEL_MOVED
from core.paths import ROOT, default_dir, pointer
from installer import caches, places, uninstall
from installer.environment import Environment
from installer.lock import locked
from installer.packages import SetupError
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.hub import serving

posix_only = pytest.mark.skipif(os.name == "nt", reason="the menu of Linux")


@pytest.fixture(autouse=True)
def _where_it_was(monkeypatch: pytest.MonkeyPatch):
    """An uninstallation leaves the folder that it removes; the tests behind it start from where they were."""
    monkeypatch.chdir(".")


@pytest.fixture
def environment(root: Path, ready: Callable[[str], Path], tmp_path: Path, monkeypatch) -> Environment:
    """All that can belong to the program, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "home" / "local"))
    for name in ("PIP_CACHE_DIR", "UV_CACHE_DIR", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "Verschobene Daten"))
    ready("")
    environment = Environment(root)
    for path in (
        *uninstall.menu_entries(),
        *(folder / "cpython-3.12" / "bin" / "python3" for folder in places.python_folders(root)),
        root / "wheels" / "torch.whl",
        root / ".update" / "new" / "launcher.py",
        root / ".venv.before" / "pyvenv.cfg",
        root / "config.new.yaml",
        tmp_path / "Verschobene Daten" / "books" / "a book.txt",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 1000)
    return environment


def files(folder: Path) -> list[str]:
    """All but what Python keeps for itself of the modules that it ran."""
    found = (path for path in folder.rglob("*") if not path.is_dir() and path.suffix != ".pyc")
    return sorted(str(path.relative_to(folder)) for path in found)


def test_nothing_goes_without_a_yes(environment, tmp_path, capsys, monkeypatch):
    """Listed with size and place; neither a closed stdin nor a no removes anything."""
    before = files(tmp_path)
    assert uninstall.main(environment, []) == 1
    said = capsys.readouterr().out
    for words in ("environment", "in the menu", "program", "Python fetched for it", "your data", "stays"):
        assert words in said, words
    assert str(tmp_path / "Verschobene Daten") in said and str(environment.folder) in said
    monkeypatch.setattr(uninstall.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert uninstall.main(environment, []) == 1
    # the lock is the question's own: whether the app runs
    assert files(tmp_path) == before


@posix_only
def test_after_a_yes_the_data_alone_is_left(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(uninstall.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert uninstall.main(environment, []) == 0
    assert files(tmp_path) == ["Verschobene Daten/books/a book.txt"]
    assert not environment.root.exists() and not places.local_folder().exists()


@posix_only
def test_moved_data_go_where_that_is_asked_for(environment, tmp_path):
    assert uninstall.main(environment, ["--yes", "--data"]) == 0
    assert files(tmp_path) == []
    assert not (tmp_path / "Verschobene Daten").exists()


@posix_only
def test_what_is_not_the_programs_stays(environment, capsys):
    """Somebody unpacked the archive among their own files."""
    (environment.root / "thesis.docx").write_text("mine")
    assert uninstall.main(environment, ["--yes"]) == 0
    assert files(environment.root) == ["thesis.docx"]
    assert "not the program's" in capsys.readouterr().out


@posix_only
def test_a_clone_keeps_its_files_and_loses_its_environment(environment, capsys):
    (environment.root / ".git").mkdir()
    assert uninstall.main(environment, ["--yes"]) == 0
    assert (environment.root / "launcher.py").exists() and not environment.folder.exists()
    assert "clone" in capsys.readouterr().out


@posix_only
def test_a_shared_python_stays_while_another_copy_needs_it(environment):
    other = places.local_folder() / "0a1b2c3d"
    other.mkdir()
    (other / "triforce.json").touch()
    assert uninstall.main(environment, ["--yes"]) == 0
    assert (places.local_folder() / "python").exists() and not environment.root.exists()


@posix_only
def test_what_cannot_be_removed_is_named(environment, monkeypatch, capsys):
    """The rest goes all the same."""
    real = uninstall.program.remove_path

    def remove(path: Path) -> None:
        if path == environment.folder:
            raise PermissionError(13, "Permission denied")
        real(path)

    monkeypatch.setattr(uninstall.program, "remove_path", remove)
    assert uninstall.main(environment, ["--yes"]) == 1
    assert f"{environment.folder} (Permission denied)" in capsys.readouterr().err
    assert not (environment.root / "launcher.py").exists()


def test_nothing_is_removed_under_a_running_app(environment, tmp_path):
    with (
        locked(tmp_path / "Verschobene Daten" / "run" / "app.lock", lambda: None),
        pytest.raises(SetupError, match="is running"),
    ):
        uninstall.main(environment, ["--yes"])
    assert environment.folder.exists()


def test_what_windows_removes_after_us_is_each_part_and_never_a_folder_with_something_in_it(
    environment, monkeypatch, tmp_path
):
    """This Python may lie in a part: a second process deletes them, the program's folder if empty."""
    started: list[list[str]] = []
    monkeypatch.setattr(uninstall.subprocess, "Popen", lambda command, **options: started.append(command))
    monkeypatch.setattr(uninstall.tempfile, "tempdir", str(tmp_path))
    brought = environment.root / "100% Bücher" / ".python"
    brought.mkdir(parents=True)
    uninstall._remove_when_we_are_gone([brought, environment.root / "launcher.py"], environment.root)
    script = Path(started[0][-1]).read_bytes().decode()
    named = str(brought).replace("%", "%%")
    assert f'rmdir /s /q "{named}"\r\n' in script
    assert f'del /q "{environment.root / "launcher.py"}"\r\n' in script
    assert f'rmdir "{environment.root}" 2>nul\r\n' in script
    assert script.count("/s") == script.count("ping") == 3, "a virus scanner may hold a file for a while"
    assert script.endswith('del "%~f0"\r\n') and started[0][:2] == ["cmd", "/c"]


# ---- what was downloaded, and what lies elsewhere ----------------------------------------------------------


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 1000)


@posix_only
def test_caches_are_listed_by_name_and_ours_go(environment, tmp_path, capsys):
    """pip's while a setup was broken off, uv's, and downloads from the hub that were broken off."""
    data = tmp_path / "Verschobene Daten"
    put(environment.folder / "cache" / "http" / "a", environment.root / ".python" / "uv-7" / "cache" / "b")
    put(data / "models" / ".Qwen3-8B.part" / "model.safetensors", data / "models" / "whole" / "c")
    assert uninstall.main(environment, ["--yes"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("pip's cache", "uv's cache", "the hub's cache"))
    assert files(tmp_path) == ["Verschobene Daten/books/a book.txt", "Verschobene Daten/models/whole/c"]


@posix_only
@pytest.mark.parametrize("asked", [False, True])
def test_caches_that_others_share_are_listed_and_go_where_that_is_asked_for(environment, capsys, asked):
    for folder in caches.shared().values():
        put(folder / "of another program")
    assert uninstall.main(environment, ["--yes", *(["--caches"] if asked else [])]) == 0
    said = capsys.readouterr().out
    assert [f"{what}  " in said for what in caches.shared()] == [True] * 3
    assert ("shared with your other programs: stays" in said) is not asked
    assert [folder.exists() for folder in caches.shared().values()] == [not asked] * 3


@posix_only
def test_models_that_were_moved_and_the_pointer_to_moved_data_go_with_the_data(
    environment, tmp_path, monkeypatch, capsys
):
    """Gigabytes on another drive would stay, named nowhere, and a file that leads to nothing."""
    drive, data = tmp_path / "drive" / "Qwen3-8B", tmp_path / "Verschobene Daten"
    put(drive / MARKER, drive / "model.gguf", data / "models" / "Qwen3-8B" / MODEL_MOVED)
    (data / "models" / "Qwen3-8B" / MODEL_MOVED).write_text(json.dumps({"to": str(drive)}))
    place = default_dir() / pointer().name
    assert place == places.usual_data_folder() / caches.MOVED and caches.MOVED == MODEL_MOVED
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"to": str(data)}))
    assert uninstall.main(environment, ["--yes"]) == 0
    said = capsys.readouterr().out
    assert "a moved model" in said and str(drive) in said and str(place.parent) in said
    assert drive.exists() and place.exists()


@posix_only
def test_all_of_that_is_gone_after_data_was_asked_for(environment, tmp_path):
    drive, data = tmp_path / "drive" / "Qwen3-8B", tmp_path / "Verschobene Daten"
    put(drive / MARKER, drive.parent / "thesis.docx", data / "models" / "Qwen3-8B" / MODEL_MOVED)
    (data / "models" / "Qwen3-8B" / MODEL_MOVED).write_text(json.dumps({"to": str(drive)}))
    place = default_dir() / pointer().name
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"to": str(data)}))
    assert uninstall.main(environment, ["--yes", "--data"]) == 0
    assert files(tmp_path) == ["drive/thesis.docx"]


def test_the_folder_that_a_variable_names_is_known_as_the_old_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "named"))
    pointer().parent.mkdir()
    pointer().write_text(json.dumps({"to": str(tmp_path / "drive")}))
    assert caches.old_place(tmp_path / "drive") == tmp_path / "named"
    assert caches.place_away() == tmp_path / "drive"


@posix_only
def test_data_on_a_drive_that_is_away_is_named(environment, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TRIFORCE_HOME")
    pointer().parent.mkdir(parents=True)
    pointer().write_text(json.dumps({"to": str(tmp_path / "away")}))
    assert uninstall.main(environment, ["--yes"]) == 0
    assert f" {tmp_path / 'away'}, which is not there now" in capsys.readouterr().out


@posix_only
def test_a_home_that_was_named_as_the_data_folder_is_not_removed(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))
    put(tmp_path / "home" / "thesis.docx")
    assert uninstall.main(environment, ["--yes", "--data"]) == 0
    assert (tmp_path / "home" / "thesis.docx").exists()


@posix_only
@pytest.mark.wide
def test_a_model_from_the_hub_leaves_nothing_outside_the_data_folder(tmp_path):
    """The hub's own client has a cache for all programs of a user; nothing of ours goes there."""
    program = (
        "from core.model.store.download import download; from core.model.gguf.folder import opened\n"
        "folder = download('someone/a-GGUF', name='a', file='a.gguf')\n"
        "opened(folder / 'a.gguf', lambda *_: None)"
    )
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
    environ = {**kept, "HOME": str(home), "TRIFORCE_HOME": str(data)}
    with serving() as (hub, url):
        hub.files = {"a.gguf": write_gguf(tmp_path / "a.gguf", wide(), "Q8_0").read_bytes()}
        command = [sys.executable, "-c", program]
        subprocess.run(command, cwd=ROOT, env={**environ, "HF_ENDPOINT": url}, check=True, timeout=120)
    assert (data / "models" / "a" / "a.gguf").is_file()
    assert files(home) == []
