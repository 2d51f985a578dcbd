"""An update takes over what is the program's and nothing else, or leaves everything as it was."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from installer import held, places, program, selftest, update
from installer.environment import Environment
from installer.lock import locked
from installer.packages import SetupError

REPO = Path(__file__).resolve().parents[2]
OLD = "import sys; print('old', sys.argv[1:])\n"
NEW = "import sys; print('new', sys.argv[1:])\n"
BROKEN = "import sys; sys.exit('this version does not start')\n"


@pytest.fixture
def environment(root: Path, ready: Callable[[str], Path], tmp_path: Path, monkeypatch) -> Environment:
    """Version 1.0.0 with an environment, a data folder, and a file of the user's beside launcher.py."""
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "Daten"))
    ready(OLD)
    (root / "docs").mkdir()
    (root / "docs" / "gone.md").write_text("of version 1.0.0 only")
    (root / "notes.txt").write_text("mine")
    return Environment(root)


@pytest.fixture
def newer(environment: Environment, tmp_path: Path) -> Path:
    """Version 1.1.0 in a folder."""
    folder = tmp_path / "TriForce Chat 1.1.0 ü"
    leave_out = shutil.ignore_patterns(".venv*", "docs", "notes.txt", "__pycache__")
    shutil.copytree(environment.root, folder, ignore=leave_out)
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.1.0"\n')
    (folder / "app" / "cli.py").write_text(NEW)
    (folder / "extra").mkdir()
    (folder / "extra" / "new.txt").write_text("of version 1.1.0 only")
    return folder


def tree(root: Path) -> dict[str, bytes]:
    """Every file below the folder but those that Python and locks leave there."""
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".lock"
    }


def test_the_new_version_is_there_and_what_is_the_users_stays(environment, newer, capfd):
    """Settings, a file beside the program and the environment must outlive an update; old files must not."""
    (environment.root / "config.yaml").write_text("port: 9000\n")
    assert update.main(environment, [str(newer)]) == 0
    root = environment.root
    assert (root / "app" / "cli.py").read_text() == NEW
    assert (root / "extra" / "new.txt").exists() and not (root / "docs").exists()
    assert (root / "notes.txt").read_text() == "mine"
    assert (root / "config.yaml").read_text() == "port: 9000\n"
    assert (root / "config.new.yaml").read_text() == "port: 7860\n"
    assert environment.is_ready(extras=False)
    assert not (root / ".update").exists() and not (root / ".venv.before").exists()
    said = capfd.readouterr().err
    assert "1.0.0 is now 1.1.0" in said and "config.new.yaml" in said
    assert "looks at this machine: yes" in said and "reads a sample: yes" in said
    assert "answers from it" not in said  # without the embedded model nothing is fetched for it


def test_the_model_that_is_there_is_tried_on_a_data_folder_of_its_own(environment, newer, tmp_path, capfd):
    """What a new version does to its data must not happen to the user's before it is kept."""
    model = tmp_path / "Daten" / "models" / "SmolLM2-135M-Instruct"
    model.mkdir(parents=True)
    (model / "model.gguf").write_text("weights")
    (newer / "app" / "cli.py").write_text(
        "import os, pathlib, sys; home = pathlib.Path(os.environ['TRIFORCE_HOME'])\n"
        f"assert (home / 'models' / {model.name!r} / 'model.gguf').read_text() == 'weights'\n"
        f"assert home != pathlib.Path({str(tmp_path / 'Daten')!r}); (home / 'migrated').touch()\n"
    )
    assert update.main(environment, [str(newer)]) == 0
    assert "answers from it: yes" in capfd.readouterr().err
    assert files_below(tmp_path / "Daten") == ["models/SmolLM2-135M-Instruct/model.gguf"]


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_settings_that_set_nothing_become_the_new_ones(environment, newer):
    """The comments of config.yaml are its manual: an old one would tell of an old program."""
    (newer / "config.yaml").write_text("# more to set\nport: 7860\n")
    assert update.main(environment, [str(newer)]) == 0
    assert (environment.root / "config.yaml").read_text().startswith("# more")
    assert not (environment.root / "config.new.yaml").exists()


