"""Without a Python: uv is fetched when wanted, checked, and leaves a Python in a folder of ours alone."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SHIM = "linux/triforce-chat.sh"
TOOLS = ("dirname", "sh", "uname", "grep", "mkdir", "rm", "tail", "gzip", "chmod", "env", "sha256sum", "ln")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX shells")
# what stands for uv: writes down what it was told and where it may write, and brings the Python of the tests
UV = """#!/bin/sh
[ "$1" = --version ] && exit 0
env > "$UV_CACHE_DIR.env" 2>/dev/null || { mkdir -p "$(dirname "$UV_CACHE_DIR")"; env > "$UV_CACHE_DIR.env"; }
cp "$UV_CACHE_DIR.env" "$HOME/uv.env"; echo "$*" > "$HOME/uv.arguments"
[ -n "$UV_FAILS" ] && exit 2
mkdir -p "$UV_PYTHON_INSTALL_DIR/cpython-3.12.1-test/bin"
ln -sf "$THE_PYTHON" "$UV_PYTHON_INSTALL_DIR/cpython-3.12.1-test/bin/python3"
"""


@pytest.fixture
def pc(root: Path, tmp_path: Path):
    """A computer without Python: only some tools on the path, and an index that is a folder."""
    wheel = tmp_path / "uv.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("uv/__init__.py", "x" * 500)
        made.writestr("uv-1.0.data/scripts/uv", UV)
        made.writestr("uv-1.0.dist-info/RECORD", "")
        begin = made.getinfo("uv-1.0.data/scripts/uv").header_offset + 1
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    system = "-".join((os.uname().sysname, os.uname().machine))
    row = f"{system} file://{wheel} {digest} {begin}\n"
    (root / "installer" / "uv.txt").write_text("# of the test\n" + row)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (*TOOLS, "curl", "cp"):
        (tools / tool).symlink_to(shutil.which(tool))
    (tmp_path / "home").mkdir()
    (root / "launcher.py").write_text("import sys; print('started', sys.argv[1:], sys.executable)\n")
    return root, tools, wheel


def start(pc, answer: str = "yes", *arguments: str, **more: str) -> subprocess.CompletedProcess:
    root, tools, wheel = pc
    environ = {"PATH": str(tools), "HOME": str(wheel.parent / "home"), "THE_PYTHON": sys.executable}
    return subprocess.run(
        [str(root / "installer" / SHIM), *arguments],
        env={**environ, "TRIFORCE_FETCH_PYTHON": answer, **more},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / ".python").rglob("*") if not path.is_dir())


def test_a_python_is_fetched_and_starts_the_launcher(pc):
    root, tools, wheel = pc
    said = start(pc, "yes", "extract", "ein Buch")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("started ['extract', 'ein Buch']")
    assert left(root) == [".python/cpython-3.12.1-test/bin/python3"]
    wheel.unlink()  # the second start fetches nothing
    assert start(pc, "no", "doctor").stdout.startswith("started ['doctor']")


def test_the_menu_opens_a_terminal_for_the_first_setup_only(pc):
    """Also where the environment lies elsewhere, because the program's folder cannot be written to."""
    root, tools, wheel = pc
    terminal = tools / "xterm"
    terminal.write_text('#!/bin/sh\necho "terminal $1 $TRIFORCE_SETUP_WINDOW"\n')
    terminal.chmod(0o755)
    (tools / "cut").symlink_to(shutil.which("cut"))
    (tools / "python3.11").symlink_to(sys.executable)
    assert start(pc).stdout == "terminal -e 1\n"
    assert start(pc, "no", "doctor").stdout.startswith("started ['doctor']"), "a command has its own"
    for folder in (root / ".venv", _apart(root, wheel.parent / "home" / ".local" / "share")):
        folder.mkdir(parents=True)
        assert start(pc).stdout.startswith("started []")
        folder.rmdir()
    terminal.unlink()
    assert start(pc).stdout.startswith("started []"), "without a terminal it goes on without"


def _apart(root: Path, data: Path) -> Path:
    """As installer/places.py has it for a folder that cannot be written to."""
    return data / "triforce-chat" / hashlib.sha256(str(root).encode()).hexdigest()[:8]


