"""The data folder in another place: copied, compared, switched, and only then removed from the old one.

Until the switch, which is one small file renamed (core.paths.pointer), the old folder is whole and in use.
After it the new one is; what is left of the old one is removed at the next start, and again until it is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import is_full
from app.store.making_room import with_room
from core import paths
from core.errors import UserError
from core.paths import write_whole
from core.text.words import size
from core.text.words import translated as _

log = logging.getLogger(__name__)
MARK = ".triforce-moving"  # in a folder that a move has begun to fill
DATABASE = "conversations.db"
# of this start alone: locks, addresses, uploads
LEFT_BEHIND = ("tmp", "app.lock", "app.json", MARK)
_PIECE = 4 << 20
_SPARE_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Relocation:
    """What is to be done: `bytes` from `old` to `new`. `open_to_others`: other users could read it there."""

    old: Path
    new: Path
    bytes: int
    open_to_others: bool


def planned_move(text: str) -> Relocation:
    """The move to the folder that was typed, which exists afterwards. Raises UserError for a place that will
    not do.
    """
    old = paths.data_dir().resolve()
    new = Path(text.strip()).expanduser()
    if not text.strip() or not new.is_absolute():
        raise UserError(_("Name the whole path of a folder, for example {path}.").format(path=old))
    new = new.resolve()
    if new == old or new.is_relative_to(old) or old.is_relative_to(new):
        raise UserError(_("{folder} and the data folder lie in each other.").format(folder=new))
    made = Relocation(old, new, _bytes_of(old), open_to_others=False)
    _try(made)
    return Relocation(old, new, made.bytes, _open_to_others(new))


def _try(move: Relocation) -> None:
    try:
        move.new.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear_begun(move.new)
        strange = [one.name for one in move.new.iterdir() if one != _pointer()]
        free = shutil.disk_usage(move.new).free
        write_whole(move.new / MARK, "")
        (move.new / MARK).unlink()
    except OSError as error:
        words = _("{folder} cannot be used: {reason}. Name a folder that you may write to.")
        raise UserError(words.format(folder=move.new, reason=error.strerror or error)) from error
    if strange:
        words = _("{folder} is not empty: {name} is in it. Name an empty or a new folder.")
        raise UserError(words.format(folder=move.new, name=strange[0]))
    if free < move.bytes + _SPARE_BYTES:
        words = _("{folder} has {free} left, and {needed} are needed. Make room there or name another one.")
        needed = size(move.bytes + _SPARE_BYTES)
        raise UserError(words.format(folder=move.new, free=size(free), needed=needed))


def _open_to_others(folder: Path) -> bool:
    """Whether other users of the PC could read what is put there: a drive without rights, mostly."""
    if os.name == "nt":
        return not folder.is_relative_to(Path.home().resolve())
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
    return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)


def copied(
    move: Relocation,
    *,
    copy_database: Callable[[Path], None],
    progress: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Copies everything, each file compared with its original; False when it was stopped, and the new folder
    is empty again. `progress` hears the bytes so far. Raises OSError, and leaves nothing behind either.
    """
    write_whole(move.new / MARK, "")
    done = 0
    try:
        for path in _files(move.old):
            target = move.new / path.relative_to(move.old)
            for got in _copy(path, target):
                done += got
                progress(done)
                if should_stop():
                    _clear_begun(move.new)
                    return False
        if (move.old / DATABASE).exists():
            copy_database(move.new / DATABASE)
            _check_database(move.new / DATABASE)
    except (OSError, sqlite3.Error):
        _clear_begun(move.new)
        raise
    return True


def switch(move: Relocation) -> None:
    """From now on the new folder is the data folder. Raises OSError, and then the old one is, and the new one
    is empty again. The disk that is left may be full: snapshots and logs there, which are copied, give way.
    """
    names = sorted(path.name for path in move.old.iterdir() if path != _pointer())
    said = {"to": str(move.new), "remove": str(move.old), "names": names}
    (move.new / MARK).unlink()
    try:
        paths.named_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_full(paths.pointer(), json.dumps(said, indent=1), move.old / "logs")
    except OSError:
        write_whole(move.new / MARK, "")
        _clear_begun(move.new)
        raise


def _write_full(path: Path, text: str, logs: Path) -> None:
    """Writes a file on a disk that may be full to its last byte, for whose sake `logs` are emptied."""
    try:
        with_room(lambda: write_whole(path, text))
    except OSError as error:
        if not is_full(error):
            raise
        for one in logs.glob("*.log*"):
            os.truncate(one, 0)  # the one that is being written as well
        write_whole(path, text)


def _pointer() -> Path:
    """Where the data lies, to be told from the files of a folder."""
    return paths.pointer().resolve()


def finish_move() -> None:
    """Removes what a move left in the old place. To be called at a start, once the new one is in use."""
    try:
        said = json.loads(paths.pointer().read_text(encoding="utf-8"))
        old = Path(said.pop("remove"))
        names = said.pop("names")
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in names:
        _remove(old / Path(name).name)
    if any((old / name).exists() for name in names):
        log.warning("the old data folder %s could not be removed as a whole; the next start tries again", old)
        return
    with contextlib.suppress(OSError):
        old.rmdir()
    try:
        if Path(said["to"]) == paths.named_dir().resolve():
            paths.pointer().unlink()
        else:
            write_whole(paths.pointer(), json.dumps(said, indent=1))
    except OSError as error:
        log.warning("where the data lies could not be written down again: %s", error)


def _remove(path: Path) -> None:
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("not removed: %s", error)


def _files(root: Path) -> Iterator[Path]:
    """What is to be copied, links as links. The database goes by itself, last."""
    for folder, names, files in os.walk(root):
        here = Path(folder)
        if here == root:
            names[:] = [name for name in names if name not in LEFT_BEHIND]
        yield from (here / name for name in names if (here / name).is_symlink())
        for name in sorted(files):
            own = here == root and (name.startswith(DATABASE) or here / name == _pointer())
            if not own and name not in LEFT_BEHIND and not name.endswith(".part"):
                yield here / name


def _bytes_of(root: Path) -> int:
    database = root / DATABASE
    sizes = [path.lstat().st_size for path in _files(root)]
    return sum(sizes) + (database.stat().st_size if database.exists() else 0)


def _copy(path: Path, target: Path) -> Iterator[int]:
    """Copies one file and yields the bytes of each piece; what was written is read again and compared."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink(), target_is_directory=path.is_dir())
        yield 0
        return
    read, written = hashlib.sha256(), hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as copy:
        while piece := source.read(_PIECE):
            copy.write(piece)
            read.update(piece)
            yield len(piece)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(path, target)  # the age of snapshots says which go first
    with target.open("rb") as copy:
        while piece := copy.read(_PIECE):
            written.update(piece)
    if read.digest() != written.digest():
        raise OSError(5, "what was written is not what was read", str(target))


def _check_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise OSError(5, "what was written is not what was read", str(path))


def _clear_begun(folder: Path) -> None:
    """Empties a folder that an earlier move began to fill; touches no other."""
    if not (folder / MARK).exists():
        return
    for one in folder.iterdir():
        if one.name != MARK and one != _pointer():
            _remove(one)
    (folder / MARK).unlink()
