"""The entries of "Open with": made by a batch file, taken out by the uninstaller, under the same names."""

from __future__ import annotations

import contextlib
import re
import sys
import types
from pathlib import Path

from installer import open_with

WINDOWS = Path(__file__).resolve().parents[2] / "installer" / "windows"


def test_what_the_batch_file_makes_is_what_is_taken_out():
    batch = (WINDOWS / "add-to-menu.bat").read_text("ascii")
    assert re.search(r'set "TYPES=(.*)"', batch)[1].split() == list(open_with.TYPES)
    assert re.search(r'set "CLASSES=HKCU:\\(.*)"', batch)[1] == open_with.CLASSES
    assert batch.count(open_with.PROGRAM) == 2
    assert "+ $q + '%%1' + $q" in batch, "the file's path, in quotation marks"


def test_the_registry_is_as_it_was_and_nobody_elses_entries_go(monkeypatch):
    """A stand-in for the registry: keys with their values; a key that holds others cannot be deleted."""
    mine, classes = f"{open_with.CLASSES}\\{open_with.PROGRAM}", open_with.CLASSES
    keys = {
        f"{classes}\\.{kind}\\OpenWithProgids": {open_with.PROGRAM, "Other"} for kind in open_with.TYPES[1:]
    }
    keys |= {
        mine + end: set()
        for end in ("", "\\DefaultIcon", "\\shell", "\\shell\\open", "\\shell\\open\\command")
    }

    @contextlib.contextmanager
    def opened(_root, path, _reserved, _access):
        if path not in keys:
            raise FileNotFoundError(path)
        yield keys[path]

    def delete_key(_root, path):
        if path not in keys or any(one.startswith(path + "\\") for one in keys):
            raise PermissionError(path)
        del keys[path]

    def delete_value(key, name):
        if name not in key:
            raise FileNotFoundError(name)
        key.remove(name)

    registry = types.SimpleNamespace(
        HKEY_CURRENT_USER=1, KEY_SET_VALUE=2, OpenKey=opened, DeleteValue=delete_value, DeleteKey=delete_key
    )
    monkeypatch.setitem(sys.modules, "winreg", registry)
    monkeypatch.setattr(sys, "platform", "win32")
    open_with.unregister()
    assert keys == {f"{classes}\\.{kind}\\OpenWithProgids": {"Other"} for kind in open_with.TYPES[1:]}
    open_with.unregister()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "winreg")
    open_with.unregister()