def test_all_of_uvs_folders_lie_inside_ours(pc):
    """Nothing of it in the home folder, the path or another uv's."""
    root, _tools, wheel = pc
    start(pc)
    told = (wheel.parent / "home" / "uv.env").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in told if line.startswith("UV_"))
    folders = {name: value for name, value in given.items() if name.endswith("_DIR")}
    assert {"UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "UV_PYTHON_BIN_DIR"} <= set(folders)
    assert all(value.startswith(str(root / ".python")) for value in folders.values())
    assert given["UV_NO_CONFIG"] == "1"
    arguments = (wheel.parent / "home" / "uv.arguments").read_text()
    assert arguments == "python install --no-bin --managed-python >=3.10,<3.13\n"
    batch = (REPO / "installer" / "windows" / "get-python.bat").read_text()
    assert set(folders) <= set(re.findall(r'set "(UV_\w+)=', batch))


@pytest.mark.parametrize("answer", ["no", ""])
def test_nothing_is_fetched_without_a_yes(pc, answer):
    root, _tools, _wheel = pc
    said = start(pc, answer)
    assert said.returncode == 1 and "3.10 to 3.13" in said.stderr
    assert not (root / ".python").exists()


@pytest.mark.parametrize("fault", ["another file", "nothing there", "uv fails", "disk full", "no curl"])
def test_what_goes_wrong_is_said_and_leaves_nothing(pc, fault):
    """A file with another SHA-256 is not even unpacked."""
    root, tools, wheel = pc
    more = {}
    if fault == "another file":
        wheel.write_bytes(wheel.read_bytes().replace(b"RECORD", b"REC0RD"))
    elif fault == "nothing there":
        wheel.unlink()
    elif fault == "uv fails":
        more["UV_FAILS"] = "1"
    elif fault == "disk full":
        (tools / "gzip").unlink()
        (tools / "gzip").write_text("#!/bin/sh\nexit 1\n")
        (tools / "gzip").chmod(0o755)
    else:
        (tools / "curl").unlink()
    said = start(pc, "yes", **more)
    assert said.returncode == 1
    assert left(root) == []
    wanted = {"another file": "not the file that was expected", "no curl": "Neither curl nor wget"}
    assert wanted.get(fault, "needs Python") in said.stderr


def test_wget_does_where_there_is_no_curl(pc):
    """It reads no file addresses: a stand-in shows how it is called."""
    _root, tools, wheel = pc
    (tools / "curl").unlink()
    (tools / "wget").write_text(
        f'#!/bin/sh\n[ "$1" = --quiet ] && cp "{wheel}" "${{2#--output-document=}}"\n'
    )
    (tools / "wget").chmod(0o755)
    assert start(pc, "yes", "doctor").stdout.startswith("started ['doctor']")


def test_two_starts_at_once_both_start(pc):
    root, tools, wheel = pc
    environ = {"PATH": str(tools), "HOME": str(wheel.parent / "home"), "THE_PYTHON": sys.executable}
    running = [
        subprocess.Popen(
            [str(root / "installer" / SHIM), "doctor"],
            env={**environ, "TRIFORCE_FETCH_PYTHON": "yes"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for _ in range(2)
    ]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert out.startswith("started ['doctor']"), err
    assert len(left(root)) == 1


def test_a_terminal_is_asked(pc):
    """The question stands on the terminal; Enter alone is a no."""
    import pty

    root, tools, wheel = pc
    for typed, fetched in ((b"\n\n", False), (b"y\n", True)):
        ours, theirs = pty.openpty()
        os.write(ours, typed)
        said = subprocess.run(
            [str(root / "installer" / SHIM), "doctor"],
            env={"PATH": str(tools), "HOME": str(wheel.parent / "home"), "THE_PYTHON": sys.executable},
            stdin=theirs,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        os.close(ours)
        os.close(theirs)
        assert "[y/N]" in said.stderr and ".python" in said.stderr
        assert (said.returncode == 0) is fetched


def test_each_system_has_an_address_at_the_package_index_and_a_digest():
    """One version for all, over https, from the index's own files."""
    text = (REPO / "installer" / "uv.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["Windows", "Darwin-arm64", "Linux-x86_64", "Linux-aarch64"]
    for system, address, digest, *begin in rows:
        assert address.startswith("https://files.pythonhosted.org/packages/") and address.endswith(".whl")
        assert re.fullmatch(r"[0-9a-f]{64}", digest)
        assert [part.isdecimal() for part in begin] == ([True] if system.startswith("Linux") else [])
    versions = {re.search(r"/uv-([\d.]+)-", row[1])[1] for row in rows}
    assert len(versions) == 1 and f"uv {versions.pop()} of 20" in text
    assert re.search(r"Looked up on 20\d\d-\d\d-\d\d at https://pypi.org/pypi/uv/", text)


@pytest.mark.parametrize("name", ["get-python.sh", "linux/triforce-chat.sh", "macos/TriForceChat.command"])
def test_the_starters_are_plain_posix(name):
    """What every sh reads, and nothing that is fetched is given to a shell."""
    file = REPO / "installer" / name
    for shell in ("dash", "busybox", "bash"):
        if shutil.which(shell):
            command = [shell, *(["sh"] if shell == "busybox" else []), "-n", str(file)]
            assert subprocess.run(command).returncode == 0, shell
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"(curl|wget)[^\n]*\|", text) and "eval" not in text


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    scripts = [
        REPO / "installer" / name for name in (SHIM, "macos/TriForceChat.command", "linux/add-to-menu.sh")
    ]
    said = subprocess.run(
        ["shellcheck", "--shell=sh", "--external-sources", "--exclude=SC1007,SC2012", *map(str, scripts)],
        cwd=REPO,
        capture_output=True,
        encoding="utf-8",
    )
    assert said.returncode == 0, said.stdout
