"""The app's own Python environment (installer.places says where): made once, finished when interrupted, made
anew when broken.

What is done is written to a record inside it after each step, so an interrupted setup goes on where it
was. A start with everything done reads that record, two small files and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

from installer import held, places, torch_build
from installer.lock import locked
from installer.packages import Pip, SetupError, forget_half_installed
from installer.progress import SetupProgress

SCHEMA = 1
FREE_BYTES_NEEDED = {"cpu": 4_000_000_000, "cuda": 14_000_000_000}
_ROOM_FOR_PIP = 50_000_000
NOT_WRITABLE = (
    "{error}. Move the folder {root} to a place you can write to, such as your home folder, and start again."
)


HELD = (
    "{error}. Close other windows of the app and what else has files in that folder open, wait until a virus "
    "scanner is done, and start again."
)


@dataclass(frozen=True, slots=True)
class Record:
    """What the environment holds. Empty strings: not yet."""

    schema: int = SCHEMA
    python: str = ""  # version and identity of the interpreter behind the environment
    torch: str = ""  # name of the torch build
    requirements: str = ""  # hash of requirements.txt as installed
    extras: str = ""  # hash of requirements-test.txt as installed
    driver_in_sight: bool = False


class Environment:
    """The environment of the program in `root`. Only where it lies is looked at before a method is called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = places.environment_folder(root)
        self.lock = self.folder.with_name(self.folder.name + ".lock")
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._record_file = self.folder / "triforce.json"

    def is_this(self) -> bool:
        """Whether the running Python is the environment's own."""
        return self.folder.is_dir() and os.path.samefile(sys.prefix, self.folder)

    # ---- what is there -------------------------------------------------------------------------------------

    def is_ready(self, *, extras: bool) -> bool:
        """Whether everything asked for is installed, by the record alone."""
        record = self.record()
        return (
            record.torch != ""
            and record.python == self._interpreter()
            and record.requirements == self._hash("requirements.txt")
            and (not extras or record.extras == self._hash("requirements-test.txt"))
            and not self._gpu_came_later(record)
        )

    def record(self) -> Record:
        """The record, or an empty one where it is missing, torn or of another schema."""
        try:
            values = json.loads(self._record_file.read_text(encoding="utf-8"))
            record = Record(**values)
            return record if record.schema == SCHEMA else Record()
        except (OSError, ValueError, TypeError):
            return Record()

    def _gpu_came_later(self, record: Record) -> bool:
        return record.torch == "cpu" and not record.driver_in_sight and torch_build.driver_in_sight()

    def _interpreter(self) -> str:
        """Changes when the Python behind the environment is replaced or gone; costs a stat, not a start."""
        try:
            real = self._base_python()
            facts = real.stat()
            return f"{real}:{facts.st_size}:{facts.st_mtime_ns}"
        except OSError:
            return ""

    def _base_python(self) -> Path:
        """The interpreter outside. On Windows the environment's own is a small program that starts it."""
        if os.name != "nt":
            return self.python.resolve(strict=True)
        settings = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        home = next(
            (line.partition("=")[2].strip() for line in settings if line.partition("=")[0].strip() == "home"),
            "",
        )
        return Path(home, "python.exe").resolve(strict=True)

    def _hash(self, name: str) -> str:
        return hashlib.sha256((self.root / name).read_bytes()).hexdigest()[:16]

    # ---- making it -----------------------------------------------------------------------------------------

    def make_ready(self, *, extras: bool, progress: SetupProgress) -> None:
        """Do whatever is missing. Raises SetupError with cause and remedy."""
        self._require_short_path()
        said = "Another start is setting up; waiting for it"
        try:
            with locked(self.lock, lambda: progress.step(said)):
                if not self.is_ready(extras=extras):
                    self._make(extras, progress)
        except OSError as error:
            if held.is_sharing_violation(error):
                raise SetupError(HELD.format(error=error)) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise SetupError(NOT_WRITABLE.format(error=error, root=self.root)) from error
            if error.errno == errno.ENOSPC:
                raise SetupError(
                    f"The disk is full ({self.root}). Free some space and start again."
                ) from error
            raise

    def remove(self) -> None:
        """Delete the environment; nothing of the user's is in it."""
        if self.is_this():
            raise SetupError(
                "This is the Python of the environment itself. Start launcher.py with the one installed on "
                "this computer, or by the starter in installer/."
            )
        if self.folder.is_symlink():
            self.folder.unlink()
        elif self.folder.exists():
            shutil.rmtree(self.folder)

    def _make(self, extras: bool, progress: SetupProgress) -> None:
        record = self._usable_record(progress)
        pip = Pip(
            self.python,
            scratch=self.folder / "tmp",
            log=self.folder / "setup.log",
            wheels=self.root / "wheels",
        )
        if not record.torch or self._gpu_came_later(record):
            driver = torch_build.find_driver()
            build = self._choose(driver)
            self._require_free_space(build)
            if sys.platform == "win32":
                pip.install_runtime(self.root / "requirements.txt", self.folder, progress)
            pip.install_torch(build, replace=record.torch != "", progress=progress)
            pip.check_torch()
            record = self._write(record, torch=build.name, driver_in_sight=torch_build.driver_in_sight())
        if record.requirements != self._hash("requirements.txt"):
            pip.install("Installing the app's packages", ["-r", self.root / "requirements.txt"], progress)
            record = self._write(record, requirements=self._hash("requirements.txt"))
        if extras and record.extras != self._hash("requirements-test.txt"):
            pip.install("Installing the test packages", ["-r", self.root / "requirements-test.txt"], progress)
            record = self._write(record, extras=self._hash("requirements-test.txt"))
        self._write(record, python=self._interpreter())
        pip.clean_up()
        progress.done("The environment is ready")

    def _usable_record(self, progress: SetupProgress) -> Record:
        """The record to go on from; makes the environment anew unless its Python still runs and has pip."""
        record = self.record()
        if self._runs():
            if record.python and record.python != self._interpreter():
                # same minor version, new patch release
                record = self._write(record, python=self._interpreter())
            forget_half_installed(self.folder)
            return record
        if self.folder.exists():
            progress.step("Removing an unusable environment")
            held.patiently(self.remove)
        progress.step("Creating the environment")
        self._create()
        return self._write(Record(), python="")

    def _runs(self) -> bool:
        """Whether the environment's Python starts, has the version it was made for, and has pip."""
        if not self.python.exists():
            return False
        try:  # pip of another minor version lies where this Python does not look
            return (
                subprocess.run(
                    [str(self.python), "-I", "-c", "import pip"], capture_output=True, timeout=60
                ).returncode
                == 0
            )
        except (OSError, subprocess.SubprocessError):
            return False

    def _create(self) -> None:
        """An environment with pip in it, also where the system's Python comes without ensurepip."""
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt", clear=False).create(self.folder)
        if _has("ensurepip") and self._quietly([self.python, "-m", "ensurepip", "--default-pip"]):
            return
        if _has("pip"):
            outer = [sys.executable, "-m", "pip"]
            if self._quietly([*outer, "--python", self.python, "install", "--no-cache-dir", "pip"]):
                return
            # before pip 22.3
            if self._quietly(
                [*outer, "install", "--no-cache-dir", "--target", places.site_packages(self.folder), "pip"]
            ):
                return
        if shutil.disk_usage(self.folder).free < _ROOM_FOR_PIP:
            self.remove()  # a torn pip can be imported, and would count as one
            raise OSError(errno.ENOSPC, "no room for pip")
        minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetupError(
            f"This Python {minor} ({sys.executable}) comes without the parts that make an environment. "
            "Install them and start "
            f"again: on Debian or Ubuntu  sudo apt install python{minor}-venv ; on Fedora  sudo dnf install "
            "python3-pip ; "
            f"elsewhere install Python from https://www.python.org/downloads/"
        )

    def _quietly(self, command: list[object]) -> bool:
        """Run a step of the set-up, its words going to the log; whether it worked and left pip behind."""
        with (self.folder / "setup.log").open("ab") as log:
            words = [str(part) for part in command]
            code = subprocess.call(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=Pip.clean_environ()
            )
        return code == 0 and self._runs()

    def _choose(self, driver: torch_build.NvidiaDriver | None) -> torch_build.Build:
        if sys.platform == "darwin" and platform.machine() == "x86_64":
            raise SetupError(
                "PyTorch is no longer made for Macs with an Intel processor; TriForce Chat needs an Apple "
                "one."
            )
        try:
            return torch_build.choose_build(
                driver, system=sys.platform, override=os.environ.get(torch_build.OVERRIDE, "")
            )
        except ValueError as error:
            raise SetupError(str(error)) from error

    def _require_free_space(self, build: torch_build.Build) -> None:
        needed = FREE_BYTES_NEEDED["cpu" if build.name == "cpu" else "cuda"]
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise SetupError(
                f"The environment needs about {needed / 1e9:.0f} GB free in {self.folder.parent}; "
                f"{free / 1e9:.1f} GB is free. "
                f"Free some space, or move the folder to another drive, and start again."
            )

    def _require_short_path(self) -> None:
        if excess := places.too_long(self.folder):
            raise SetupError(
                f"The path {self.folder} is too long for Windows by {excess} characters, with what is to be "
                "installed in it. Move the program to a folder with a shorter path, such as C:\\TriForce, or "
                "switch long paths on in Windows, and start again."
            )

    def _write(self, record: Record, **changes: object) -> Record:
        """The changed record, on disk before it is returned."""
        record = Record(**{**asdict(record), **changes})
        part = self._record_file.with_suffix(".part")
        part.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")
        held.patiently(lambda: part.replace(self._record_file))
        return record


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
