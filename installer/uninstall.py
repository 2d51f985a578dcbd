"""Lists what belongs to the program, asks, and removes it: menu entries, environment, a fetched Python, the
program's files. Books, conversations and models only when asked to, and so are caches that others share.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from installer import caches, open_with, places, program
from installer.environment import Environment
from installer.login import LoginEntry
from installer.update import kept_environment, require_closed


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """Something that belongs to the program: its name for a person, its place, and what is to be removed."""

    what: str
    where: Path
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        total = sum(program.bytes_below(path) for path in self.paths)
        said = f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.1f} MB"
        return f"  {self.what:<22}{said:>9}  {self.where}"


def main(environment: Environment, arguments: list[str]) -> int:
    """`launcher.py uninstall`. 0: removed; 1: nothing was removed, or something could not be."""
    parser = argparse.ArgumentParser(prog="launcher.py uninstall", description="Removes the program.")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--data", action="store_true", help="books, conversations and models, too")
    parser.add_argument("--caches", action="store_true", help="caches that other programs share, too")
    given = parser.parse_args(arguments)
    require_closed(environment)
    folder = places.data_folder(environment.root, environment.python)
    parts = [*belongings(environment), *_begun(folder)]
    print("This belongs to TriForce Chat:")
    _tell(parts, "")
    for asked, found, words in (
        (given.data, _data(folder), "(books, conversations, models) stays; --data removes it"),
        (given.caches, _shared(), "shared with your other programs: stays; --caches removes it"),
    ):
        _tell(found, f"    {'is removed, too' if asked else words}")
        parts = [*parts, *found] if asked else parts
    if away := caches.place_away():
        print(f"Your data was moved to {away}, which is not there now: what is there stays.")
    if program.is_clone(environment.root):
        print(f"The program's own files in {environment.root} are a clone: delete it yourself.")
    if not given.yes and not _agreed():
        print("Nothing was removed.")
        return 1
    return _remove(environment.root, parts, empty=folder)


def _tell(parts: list[ProgramPart], end: str) -> None:
    for part in parts:
        print(part)
    if parts and end:
        print(end)


def _begun(data: Path) -> list[ProgramPart]:
    begun = tuple(caches.of_the_hub(data))
    return [ProgramPart("the hub's cache", data / "models", begun)] if begun else []


def _data(folder: Path) -> list[ProgramPart]:
    """The data folder, models that were moved out of it, and what says where it was moved to. Never a folder
    in which the user's home lies, whatever TRIFORCE_HOME says.
    """
    old = caches.old_place(folder)
    found = [("your data", folder), *(("a moved model", place) for place in caches.moved_models(folder))]
    found += [("where your data was", old)] if old else []
    home = Path.home().resolve()
    found = [(what, place) for what, place in found if not home.is_relative_to(place.resolve())]
    return [ProgramPart(what, place, (place,)) for what, place in found if place.is_dir()]


def _shared() -> list[ProgramPart]:
    return [
        ProgramPart(what, folder, (folder,)) for what, folder in caches.shared().items() if folder.is_dir()
    ]


def belongings(environment: Environment) -> list[ProgramPart]:
    """What there is, in the order in which it can go."""
    root = environment.root
    clone = program.is_clone(root)
    beside = (".update.lock", "config.new.yaml", "wheels")
    files = [] if clone else [root / name for name in (*program.FILES, *beside)]
    updating = [root / ".update", kept_environment(environment)]
    menu, fetched = _there(menu_entries()), _there(_fetched(environment))
    found = [
        *(ProgramPart("in the menu", entry, (entry,)) for entry in menu),
        ProgramPart("pip's cache", environment.folder, _there(caches.of_pip(environment.folder))),
        ProgramPart("uv's cache", root, _there(caches.of_uv(_fetched(environment)))),
        ProgramPart("environment", environment.folder, _there([environment.folder, environment.lock])),
        ProgramPart("left of an update", root, _there(updating)),
        ProgramPart("program", root, _there([*files, root / "__pycache__"])),
        *(ProgramPart("Python fetched for it", folder, (folder,)) for folder in fetched),
    ]
    return [part for part in found if part.paths]


def _there(candidates: list[Path]) -> tuple[Path, ...]:
    return tuple(path for path in candidates if path.exists() or path.is_symlink())


def _fetched(environment: Environment) -> list[Path]:
    """The Python in the program's folder, and the one in the user's own where no other copy may need it."""
    beside, shared = places.python_folders(environment.root)
    others = [
        one for one in places.local_folder().glob("*/triforce.json") if one.parent != environment.folder
    ]
    return [beside] if others else [beside, shared]


def menu_entries() -> list[Path]:
    """Where this system keeps what stands in the menu, on the desktop, or is started at login."""
    if os.name == "nt":
        roaming = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
        programs = roaming / "Microsoft" / "Windows" / "Start Menu" / "Programs"
        homes = [Path.home(), *(Path(home) for home in [os.environ.get("ONEDRIVE")] if home)]
        folders = [programs, programs / "Startup", *(home / "Desktop" for home in homes)]
        return [folder / "TriForce Chat.lnk" for folder in folders]
    if sys.platform == "darwin":
        return [LoginEntry(Path()).path]
    share = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [folder / "triforce-chat.desktop" for folder in (share / "applications", config / "autostart")]


def _agreed() -> bool:
    if not sys.stdin.isatty():
        print("Say --yes to remove it.")
        return False
    return input("Remove it? [y/N] ").strip().lower() in ("y", "yes")


def _remove(root: Path, parts: list[ProgramPart], *, empty: Path) -> int:
    """Delete the parts, and the folders `empty`, the program's and the user's own where nothing is left."""
    os.chdir(root.parent)
    open_with.unregister()
    with contextlib.suppress(OSError):
        LoginEntry(root).turn_off()  # Windows' is a value in the registry, and no file of the list
    left = []
    for path in (path for part in parts for path in part.paths):
        try:
            program.remove_path(path)
        except OSError as error:
            left.append((path, error))
    for folder in (empty, places.local_folder(), root):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if os.name == "nt" and left:
        _remove_when_we_are_gone([path for path, _ in left], root)
        print("What is in use now goes in a moment.")
        return 0
    for path, error in left:
        print(f"Could not be removed: {path} ({error.strerror})", file=sys.stderr)
    if root.is_dir() and not program.is_clone(root):
        print(f"{root} stays: there is something in it that is not the program's.")
    return 1 if left else 0


def _remove_when_we_are_gone(paths: list[Path], root: Path) -> None:
    """Windows deletes no program that runs, and this Python may be one of `paths`: a second process waits."""
    removals = []
    for path in paths:
        named = str(path).replace("%", "%%")
        removals.append(f'rmdir /s /q "{named}"' if path.is_dir() else f'del /q "{named}"')
    removals.append(f'rmdir "{str(root).replace("%", "%%")}" 2>nul')  # without /s: only where nothing is left
    once = ["ping -n 4 127.0.0.1 >nul", *removals]
    lines = [
        "@echo off",
        "chcp 65001 >nul",
        *once,
        *once,
        *once,
    ]  # a virus scanner may hold a file for a while
    with tempfile.NamedTemporaryFile(
        "w", suffix=".bat", delete=False, encoding="utf-8", newline="\r\n"
    ) as script:
        script.write("\n".join([*lines, 'del "%~f0"', ""]))
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    subprocess.Popen(["cmd", "/c", script.name], creationflags=flags, cwd=root.parent)
