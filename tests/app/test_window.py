"""How the page opens: a window without a tab bar where a browser for that is here, else a tab."""

from __future__ import annotations

import io
import itertools
import os
import stat
import sys
import types
from pathlib import Path

import pytest

from app.host import window
from app.host.secrets import CODE_S, Keys

NUMBERS = itertools.count()
NAME = "triforce-0123456789abcdef.localhost"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="stand-ins for browsers are shell scripts")


@pytest.fixture
def seen(tmp_path, monkeypatch) -> Path:
    """What stand-in browsers were called with; a screen; no browser but theirs, and tabs noted there, too."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(window.shutil, "which", lambda name: str(tmp_path / name))
    monkeypatch.setattr(window.importlib.util, "find_spec", lambda name: None)
    log = tmp_path / "seen.txt"
    monkeypatch.setattr(window.webbrowser, "open", lambda url: log.open("a").write(f"tab {url}\n"))
    return log


def browser(folder: Path, name: str, then: str) -> None:
    """A program that notes its arguments and then does something."""
    file = folder / name
    file.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/seen.txt"\n{then}\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def fresh() -> str:
    return f"http://127.0.0.1:7860/enter#code-{next(NUMBERS)}.{NAME}"


def test_edge_or_chrome_opens_a_window_with_a_profile_of_its_own(seen, tmp_path, home):
    browser(tmp_path, "google-chrome", "exec sleep 6")
    assert window.show(fresh, "window") == "window"
    (line,) = seen.read_text().splitlines()
    assert line.startswith(f"google-chrome --app=http://{NAME}:7860/?k=code-")
    assert f"--user-data-dir={home / 'window'}" in line


def test_one_that_hands_over_to_a_browser_that_runs_is_content(seen, tmp_path):
    browser(tmp_path, "chromium", "exit 0")
    assert window.show(fresh, "window") == "window"
    assert len(seen.read_text().splitlines()) == 1


def test_a_browser_that_cannot_come_up_makes_way_each_with_a_code_of_its_own(seen, tmp_path):
    browser(tmp_path, "microsoft-edge", "exit 1")
    browser(tmp_path, "chromium", "exit 21")
    assert window.show(fresh, "window") == "tab"
    edge, chromium, tab = seen.read_text().splitlines()
    assert edge.startswith("microsoft-edge --app=") and chromium.startswith("chromium --app=")
    assert tab.startswith("tab http://127.0.0.1:7860/enter#")
    codes = {line.partition("code-")[2].split()[0].split(".")[0] for line in (edge, chromium, tab)}
    assert len(codes) == 3


def test_where_a_tab_is_wanted_or_no_screen_is_there_it_is_a_tab(seen, tmp_path, monkeypatch):
    browser(tmp_path, "chromium", "exec sleep 6")
    assert window.show(fresh, "tab") == "tab"
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert window.show(fresh, "window") == "tab"
    assert all(line.startswith("tab ") for line in seen.read_text().splitlines())


def test_pywebview_gets_its_address_where_nobody_else_can_read_it(seen, tmp_path, monkeypatch):
    """A command line can be read by every user of a PC."""
    monkeypatch.setattr(window.importlib.util, "find_spec", lambda name: name == "webview")
    browser(tmp_path, "python", f'read url; echo "url $url" >> "{seen}"; exec sleep 6')
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert window.show(fresh, "window") == "pywebview"
    command, url = seen.read_text().splitlines()
    assert command == "python -m app.host.window" and url.startswith(f"url http://{NAME}:7860/?k=code-")


def test_the_window_of_pywebview(monkeypatch, home):
    made = []
    stand_in = types.SimpleNamespace(
        create_window=lambda title, url, **size: made.append((title, url)),
        start=lambda **how: made.append(how),
    )
    monkeypatch.setitem(sys.modules, "webview", stand_in)
    monkeypatch.setattr(sys, "stdin", io.StringIO("http://x/?k=c\n"))
    assert window.main() == 0
    assert made == [
        ("TriForce Chat", "http://x/?k=c"),
        {"private_mode": False, "storage_path": str(home / "window")},
    ]


def test_a_snap_keeps_the_persons_profile(seen, tmp_path):
    """It may not write into our folder, and would not start."""
    browser(tmp_path, "chromium-browser", "exit 0\nexec /snap/bin/chromium")
    assert window.show(fresh, "window") == "window"
    assert "--user-data-dir" not in seen.read_text()


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_it_is_looked_for_where_these_systems_keep_it(platform, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("ProgramFiles(x86)", "ProgramFiles", "LocalAppData"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    places = {
        "win32": [
            "ProgramFiles(x86)/Microsoft/Edge/Application/msedge.exe",
            "LocalAppData/Google/Chrome/Application/chrome.exe",
        ],
        "darwin": ["Applications/Google Chrome.app/Contents/MacOS/Google Chrome"],
    }[platform]
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    found = [one for one in window.browsers() if one.is_relative_to(tmp_path)]
    assert found == [tmp_path / place for place in places]


def test_the_code_in_the_process_list_is_worth_nothing_after_a_minute_or_its_use():
    now = [0.0]
    keys = Keys("s" * 40, NAME, clock=lambda: now[0])
    used, late = keys.code(), keys.code()
    assert keys.redeem(used) and not keys.redeem(used)
    now[0] = CODE_S + 0.1
    assert not keys.redeem(late) and CODE_S <= 60