@pytest.fixture(params=["with filters", "without"])
def any_tarfile(request, monkeypatch) -> None:
    """Debian 12's Python has a tarfile without filters."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar.xz"])
def test_an_archive_is_as_good_as_a_folder(environment, newer, tmp_path, suffix, any_tarfile):
    kind = {".zip": "zip", ".tar.gz": "gztar", ".tar.xz": "xztar"}[suffix]
    made = shutil.make_archive(str(tmp_path / "new ü"), kind, newer.parent, newer.name)
    assert update.main(environment, [made]) == 0
    assert (environment.root / "app" / "cli.py").read_text() == NEW
    assert os.access(environment.root / "installer" / "linux" / "triforce-chat.sh", os.X_OK)


@pytest.mark.parametrize("fault", ["does not start", "no self-test", "raises while setting up"])
def test_a_version_that_fails_its_test_goes_and_the_old_one_is_back(environment, newer, fault, capfd):
    """Every file, the settings and the environment as before, and the old one still starts."""
    if fault == "does not start":
        (newer / "app" / "cli.py").write_text(BROKEN)
    elif fault == "no self-test":
        (newer / "installer" / "selftest.py").unlink()
    else:
        (newer / "installer" / "environment.py").write_text("raise RuntimeError('no')\n")
    (environment.root / "config.yaml").write_text("port: 9000\n")
    before = tree(environment.root)
    assert update.main(environment, [str(newer)]) == 1
    assert tree(environment.root) == before
    told = capfd.readouterr().err
    assert "1.0.0 is back" in told
    assert fault != "does not start" or "looks at this machine: no\nthis version does not start" in told
    said = subprocess.run(
        [sys.executable, str(environment.root / "launcher.py"), "doctor"], capture_output=True, text=True
    )
    assert said.stdout == "old ['doctor']\n"


def test_a_new_version_that_takes_too_long_is_told_in_words(tmp_path, monkeypatch, capfd):
    """On a computer at its limits a traceback was the last that stood above "is back"."""
    (tmp_path / "launcher.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(selftest, "ROOT", tmp_path)
    monkeypatch.setattr(selftest, "PATIENCE_S", 0.2)
    assert not selftest._works("answers from it", ["summarize"], str(tmp_path))
    assert "answers from it: not within 0 minutes; close other programs" in capfd.readouterr().err


def test_what_a_failing_version_did_to_the_environment_is_undone(environment, newer):
    """Packages of the new version must not stay under the old one."""
    package = places.site_packages(environment.folder) / "package.py"
    package.write_text("of the old version")
    (newer / "installer" / "selftest.py").write_text(
        f"import os; os.unlink({str(package)!r})\n"
        f"open({str(package)!r}, 'w').write('new'); raise SystemExit(1)"
    )
    assert update.main(environment, [str(newer)]) == 1
    assert package.read_text() == "of the old version"
    assert environment.is_ready(extras=False)


@pytest.mark.parametrize("moment", ["files are exchanged", "the new version tries itself"])
def test_an_update_that_was_killed_is_undone_by_the_next_start(environment, newer, moment):
    """Power cut: the next start finds a program that is whole."""
    before = tree(environment.root)
    if moment == "files are exchanged":
        killer = (
            "import os, pathlib; rename = pathlib.Path.rename; count = iter(range(99))\n"
            "def killed(self, target): return os._exit(9) if next(count) == 9 else rename(self, target)\n"
            "pathlib.Path.rename = killed\n"
        )
    else:
        killer = ""
        (newer / "installer" / "selftest.py").write_text("import os; os.kill(os.getppid(), 9)\n")
    code = (
        f"import sys; sys.path.insert(0, {str(environment.root)!r})\n"
        "from pathlib import Path; from installer import update\n"
        "from installer.environment import Environment\n"
        f"{killer}update.main(Environment(Path({str(environment.root)!r})), [{str(newer)!r}])"
    )
    status = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd="/").returncode
    assert status in (9, -9)
    assert (environment.root / ".update" / "old").is_dir()
    update.go_back_if_broken_off(Environment(environment.root))
    after = tree(environment.root)
    assert {name: after.get(name) for name in before} == before
    assert not (environment.root / ".update").exists()


def test_a_start_beside_a_running_update_does_not_undo_it(environment, newer):
    """The new version's own test is such a start."""
    (environment.root / ".update" / "old").mkdir(parents=True)
    (environment.root / ".update" / "old" / "README.md").write_text("old")
    with locked(environment.root / ".update.lock", lambda: None):
        update.go_back_if_broken_off(environment)
        assert (environment.root / ".update" / "old").exists()
    update.go_back_if_broken_off(environment)
    assert (environment.root / "README.md").read_text() == "old"


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("step", ["copying", "keeping the environment", "exchanging"])
def test_a_disk_that_fills_up_changes_nothing(environment, newer, monkeypatch, step, at):
    count = iter(range(10_000))

    def full(real):
        def maybe(*arguments, **options):
            if next(count) == at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **options)

        return maybe

    before = tree(environment.root)
    if step == "copying":
        monkeypatch.setattr(update.shutil, "copy2", full(shutil.copy2))
        monkeypatch.setattr(update, "_copy", full(update._copy))
    elif step == "keeping the environment":
        monkeypatch.setattr(update, "_link_or_copy_link", full(update._link_or_copy_link))
    else:
        monkeypatch.setattr(Path, "rename", full(Path.rename))
    with pytest.raises(SetupError, match="disk is full"):
        update.main(environment, [str(newer)])
    monkeypatch.undo()
    assert tree(environment.root) == before


