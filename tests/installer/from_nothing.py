"""Shows the starters in a root of their own made by debootstrap: from nothing to a summary, and to nothing.

    sudo python tests/installer/from_nothing.py [--system none|debian] [--wheels FOLDER] [--transcript FILE]

`none`: a Debian without any Python. uv comes from its wheel; the Python that it brings is this one, packed in
the layout of those that uv brings and served from this computer. `debian`: Debian's python3 and python3-venv.
`--wheels`: put beside the program as `wheels`. `--transcript`: where to write docs/setup-transcript.md.
Needs Linux, root, debootstrap, patchelf and a network.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HOME = "/home/leserin"
PROGRAM = f"{HOME}/Bücher und mehr 漢字/TriForce Chat"
USER = 1000
TITLES = {"none": "No Python at all", "debian": "Debian's python3 and python3-venv alone"}
PREFACE = """# From nothing to a summary, and to nothing

What `tests/installer/from_nothing.py --transcript` wrote on {date}: a Debian 12 made by debootstrap,
a user without rights, the program in a folder with a space, an umlaut and Chinese characters. Lines are cut
at 125 characters, long outputs in the middle.

uv is the real one, fetched from the package index and checked. The Python that it brings is not the one that
it brings to users: it is a Python {python} packed in the same layout and served from the same computer by a
list of its own (`UV_PYTHON_DOWNLOADS_JSON_URL`), so that the run needs the package index alone.{wheels}
`../broken` is version 0.2.0 with an engine that raises an error.
"""
WITH_WHEELS = "\nA folder `wheels` lay beside the program; what it lacked came from the package index."
SYSTEM_LIBRARIES = r"lib(c|m|dl|rt|pthread|util|resolv|nsl)\.so"


class Root:
    """A Debian below `folder`, in which a user runs commands; each is a step of the transcript."""

    def __init__(self, folder: Path, *, with_python: bool) -> None:
        self.folder = folder
        self.transcript: list[str] = []
        packages = ["curl", "ca-certificates", *(["python3", "python3-venv"] if with_python else [])]
        include = f"--include={','.join(packages)}"
        subprocess.run(
            ["debootstrap", "--variant=minbase", include, "bookworm", str(folder)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")  # this computer's may know a proxy's, too
        shutil.copy(certificates, folder / certificates.relative_to("/"))
        for name in ("resolv.conf", "hosts"):
            shutil.copy(Path("/etc") / name, folder / "etc" / name)
        for name in ("proc", "dev"):
            subprocess.run(["mount", "--rbind", f"/{name}", str(folder / name)], check=True)
        (folder / HOME[1:]).mkdir()
        self.own(HOME)

    def close(self) -> None:
        """Unmount what lies inside, so that nothing of this computer is deleted with it."""
        for name in ("dev", "proc"):
            subprocess.run(["umount", "--recursive", "--lazy", str(self.folder / name)], check=True)

    def own(self, path: str) -> None:
        """All below `path` is the user's."""
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(self.folder / path[1:])], check=True)

    def files(self) -> set[str]:
        """Every name in it, without those of the running computer."""
        found = set()
        for parent, folders, names in os.walk(self.folder):
            if Path(parent) == self.folder:
                folders[:] = [name for name in folders if name not in ("proc", "dev", "sys")]
            found |= {os.path.relpath(os.path.join(parent, name), self.folder) for name in (*folders, *names)}
        return found

    def run(self, command: str, *, status: int = 0, lines: int = 12, **environ: str) -> str:
        """What the user's shell says to `command`, in the program's folder. Fails on another exit status."""
        given = {"HOME": HOME, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TRIFORCE_TORCH": "cpu", **environ}
        if (
            "PIP_CERT" in os.environ
        ):  # of a proxy that this computer knows; pip brings certificates of its own
            given["PIP_CERT"] = "/etc/ssl/certs/ca-certificates.crt"
        inside = f'cd "{PROGRAM}" && {command}'
        told = subprocess.run(
            ["chroot", f"--userspec={USER}:{USER}", str(self.folder), "/usr/bin/env", "-i"]
            + [f"{name}={value}" for name, value in given.items()]
            + ["/bin/sh", "-c", inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=1800,
        )
        shown = " \\\n    ".join([*(f"{name}={value}" for name, value in environ.items()), command])
        self._note(shown, told.stdout, lines, told.returncode)
        assert told.returncode == status, told.stdout
        return told.stdout

    def _note(self, command: str, said: str, lines: int, status: int) -> None:
        kept = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
        if len(kept) > lines:
            kept = [*kept[: lines // 2], "...", *kept[-lines // 2 :]]
        text = "\n".join(line[:125] for line in kept)
        command = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", command)  # the port is another one each time
        self.transcript.append(f"$ {command}\n{text}\n[status {status}]\n")
        sys.stderr.write(f"{datetime.datetime.now():%H:%M:%S} {self.transcript[-1]}\n")


def put_program(root: Root, path: str, *, version: str) -> Path:
    """The program at `path`, the user's own."""
    target = write_program(root.folder / path[1:], version=version)
    root.own(HOME)
    return target


def write_program(target: Path, *, version: str, without: tuple[str, ...] = ()) -> Path:
    """The files of the last commit, as an archive of this version would hold them, `without` some folders."""
    target.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=REPO, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = [one for one in tar if one.name.partition("/")[0] not in without]
        tar.extractall(target, members)
    project = target / "pyproject.toml"
    text = re.sub(r'(?m)^version = ".*"', f'version = "{version}"', project.read_text("utf-8"))
    project.write_text(text, "utf-8")
    return target


# ---- a Python in the layout of those that uv brings --------------------------------------------------------


def pack_python(target: Path) -> dict[str, object]:
    """This Python as `target`, a .tar.gz that runs wherever it is unpacked; what uv's list says of it."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "python"
        leave_out = shutil.ignore_patterns(
            "site-packages", "test", "__pycache__", "_tkinter*", "share", "*.a"
        )
        shutil.copytree(sys.base_prefix, made, symlinks=True, ignore=leave_out)
        _make_relocatable(made)
        with tarfile.open(target, "w:gz", compresslevel=1) as tar:
            tar.add(made, "python")
    major, minor, patch = sys.version_info[:3]
    return {
        "name": "cpython",
        "arch": {"family": os.uname().machine, "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": major,
        "minor": minor,
        "patch": patch,
        "prerelease": "",
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "variant": None,
    }


def _make_relocatable(python: Path) -> None:
    """Libraries of this computer go into its lib folder, where its programs look for them first."""
    library = python / "lib"
    programs = [
        python / "bin" / f"python3.{sys.version_info[1]}",
        *python.rglob("*.so"),
        *python.rglob("*.so.*"),
    ]
    needed: set[str] = set()
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
        needed |= set(re.findall(r"=> (/\S+)", said))
    for file in needed:
        if not re.match(SYSTEM_LIBRARIES, Path(file).name) and not (library / Path(file).name).exists():
            shutil.copy(file, library)
    for program in {*programs, *library.glob("*.so*")}:
        if program.is_symlink():
            continue
        path = "$ORIGIN/" + os.path.relpath(library, program.parent)
        subprocess.run(["patchelf", "--set-rpath", path, str(program)], check=True, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def served_python(folder: Path) -> Iterator[str]:
    """The address of a list in which uv finds this Python and no other."""
    facts = pack_python(folder / "python.tar.gz")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=folder))
    address = f"http://127.0.0.1:{server.server_port}"
    name = f"cpython-{facts['major']}.{facts['minor']}.{facts['patch']}-linux-{os.uname().machine}-gnu"
    (folder / "list.json").write_text(json.dumps({name: {**facts, "url": f"{address}/python.tar.gz"}}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{address}/list.json"
    finally:
        server.shutdown()


# ---- the story ---------------------------------------------------------------------------------------------


def story(root: Root, *, uv_list: str) -> None:
    """From nothing to a summary, an update that fails, one that does not, and to nothing left."""
    before = root.files()
    start = "installer/linux/triforce-chat.sh"
    sample = "assets/samples/the-thursday-clock.md"
    if uv_list:
        assert not shutil.which("python3", path=str(root.folder / "usr/bin"))
        root.run(f"python3 --version; {start} doctor", status=1)
    brings = {"TRIFORCE_FETCH_PYTHON": "yes", "UV_PYTHON_DOWNLOADS_JSON_URL": uv_list} if uv_list else {}
    said = root.run(f"{start} summarize {sample}", lines=30, **brings)
    assert "The environment is ready" in said and len(said) > 500
    root.run(f"{start} doctor | tail -n 2")

    root.run(f"{start} update ../broken", status=1)
    assert 'version = "0.1.0"' in root.run("grep ^version pyproject.toml")
    assert "is now 0.2.0" in root.run(f"{start} update ../TriForce-Chat-0.2.0.tar.gz")
    assert 'version = "0.2.0"' in root.run("grep ^version pyproject.toml")
    root.run(f'{start} summarize {sample} --question "Who repairs the clock?"')

    root.run("installer/linux/add-to-menu.sh")
    root.run(f"{start} uninstall", status=1)
    root.run(f"{start} uninstall --yes --data")
    left = sorted(root.files() - before)
    lost = sorted(name for name in before - root.files() if PROGRAM[1:] not in name)
    assert not lost, lost
    assert not (root.folder / PROGRAM[1:]).exists()
    assert all(name.startswith(("home/leserin/.local", "home/leserin/.config")) for name in left), left
    assert not [name for name in left if (root.folder / name).is_file()], left
    folders = ", ".join(name.replace(HOME[1:], "~") for name in left)
    root.transcript.append(f"Left behind by all this: no file, and the folders {folders}.\n")


def tell(system: str, *, wheels: Path | None) -> list[str]:
    """The transcript of one system. Raises AssertionError where it goes otherwise than it should."""
    with tempfile.TemporaryDirectory(prefix="triforce-root-") as scratch:
        root = Root(Path(scratch) / "root", with_python=system == "debian")
        try:
            program = put_program(root, PROGRAM, version="0.1.0")
            newer = put_program(root, str(Path(PROGRAM).parent / "newer"), version="0.2.0")
            broken = put_program(root, str(Path(PROGRAM).parent / "broken"), version="0.2.0")
            (broken / "core" / "engine.py").write_text("raise RuntimeError('a fault of this version')\n")
            packed = str(newer.parent / "TriForce-Chat-0.2.0")
            shutil.make_archive(packed, "gztar", newer.parent, newer.name)
            if wheels:
                shutil.copytree(wheels, program / "wheels")
            root.own(HOME)
            if system == "none":
                with served_python(Path(scratch)) as uv_list:
                    story(root, uv_list=uv_list)
            else:
                story(root, uv_list="")
            return root.transcript
        finally:
            root.close()


def page(told: dict[str, list[str]], *, wheels: bool) -> str:
    """The transcripts as the page that the guide links to."""
    preface = PREFACE.format(
        date=f"{datetime.date.today():%Y-%m-%d}",
        python=f"{sys.version_info[0]}.{sys.version_info[1]}",
        wheels=WITH_WHEELS if wheels else "",
    )
    parts = [
        "## {}\n\n```\n{}```\n".format(TITLES[system], "\n".join(steps)) for system, steps in told.items()
    ]
    return "\n".join([preface, *parts])


def main() -> None:
    """Both systems, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", choices=tuple(TITLES))
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--transcript", type=Path)
    given = parser.parse_args()
    told = {}
    for system in [given.system] if given.system else TITLES:
        told[system] = tell(system, wheels=given.wheels)
        if given.transcript:
            given.transcript.write_text(page(told, wheels=bool(given.wheels)), encoding="utf-8")


if __name__ == "__main__":
    main()
