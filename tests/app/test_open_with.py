"""Files opened with the program land in the one that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.parser import _with_command
from app.host.instance import Instance
from tests.support.fake_runtime import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "support" / "scripted_worker.py"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["book.epub"], ["app", "book.epub"]),
        (["/home/a/Ein Buch", "b.pdf"], ["app", "/home/a/Ein Buch", "b.pdf"]),
        (["summarize", "book.epub"], ["summarize", "book.epub"]),
        (["sumarize"], ["sumarize"]),
        (["--help"], ["--help"]),
        (["--offline"], ["app", "--offline"]),
        ([], []),
    ],
)
def test_a_file_in_the_place_of_the_command_is_opened(arguments, meant):
    assert _with_command(arguments) == meant


@pytest.fixture
def read_by_name(book):
    """A reader that gives each file a book of its own."""

    def read(path, **_how):
        time.sleep(0.05)
        letter = "%02x" % (sum(map(ord, Path(path).stem)) % 256)
        return replace(book, title=Path(path).stem, sha256=letter * 32)

    return read


def test_two_files_and_a_missing_one(make_desk, engine, read_by_name, tmp_path):
    desk = make_desk(engine, read=read_by_name)
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("x")
    desk.imports.files([str(tmp_path / name) for name in ("one.txt", "gone.txt", "two.txt")])
    wait_until(lambda: desk.state.opening is None and len(desk.library.entries()) == 2)
    assert desk.books.current.title == "two"
    (said,) = desk.state.failures
    assert len(said.split("gone.txt")) == 2
    assert (tmp_path / "one.txt").exists() and (tmp_path / "two.txt").exists(), "they are the person's own"


def test_while_an_answer_is_written_the_file_comes_on_the_shelf(opened, tmp_path, book, read_by_name):
    desk, _engine = opened(pace=0.05)
    desk.imports._readers = replace(desk.imports._readers, read=read_by_name)
    (tmp_path / "one.txt").write_text("x")
    assert desk.questions.ask("Who?")
    desk.imports.files([str(tmp_path / "one.txt")])
    wait_until(lambda: any("one" in arrival.words for arrival in desk.state.arrivals))
    assert desk.state.busy and desk.books.current.title == book.title and len(desk.library.entries()) == 2
    desk.stop()


def start(home: Path, cwd: Path, *files: str) -> subprocess.Popen:
    """The app as the launcher starts it, with an engine by script and without a browser."""
    code = (
        "import sys; from app.engine import client\nfrom app.host import window\n"
        f"client.Runtime.__init__.__kwdefaults__['worker'] = (sys.executable, {str(SCRIPT)!r})\n"
        "window.webbrowser.open = lambda url: None\n"
        "from app.cli.parser import main; sys.exit(main(sys.argv[1:]))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TRIFORCE_HOME": str(home), "DISPLAY": ""}
    environ.pop("WAYLAND_DISPLAY", None)
    return subprocess.Popen(
        [sys.executable, "-c", code, *files], cwd=cwd, env=environ, stdout=subprocess.PIPE, text=True
    )


def titles(home: Path) -> set[str]:
    found = home.glob("books/*/entry.json")
    return {json.loads(one.read_text())["title"] for one in found}


@pytest.mark.wide
def test_a_second_start_with_a_file_hands_it_to_the_first(home, tmp_path):
    """Real processes: the path is the second one's, relative to where it was started."""
    folder = tmp_path / "Bücher 书"
    folder.mkdir()
    for name in ("first", "second", "third"):
        (folder / f"{name}.txt").write_text(f"{name.title()} Book\n\nIt was {name} and nobody came. " * 30)
    first = start(home, folder, "first.txt")
    try:
        threading.Thread(target=first.stdout.read, daemon=True).start()
        wait_until(lambda: Instance(home / "run").running())
        wait_until(lambda: len(titles(home)) == 1)
        second = start(home, folder, "second.txt", "third.txt", "absent.txt")
        said, _nothing = second.communicate(timeout=60)
        assert second.returncode == 0 and "already" in said
        wait_until(lambda: len(titles(home)) == 3)
        assert first.poll() is None
    finally:
        first.terminate()
        first.wait(30)
