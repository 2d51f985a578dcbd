"""A downloaded model moved to another folder or drive: copied, compared, and only then removed where it was.
What is broken off leaves the original as it is.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.store.digests import remember_digest
from core.model.store.hub import Stopped
from core.model.store.manifest import MOVED, finished, place_of
from core.paths import subdir, write_whole
from core.text.words import GB, size
from core.text.words import translated as _

SPARE_BYTES = GB // 2  # left free on the disk that it goes to
_PIECE = 1 << 23


def move(
    name: str, folder: Path, *, progress: Progress, should_stop: Callable[[], bool] = lambda: False
) -> Path:
    """Puts the downloaded model `name` into `folder`, where it gets a folder of its own; gives that. The
    folder of models itself takes it back.

    Raises UserError with cause and remedy, Stopped when `should_stop` said so; then nothing has changed.
    """
    source, home = place_of(name), subdir("models") / name
    folder = folder.expanduser().resolve()
    target = home if folder == home.parent.resolve() else folder / name
    _check(name, source, folder, target)
    stage = folder / f".{name}.moving"
    shutil.rmtree(stage, ignore_errors=True)
    try:
        sums = _copied(source, stage, progress, should_stop)
        _compare(stage, sums, progress, should_stop)
        _put(stage, target, home)
    except OSError as error:
        shutil.rmtree(stage, ignore_errors=True)
        raise _in_words(name, folder, error) from error
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    for part, digest in sums.items():
        if part.endswith(".gguf"):
            remember_digest(target.resolve() / part, digest)
    _clear(source, home)
    return target


def _check(name: str, source: Path, folder: Path, target: Path) -> None:
    if finished(source) is None:
        raise UserError(_("{name} is not on this computer. Download it first.").format(name=name))
    if not folder.is_dir():
        raise UserError(_("There is no folder {folder}. Choose another one.").format(folder=folder))
    if target.resolve() == source.resolve():
        raise UserError(_("{name} lies in {folder} already.").format(name=name, folder=folder))
    if target.exists() and not (target / MOVED).is_file():
        said = _("{folder} is there already. Choose another folder, or take that one away.")
        raise UserError(said.format(folder=target))
    needed = sum(path.stat().st_size for path in _files(source)) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        said = _("{name} needs {needed} free in {folder}; {free} is free. Choose another folder.")
        words = {"needed": size(needed), "free": size(free)}
        raise UserError(said.format(name=name, folder=folder, **words))


def _files(folder: Path) -> list[Path]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if path.name != MOVED]


def _copied(source: Path, stage: Path, progress: Progress, should_stop: Callable[[], bool]) -> dict[str, str]:
    """{file: SHA-256} of what was read and written."""
    files, sums, done = _files(source), {}, 0
    total = max(sum(path.stat().st_size for path in files), 1)
    for path in files:
        to, digest = stage / path.relative_to(source), hashlib.sha256()
        to.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as reader, to.open("wb") as writer:
            while piece := reader.read(_PIECE):
                if should_stop():
                    raise Stopped
                writer.write(piece)
                digest.update(piece)
                done += len(piece)
                progress(_("Copying"), done / total)
        sums[path.relative_to(source).as_posix()] = digest.hexdigest()
    return sums


def _compare(stage: Path, sums: dict[str, str], progress: Progress, should_stop: Callable[[], bool]) -> None:
    """Reads the copy again. Raises OSError when it is not what was read."""
    for number, (name, wanted) in enumerate(sums.items()):
        progress(_("Comparing the copy"), number / len(sums))
        digest = hashlib.sha256()
        with (stage / name).open("rb") as reader:
            while piece := reader.read(_PIECE):
                if should_stop():
                    raise Stopped
                digest.update(piece)
        if digest.hexdigest() != wanted:
            raise OSError(errno.EIO, _("the copy is not what was copied"))


def _put(stage: Path, target: Path, home: Path) -> None:
    """The copy under its name, and where it is."""
    if target == home:  # back again: whole when the word of where it was is gone
        for path in _files(stage):
            to = home / path.relative_to(stage)
            to.parent.mkdir(parents=True, exist_ok=True)
            path.replace(to)
        (home / MOVED).unlink()
        shutil.rmtree(stage)
        return
    stage.rename(target)
    write_whole(home / MOVED, json.dumps({"to": str(target)}))


def _clear(source: Path, home: Path) -> None:
    """What was copied goes; of the home folder all but the word of where it is now."""
    for path in _files(source):
        path.unlink(missing_ok=True)
    if source != home:
        shutil.rmtree(source, ignore_errors=True)


def _in_words(name: str, folder: Path, error: OSError) -> UserError:
    said = _("{name} could not be moved to {folder} ({reason}). It is where it was.")
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        said = _("The disk of {folder} is full. {name} is where it was; choose another folder.")
    return UserError(said.format(name=name, folder=folder, reason=error.strerror or error))
