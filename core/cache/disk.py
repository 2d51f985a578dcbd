"""The folder of KV snapshots: whose files they are, how much room they take and which go first. Knows no
tensors and loads no torch.

    snapshots/<model key>/<book>/<hash of the ids before>-<hash of the ids up to its end>.kv

A file is written under another name, renamed when it is whole and never changed again, so several processes
need no lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.text.words import GB

log = logging.getLogger(__name__)

BLOCK_TOKENS = 1024  # of a book in one file
SUFFIX, PART = ".kv", ".part"
# how names begin of files that hold no block, but windows or states
WINDOWS, STATES = "windows-", "states-"
RESERVE_BYTES = 2 * GB  # stays free on the disk whatever the quota says
# of the space that is free; the embedded model writes 0.2 GB for 8,000 tokens
_AUTO_SHARE, _AUTO_MOST = 0.1, 20 * GB
# nobody writes at one block for so long: its writer's number is someone else's now
_STALE_PART_S = 600.0


@dataclass(frozen=True, slots=True)
class SnapshotUsage:
    """What the snapshots take."""

    bytes: int = 0
    books: int = 0


@dataclass(frozen=True, slots=True)
class StoredBook:
    """What is stored of one book. `tokens`: for one model."""

    bytes: int = 0
    tokens: int = 0


class SnapshotFolder:
    """All snapshots below `root`. Errors of the disk are logged, never raised: a snapshot only saves time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, model_key: str, book_id: str) -> Path:
        """Where the snapshots of one book lie for one model; need not exist."""
        return self.root / _short(model_key) / _short(book_id)

    def usage(self) -> SnapshotUsage:
        """Bytes and books of all models together."""
        found = list(self._files())
        return SnapshotUsage(
            sum(size for _, size, _ in found), len({path.parent.name for path, _, _ in found})
        )

    def stored(self, model_name: str) -> dict[str, StoredBook]:
        """What is stored of each book, by the name of its folder here (`folder_name`): all bytes, and the
        tokens of the model whose folder is called `model_name`.
        """
        found: dict[str, StoredBook] = {}
        for path, size, _ in self._files():
            before = found.get(path.parent.name, StoredBook())
            is_block = not path.name.startswith((WINDOWS, STATES))
            own = BLOCK_TOKENS if is_block and path.parent.parent.name == model_name else 0
            found[path.parent.name] = StoredBook(before.bytes + size, before.tokens + own)
        return found

    def forget(self, book_id: str) -> None:
        """Deletes what is stored of a book, for every model."""
        self._remove(self.root.glob(f"*/{_short(book_id)}"))

    def clear(self) -> None:
        """Deletes everything."""
        self._remove(self.root.glob("*"))

    def make_room(self, needed_bytes: int, *, quota_bytes: int, keep: Collection[Path] = ()) -> bool:
        """Deletes what was not used for longest until `needed_bytes` more fit the quota and the disk; whether
        they do.

        `keep` is never deleted, and nothing is where that would not do.
        """
        files, kept = list(self._files()), set(keep)
        room = min(quota_bytes - sum(size for _, size, _ in files), self._free_bytes() - RESERVE_BYTES)
        if room >= needed_bytes:
            return True
        files.sort(key=lambda file: file[2])
        others = [(path, size) for path, size, _ in files if path not in kept]
        if room + sum(size for _, size in others) < needed_bytes:
            return False
        for path, size in others:
            if room >= needed_bytes:
                break
            room += size if _unlink(path) else 0
        return room >= needed_bytes

    def give_way(self, needed_bytes: int) -> bool:
        """Deletes what was not used for longest until so many bytes are freed or all is gone, for what
        matters more than time; whether something was.
        """
        freed = 0
        for path, size, _ in sorted(self._files(), key=lambda file: file[2]):
            if freed >= needed_bytes:
                break
            freed += size if _unlink(path) else 0
        return freed > 0

    def drop_stale_parts(self) -> None:
        """Deletes what a killed process left half-written."""
        for path in self.root.glob(f"*/*/*{PART}"):
            with contextlib.suppress(OSError):
                if not psutil.pid_exists(_writer(path)) or time.time() - path.stat().st_mtime > _STALE_PART_S:
                    path.unlink()

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """(path, bytes, last use) of each block; what vanishes while we look is skipped."""
        for path in self.root.glob(f"*/*/*{SUFFIX}"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                yield path, stat.st_size, stat.st_mtime

    def _free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self.root).free
        except OSError:
            return 0

    def _remove(self, folders: Iterator[Path]) -> None:
        for folder in folders:
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:  # someone else was faster
                continue
            except OSError as error:
                log.warning("a KV snapshot cannot be deleted: %s", error)


def folder_name(book_id: str) -> str:
    """What a book's folder is called."""
    return _short(book_id)


def touch(blocks: Collection[Path]) -> None:
    """Marks a chain of blocks as used now, its end a little earlier, so that it is shortened from the end."""
    now = time.time()
    for depth, path in enumerate(blocks):
        with contextlib.suppress(OSError):
            os.utime(path, (now, now - depth / 100))


def quota_bytes(setting_gb: float | None, root: Path) -> int:
    """The setting `snapshot_quota_gb` in bytes, for snapshots below `root`."""
    try:
        free = shutil.disk_usage(root).free
    except OSError:
        free = 0
    return quota_of(setting_gb, free_bytes=free, used_bytes=SnapshotFolder(root).usage().bytes)


def quota_of(setting_gb: float | None, *, free_bytes: int, used_bytes: int) -> int:
    """The setting `snapshot_quota_gb` in bytes; auto is a tenth of what is free or taken by snapshots
    already, at most 20 GB.
    """
    if setting_gb is not None:
        return int(setting_gb * GB)
    return min(_AUTO_MOST, int(_AUTO_SHARE * (free_bytes + used_bytes)))


def part_of(path: Path) -> Path:
    """Where this process writes the block that will be `path`."""
    return path.with_name(f".{os.getpid()}-{path.stem}{PART}")


def _writer(part: Path) -> int:
    """The process that writes this part. Raises OSError for a name that `part_of` did not make."""
    number = part.name[1:].partition("-")[0]
    if not number.isdigit():
        raise FileNotFoundError(part)
    return int(number)


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # Windows: somebody reads it at this moment
        log.info("a KV snapshot cannot be deleted now: %s", error)
        return False
    return True
