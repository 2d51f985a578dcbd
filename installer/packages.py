"""pip inside the environment: where packages come from, and what is tried again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from installer import held, places, torch_build
from installer.pip_messages import describe_pip, explain
from installer.progress import SetupProgress
from installer.torch_build import Build


class SetupError(Exception):
    """The environment could not be made. The message names cause and remedy and is shown as it is."""


class Pip:
    """Runs `python -m pip`. `scratch` holds what is being downloaded (on the same drive, and its growth is
    the progress), and beside it pip's cache, until `clean_up`. What lies in the folder `wheels` is taken
    first, and nothing else is asked where that is enough.
    """

    def __init__(
        self,
        python: Path,
        *,
        scratch: Path,
        log: Path,
        wheels: Path,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._python, self._scratch, self._log, self._wheels = python, scratch, log, wheels
        self._sleep = sleep
        self._cache = scratch.with_name("cache")

    def clean_up(self) -> None:
        """Delete what pip kept to go on from."""
        for folder in (self._scratch, self._cache):
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def clean_environ() -> dict[str, str]:
        """The environment without what would send packages elsewhere; the user's pip configuration stays."""
        unwanted = (
            "PYTHONPATH",
            "PYTHONHOME",
            "PIP_TARGET",
            "PIP_PREFIX",
            "PIP_ROOT",
            "PIP_REQUIRE_VIRTUALENV",
            "VIRTUAL_ENV",
        )
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        return {
            **kept,
            "PYTHONNOUSERSITE": "1",
            "PIP_USER": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PYTHONIOENCODING": "utf-8",
        }

    def install_torch(self, build: Build, *, replace: bool, progress: SetupProgress) -> None:
        """Install the build. A CPU build that the user's own indexes offer goes before the official index."""
        if build.note:
            progress.note(f"PyTorch build {build.name}: {build.note}.")
        if replace:
            self._ask("uninstall", "--yes", "torch", timeout=300)
        title = f"Installing PyTorch ({'CPU' if build.name == 'cpu' else 'CUDA, ' + build.name} build)"
        if self._from_wheels(title, [torch_build.RANGE], progress):
            return
        if build.name == "cpu" and (sys.platform != "linux" or self._offers_local_cpu_build()):
            wanted = torch_build.LOCAL_CPU if sys.platform == "linux" else torch_build.RANGE
            self.install(title, [wanted], progress)
            return
        official = [torch_build.RANGE, "--index-url", build.index]
        try:
            self.install(title, official, progress)
        except SetupError as error:
            if (
                build.name != "cpu"
                or "could not be reached" not in str(error)
                or os.environ.get(torch_build.OVERRIDE)
            ):
                raise
            progress.note(
                f"{build.index} cannot be reached; taking the build of your package index instead (several "
                "GB)."
            )
            self.install("Installing PyTorch", [torch_build.RANGE], progress)

    def _offers_local_cpu_build(self) -> bool:
        """Whether the configured indexes resolve torch to a build marked "+cpu". Installs nothing."""
        options = ("--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report=-")
        try:
            report = self._ask("install", *options, *self._links(), torch_build.LOCAL_CPU, timeout=300)
            version = json.loads(report)["install"][0]["metadata"]["version"]
        except (OSError, subprocess.SubprocessError, ValueError, LookupError):
            return False
        return version.endswith("+cpu")

    def _ask(self, *arguments: str, timeout: float) -> str:
        """pip's stdout for a question or a small errand."""
        return self._run("-m", "pip", *arguments, timeout=timeout).stdout

    def _run(self, *arguments: str, timeout: float) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(self._python), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env=self._environ(),
        )

    def _environ(self) -> dict[str, str]:
        """With a cache of ours alone; one that the user named goes before it."""
        return {"PIP_CACHE_DIR": str(self._cache), **self.clean_environ()}

    def install_runtime(self, requirements: Path, environment: Path, progress: SetupProgress) -> None:
        """Microsoft's Visual C++ runtime, which torch needs, into the folder of `environment` in which torch
        looks for libraries. Windows only.
        """
        lines = requirements.read_text(encoding="utf-8").splitlines()
        wanted = next(line for line in lines if line.startswith("msvc-runtime")).partition("#")[0].strip()
        self.install("Installing the Visual C++ runtime", [wanted], progress)
        target = environment / "Library" / "bin"
        target.mkdir(parents=True, exist_ok=True)
        for library in (environment / "Scripts").glob("*140*.dll"):
            shutil.copy(library, target)

    def check_torch(self) -> None:
        """Raises SetupError when the installed torch does not even load."""
        said = self._run("-c", "import torch", timeout=600)
        if said.returncode == 0:
            return
        remedy = "Run: launcher.py repair"
        if "DLL" in said.stderr or "WinError" in said.stderr:
            remedy = (
                "Install Microsoft's newest Visual C++ runtime, https://aka.ms/vc14/vc_redist.x64.exe, and "
                "start again. With Anaconda's Python, which finds an older one first, install Python 3.12 "
                "from https://www.python.org/downloads/ and run: launcher.py repair"
            )
        last = (said.stderr.strip().splitlines() or ["?"])[-1]
        raise SetupError(f"PyTorch is installed but does not load: {last}\n{remedy}")

    def install(self, title: str, arguments: list[object], progress: SetupProgress) -> None:
        """`pip install ARGUMENTS`, told as one step. Raises SetupError when pip fails."""
        if not self._from_wheels(title, arguments, progress):
            self._install(title, arguments, progress)

    def _links(self) -> list[str]:
        return [f"--find-links={self._wheels}"] if self._wheels.is_dir() else []

    def _from_wheels(self, title: str, arguments: list[object], progress: SetupProgress) -> bool:
        """Whether the folder of wheels held all that was asked for, so that nothing was downloaded."""
        if not self._wheels.is_dir():
            return False
        try:
            self._install(title, ["--no-index", *arguments], progress)
        except SetupError as error:
            if "no fitting version" not in str(error):
                raise
            progress.note(f"{self._wheels} does not hold all of it; the package index is asked.")
            return False
        return True

    def _install(self, title: str, arguments: list[object], progress: SetupProgress) -> None:
        """pip install, as often as files may be held. Raises SetupError when the last try failed."""
        progress.step(title)
        for pause in (*held.PAUSES_S, None):
            code, lines = self._try_install(arguments, progress)
            if code == 0:
                return
            if pause is None or not held.is_told("\n".join(lines[-80:])):
                raise SetupError(explain(title, lines, self._log))
            progress.note("Another program, such as a virus scanner, holds a file; it is tried again.")
            self._sleep(pause)
            forget_half_installed(self._scratch.parent)

    def _try_install(self, arguments: list[object], progress: SetupProgress) -> tuple[int, list[str]]:
        """pip's exit status and its words."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True, exist_ok=True)
        command = [
            str(self._python),
            "-u",
            "-m",
            "pip",
            "install",
            "--progress-bar=off",
            *self._links(),
            *(str(part) for part in arguments),
        ]
        environ = {**self._environ(), **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self._scratch))}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
        )
        lines: list[str] = []
        reader = threading.Thread(target=self._read, args=(process, lines), daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(0.3)
                progress.update(describe_pip(lines, _bytes_below(self._scratch)))
            return process.wait(), lines
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _read(self, process: subprocess.Popen, lines: list[str]) -> None:
        """pip's words, kept and written to the log, so that a report of a failed setup can hold them."""
        with self._log.open("a", encoding="utf-8") as log:
            log.write(time.strftime("\n%Y-%m-%d %H:%M:%S ") + " ".join(process.args[3:]) + "\n")
            for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip()
                lines.append(line)
                log.write(line + "\n")
                log.flush()


def forget_half_installed(environment: Path) -> None:
    """A package whose installation was cut off has metadata but not pip's last file; without metadata pip
    does it again.
    """
    for metadata in places.site_packages(environment).glob("*.dist-info"):
        if not (metadata / "INSTALLER").exists():
            shutil.rmtree(metadata, ignore_errors=True)


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip removes files while we look
                total += os.stat(os.path.join(parent, name)).st_size
    return total
