"""Takes a newer version of the program from a folder or an archive; goes back to the old one when it fails.

What is the user's stays where it is: the data folder is not touched, and a config.yaml with values of one's
own is kept. While an update runs, `.update` beside launcher.py holds the new files, then the old ones; a
start that finds old ones there, of an update that was broken off, puts them back.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

from installer import held, places, program
from installer.environment import Environment
from installer.lock import is_locked, locked
from installer.packages import SetupError
from installer.progress import SetupProgress
from installer.selftest import link_or_copy

SETTINGS = "config.yaml"
SETTINGS_BESIDE = "config.new.yaml"  # what the new version came with, where the user's own was kept
NOT_TAKEN = {".git", ".python", ".update", ".venv", ".venv.lock", "__pycache__"}


def main(environment: Environment, arguments: list[str]) -> int:
    """`launcher.py update FROM`. Raises SetupError; then everything is as it was."""
    parser = argparse.ArgumentParser(prog="launcher.py update", description=__doc__.splitlines()[0])
    parser.add_argument("source", metavar="FROM", type=Path, help="a folder, .zip, .tar.gz, .tar.xz")
    source = parser.parse_args(arguments).source.expanduser().resolve()
    require_closed(environment)
    work = environment.root / ".update"
    with locked(_lock(environment.root), lambda: print("Another update is running; waiting for it ...")):
        try:
            program.remove_path(work)
            program.remove_path(kept_environment(environment))
            work.mkdir()
            new = _staged(environment.root, source, work)
            return _Exchange(environment, work, new).run()
        except OSError as error:
            raise _explained(error, environment.root) from error
        finally:
            if not (work / "old").exists():
                shutil.rmtree(work, ignore_errors=True)
                shutil.rmtree(kept_environment(environment), ignore_errors=True)


def kept_environment(environment: Environment) -> Path:
    """Where the environment from before lies while an update runs: on its own drive."""
    return environment.folder.with_name(environment.folder.name + ".before")


def require_closed(environment: Environment) -> None:
    """Raises SetupError where the app runs, or where this Python is a part of what is to be exchanged."""
    if environment.is_this():
        raise SetupError(
            "This is the Python of the environment itself. Start launcher.py with the one installed on this "
            "computer, or by the starter in installer/."
        )
    data = places.data_folder(environment.root, environment.python)
    if is_locked(data / "run" / "app.lock"):
        raise SetupError("TriForce Chat is running. Quit it (menu, Quit) and start this again.")


def go_back_if_broken_off(environment: Environment) -> None:
    """Put the old version back where an update did not come to its end, and no update is running."""
    root, old = environment.root, environment.root / ".update" / "old"
    if old.is_dir() and not is_locked(_lock(root)):
        with locked(_lock(root), lambda: None):
            _put_back(environment, old)
            shutil.rmtree(root / ".update", ignore_errors=True)
        print("An update was broken off; the version from before is back.", file=sys.stderr)


def _lock(root: Path) -> Path:
    return root / ".update.lock"


def _staged(root: Path, source: Path, work: Path) -> Path:
    """The new version's files, whole, in a folder on the program's own drive. Raises SetupError."""
    if program.is_clone(root):
        raise SetupError(f"{root} is a clone: update it by  git pull")
    if not source.exists():
        raise SetupError(f"There is nothing at {source}. Give the folder or archive of the newer version.")
    folder = source if source.is_dir() else _unpacked(source, work / "unpacked")
    found = next((one for one in (folder, *sorted(folder.iterdir())) if program.is_whole(one)), None)
    if found is None or found == root or root in found.parents and work not in found.parents:
        raise SetupError(f"{source} does not hold another version of TriForce Chat.")
    old, new = program.installed_version(root), program.installed_version(found)
    if new < old:
        said = f"{source} is version {program.spoken_version(new)}; this is {program.spoken_version(old)}."
        raise SetupError(f"{said} An older one may not read what this one has stored; nothing was changed.")
    stage = work / "new"
    stage.mkdir()
    for entry in found.iterdir():
        if entry.name not in NOT_TAKEN:
            _copy(entry, stage / entry.name)
    return stage


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def _unpacked(archive: Path, target: Path) -> Path:
    """The archive's files below `target`; none gets out of it. Raises SetupError."""
    target.mkdir()
    try:
        if archive.suffix == ".zip":
            shutil.unpack_archive(archive, target)  # leaves out names that lead elsewhere
        else:
            import tarfile

            with tarfile.open(archive) as tar:
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(target, filter="data")
                else:
                    _extract_plain(tar, target)
    except (ValueError, EOFError, shutil.ReadError, *_archive_errors()) as error:
        said = f"{archive} cannot be unpacked ({error})."
        raise SetupError(f"{said} Download it again, or unpack it yourself and give its folder.") from error
    for starter in (*target.rglob("*.sh"), *target.rglob("*.command")):  # a zip does not say what can be run
        starter.chmod(0o755)
    return target


