"""Awkward places for a program, and a machine on which no Python is to be found: see on_this_machine.py."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLACES = ("plain", "profile", "long", "onedrive", "port")
LONG = 200  # characters of the program's path that are to be exceeded
MINORS = (10, 11, 12, 13)
WINDOWS_KEPT = (
    "SystemRoot",
    "SystemDrive",
    "ComSpec",
    "PATHEXT",
    "OS",
    "PROCESSOR_ARCHITECTURE",
    "NUMBER_OF_PROCESSORS",
)
SHELL_FOLDERS = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Explorer\User Shell Folders"
LONG_PATHS = (r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem", "LongPathsEnabled")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a user's folders and the program lie, all below `base`, and the environment of what the user
    starts.
    """

    name: str
    base: Path
    profile: Path
    program: Path
    environ: dict[str, str]

    @property
    def cloud(self) -> Path:
        """The folder that OneDrive keeps, with the user's documents and desktop in it."""
        return self.profile / "OneDrive"


def laid_out(name: str, base: Path) -> Place:
    """The place of that name below `base`. Makes the user's folders, not the program's."""
    profile = base / ("Jörg Müller" if name == "profile" else "user")
    program = profile / "TriForce Chat"
    if name == "onedrive":
        program = profile / "OneDrive" / "Dokumente" / "TriForce Chat"
    while name == "long" and len(str(program)) <= LONG:
        program = program.with_name("Ein langer Weg zu den Büchern") / "TriForce Chat"
    environ = _windows(profile) if os.name == "nt" else _posix(profile)
    if name == "onedrive":
        environ["OneDrive"] = str(profile / "OneDrive")
    for folder in (
        profile,
        *(Path(environ[one]) for one in ("APPDATA", "LOCALAPPDATA", "TEMP") if one in environ),
    ):
        folder.mkdir(parents=True, exist_ok=True)
    return Place(name, base, profile, program, {**environ, "TRIFORCE_HOME": str(profile / "Meine Bücher")})


def _windows(profile: Path) -> dict[str, str]:
    system = Path(os.environ["SYSTEMROOT"])
    path = (system / "System32", system, system / "System32" / "WindowsPowerShell" / "v1.0")
    local = profile / "AppData" / "Local"
    return {
        **{name: os.environ[name] for name in WINDOWS_KEPT if name in os.environ},
        "PATH": os.pathsep.join(map(str, path)),
        "USERPROFILE": str(profile),
        "APPDATA": str(profile / "AppData" / "Roaming"),
        "LOCALAPPDATA": str(local),
        **dict.fromkeys(("TEMP", "TMP"), str(local / "Temp")),
    }


def _posix(profile: Path) -> dict[str, str]:
    path = "/usr/bin:/bin:/usr/sbin:/sbin"
    if sys.platform == "linux":  # where its starter looks for nothing else
        path = str(_without_python(profile.parent / "bin"))
    return {
        "PATH": path,
        "HOME": str(profile),
        "LANG": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",
    }


def _without_python(folder: Path) -> Path:
    """Links to the system's programs, but to no Python."""
    folder.mkdir(parents=True)
    for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if not program.name.startswith(("python", "pypy")) and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return folder


def say(words: str) -> None:
    """On the way into a log that is looked at while it grows."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


# ---- hiding ------------------------------------------------------------------------------------------------


def pythons(environ: dict[str, str]) -> list[Path]:
    """Those that the starter of this system would ask whether they fit."""
    names = ["python3", "python", *(f"python3.{minor}" for minor in MINORS)]
    if os.name == "nt":
        names = ["py", "python"]
    elif (
        sys.platform == "darwin"
    ):  # its /usr/bin/python3 is a sign that says where to get tools, and is not asked
        names = names[2:]
    folders = environ["PATH"].split(os.pathsep)
    if sys.platform == "darwin":
        versions = "/Library/Frameworks/Python.framework/Versions"
        folders += ["/opt/homebrew/bin", "/usr/local/bin", *(f"{versions}/3.{minor}/bin" for minor in MINORS)]
    found = (shutil.which(name, path=folder) for folder in folders for name in names)
    return [Path(one) for one in dict.fromkeys(found) if one]


@contextlib.contextmanager
def hidden(found: list[Path]) -> Iterator[None]:
    """They have other names in this block."""
    for python in found:
        say(f"Hidden: {python}")
        _rename(python, python.with_name(python.name + ".hidden"))
    try:
        yield
    finally:
        for python in found:
            _rename(python.with_name(python.name + ".hidden"), python)


def _rename(file: Path, target: Path) -> None:
    if os.name == "nt":  # the system's own files belong to its installer
        subprocess.run(["takeown", "/f", str(file)], check=True, stdout=subprocess.DEVNULL)
        grant = f"{os.environ['USERNAME']}:F"
        subprocess.run(["icacls", str(file), "/grant", grant], check=True, stdout=subprocess.DEVNULL)
        file.rename(target)
    else:
        subprocess.run(["sudo", "-n", "mv", str(file), str(target)], check=True)


# ---- awkwardness -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def redirected(place: Place) -> Iterator[None]:
    """Windows finds the user's folders by the registry, not by variables; OneDrive redirects two of them
    there. Long paths are on where the program lies behind one.
    """
    if os.name != "nt":
        yield
        return
    import winreg

    kept = place.cloud if place.name == "onedrive" else place.profile
    roaming = Path(place.environ["APPDATA"])
    folders = {
        "Desktop": kept / "Desktop",
        "Personal": kept / "Documents",
        "Programs": roaming / "Microsoft" / "Windows" / "Start Menu" / "Programs",
        "AppData": roaming,
        "Local AppData": Path(place.environ["LOCALAPPDATA"]),
    }
    with winreg.OpenKey(winreg.HKEY_CURRENT_USER, SHELL_FOLDERS.partition("\\")[2]) as key:
        before = {name: winreg.QueryValueEx(key, name)[0] for name in folders}
    for name, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        _set(SHELL_FOLDERS, name, str(folder), kind="REG_EXPAND_SZ")
    if place.name == "long":
        _set(*LONG_PATHS, "1", kind="REG_DWORD")
    try:
        yield
    finally:
        for name, folder in before.items():
            _set(SHELL_FOLDERS, name, folder, kind="REG_EXPAND_SZ")


def _set(key: str, name: str, value: str, *, kind: str) -> None:
    command = ["reg", "add", key, "/v", name, "/t", kind, "/d", value, "/f"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def reserved(port: int) -> Iterator[None]:
    """A port that cannot be had: on Windows nobody listens on it, and it is refused, as Hyper-V's are."""
    if os.name != "nt":
        with socket.create_server(("127.0.0.1", port)):
            yield
        return
    words = ["netsh", "int", "ipv4"]
    which = ["excludedportrange", "protocol=tcp", f"startport={port}", "numberofports=1"]
    subprocess.run([*words, "add", *which], check=True)
    try:
        yield
    finally:
        subprocess.run([*words, "delete", *which], check=True)
