"""Shows the starter on the machine that this runs on: from no Python to an answer, and to nothing left.

    python -m tests.installer.on_this_machine [--place PLACE] [--refused] [--pack-python]

For a machine that is thrown away afterwards, as .github/workflows have them: it renames the Pythons that the
starter would find (this one may be among them: it runs on), and on Windows redirects the user's folders.
Needs a network; on Windows an administrator, on macOS sudo without a password.

`--place`: one of awkward.PLACES. `--refused`: the machine cannot run the program (a Mac with an Intel
processor); it must say so, and leave nothing. `--pack-python`: uv brings this Python (Linux; see
from_nothing.py), not one from the internet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.installer.awkward import PLACES, Place, hidden, laid_out, pythons, redirected, reserved, say
from tests.installer.from_nothing import served_python, write_program

STARTERS = {"win32": "windows/TriForceChat.bat", "darwin": "macos/TriForceChat.command"}
MENU = {"win32": "windows/add-to-menu.bat", "linux": "linux/add-to-menu.sh"}
SAMPLE = "assets/samples/the-thursday-clock.md"
PORT = 7860  # as config.yaml has it
PATIENCE_S = 1800


class Machine:
    """The user whose program lies at `place`. What is run sees nothing of this process's environment."""

    def __init__(self, place: Place, **environ: str) -> None:
        self.place = place
        self.environ = {**place.environ, "TRIFORCE_TORCH": "cpu", "TRIFORCE_FETCH_PYTHON": "yes", **environ}
        told = [name for name in self.environ if name == "CI" or name.startswith(("GITHUB_", "RUNNER_"))]
        assert not told, f"an installer that knows where it runs shows nothing: {told}"

    def begin(self, *words: str, script: str = "", **environ: str) -> subprocess.Popen[bytes]:
        """The starter, or another script of installer/, in a group of its own."""
        starter = STARTERS.get(sys.platform, "linux/triforce-chat.sh")
        file = self.place.program / "installer" / (script or starter)
        command: str | list[str] = [str(file), *words]
        if os.name == "nt":  # /s: only the outermost quotation marks are taken off
            command = f'cmd /d /s /c "{subprocess.list2cmdline(command)}"'
        return subprocess.Popen(
            command,
            cwd=self.place.profile,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=os.name != "nt",
        )

    def run(self, *words: str, status: int = 0, **given: str) -> str:
        """What it says. Fails on another exit status."""
        process = self.begin(*words, **given)
        said = process.communicate(timeout=PATIENCE_S)[0].decode("utf-8", "replace")
        say(f"$ {' '.join([given.get('script', 'start'), *words])}\n{said}[status {process.returncode}]\n")
        assert process.returncode == status, f"{words}: {process.returncode} instead of {status}"
        return said

    def files(self) -> set[str]:
        """Every file of the user's, the program's among them; not what Windows' own programs keep there."""
        systems = self.place.profile / "AppData" / "Local" / "Microsoft"
        found = (path for path in self.place.base.rglob("*") if not path.is_dir())
        return {str(path.relative_to(self.place.base)) for path in found if systems not in path.parents}


