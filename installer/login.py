"""Starting with the person's own session: one entry in the place that each system has for it. Written by the
app where somebody wants it, removed by the app and by `uninstall`.

Windows: a value in HKCU's Run key. macOS: a LaunchAgent. Others: the XDG autostart folder.
"""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "TriForce Chat"
LABEL = "chat.triforce.app"
RUN_KEY = r"Software\Microsoft\Windows\CurrentVersion\Run"


class LoginEntry:
    """This user's entry for the program in `root`. `python`: what runs it on Windows."""

    def __init__(
        self,
        root: Path,
        *,
        python: str = sys.executable,
        platform: str = sys.platform,
        environ: Mapping[str, str] = os.environ,
        registry: Any = None,
    ) -> None:
        self._root, self._python, self._platform = Path(root), Path(python), platform
        home = Path(environ.get("HOME") or Path.home())
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        self.path = config / "autostart" / "triforce-chat.desktop"
        if platform == "darwin":
            self.path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        if platform == "win32" and registry is None:
            import winreg as registry
        self._registry = registry

    def is_on(self) -> bool:
        """Whether there is one."""
        if self._platform != "win32":
            return self.path.is_file()
        try:
            with self._registry.OpenKey(self._registry.HKEY_CURRENT_USER, RUN_KEY) as key:
                return bool(self._registry.QueryValueEx(key, NAME))
        except FileNotFoundError:
            return False

    def turn_on(self) -> None:
        """Writes it, over one of an earlier place of the program. Raises OSError."""
        if self._platform == "win32":
            registry = self._registry
            with registry.CreateKey(registry.HKEY_CURRENT_USER, RUN_KEY) as key:
                registry.SetValueEx(key, NAME, 0, registry.REG_SZ, self._windows_command())
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self._agent() if self._platform == "darwin" else self._desktop())

    def turn_off(self) -> None:
        """Removes it; none is fine. Raises OSError."""
        if self._platform != "win32":
            self.path.unlink(missing_ok=True)
            return
        registry = self._registry
        try:
            with registry.OpenKey(registry.HKEY_CURRENT_USER, RUN_KEY, 0, registry.KEY_SET_VALUE) as key:
                registry.DeleteValue(key, NAME)
        except FileNotFoundError:
            return

    def _windows_command(self) -> str:
        windowless = self._python.with_name("pythonw.exe")
        python = windowless if windowless.exists() else self._python
        return subprocess.list2cmdline([str(python), str(self._root / "launcher.py"), "serve"])

    def _agent(self) -> bytes:
        shim = self._root / "installer" / "macos" / "TriForceChat.command"
        return plistlib.dumps(
            {"Label": LABEL, "ProgramArguments": ["/bin/sh", str(shim), "serve"], "RunAtLoad": True}
        )

    def _desktop(self) -> bytes:
        shim = str(self._root / "installer" / "linux" / "triforce-chat.sh")
        for letter in '\\"`$':  # the specification's two rounds of escaping inside double quotes
            shim = shim.replace(letter, "\\" + letter)
        quoted = shim.replace("\\", "\\\\").replace("%", "%%")
        lines = (
            "[Desktop Entry]",
            "Type=Application",
            f"Name={NAME}",
            f'Exec="{quoted}" serve',
            "Terminal=false",
            "X-GNOME-Autostart-enabled=true",
        )
        return ("\n".join(lines) + "\n").encode()
