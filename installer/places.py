"""Where the environment lies, the Python that was fetched for it, and the user's data. Makes nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

LONGEST_INSIDE = 190  # characters of the longest path below an environment: a licence that torch brings
LONGEST_PATH = 259  # Windows', where long paths are not switched on
DATA = "TriForce Chat"  # the folder's name among the user's application data, as core.paths has it


def local_folder() -> Path:
    """The user's own folder for what belongs to the program and lies apart from it; short on Windows."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "TriForce"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "triforce-chat"


def environment_folder(root: Path) -> Path:
    """`.venv` beside launcher.py; on Windows, and where the program's folder cannot be written to, a folder
    of the user's own, named by the program's path.

    The one that is there already is kept.
    """
    beside = root / ".venv"
    if beside.exists() or (os.name != "nt" and os.access(root, os.W_OK)):
        return beside
    return local_folder() / hashlib.sha256(str(root).encode()).hexdigest()[:8]


def site_packages(environment: Path) -> Path:
    """Where packages lie in the environment."""
    if os.name == "nt":
        return environment / "Lib" / "site-packages"
    return next(iter(sorted((environment / "lib").glob("python3.*/site-packages"))), environment / "lib")


def python_folders(root: Path) -> list[Path]:
    """Where the starters put a Python that they fetched: see get-python.sh and windows/get-python.bat."""
    return [root / ".python", local_folder() / "python"]


def too_long(folder: Path) -> int:
    """By how many characters paths below an environment at `folder` would be too long for this Windows."""
    if os.name != "nt" or _long_paths():
        return 0
    return max(0, len(str(folder)) + 1 + LONGEST_INSIDE - LONGEST_PATH)


def _long_paths() -> bool:
    import winreg

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SYSTEM\CurrentControlSet\Control\FileSystem") as key:
            return winreg.QueryValueEx(key, "LongPathsEnabled")[0] == 1
    except OSError:
        return False


def data_folder(root: Path, python: Path) -> Path:
    """The folder of books, conversations and models. The app itself is asked, by the environment's `python`:
    the folder may have been moved. Where that does not run it is the system's usual place.
    """
    question = (
        "from core.config import load_settings, use_data_dir; use_data_dir(load_settings(None, {}));"
        "from core.paths import data_dir; print(data_dir())"
    )
    try:
        said = subprocess.run(
            [str(python), "-c", question],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONUTF8": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=True,
        ).stdout.strip()
        return Path(said)
    except (OSError, subprocess.SubprocessError):
        return Path(os.environ.get("TRIFORCE_HOME") or usual_data_folder())


def usual_data_folder() -> Path:
    """The system's place for the data, from which the app may have moved it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / DATA
    return local_folder().with_name(DATA)
