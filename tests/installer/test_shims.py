"""What is double-clicked: finds Python from any folder, or says in one window how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
posix_only = pytest.mark.skipif(os.name == "nt", reason="POSIX shells")
SHIMS = ["linux/triforce-chat.sh", "macos/TriForceChat.command"]


@posix_only
@pytest.mark.parametrize("shim", SHIMS)
def test_a_shim_finds_python_and_passes_arguments_on(root: Path, shim: str, ready: Callable[[str], Path]):
    """From any folder, with a space in the path."""
    ready("import sys; print(sys.argv[1:]); sys.exit(3)")
    bin_folder = root / "bin"
    bin_folder.mkdir()
    (bin_folder / "python3.12").symlink_to(sys.executable)
    environ = {**os.environ, "PATH": f"{bin_folder}:/usr/bin:/bin"}
    said = subprocess.run(
        [str(root / "installer" / shim), "extract", "ein Buch"],
        env=environ,
        capture_output=True,
        encoding="utf-8",
        cwd="/",
    )
    assert said.stdout == "['extract', 'ein Buch']\n"
    assert said.returncode == 3


@posix_only
@pytest.mark.parametrize("shim", SHIMS)
def test_a_shim_without_a_fitting_python_says_how_to_get_one(root: Path, shim: str):
    """One window with the remedy, not a window that vanishes."""
    bin_folder = root / "bin"
    bin_folder.mkdir()
    for tool in ("dirname", "sh", "printf"):
        (bin_folder / tool).symlink_to(shutil.which(tool))
    for name in ("python3", "python3.12"):
        (bin_folder / name).write_text("#!/bin/sh\nexit 1\n")
        (bin_folder / name).chmod(0o755)
    said = subprocess.run(
        [str(root / "installer" / shim)],
        env={"PATH": str(bin_folder)},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    assert said.returncode == 1
    assert "3.10 to 3.13" in said.stderr


@posix_only
def test_a_mac_with_an_intel_processor_is_told_before_anything_is_fetched(root: Path):
    """A Python would be fetched there, and no PyTorch found for it."""
    bin_folder = root / "bin"
    bin_folder.mkdir()
    (bin_folder / "uname").write_text("#!/bin/sh\n[ $1 = -s ] && echo Darwin || echo x86_64\n")
    (bin_folder / "uname").chmod(0o755)
    said = subprocess.run(
        [str(root / "installer/macos/TriForceChat.command")],
        env={"PATH": f"{bin_folder}:/usr/bin:/bin", "TRIFORCE_FETCH_PYTHON": "yes"},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    assert said.returncode == 1 and "Intel processor" in said.stderr
    assert "Fetching" not in said.stderr and not (root / ".python").exists()


@posix_only
def test_the_menu_entry_starts_the_shim_whatever_its_path(root: Path, tmp_path: Path):
    """The entry's quoting has rules of its own for quotes, dollars, backslashes and per cent."""
    odd = root.parent / 'a "b" $c %d `e` \\f'
    root.rename(odd)
    data = tmp_path / "share"
    subprocess.run(
        [str(odd / "installer/linux/add-to-menu.sh")],
        env={**os.environ, "XDG_DATA_HOME": str(data)},
        check=True,
        capture_output=True,
    )
    entry = (data / "applications" / "triforce-chat.desktop").read_text(encoding="utf-8")
    value = next(line for line in entry.splitlines() if line.startswith("Exec=")).removeprefix("Exec=")
    value, field = value[:-3], value[-3:]
    assert field == " %f" and "application/epub+zip;" in entry, "files can be opened with it"
    assert "Terminal=false" in entry.splitlines()
    unescaped = value.replace("\\\\", "\\")  # the string value's own escapes
    assert unescaped.startswith('"') and unescaped.endswith('"')
    path = "".join(_unquote(unescaped[1:-1])).replace("%%", "%")  # the quoted argument's escapes
    assert path == str(odd / "installer/linux/triforce-chat.sh")


def _unquote(text: str) -> list[str]:
    parts, escaped = [], False
    for character in text:
        if character == "\\" and not escaped:
            escaped = True
            continue
        parts.append(character)
        escaped = False
    return parts
