"""The computer stays awake while there is work, and may sleep as soon as there is none."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.host.keep_awake import Helper, KeepAwake, WindowsState, inhibitor
from tests.support.fake_runtime import wait_until

POSIX = pytest.mark.skipif(os.name == "nt", reason="the helpers are programs of Linux and macOS")


class Fake:
    def __init__(self, *, can: bool = True) -> None:
        self.can, self.calls = can, []

    def hold(self) -> bool:
        self.calls.append("hold")
        return self.can

    def release(self) -> None:
        self.calls.append("release")


def test_it_is_held_once_while_there_is_work_and_released_after():
    fake, work = Fake(), [False]
    vigil = KeepAwake(lambda: work[0], lambda: fake)
    for now in (True, True, False, False, True):
        work[0] = now
        vigil.look()
        wait_until(lambda now=now: vigil.held == now)
    vigil.close()
    assert fake.calls == ["hold", "release", "hold", "release"]


def test_a_system_that_refuses_is_asked_once_and_said(caplog):
    fake = Fake(can=False)
    vigil = KeepAwake(lambda: True, lambda: fake)
    for _ in range(5):
        vigil.look()
        time.sleep(0.01)
    vigil.close()
    assert fake.calls == ["hold"] and "cannot be kept awake" in caplog.text


def test_a_system_without_any_way_is_said_once(caplog):
    vigil = KeepAwake(lambda: True, lambda: None)
    vigil.look()
    vigil.close()
    assert caplog.text.count("keeps the computer awake") == 1


def test_windows_is_asked_for_the_system_and_not_for_the_screen():
    asked = []

    class Kernel:
        def SetThreadExecutionState(self, state: int) -> int:  # noqa: N802 (Windows' name)
            asked.append(state)
            return 1

    state = WindowsState(Kernel())
    assert state.hold()
    state.release()
    assert asked == [0x80000001, 0x80000000], "display required would be 2"


def program(folder: Path, name: str, lines: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@POSIX
@pytest.mark.parametrize(
    ("platform", "name", "lines"),
    [
        (
            "linux",
            "systemd-inhibit",
            'echo "$*" > "$0.asked"\nwhile [ "${1#--}" != "$1" ]; do shift; done\n"$@"',
        ),
        ("darwin", "caffeinate", 'echo "$*" > "$0.asked"\nexec sleep 60'),
    ],
)
def test_a_helper_runs_as_long_as_it_is_held(tmp_path, platform, name, lines):
    path = program(tmp_path, name, lines)
    helper = inhibitor(platform, lambda wanted: path if wanted == name else None)
    assert isinstance(helper, Helper) and helper.hold()
    pid = helper._process.pid
    os.kill(pid, 0)
    asked = Path(f"{path}.asked").read_text()
    assert ("--what=idle:sleep" in asked) if platform == "linux" else asked.startswith("-i -w")
    assert "display" not in asked and "-d" not in asked.split()
    helper.release()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert helper.hold(), "and again for the next reading"
    helper.release()


@POSIX
def test_a_helper_that_ends_at_once_was_refused(tmp_path):
    path = program(tmp_path, "systemd-inhibit", "echo no bus >&2; exit 1")
    assert not inhibitor("linux", lambda _name: path).hold()
    assert not Helper(["/nonexistent/systemd-inhibit"]).hold()
    assert inhibitor("linux", lambda _name: None) is None and inhibitor("sunos", lambda _name: "x") is None


@POSIX
def test_a_killed_app_leaves_nothing_that_holds(tmp_path):
    """The PC would never sleep again."""
    path = program(
        tmp_path,
        "systemd-inhibit",
        'echo $$ > "$0.pid"\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',
    )
    script = (
        "import sys, time; from app.host.keep_awake import inhibitor; "
        f"inhibitor('linux', lambda _n: {path!r}).hold(); print('held', flush=True); time.sleep(60)"
    )
    app = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[2]
    )
    assert app.stdout.readline() == b"held\n"
    pid = int(Path(f"{path}.pid").read_text())
    app.send_signal(signal.SIGKILL)
    app.wait()
    app.stdout.close()
    wait_until(
        lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def test_the_desk_is_at_work_while_it_answers_and_not_before_or_after(opened):
    desk, _engine = opened(pace=0.01)
    assert not desk.at_work
    desk.questions.ask("Who?")
    assert desk.at_work
    wait_until(lambda: not desk.state.busy)
    assert not desk.at_work


def test_reading_a_file_and_a_download_are_work_and_waiting_for_a_password_is_not(desk, tmp_path):
    from dataclasses import replace

    from app.desk.values import ImportedFile
    from app.models.catalogue import Transfer

    desk.store.update(opening=ImportedFile(tmp_path / "x", "x"))
    assert desk.at_work
    desk.store.update(opening=replace(desk.state.opening, locked=True))
    assert not desk.at_work
    desk.store.update(opening=None)
    desk.models.fetching = Transfer("m")
    assert desk.at_work
    desk.models.fetching = Transfer("m", state="paused")
    assert not desk.at_work
