"""pip inside the environment: where torch comes from, what is shown, and how a failure is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from installer import held
from installer.packages import Pip, SetupError
from installer.pip_messages import describe_pip, explain
from installer.progress import SetupProgress
from installer.torch_build import Build


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("2.13.0+cpu", ["torch==2.13.0"]),
        ("2.13.0", ["torch>=2.11,<3", "--index-url", "https://download.pytorch.org/whl/cpu"]),
        ("", ["torch>=2.11,<3", "--index-url", "https://download.pytorch.org/whl/cpu"]),
    ],
)
def test_without_a_gpu_no_cuda_build_is_fetched(tmp_path, monkeypatch, local, expected, silent):
    """On Linux a plain `pip install torch` fetches gigabytes of CUDA libraries."""
    monkeypatch.setattr(sys, "platform", "linux")
    report = json.dumps({"install": [{"metadata": {"version": local}}] if local else []})
    monkeypatch.setattr(Pip, "_ask", lambda self, *arguments, timeout: report)
    asked: list[list[object]] = []
    monkeypatch.setattr(Pip, "install", lambda self, title, arguments, progress: asked.append(arguments))
    pip = Pip(
        Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "log", wheels=tmp_path / "wheels"
    )
    pip.install_torch(Build("cpu"), replace=False, progress=silent)
    assert asked == [expected]


def test_an_unreachable_cpu_index_falls_back_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: SetupProgress
):
    """Behind a mirror that has PyPI only, the program gets installed, and the size is no surprise."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Pip, "_ask", lambda self, *arguments, timeout: "")
    asked: list[list[object]] = []

    def install(self: Pip, title: str, arguments: list[object], progress: SetupProgress) -> None:
        asked.append(arguments)
        if "--index-url" in arguments:
            raise SetupError("the package index could not be reached")

    monkeypatch.setattr(Pip, "install", install)
    Pip(
        Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "log", wheels=tmp_path / "wheels"
    ).install_torch(Build("cpu"), replace=False, progress=silent)
    assert asked[-1] == ["torch>=2.11,<3"]
    assert any("several GB" in step for step in silent.steps)


@pytest.mark.parametrize(
    ("line", "scratch", "words"),
    [
        (
            "Downloading torch-2.13.0-cp311-none-linux_x86_64.whl (900.5 MB)",
            450_000_000,
            "downloading torch, 450 of 900 MB",
        ),
        ("  Downloading https://host/x/torch-2.13.0.whl (2.5 GB)", 10, "downloading torch, 0 of 2500 MB"),
        ("Downloading six-1.17.0-py2.py3-none-any.whl.metadata (1.7 kB)", 0, "downloading six"),
        ("Collecting transformers<6,>=5.17 (from -r requirements.txt (line 4))", 0, "preparing transformers"),
        (
            "Installing collected packages: a, b, c\n  Successfully uninstalled a-1.0",
            0,
            "unpacking 3 packages",
        ),
        ("WARNING: the index is slow today", 0, "starting"),
    ],
)
def test_pips_lines_become_progress(line: str, scratch: int, words: str):
    """The user sees that something moves, in words that mean something."""
    assert describe_pip(["", *line.split("\n"), ""], scratch) == words


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "the disk is full",
        ),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", "could not be reached"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))", "secure connection"),
        ("ERROR: No matching distribution found for torch", "no fitting version"),
        ("ERROR: [WinError 5] Access is denied: 'torch.dll'", "could not be written"),
        ("ERROR: [WinError 32] Der Prozess kann nicht auf die Datei zugreifen", "could not be written"),
        ("ERROR: something new", "launcher.py repair"),
    ],
)
def test_a_failed_pip_is_explained(tmp_path: Path, line: str, cause: str):
    """Cause and remedy first, pip's own words after it."""
    text = explain("Installing", [line], tmp_path / "setup.log")
    assert cause in text and "setup.log" in text