def refused(environment: Environment, source: Path, words: str) -> None:
    before = tree(environment.root)
    with pytest.raises(SetupError, match=words):
        update.main(environment, [str(source)])
    assert tree(environment.root) == before


def test_what_is_no_newer_version_is_refused_in_words(environment, newer, tmp_path):
    refused(environment, tmp_path / "nowhere", "nothing at")
    refused(environment, environment.root, "does not hold another version")
    refused(environment, tmp_path / "Daten", "does not hold another version")
    (tmp_path / "torn.zip").write_bytes(b"PK\3\4 torn")
    refused(environment, tmp_path / "torn.zip", "cannot be unpacked")
    (tmp_path / "torn.tar.gz").write_bytes(b"\x1f\x8b torn")
    refused(environment, tmp_path / "torn.tar.gz", "cannot be unpacked")
    (newer / "pyproject.toml").write_text('version = "0.9.9"\n')
    refused(environment, newer, "0.9.9; this is 1.0.0")
    (newer / "pyproject.toml").write_text("[project]\n")
    refused(environment, newer, "which version")
    (environment.root / ".git").mkdir()
    refused(environment, newer, "git pull")


@pytest.mark.parametrize("suffix", [".zip", ".tar", "link.tar"])
def test_no_file_of_an_archive_gets_out_of_its_folder(environment, tmp_path, suffix, any_tarfile):
    archive, outside = tmp_path / f"evil{suffix}", "../../../outside.txt"
    (tmp_path / "x").write_text("x")
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as made:
            made.write(tmp_path / "x", outside)
    elif suffix == ".tar":
        with tarfile.open(archive, "w") as made:
            made.add(tmp_path / "x", outside)
    else:
        with tarfile.open(archive, "w") as made:
            out = tarfile.TarInfo("inside")
            out.type, out.linkname = tarfile.SYMTYPE, str(tmp_path)
            made.addfile(out)
            made.add(tmp_path / "x", "inside/outside.txt")
    with pytest.raises(SetupError):
        update.main(environment, [str(archive)])
    assert not list(tmp_path.rglob("outside.txt"))


def test_nothing_is_exchanged_under_a_running_app(environment, newer, tmp_path):
    with locked(tmp_path / "Daten" / "run" / "app.lock", lambda: None):
        refused(environment, newer, "is running")


@pytest.mark.skipif(not (REPO / ".git").exists(), reason="needs the repository")
def test_every_file_of_the_repository_is_the_programs():
    """What is not listed would stay behind an update and an uninstallation."""
    said = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout
    top = {name.partition("/")[0] for name in said.split("\0") if name}
    assert top == set(program.FILES)


class Holding:
    """Refuses to rename a name of the program, as Windows does while a file in it is open."""

    def __init__(self, monkeypatch, name: str, *, times: int) -> None:
        self.times, rename = times, Path.rename
        monkeypatch.setattr(held, "PAUSES_S", (0.0, 0.0, 0.0))

        def refused(path: Path, target: Path) -> Path:
            if path.name == name and self.times > 0:
                self.times -= 1
                error = PermissionError(errno.EACCES, "Zugriff verweigert", str(path))
                error.winerror = 32
                raise error
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", refused)


def test_a_file_that_is_held_for_a_moment_does_not_end_an_update(environment, newer, monkeypatch):
    """A virus scanner looks at the files that were just unpacked."""
    Holding(monkeypatch, "core", times=3)
    assert update.main(environment, [str(newer)]) == 0
    assert (environment.root / "app" / "cli.py").read_text() == NEW


def test_a_file_that_stays_open_brings_the_old_version_back_with_the_remedy(environment, newer, monkeypatch):
    """An editor has a file of the program open: Windows does not move its folder."""
    before = tree(environment.root)
    Holding(monkeypatch, "core", times=4)
    with pytest.raises(SetupError, match="from before is there. Close what has files in .* open"):
        update.main(environment, [str(newer)])
    assert tree(environment.root) == before
