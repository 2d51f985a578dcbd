"""A Windows for batch files: Wine's cmd, and stand-ins for what they start, which a test answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

COMPILER = "x86_64-w64-mingw32-gcc"
NEEDED = {
    "wine": "wine wine64",
    COMPILER: "gcc-mingw-w64-x86-64-win32",
    "curl": "curl",
}  # program: Debian's packages
SOURCE = Path(__file__).with_name("stand_in.c")
SYSTEM = ("py", "python", "curl", "certutil", "tar", "choice", "WindowsPowerShell/v1.0/powershell")
PATIENCE_S = 300


def missing() -> list[str]:
    """The packages that a test with this Windows lacks here."""
    return [package for program, package in NEEDED.items() if not shutil.which(program)]


@dataclass(frozen=True, slots=True)
class Call:
    """How a batch file started a program: its path and folder on this system, its words, its environment."""

    program: Path
    folder: Path
    words: list[str]
    environ: dict[str, str]

    @property
    def name(self) -> str:
        return self.program.stem


Answer = Callable[[Call], "tuple[int, str]"]  # the exit status and what is printed


@dataclass
class Windows:
    """A drive C: below `prefix`, with the stand-ins in its system folder. `answers`: by the program's name;
    one without ends with status 1. `calls`: what was started, in order. `reads_conditions`: see
    `without_conditions`.
    """

    prefix: Path
    stand_in: Path
    reads_conditions: bool
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def put(self, source: Path, target: Path) -> None:
        """A copy of the batch file that does in this Wine what the file does in Windows."""
        text = source.read_bytes()
        target.write_bytes(text if self.reads_conditions else without_conditions(text))

    def path(self, windows: str) -> Path:
        """The place on this system of a path of Windows."""
        drive, rest = windows[:2].lower(), windows[3:].replace("\\", "/")
        return (self.prefix / "dosdevices" / drive).resolve() / rest

    def run(self, batch: Path, *arguments: str, **environ: str) -> tuple[int, str]:
        """The exit status of a batch file and what it printed; nobody is at the keyboard."""
        batch_file = "Z:" + str(batch).replace("/", "\\")
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=self._answer, args=(server,), daemon=True).start()
            said = subprocess.run(
                ["wine", "cmd", "/c", "C:\\start.bat", *arguments],
                env={
                    **_environ(self.prefix),
                    "STAND_IN_PORT": str(server.getsockname()[1]),
                    "BATCH_FILE": batch_file,
                    **environ,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_S,
            )
        return said.returncode, said.stdout.decode("ascii", "replace")

    def _answer(self, server: socket.socket) -> None:
        while True:
            try:
                client, _address = server.accept()
            except OSError:  # the run is over
                return
            with client:
                call = self._read(client)
                self.calls.append(call)
                status, said = self.answers.get(call.name, lambda _call: (1, ""))(call)
                client.sendall(bytes([status]) + said.encode())

    def _read(self, client: socket.socket) -> Call:
        received = b""
        while not received.endswith(b"\0\0"):
            received += client.recv(1 << 16)
        program, folder, count, *rest = received[:-2].decode().split("\0")
        words, environ = rest[: int(count)], rest[int(count) :]
        pairs = (line.partition("=") for line in environ if not line.startswith("="))
        values = {name.upper(): value for name, _, value in pairs}
        return Call(self.path(program), self.path(folder), words, values)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Windows]:
    """A new one below `folder`, whose processes end with the block."""
    prefix, stand_in = folder / "prefix", folder / "stand_in.exe"
    subprocess.run([COMPILER, "-municode", "-O1", "-o", stand_in, SOURCE, "-lws2_32"], check=True)
    _wine(prefix, "wineboot", "--init")
    drive = prefix / "drive_c"
    for name in SYSTEM:
        shutil.copy(stand_in, drive / "windows" / "system32" / f"{name}.exe")
    # cmd takes quotation marks off a name behind /c, and Wine sets the profile's folder itself
    start = b'@if defined PROFILE set "LOCALAPPDATA=%PROFILE%"\r\n@"%BATCH_FILE%" %*\r\n'
    (drive / "start.bat").write_bytes(start)
    (drive / "try.bat").write_bytes(b"@cmd /c exit 1 && exit /b 7\r\n@exit /b 0\r\n")
    try:
        yield Windows(prefix, stand_in, reads_conditions=_wine(prefix, "cmd", "/c", "C:\\try.bat") == 0)
    finally:
        subprocess.run(["wineserver", "--kill"], env=_environ(prefix))


def _wine(prefix: Path, *words: str) -> int:
    """The exit status. No pipe: the services that Wine starts would keep it open."""
    nothing = subprocess.DEVNULL
    return subprocess.run(
        ["wine", *words],
        env=_environ(prefix),
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        timeout=PATIENCE_S,
    ).returncode


def without_conditions(batch: bytes) -> bytes:
    """The batch file with `A || B` as two lines, and `A & exit /b` as well: for Wine's cmd before 9.13, which
    does B whatever became of A, and forgets the status before an `exit /b`.
    """
    lines: list[str] = []
    for line in batch.decode("ascii").splitlines():
        first, *others = [line] if line.startswith("rem ") else line.split(" || ")
        if others:
            lines += ["cmd /c exit 0", first, *(f'if not "%ERRORLEVEL%"=="0" {other}' for other in others)]
        elif line.endswith(" & exit /b"):
            lines += [line.removesuffix(" & exit /b"), "exit /b %ERRORLEVEL%"]
        else:
            lines.append(line)
    return "\r\n".join([*lines, ""]).encode("ascii")


def _environ(prefix: Path) -> dict[str, str]:
    """Nothing of this computer's, no window, and no offer to fetch a browser for Wine."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ours = "mscoree=;mshtml=;certutil.exe,powershell.exe=n"  # the stand-ins, not Wine's own
    wine = {"WINEPREFIX": str(prefix), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": ours}
    return {**kept, **wine, "LANG": "C.UTF-8"}
