"""Starting at login: one entry in each system's own place, that starts this program and goes again."""

from __future__ import annotations

import os
import plistlib
import subprocess
from pathlib import Path

import pytest

from installer.login import LABEL, NAME, RUN_KEY, LoginEntry

ROOT = Path('/home/an na/50% "of"/TriForce $Chat')


class Registry:
    """As much of winreg as is used, with its errors."""

    HKEY_CURRENT_USER, REG_SZ, KEY_SET_VALUE = 1, 1, 2

    def __init__(self) -> None:
        self.values: dict[str, str] = {"OneDrive": "x"}
        self.there = True

    def OpenKey(self, root, path, *_more):  # noqa: N802 (winreg's names)
        assert (root, path) == (1, RUN_KEY)
        if not self.there:
            raise FileNotFoundError
        return self

    def CreateKey(self, root, path):  # noqa: N802
        self.there = True
        return self.OpenKey(root, path)

    def SetValueEx(self, _key, name, _zero, kind, value):  # noqa: N802
        assert kind == self.REG_SZ
        self.values[name] = value

    def QueryValueEx(self, _key, name):  # noqa: N802
        if name not in self.values:
            raise FileNotFoundError
        return self.values[name], self.REG_SZ

    def DeleteValue(self, _key, name):  # noqa: N802
        if name not in self.values:
            raise FileNotFoundError
        del self.values[name]

    def __enter__(self):
        return self

    def __exit__(self, *_more):
        return None


def test_windows_runs_the_program_without_a_window_and_keeps_other_entries(tmp_path):
    registry = Registry()
    (tmp_path / "pythonw.exe").touch()
    entry = LoginEntry(
        tmp_path, python=str(tmp_path / "python.exe"), platform="win32", registry=registry, environ={}
    )
    assert not entry.is_on()
    entry.turn_on()
    assert entry.is_on() and "pythonw.exe" in registry.values[NAME]
    assert registry.values[NAME].endswith("launcher.py serve")
    entry.turn_off()
    entry.turn_off()
    assert not entry.is_on() and registry.values == {"OneDrive": "x"}
    registry.there = False
    assert not entry.is_on()
    entry.turn_off()
    entry.turn_on()
    assert entry.is_on()


def test_macos_has_an_agent(tmp_path):
    entry = LoginEntry(ROOT, platform="darwin", environ={"HOME": str(tmp_path)})
    entry.turn_on()
    (path,) = (tmp_path / "Library" / "LaunchAgents").iterdir()
    agent = plistlib.loads(path.read_bytes())
    assert path.name == f"{LABEL}.plist" and agent["RunAtLoad"] is True
    shim = str(ROOT / "installer" / "macos" / "TriForceChat.command")
    assert agent["ProgramArguments"] == ["/bin/sh", shim, "serve"]
    entry.turn_off()
    assert not path.exists() and not entry.is_on()


@pytest.mark.skipif(os.name == "nt", reason="the entry is read by a shell's rules")
@pytest.mark.parametrize("config", ["", "own-config"])
def test_linux_has_an_autostart_entry_whatever_the_folder_is_called(tmp_path, config):
    environ = {"HOME": str(tmp_path), **({"XDG_CONFIG_HOME": str(tmp_path / config)} if config else {})}
    entry = LoginEntry(ROOT, platform="linux", environ=environ)
    assert not entry.is_on()
    entry.turn_on()
    path = tmp_path / (config or ".config") / "autostart" / "triforce-chat.desktop"
    text = path.read_text()
    command = next(line for line in text.splitlines() if line.startswith("Exec="))[5:]
    once = command.replace("\\\\", "\\").replace("%%", "%")  # as a desktop reads its file, then the argument
    said = subprocess.check_output(["sh", "-c", f"printf '%s\\n' {once}"], text=True).splitlines()
    assert said == [str(ROOT / "installer" / "linux" / "triforce-chat.sh"), "serve"]
    assert "Terminal=false" in text
    entry.turn_off()
    entry.turn_off()
    assert not path.exists()
