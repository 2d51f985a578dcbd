"""Where things lie: short paths on Windows, a read-only program folder, data that was moved."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core import paths
from installer import environment as environment_module
from installer import places
from installer.environment import Environment
from installer.packages import SetupError

REPO = Path(__file__).resolve().parents[2]


def test_the_usual_data_folder_is_the_apps(monkeypatch):
    """Where the environment is broken the launcher cannot ask the app."""
    monkeypatch.delenv("TRIFORCE_HOME", raising=False)
    monkeypatch.setattr(Path, "mkdir", lambda *arguments, **options: None)
    assert places.usual_data_folder() == paths.data_dir()


def test_the_app_is_asked_where_the_data_are(tmp_path, monkeypatch):
    """A folder named in config.yaml is known to nobody else."""
    monkeypatch.delenv("TRIFORCE_HOME", raising=False)
    moved = tmp_path / "verschoben 漢字"
    monkeypatch.setenv("TRIFORCE_HOME", str(moved))
    assert places.data_folder(REPO, Path(sys.executable)) == moved
    assert places.data_folder(tmp_path, tmp_path / "no python") == moved


def test_a_data_folder_named_in_the_settings_is_found(tmp_path, monkeypatch):
    """An uninstallation that looked in the usual place would leave gigabytes, or say there are none."""
    monkeypatch.delenv("TRIFORCE_HOME", raising=False)
    shutil.copytree(REPO / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    moved = tmp_path / "zweite Platte"
    (tmp_path / "config.yaml").write_text(f"data_dir: '{moved}'\n", encoding="utf-8")
    assert places.data_folder(tmp_path, Path(sys.executable)) == moved


@pytest.mark.wide
def test_the_longest_path_of_an_environment_is_known():
    """Of this one, which has all packages; what comes to lie deeper must be counted."""
    site = Path(os.__file__).parent if sys.prefix == sys.base_prefix else Path(sys.prefix)
    found = [str(path.relative_to(site)) for path in site.rglob("site-packages/**/*")]
    if not any("torch" in name for name in found):
        pytest.skip("no environment of its own")
    # Windows has Lib\\site-packages where others have lib/python3.11/site-packages
    below = [name.partition("site-packages")[2] for name in found]
    assert max(len(r"Lib\site-packages") + len(name) for name in below) <= places.LONGEST_INSIDE


@pytest.mark.parametrize(
    ("folder", "long_paths", "excess"),
    [
        (r"C:\Users\twentycharacterslong\AppData\Local\TriForce\0a1b2c3d", False, 0),
        ("C:\\" + "x" * 100, False, 103 + 1 + places.LONGEST_INSIDE - 259),
        ("C:\\" + "x" * 100, True, 0),
    ],
)
def test_a_path_that_is_too_long_for_windows_is_counted(monkeypatch, folder, long_paths, excess):
    monkeypatch.setattr(places, "_long_paths", lambda: long_paths)
    monkeypatch.setattr(places.os, "name", "nt")
    counted = places.too_long(folder)
    monkeypatch.undo()
    assert counted == excess


def test_it_is_refused_before_anything_is_made_or_fetched(root: Path, monkeypatch, silent):
    monkeypatch.setattr(environment_module.places, "too_long", lambda folder: 7)
    environment = Environment(root)
    with pytest.raises(SetupError, match="too long for Windows by 7 characters"):
        environment.make_ready(extras=False, progress=silent)
    assert not environment.folder.exists() and not environment.lock.exists() and not silent.steps


def test_beside_the_program_where_that_can_be_written_to_else_in_a_folder_of_ones_own(
    root: Path, tmp_path, monkeypatch
):
    """Unpacked by an administrator, or on a read-only drive: it runs all the same."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "share"))
    if os.name != "nt":
        assert places.environment_folder(root) == root / ".venv"
    monkeypatch.setattr(places.os, "access", lambda path, mode: False)
    mine = places.environment_folder(root)
    assert mine.parent == places.local_folder() and len(mine.name) == 8
    other = root.with_name("another copy")
    assert places.environment_folder(other) not in (mine, other / ".venv")
    (root / ".venv").mkdir()  # one that is there is kept
    assert places.environment_folder(root) == root / ".venv"


def mounted(how: str, root: Path, code: str, **environ: str) -> str:
    """What `code` says in a namespace of its own in which the program's folder $1 is mounted by `how`."""
    script = f'{how} && exec "$2" -c "$3" "$1"'
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(root), sys.executable, code],
        env={**os.environ, **environ},
        capture_output=True,
        encoding="utf-8",
        cwd="/",
    )
    if "mount:" in said.stderr or "unshare:" in said.stderr:
        pytest.skip(f"no mounts here: {said.stderr}")
    return said.stdout + said.stderr


IN_THE_FOLDER = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from installer import environment
from installer.environment import Environment
from installer.packages import SetupError
from installer.progress import SetupProgress
root = Path(sys.argv[1])
"""
as_root = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0, reason="only root can mount, and only a mount stops root"
)


@as_root
def test_a_start_in_a_read_only_folder_sets_up_elsewhere(root: Path, tmp_path):
    """For real: the kernel refuses to write."""
    code = IN_THE_FOLDER + (
        "Environment._make = lambda self, extras, progress: print(self.folder)\n"
        "Environment(root).make_ready(extras=False, progress=SetupProgress())\n"
    )
    read_only = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    said = mounted(read_only, root, code, XDG_DATA_HOME=str(tmp_path / "share"))
    assert Path(said.strip()).parent == tmp_path / "share" / "triforce-chat", said
    assert not (root / ".venv.lock").exists()


@as_root
@pytest.mark.wide
def test_a_disk_that_fills_up_while_the_environment_is_made_is_named_and_the_next_start_goes_on(root: Path):
    """For real: 8 MB take an environment without pip. Python is not to blame, and no torn pip stays."""
    code = IN_THE_FOLDER + (
        "for _ in range(2):\n"
        "    try: Environment(root).make_ready(extras=False, progress=SetupProgress())\n"
        "    except SetupError as error: print('said:', error)\n"
    )
    full = 'cp -r "$1" "$1 kept" && mount -t tmpfs -o size=8m none "$1" && cp -r "$1 kept/." "$1"'
    said = mounted(full, root, code)
    assert len(re.findall(r"said: .*\bdisk\b", said)) == 2 and "Creating" in said, said