def test_pip_that_fails_leaves_its_words_in_the_log(tmp_path: Path, silent: SetupProgress):
    """A report of a failed setup needs them."""
    fake = tmp_path / "fake python.py"
    fake.write_text(
        "import sys\nprint('Collecting torch')\nsys.exit('ERROR: No matching distribution found for torch')\n"
    )
    pip = Pip(
        Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "setup.log", wheels=tmp_path / "wheels"
    )
    pip._python = _Command(sys.executable, fake)
    with pytest.raises(SetupError, match="no fitting version"):
        pip.install("Installing PyTorch", ["torch"], silent)
    assert "Collecting torch" in (tmp_path / "setup.log").read_text()


class _Command(str):
    """A stand-in for the environment's Python: a script that ignores what follows its name."""

    def __new__(cls, python: str, script: Path) -> _Command:
        wrapper = script.with_suffix(".sh" if os.name != "nt" else ".bat")
        line = (
            f'#!/bin/sh\nexec "{python}" "{script}" "$@"\n'
            if os.name != "nt"
            else f'@"{python}" "{script}" %*\r\n'
        )
        wrapper.write_text(line)
        wrapper.chmod(0o755)
        return super().__new__(cls, str(wrapper))


def test_the_users_pip_settings_stay_and_what_misleads_pip_goes(monkeypatch: pytest.MonkeyPatch):
    """`pip config set global.user true` or PYTHONPATH would send packages elsewhere."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://own.example/simple")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environ = Pip.clean_environ()
    assert environ["PIP_INDEX_URL"] == "https://own.example/simple"
    assert environ["PIP_USER"] == "0" and environ["PYTHONNOUSERSITE"] == "1"
    assert not {"PIP_TARGET", "PYTHONPATH"} & environ.keys()


@pytest.fixture
def started(monkeypatch):
    """Every start of pip, as its arguments and environment; the first with --no-index fails if told to."""
    calls: list[tuple[list[str], dict[str, str]]] = []
    missing: list[str] = []

    class Process:
        def __init__(self, command, *, env, **options) -> None:
            calls.append((command, env))
            lacks = bool(missing) and "--no-index" in command
            lines = [b"ERROR: No matching distribution found for rich"] if lacks else []
            self.args, self.stdout, self.code = command, lines, int(lacks)

        def wait(self, *_arguments) -> int:
            return self.code

        poll = wait

    monkeypatch.setattr("installer.packages.subprocess.Popen", Process)
    return calls, missing


def pip_with(folder: Path, *, wheels: bool) -> Pip:
    if wheels:
        (folder / "wheels").mkdir()
    return Pip(
        Path(sys.executable), scratch=folder / "env" / "tmp", log=folder / "log", wheels=folder / "wheels"
    )


def test_wheels_beside_the_program_are_enough_without_a_network(tmp_path, started, silent):
    """Carried over on a stick: no index is asked, not even for torch."""
    calls, _missing = started
    pip = pip_with(tmp_path, wheels=True)
    pip.install_torch(Build("cu130"), replace=False, progress=silent)
    pip.install("Packages", ["-r", tmp_path / "requirements.txt"], silent)
    assert len(calls) == 2
    for command, _environ in calls:
        assert "--no-index" in command and f"--find-links={tmp_path / 'wheels'}" in command
        assert "--index-url" not in command


def test_what_is_not_among_them_comes_from_the_index(tmp_path, started, silent):
    calls, missing = started
    missing.append("rich")
    pip_with(tmp_path, wheels=True).install("Packages", ["rich"], silent)
    first, second = (command for command, _environ in calls)
    assert "--no-index" in first and "--no-index" not in second
    assert f"--find-links={tmp_path / 'wheels'}" in second
    assert any("does not hold all" in step for step in silent.steps)


def test_without_a_folder_of_wheels_pip_is_asked_once(tmp_path, started, silent):
    calls, _missing = started
    pip_with(tmp_path, wheels=False).install("Packages", ["rich"], silent)
    [(command, _environ)] = calls
    assert not any(part.startswith(("--no-index", "--find-links")) for part in command)


def test_pips_cache_is_ours_and_goes_when_all_is_installed(tmp_path, started, silent, monkeypatch):
    """An interrupted setup goes on from it; afterwards gigabytes would lie in a folder nobody knows."""
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    calls, _missing = started
    pip = pip_with(tmp_path, wheels=False)
    pip.install("Packages", ["rich"], silent)
    cache = Path(calls[-1][1]["PIP_CACHE_DIR"])
    assert cache == tmp_path / "env" / "cache"
    cache.mkdir()
    pip.clean_up()
    assert not cache.exists() and not (tmp_path / "env" / "tmp").exists()
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    pip.install("Packages", ["rich"], silent)
    assert calls[-1][1]["PIP_CACHE_DIR"] == "/mine"


def test_the_visual_c_runtime_comes_where_torch_looks_for_it(tmp_path, started, silent):
    """The package puts its libraries beside an interpreter that is not the one which runs."""
    calls, _missing = started
    scripts = tmp_path / "env" / "Scripts"
    scripts.mkdir(parents=True)
    for name in ("msvcp140.dll", "vcruntime140_1.dll", "python.exe"):
        (scripts / name).touch()
    requirements = Path(__file__).resolve().parents[2] / "requirements.txt"
    pip_with(tmp_path, wheels=False).install_runtime(requirements, tmp_path / "env", silent)
    assert calls[-1][0][-1] == 'msvc-runtime>=14.40,<15; sys_platform == "win32"'
    found = sorted(path.name for path in (tmp_path / "env" / "Library" / "bin").iterdir())
    assert found == ["msvcp140.dll", "vcruntime140_1.dll"]


@pytest.fixture
def scanned(tmp_path, monkeypatch):
    """A pip whose files a scanner holds at the first `times` tries; the pauses that were made meanwhile. What
    it had begun to install is left without pip's last file.
    """
    site = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    begun, times, pauses = site / "torch-2.13.0.dist-info", [0], []

    class Process:
        def __init__(self, command, **options) -> None:
            assert not begun.exists(), "pip would take a half-installed package for a whole one"
            times[0] -= 1
            self.args, self.code = command, int(times[0] >= 0)
            self.stdout = [b"ERROR: [WinError 5] Zugriff verweigert: 'c10.dll'"] if self.code else []
            begun.mkdir(parents=True)
            if not self.code:
                (begun / "INSTALLER").touch()

        def wait(self, *_arguments) -> int:
            return self.code

        poll = wait

    monkeypatch.setattr("installer.packages.subprocess.Popen", Process)
    scratch, log = tmp_path / "env" / "tmp", tmp_path / "log"
    pip = Pip(Path("python"), scratch=scratch, log=log, wheels=tmp_path / "none", sleep=pauses.append)
    return pip, times, pauses


def test_a_file_that_a_scanner_holds_is_waited_for(scanned, silent):
    """Real-time scanners hold a fresh library for seconds; a person would read "access denied"."""
    pip, times, pauses = scanned
    times[0] = 2
    pip.install("Installing PyTorch", ["torch"], silent)
    assert pauses == list(held.PAUSES_S[:2]) and times[0] == -1
    assert sum("virus scanner" in step for step in silent.steps) == 2


def test_a_file_that_stays_held_is_told_with_its_remedy(scanned, silent):
    pip, times, pauses = scanned
    times[0] = 99
    with pytest.raises(SetupError, match="wait until a virus scanner is done"):
        pip.install("Installing PyTorch", ["torch"], silent)
    assert pauses == list(held.PAUSES_S)


def test_what_waiting_does_not_mend_is_told_at_once(tmp_path, started, silent):
    calls, missing = started
    missing.append("rich")
    pip = pip_with(tmp_path, wheels=False)
    with pytest.raises(SetupError, match="no fitting version"):
        pip.install("Packages", ["--no-index", "rich"], silent)
    assert len(calls) == 1


def test_a_runtime_too_old_for_torch_is_told_with_both_remedies(tmp_path, monkeypatch):
    """WinError 1114: the newest runtime helps, but not behind a Python that brings an older one."""
    said = 'OSError: [WinError 1114] DLL initialization routine failed. Error loading "c10.dll"'
    pip = pip_with(tmp_path, wheels=False)
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(Pip, "_run", lambda self, *arguments, timeout: failed)
    with pytest.raises(SetupError, match="(?s)vc_redist.*Anaconda") as told:
        pip.check_torch()
    assert "1114" in str(told.value)
