"""No window stays open beside the app, and none closes over a reason for not starting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from installer import detached, start
from tests.support.fake_runtime import wait_until

POSIX = pytest.mark.skipif(os.name == "nt", reason="ends processes as POSIX does")
APP = """
import os, sys, time
print("starting", flush=True)
mark = sys.argv[1]
if os.environ.get("TRIFORCE_LET_GO"):
    from app.server.main import let_go
    let_go()
print("after", flush=True)
open(mark, "w").write(str(os.getpid()))
time.sleep(3600)
"""


@POSIX
def test_the_app_goes_on_when_its_window_has_gone(tmp_path, capsys):
    mark = tmp_path / "pid"
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", APP, str(mark)]
    assert detached.run_detached(command, environ={**os.environ, "PYTHONPATH": root}) == 0
    wait_until(lambda: mark.exists() and mark.read_text())
    pid = int(mark.read_text())
    try:
        assert os.getsid(pid) != os.getsid(0), "closing the window would end it"
        said = capsys.readouterr().out
        assert "starting" in said and "after" not in said
    finally:
        os.kill(pid, 9)


def test_a_start_that_fails_is_seen_and_its_status_kept(capsys):
    command = [sys.executable, "-c", "import sys; print('No wick.', file=sys.stderr); sys.exit(1)"]
    assert detached.run_detached(command, environ=dict(os.environ)) == 1
    assert "No wick." in capsys.readouterr().out


def test_a_second_start_that_hands_over_does_not_wait_for_the_browser_it_opened(tmp_path):
    """The browser inherits the pipe and keeps it open."""
    browser = "[sys.executable, '-c', 'import time; time.sleep(3600)']"
    sleeper = f"import subprocess, sys; subprocess.Popen({browser})"
    assert detached.run_detached([sys.executable, "-c", sleeper], environ=dict(os.environ)) == 0


@pytest.mark.parametrize(
    ("system", "shim", "arguments", "window", "expected"),
    [
        ("win32", "1", [], "", True),
        ("darwin", "1", [], "", True),
        ("linux", "1", [], "", False),  # its menu entry opens no terminal: there is nothing to leave
        ("linux", "1", [], "1", True),  # the terminal that showed the setup
        ("win32", "", [], "", False),  # typed: Ctrl-C ends it
        ("win32", "1", ["doctor"], "", False),
        ("win32", "1", [__file__], "", True),  # "Open with"
    ],
)
def test_only_a_double_click_leaves_its_window(monkeypatch, system, shim, arguments, window, expected):
    monkeypatch.setattr(detached.sys, "platform", system)
    monkeypatch.setattr(detached.os, "name", "nt" if system == "win32" else "posix")
    monkeypatch.setenv("TRIFORCE_SHIM", shim)
    monkeypatch.setenv("TRIFORCE_SETUP_WINDOW", window)
    try:
        assert detached.wants_detached(arguments) is expected
    finally:
        monkeypatch.undo()


def test_windows_gets_no_console(monkeypatch):
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x08000000, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(detached.os, "name", "nt")
    try:
        assert detached._apart() == {"creationflags": 0x08000200}
    finally:
        monkeypatch.undo()


def test_the_launcher_leaves_the_window_after_a_double_click(monkeypatch, tmp_path):
    """The wiring: without it the console stays open beside the app."""
    ran: list[list[str]] = []
    monkeypatch.setattr(start.detached, "wants_detached", lambda arguments: not arguments)
    monkeypatch.setattr(start.detached, "run_detached", lambda command, environ: ran.append(command) or 0)
    monkeypatch.setattr(start, "_run", lambda command, **_more: ran.append(["attached", *command]) or 0)

    class Ready:
        root, python = tmp_path, tmp_path / "python"

        def is_ready(self, extras: bool) -> bool:
            return True

    monkeypatch.setattr(start.update, "go_back_if_broken_off", lambda _environment: None)
    assert start._prepare_and_run(Ready(), []) == 0
    assert start._prepare_and_run(Ready(), ["doctor"]) == 0
    assert ran[0] == [str(tmp_path / "python"), str(tmp_path / "launcher.py"), "app"]
    assert ran[1][0] == "attached"
