"""pip inside the environment: where torch comes from, what is shown, and how a failure is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from installer.packages import Pip, SetupError, describe, explain
from installer.progress import Progress
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
    pip = Pip(Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "log")
    pip.install_torch(Build("cpu"), replace=False, progress=silent)
    assert asked == [expected]


def test_an_unreachable_cpu_index_falls_back_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: Progress
):
    """Behind a mirror that has PyPI only, the program gets installed, and the size is no surprise."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Pip, "_ask", lambda self, *arguments, timeout: "")
    asked: list[list[object]] = []

    def install(self: Pip, title: str, arguments: list[object], progress: Progress) -> None:
        asked.append(arguments)
        if "--index-url" in arguments:
            raise SetupError("the package index could not be reached")

    monkeypatch.setattr(Pip, "install", install)
    Pip(Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "log").install_torch(
        Build("cpu"), replace=False, progress=silent
    )
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
    assert describe(["", *line.split("\n"), ""], scratch) == words


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
        ("ERROR: something new", "launcher.py repair"),
    ],
)
def test_a_failed_pip_is_explained(tmp_path: Path, line: str, cause: str):
    """Cause and remedy first, pip's own words after it."""
    text = explain("Installing", [line], tmp_path / "setup.log")
    assert cause in text and "setup.log" in text


def test_pip_that_fails_leaves_its_words_in_the_log(tmp_path: Path, silent: Progress):
    """A report of a failed setup needs them."""
    fake = tmp_path / "fake python.py"
    fake.write_text(
        "import sys\nprint('Collecting torch')\nsys.exit('ERROR: No matching distribution found for torch')\n"
    )
    pip = Pip(Path(sys.executable), scratch=tmp_path / "tmp", log=tmp_path / "setup.log")
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
