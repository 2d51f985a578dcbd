"""Uninstalling removes what is the program's, says what that is first, and keeps what is the user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from installer import places, uninstall
from installer.environment import Environment
from installer.lock import locked
from installer.packages import SetupError

posix_only = pytest.mark.skipif(os.name == "nt", reason="the menu of Linux")


@pytest.fixture
def environment(root: Path, ready: Callable[[str], Path], tmp_path: Path, monkeypatch) -> Environment:
    """All that can belong to the program, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "home" / "local"))
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
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


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
    real = uninstall.program.remove

    def remove(path: Path) -> None:
        if path == environment.folder:
            raise PermissionError(13, "Permission denied")
        real(path)

    monkeypatch.setattr(uninstall.program, "remove", remove)
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
    assert f'rmdir "{environment.root}" 2>nul\r\n' in script and script.count("/s") == 1
    assert script.endswith('del "%~f0"\r\n') and started[0][:2] == ["cmd", "/c"]