def _extract_plain(tar, target: Path) -> None:
    """For Pythons before 3.11.4, Debian's among them: files and folders alone, each below `target`."""
    import tarfile

    below = target.resolve()
    for member in tar:
        path = (target / member.name).resolve()
        if not (member.isreg() or member.isdir()) or below not in (path, *path.parents):
            raise tarfile.TarError(f"{member.name} is no file of a program")
        tar.extract(member, target)


def _archive_errors() -> tuple[type[Exception], ...]:
    import lzma
    import tarfile
    import zipfile
    import zlib

    return (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


def _explained(error: OSError, root: Path) -> SetupError:
    full = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    # an error in a tree of files holds those of its files as words
    if error.errno in full or any(os.strerror(number) in str(error) for number in full):
        return SetupError(f"The disk is full ({root}); the version from before is there. Free some space.")
    remedy = f" Close what has files in {root} open, such as an editor, and update again."
    said = f"The update failed: {error}. The version from before is there."
    return SetupError(said + (remedy if held.is_sharing_violation(error) else ""))


class _Exchange:
    """One update: the old files go aside, the new ones in, the new version tries itself; or all goes back."""

    def __init__(self, environment: Environment, work: Path, new: Path) -> None:
        self._environment, self._root, self._new = environment, environment.root, new
        self._old = work / "old"
        self._kept = kept_environment(environment)
        self._added: list[str] = []
        self._progress = SetupProgress()

    def run(self) -> int:
        """0, or 1 when the new version did not pass its own test and the old one is back."""
        settings_are_default = self._settings_are_default()
        versions = [program.spoken_version(program.installed_version(one)) for one in (self._root, self._new)]
        try:
            self._keep_environment()
            self._exchange()
            if not settings_are_default:
                self._keep_settings()
            self._progress.note(f"Version {versions[1]} is in place; it tries itself.")
            works = self._new_one_works()
        except BaseException:
            self._go_back()
            raise
        if not works:
            self._go_back()
            print(
                f"Version {versions[1]} did not pass its own test, as above. Version {versions[0]} is back, "
                "and nothing of yours was changed.",
                file=sys.stderr,
            )
            return 1
        shutil.rmtree(self._old, ignore_errors=True)
        print(f"TriForce Chat {versions[0]} is now {versions[1]}.", file=sys.stderr)
        if (self._root / SETTINGS_BESIDE).exists():
            print(f"Your {SETTINGS} was kept; the new version's is {SETTINGS_BESIDE}.", file=sys.stderr)
        return 0

    def _settings_are_default(self) -> bool:
        """Whether config.yaml sets nothing; False also where that cannot be found out."""
        question = "from core.config import Settings, load_settings; assert load_settings() == Settings()"
        try:
            command = [str(self._environment.python), "-c", question]
            environ = {**os.environ, "PYTHONPATH": str(self._root)}
            said = subprocess.run(command, cwd=self._root, env=environ, capture_output=True, timeout=120)
            return said.returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False

    def _keep_environment(self) -> None:
        """A second set of names for its files: pip replaces files, it does not write into them."""
        self._progress.step("Keeping the environment as it is")
        if self._environment.folder.is_dir():
            shutil.copytree(
                self._environment.folder, self._kept, symlinks=True, copy_function=_link_or_copy_link
            )

    def _exchange(self) -> None:
        """Old names aside, new ones in their place."""
        self._progress.step("Putting the new version in place")
        self._old.mkdir()
        for name in sorted({*program.FILES, *(entry.name for entry in self._new.iterdir())}):
            if (self._root / name).exists():
                _rename(self._root / name, self._old / name)
            else:
                self._added.append(name)
            if (self._new / name).exists():
                _rename(self._new / name, self._root / name)

    def _keep_settings(self) -> None:
        kept, new = self._old / SETTINGS, self._root / SETTINGS
        if kept.exists() and new.exists() and kept.read_bytes() != new.read_bytes():
            new.replace(self._root / SETTINGS_BESIDE)
            shutil.copy2(kept, new)

    def _new_one_works(self) -> bool:
        """The new version makes the environment its own and tests itself."""
        launcher = [sys.executable, str(self._root / "launcher.py"), "self-test"]
        return subprocess.run(launcher, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0

    def _go_back(self) -> None:
        self._progress.step("Going back to the version from before")
        for name in (*self._added, SETTINGS_BESIDE):
            _remove(self._root / name)
        if self._old.is_dir():
            _put_back(self._environment, self._old)


def _put_back(environment: Environment, old: Path) -> None:
    """Every name of the old version, and its environment, in their places; `old` is gone afterwards."""
    kept = kept_environment(environment)
    if kept.is_dir():
        _remove(environment.folder)
        _rename(kept, environment.folder)
    for entry in list(old.iterdir()):
        _remove(environment.root / entry.name)
        _rename(entry, environment.root / entry.name)
    old.rmdir()


def _rename(source: Path, target: Path) -> None:
    held.patiently(lambda: source.rename(target))


def _remove(path: Path) -> None:
    held.patiently(lambda: program.remove_path(path))


def _link_or_copy_link(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    else:
        link_or_copy(source, target)
