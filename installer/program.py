"""The files that are the program, apart from the environment and from what is the user's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from installer.packages import SetupError

# what the program's folder is unpacked with; a test compares it with the repository
FILES = (
    ".ci",
    ".git-blame-ignore-revs",
    ".gitattributes",
    ".github",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "app",
    "assets",
    "benchmarks",
    "config.yaml",
    "core",
    "docs",
    "examples",
    "installer",
    "launcher.py",
    "pyproject.toml",
    "requirements-ocr.txt",
    "requirements-test.txt",
    "requirements.txt",
    "tests",
    "tools",
)
NEEDED = ("launcher.py", "installer/start.py", "app", "core", "requirements.txt", "pyproject.toml")


def is_whole(folder: Path) -> bool:
    """Whether the program lies in `folder`."""
    return all((folder / name).exists() for name in NEEDED)


def installed_version(folder: Path) -> tuple[int, ...]:
    """The version of the program in `folder`."""
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(\d+(?:\.\d+)*)', text, re.MULTILINE)
    if found is None:
        raise SetupError(f"{folder} does not say which version it is. Unpack the program's archive anew.")
    return tuple(int(part) for part in found[1].split("."))


def spoken_version(numbers: tuple[int, ...]) -> str:
    """1.2.0"""
    return ".".join(str(part) for part in numbers)


def is_clone(root: Path) -> bool:
    """Whether the folder is a contributor's clone, which is git's to change and its owner's to delete."""
    return (root / ".git").exists()


def bytes_below(path: Path) -> int:
    """What the file or folder takes on the disk, links not followed."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir() or file.is_symlink())


def remove_path(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it, where it is there. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
