"""Shows the page in a window of its own: Edge or Chrome without a tab bar, pywebview where that is installed,
else a tab of the browser.

A window has a browser profile of its own in the data folder: no extension of the person's browser reads a
book. The address on a command line holds a code of one use and one minute (app.host.secrets).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core import paths
from core.paths import ROOT

log = logging.getLogger(__name__)
SIZE = (1280, 860)
_SETTLES_S = 2.0  # a browser that cannot come up has ended by then
_NAMES = ("microsoft-edge", "microsoft-edge-stable", "google-chrome", "google-chrome-stable")
_FREE_NAMES = ("chromium", "chromium-browser", "brave-browser")
_ON_WINDOWS = ("Microsoft/Edge/Application/msedge.exe", "Google/Chrome/Application/chrome.exe")
_ON_MACOS = ("Microsoft Edge", "Google Chrome", "Chromium")


def show(fresh: Callable[[], str], way: str) -> str:
    """Opens the page and says how: "window" | "pywebview" | "tab". `fresh()` gives an address that lets one
    browser in, http://127.0.0.1:PORT/enter#CODE.NAME, each time another.
    """
    if way == "window" and _has_screen():
        for browser in browsers():
            if _stays(_command(browser, direct(fresh()))):
                return "window"
        if importlib.util.find_spec("webview") and _stays([sys.executable, "-m", __name__], direct(fresh())):
            return "pywebview"
    webbrowser.open(fresh())
    return "tab"


def direct(url: str) -> str:
    """The page under its own name, which Chromium knows to be this computer: a window that began at another
    address would show a bar with the address.
    """
    before, _hash, key = url.partition("#")
    code, _dot, name = key.partition(".")
    port = before.split("/")[2].rpartition(":")[2]
    return f"http://{name}:{port}/?k={code}"


def browsers() -> Iterator[Path]:
    """Those here that know windows without a tab bar."""
    if sys.platform == "win32":
        roots = [os.environ.get(name) for name in ("ProgramFiles(x86)", "ProgramFiles", "LocalAppData")]
        found = (Path(root) / name for name in _ON_WINDOWS for root in roots if root)
    elif sys.platform == "darwin":
        folders = (Path("/Applications"), Path.home() / "Applications")
        found = (one / f"{name}.app/Contents/MacOS/{name}" for name in _ON_MACOS for one in folders)
    else:
        found = (Path(path) for path in map(shutil.which, (*_NAMES, *_FREE_NAMES)) if path)
    return (one for one in found if one.is_file())


def _command(browser: Path, url: str) -> list[str]:
    profile = [] if _is_snap(browser) else [f"--user-data-dir={paths.subdir('window')}"]
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    return [str(browser), f"--app={url}", *profile, size, "--no-first-run", "--no-default-browser-check"]


def _is_snap(browser: Path) -> bool:
    """A snap may not write into our folder: it keeps the person's profile. Ubuntu's chromium-browser is a
    script that starts one.
    """
    if "snap" in browser.parts or browser.resolve().name == "snap":
        return True
    with browser.open("rb") as file:
        beginning = file.read(4096)
    return beginning.startswith(b"#!") and b"/snap/" in beginning


def _has_screen() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _stays(command: list[str], told: str = "") -> bool:
    """Whether the program came up, or handed over to one that was up. `told`: for its standard input."""
    apart: dict[str, Any] = {"start_new_session": True} if os.name != "nt" else {}
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, cwd=ROOT, **apart
        )
        with process.stdin as stdin:
            stdin.write(told.encode())
    except OSError as error:
        log.info("%s does not start: %s", command[0], error)
        return False
    try:
        return process.wait(_SETTLES_S) == 0
    except subprocess.TimeoutExpired:
        return True


def main() -> int:
    """The window of pywebview, in a process of its own; its address comes by standard input."""
    import webview

    url = sys.stdin.readline().strip()
    webview.create_window("TriForce Chat", url, width=SIZE[0], height=SIZE[1])
    webview.start(private_mode=False, storage_path=str(paths.subdir("window")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
