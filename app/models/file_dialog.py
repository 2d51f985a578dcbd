"""The system's own dialog to choose a model file, opened by the app: a page can show one, but never learns
where the file lies. No HTML here.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)
_WINDOWS = (
    "[Console]::OutputEncoding = [Text.Encoding]::UTF8;"
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$dialog = New-Object System.Windows.Forms.OpenFileDialog;"
    "$dialog.Filter = 'GGUF|*.gguf|*|*.*';"
    "if ($dialog.ShowDialog() -eq 'OK') { $dialog.FileName }"
)


def dialog_command(
    *,
    system: str = sys.platform,
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
) -> list[str] | None:
    """What opens the dialog and prints the path that was chosen; None where there is none."""
    if system == "win32":
        found = which("powershell")
        return [found, "-NoProfile", "-STA", "-Command", _WINDOWS] if found else None
    if system == "darwin":
        return ["/usr/bin/osascript", "-e", "POSIX path of (choose file)"]
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return None
    if found := which("zenity"):
        return [found, "--file-selection", "--file-filter=*.gguf *.GGUF"]
    if found := which("kdialog"):
        return [found, "--getopenfilename", ".", "*.gguf *.GGUF"]
    return None


def chosen_file(command: list[str]) -> str:
    """The path that the person chose; "" for none. Returns when the dialog is closed."""
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, creationflags=flags)
    except OSError as error:
        log.warning("the system's dialog could not be opened: %s", error)
        return ""
    return done.stdout.decode("utf-8", errors="replace").strip() if done.returncode == 0 else ""
