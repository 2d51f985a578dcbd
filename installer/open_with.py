"""The entries of "Open with" on Windows, taken out again. windows/add-to-menu.bat makes them, under the same
names; on Linux they stand in the menu entry, and go with it.
"""

from __future__ import annotations

import contextlib
import sys

CLASSES, PROGRAM = "Software\\Classes", "TriForceChat.Book"
TYPES = ("epub", "pdf", "fb2", "txt", "md", "html", "docx", "odt", "rtf")


def unregister() -> None:
    """Takes them out of the user's registry. What is not there is fine; elsewhere nothing is."""
    if sys.platform != "win32":
        return
    import winreg

    for kind in TYPES:
        with contextlib.suppress(OSError):
            path = f"{CLASSES}\\.{kind}\\OpenWithProgids"
            with winreg.OpenKey(winreg.HKEY_CURRENT_USER, path, 0, winreg.KEY_SET_VALUE) as key:
                winreg.DeleteValue(key, PROGRAM)
    for inner in ("\\shell\\open\\command", "\\shell\\open", "\\shell", "\\DefaultIcon", ""):  # leaves first
        with contextlib.suppress(OSError):
            winreg.DeleteKey(winreg.HKEY_CURRENT_USER, f"{CLASSES}\\{PROGRAM}{inner}")
