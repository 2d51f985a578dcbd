"""The batch files run, under Wine's cmd: every branch up to the download, which is served from this computer.

Older Wines read a file that says the same in other lines: wine.without_conditions.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import re
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.installer import wine
from tests.installer.wine import Answer, Call, Windows

REPO = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(wine.missing()), reason=f"not installed: {' '.join(wine.missing())}"),
]
PROFILE = "Jörg & Ütz 漢字 (2)"
STARTED = (7, "started")
NONE_FOUND = "TriForce Chat needs Python 3.10 to 3.13, 64-bit, and none was found."
BY_HAND = "Or install Python 3.12 from https://www.python.org/downloads/windows/"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Windows]:
    with wine.made(tmp_path_factory.mktemp("wine")) as windows:
        yield windows


@dataclass
class Computer:
    """A user's computer on which the program was unpacked. `served`: where its uv comes from."""

    windows: Windows
    program: Path
    profile: Path
    served: Path

    @property
    def brought(self) -> Path:
        return self.profile / "TriForce" / "python"

    def start(self, *arguments: str, fetch: str = "yes", **environ: str) -> tuple[int, str]:
        local = "Z:" + str(self.profile).replace("/", "\\")
        given = {"PROFILE": local, "TRIFORCE_FETCH_PYTHON": fetch, **environ}
        return self.windows.run(self.program / "windows" / "TriForceChat.bat", *arguments, **given)

    def answer(self, **answers: Answer) -> None:
        self.windows.answers.update(answers)

    def named(self, name: str) -> list[Call]:
        return [call for call in self.windows.calls if call.name == name]

    def bring(self, call: Call) -> tuple[int, str]:
        """What uv does: puts a Python into the folder that it is told."""
        folder = (
            self.windows.path(call.environ["UV_PYTHON_INSTALL_DIR"]) / "cpython-3.12.9-windows-x86_64-none"
        )
        folder.mkdir(parents=True)
        shutil.copy(self.windows.stand_in, folder / "python.exe")
        self.answer(python=runs)
        return 0, ""


@pytest.fixture
def computer(made: Windows, tmp_path: Path) -> Iterator[Computer]:
    """No Python on it; curl, certutil and tar work, and uv brings a Python."""
    program, served = tmp_path / "Bücher und mehr 漢字" / "installer", tmp_path / "served"
    shutil.copytree(REPO / "installer", program, ignore=shutil.ignore_patterns("__pycache__"))
    for batch in (REPO / "installer" / "windows").glob("*.bat"):
        made.put(batch, program / "windows" / batch.name)
    served.mkdir()
    wheel = served / "uv.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.write(made.stand_in, "uv-0.0.0.data/scripts/uv.exe")
    profile = tmp_path / PROFILE
    profile.mkdir()
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (program / "uv.txt").write_text(f"# uv\nWindows http://127.0.0.1:{server.server_port}/uv.whl {digest}\n")
    made.answers.clear()
    made.calls.clear()
    here = Computer(made, program, profile, served)
    here.answer(curl=curl, certutil=certutil, tar=tar, uv=here.bring)
    yield here
    server.shutdown()


def no(_call: Call) -> tuple[int, str]:
    return 1, ""


def runs(call: Call) -> tuple[int, str]:
    """A Python that fits, and a launcher that ends with status 7."""
    return (0, "") if "-c" in call.words else (7, "started")


def curl(call: Call) -> tuple[int, str]:
    said = subprocess.run(["curl", *call.words], cwd=call.folder, capture_output=True, text=True)
    return said.returncode, said.stderr