def end(process: subprocess.Popen[bytes]) -> None:
    """As a power cut does: all of it at once, unasked."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/t", "/f", "/pid", str(process.pid)], stdout=subprocess.DEVNULL)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def until(done: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> object:
    """Wait for a true answer, as long as the process runs."""
    ends = time.monotonic() + PATIENCE_S
    while not (found := done()):
        assert process is None or process.poll() is None, process.communicate()[0].decode("utf-8", "replace")
        assert time.monotonic() < ends, f"not within {PATIENCE_S} s: {done}"
        time.sleep(0.2)
    return found


# ---- the story ---------------------------------------------------------------------------------------------


def story(machine: Machine) -> None:
    """Each step on its own line of the log; the first that goes otherwise than it should ends it."""
    before = machine.files()
    told = machine.run("doctor", status=1, TRIFORCE_FETCH_PYTHON="no")
    assert "needs Python 3.10 to 3.13" in told, "a Python was found: nothing is shown by what follows"
    interrupted_setup(machine)
    sample = str(machine.place.program / SAMPLE)
    assert len(machine.run("summarize", sample)) > 500
    assert machine.run("summarize", sample, "--question", "Who repairs the clock?").strip()
    machine.run("summarize", str(machine.place.profile / "no such book.txt"), status=1)
    served(machine)
    updates(machine)
    if script := MENU.get(sys.platform):
        machine.run(script=script)
    machine.run("uninstall", status=1)
    machine.run("uninstall", "--yes", "--data")
    nothing_left(machine, before)


def refusal(machine: Machine) -> None:
    """A machine without a PyTorch says so, and nothing was fetched for it."""
    before = machine.files()
    assert "Intel" in machine.run("doctor", status=1)
    assert machine.files() == before


def interrupted_setup(machine: Machine) -> None:
    """A power cut while PyTorch comes; the next start goes on in the same environment."""
    process = machine.begin("doctor")
    log = until(lambda: next(iter(machine.place.base.rglob("setup.log")), None), process)
    until(lambda: "Downloading" in log.read_text("utf-8", "replace"), process)
    end(process)
    made = log.with_name("pyvenv.cfg").stat().st_mtime_ns
    assert json.loads(log.with_name("triforce.json").read_text())["torch"] == ""
    assert "The environment is ready" in machine.run("doctor")
    assert log.with_name("pyvenv.cfg").stat().st_mtime_ns == made, "it was begun anew"


def served(machine: Machine) -> None:
    """The app serves its page, on another port where its own cannot be had."""
    with reserved(PORT) if machine.place.name == "port" else contextlib.nullcontext():
        process = machine.begin("serve")
        address = Path(machine.environ["TRIFORCE_HOME"]) / "run" / "app.json"
        until(address.exists, process)
        port = json.loads(address.read_text())["port"]
        assert (port == PORT) is (machine.place.name != "port"), port
        try:
            status = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60).status
        except urllib.error.HTTPError as error:  # without its key the page asks for it
            status = error.code
        assert status < 500, status
        end(process)


def updates(machine: Machine) -> None:
    """One that does not pass its own test goes back; one that does is there."""
    newer, broken = machine.place.base / "newer", machine.place.base / "broken"
    for folder in (newer, broken):
        write_program(folder, version="9.9.9")
    (broken / "core" / "engine.py").write_text("raise RuntimeError('a fault of this version')\n")
    project = machine.place.program / "pyproject.toml"
    old = project.read_text()
    machine.run("update", str(broken), status=1)
    assert project.read_text() == old
    machine.run("update", str(newer))
    assert 'version = "9.9.9"' in project.read_text()
    for folder in (newer, broken):
        shutil.rmtree(folder)


def nothing_left(machine: Machine, before: set[str]) -> None:
    """Windows removes what was in use a moment later. Folders may stay; they are printed."""
    program = str(machine.place.program.relative_to(machine.place.base))
    kept = {name for name in before if not name.startswith(program)}
    until(lambda: machine.files() <= kept and not machine.place.program.exists())
    assert machine.files() == kept, sorted(kept - machine.files())
    left = [
        str(path.relative_to(machine.place.base)) for path in machine.place.base.rglob("*") if path.is_dir()
    ]
    say(f"Left behind: no file; the folders {sorted(left)}")


def main() -> None:
    """Raises AssertionError where it goes otherwise than it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", choices=PLACES, default="plain")
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--pack-python", action="store_true")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))).resolve()
        place = laid_out(given.place, base / "of a user")
        write_program(place.program, version="0.0.1", without=("tests",) if given.place == "long" else ())
        environ = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}  # a mirror's
        if given.pack_python:
            (base / "served").mkdir()
            environ["UV_PYTHON_DOWNLOADS_JSON_URL"] = stack.enter_context(served_python(base / "served"))
        stack.enter_context(hidden(pythons(place.environ)))
        stack.enter_context(redirected(place))
        assert not pythons(place.environ), pythons(place.environ)
        say(f"No Python is to be found on {place.environ['PATH']}\nThe program: {place.program}")
        machine = Machine(place, **environ)
        refusal(machine) if given.refused else story(machine)


if __name__ == "__main__":
    main()