def certutil(call: Call) -> tuple[int, str]:
    file = call.folder / call.words[1]
    assert call.words == ["-hashfile", "uv.zip", "SHA256"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return 0, f"SHA256 hash of uv.zip:\r\n{digest}\r\nCertUtil: -hashfile command completed successfully.\r\n"


def tar(call: Call) -> tuple[int, str]:
    assert call.words == ["-xf", "uv.zip"]
    with zipfile.ZipFile(call.folder / "uv.zip") as packed:
        packed.extractall(call.folder)
    return 0, ""


def left(computer: Computer) -> list[str]:
    """Folders of a start that are still there."""
    return [found.name for found in computer.brought.glob("uv-*")]


# ---- a Python is there -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("there", "taken"), [("10 11 12 13", 12), ("10 13", 13), ("10 11", 11), ("10", 10)])
def test_the_launcher_is_started_with_the_best_python_that_py_knows(computer, there: str, taken: int):
    """With the words as they were given, and its status is the starter's."""

    def py(call: Call) -> tuple[int, str]:
        return runs(call) if call.words[0] in [f"-3.{minor}" for minor in there.split()] else (103, "")

    computer.answer(py=py)
    assert computer.start("summarize", "ein Buch (2) & mehr.txt") == STARTED
    call = computer.windows.calls[-1]
    assert call.words[0] == f"-3.{taken}" and call.words[2:] == ["summarize", "ein Buch (2) & mehr.txt"]
    assert computer.windows.path(call.words[1]).resolve() == computer.program.parent / "launcher.py"
    assert call.environ["TRIFORCE_SHIM"] == "1" and call.environ["PYTHON_MANAGER_AUTOMATIC_INSTALL"] == "0"


def test_python_on_the_path_is_taken_where_py_has_none(computer):
    computer.answer(python=runs)
    assert computer.start("doctor", fetch="no") == STARTED


def test_one_that_was_fetched_earlier_is_taken_without_a_question(computer):
    folder = computer.brought / "cpython-3.12.9-windows-x86_64-none"
    folder.mkdir(parents=True)
    shutil.copy(computer.windows.stand_in, folder / "python.exe")
    computer.answer(python=lambda call: runs(call) if call.program.parent == folder else (1, ""))
    assert computer.start("doctor") == STARTED
    assert computer.windows.calls[-1].program == folder / "python.exe"


# ---- none is there -----------------------------------------------------------------------------------------


def test_a_no_given_beforehand_says_how_to_get_one(computer):
    status, said = computer.start(fetch="no")
    assert status == 1 and NONE_FOUND in said and BY_HAND in said
    assert not computer.named("curl") and not computer.brought.exists()


@pytest.mark.parametrize(("key", "fetched"), [(1, True), (2, False), (255, False)])
def test_the_question_is_answered_at_the_keyboard(computer, key: int, fetched: bool):
    """255: choice could not ask."""
    computer.answer(choice=lambda call: (key, ""))
    status, said = computer.start(fetch="")
    assert computer.named("choice")[0].words[:2] == ["/c", "YN"]
    assert bool(computer.named("curl")) is fetched and status == (7 if fetched else 1)
    assert NONE_FOUND in said and (BY_HAND in said) is not fetched


def test_from_nothing_to_a_python_of_ones_own(computer):
    """In a profile whose name holds what cmd would split a line at."""
    status, said = computer.start("summarize", "ein Buch.txt")
    assert status == 7 and said.endswith("started"), said
    assert "recognize" not in said and BY_HAND not in said
    [asked] = computer.named("uv")
    assert asked.words[:2] == ["python", "install"] and asked.words[-1] == ">=3.10,<3.13"
    inside = (
        "CACHE_DIR",
        "PYTHON_CACHE_DIR",
        "TOOL_DIR",
        "TOOL_BIN_DIR",
        "PYTHON_BIN_DIR",
        "CREDENTIALS_DIR",
    )
    for name in inside:
        assert re.search(r"\\uv-\d+\\\w+$", asked.environ[f"UV_{name}"]), name
    assert asked.environ["UV_NO_CONFIG"] == "1" and asked.environ["UV_COMPILE_BYTECODE"] == "0"
    assert left(computer) == [] and [one.name[:12] for one in computer.brought.iterdir()] == ["cpython-3.12"]


def test_older_windows_puts_spaces_between_the_bytes_of_a_digest(computer):
    def spaced(call: Call) -> tuple[int, str]:
        status, said = certutil(call)
        first, digest, *rest = said.split("\r\n")
        return status, "\r\n".join([first, " ".join(re.findall("..", digest)), *rest])

    computer.answer(certutil=spaced)
    assert computer.start()[0] == 7


def test_what_is_not_the_expected_file_is_not_even_unpacked(computer):
    (computer.served / "uv.whl").write_bytes(b"something else")
    status, said = computer.start()
    assert status == 1 and "What came is not the file that was expected; it is not used." in said
    assert BY_HAND in said and not computer.named("tar") and left(computer) == []


def test_a_server_without_the_file_is_told(computer):
    (computer.served / "uv.whl").unlink()
    status, said = computer.start()
    assert status == 1 and "404" in said and "See that this computer is online" in said and BY_HAND in said
    assert not computer.named("certutil") and left(computer) == []


@pytest.mark.parametrize("name", ["certutil", "tar"])
def test_a_step_that_fails_is_told_and_leaves_nothing(computer, name: str):
    computer.answer(**{name: no})
    status, said = computer.start()
    assert status == 1 and "That did not work." in said and BY_HAND in said
    assert not computer.named("uv") and left(computer) == []


def test_a_file_of_uv_that_a_scanner_holds_is_tried_again(computer):
    """uv renames what it has unpacked, and a virus scanner is reading it: "Access is denied (os error 5)"."""
    tries: list[Call] = []

    def held_once(call: Call) -> tuple[int, str]:
        tries.append(call)
        return computer.bring(call) if len(tries) == 2 else (2, "error: Access is denied. (os error 5)\r\n")

    computer.answer(uv=held_once)
    assert computer.start()[0] == 7
    assert len(tries) == 2


def test_a_uv_that_brings_nothing_is_told_and_leaves_nothing(computer):
    computer.answer(uv=lambda call: (2, ""))
    status, said = computer.start()
    assert status == 1 and "That did not work." in said and BY_HAND in said and left(computer) == []
    assert len(computer.named("uv")) == 2


def test_a_python_that_does_not_start_is_not_taken(computer):
    """uv was content, the processor is another one."""
    computer.answer(uv=lambda call: (computer.bring(call), computer.answer(python=no), (0, ""))[-1])
    status, said = computer.start()
    assert status == 1 and BY_HAND in said and "That did not work." not in said


def test_a_folder_that_cannot_be_made_is_no_endless_question(computer):
    (computer.profile / "TriForce").write_text("a file")
    status, said = computer.start()
    assert status == 1 and BY_HAND in said and not computer.named("curl")


def test_two_starts_do_not_use_one_folder(computer):
    (computer.brought / "uv-7").mkdir(parents=True)
    status, said = computer.start(RANDOM="7")
    assert status == 1 and "Another start is fetching it." in said and left(computer) == ["uv-7"]


# ---- the menu ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fails_at", "asked"), [(0, 2), (1, 1), (2, 2)])
def test_the_menu_entries_are_made_or_the_way_by_hand_is_told(computer, fails_at: int, asked: int):
    """0: nothing fails; 1: the links, 2: what stands under "Open with"."""
    computer.answer(powershell=lambda call: (int(len(computer.named("powershell")) == fails_at), ""))
    status, said = computer.windows.run(computer.program / "windows" / "add-to-menu.bat")
    calls = computer.named("powershell")
    assert len(calls) == asked and (status, "Make a shortcut" in said) == (bool(fails_at), bool(fails_at))
    start = computer.windows.path(calls[0].environ["TARGET"])
    assert start == computer.program / "windows" / "TriForceChat.bat"
    assert computer.windows.path(calls[0].environ["PROGRAM"]) == computer.program.parent
    assert computer.windows.path(calls[0].environ["ICON"]).parent.name == "icons"
    assert all(call.words[:2] == ["-NoProfile", "-Command"] for call in calls)
    assert all(call.words[2].startswith("$ErrorActionPreference = 'Stop'; ") for call in calls)
    if (
        asked == 2 and computer.windows.reads_conditions
    ):  # an older Wine takes %1 for this file's own first word
        assert "$run = $q + $env:TARGET + $q + ' ' + $q + '%1' + $q" in calls[1].words[2]
