"""KV of books on disk, so that a book that was read once is not prefilled again. Knows nothing of models and
of decoding.

A text is stored in blocks of 1,024 tokens, one file each, named by the rolling hash of all ids before and up
to its end. So the longest stored prefix of any prompt is found by walking from block to block, texts that
begin alike share their blocks, and more of a text is appended without touching what is there. The last block
of a text is shorter; one that continues it replaces it.

A block file is [layers][k, v][kv_heads][tokens][width], the shared layout with one block, and behind it what
it is: model, format of the rows, ids and a checksum per layer. Of a model with windows or states these are
the layers that see every token; what stood beside them at a text's end, and every 32,768 tokens before, is a
file beside the block that ends there, and a text goes on from such a place alone. What does not add up is
deleted and counts as not stored; it is never used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import torch

from core.backend.shared.kv_rows import row_format, row_width
from core.cache.base import KVShape
from core.cache.disk import BLOCK_TOKENS, STATES, SUFFIX, WINDOWS, SnapshotFolder, part_of, touch
from core.cache.side_files import Kept, load_side, save_side
from core.cache.states import KeptStates
from core.cache.windows import KeptWindows

log = logging.getLogger(__name__)

# so few tokens are read faster than a block for them is written
_NEARLY = 32
_MAGIC = b"TFKVSNP1"
_END = struct.Struct("<II8s")  # bytes of the description, its CRC-32, magic
_SIDE_TOKENS = 32 * BLOCK_TOKENS  # after so many, windows and states are kept of a text that goes on
_ROOT = "0" * 24  # the hash of no ids
_MOST_DESCRIPTION = 1 << 20


class SnapshotSource(Protocol):
    """A KV cache whose rows can be read and written layer by layer; k and v are [n, kv_heads, width]."""

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [n, kv_heads, width] of tokens [start, start + n)."""
        ...

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Puts keys and values [n, kv_heads, width] where tokens [start, start + n) stand."""
        ...


class LayeredSource(SnapshotSource, Protocol):
    """One of a model with windows or states, of which it tells what they held, and is told."""

    def kept_side(self, length: int) -> Kept | None: ...
    def put_side(self, kept: Kept) -> None: ...


@dataclass(frozen=True, slots=True)
class _Block:
    """One stored block: rows [start, start + len(ids)), of which the first `common` are the wanted text's."""

    path: Path
    start: int
    ids: Sequence[int]
    checksums: Sequence[int]
    common: int


class _Unusable(Exception):
    """A file that is damaged or of another model."""


class SnapshotStore:
    """Saves and loads the rows of one model's texts. Trouble with the disk is logged and means "not stored",
    never an error.
    """

    def __init__(
        self, folder: SnapshotFolder, model_key: str, shape: KVShape, dtype: torch.dtype, *, quota_bytes: int
    ) -> None:
        """`shape`: of the model. Beside what sees every token, its blocks hold nothing."""
        self.folder, self._layered = folder, bool(shape.beside)
        self._side_kind = KeptWindows if shape.states is None else KeptStates
        shape = shape.of_full
        self._key, self._shape, self._dtype, self._quota_bytes = model_key, shape, dtype, quota_bytes
        with contextlib.suppress(OSError):  # once: where its drive is gone later, no other is begun
            folder.root.mkdir(parents=True, exist_ok=True)
        # what files say they are: a text of a million tokens has a thousand, looked at before each is added
        self._read_before: dict[Path, tuple[tuple[int, int], dict]] = {}

    @property
    def bytes_per_token(self) -> int:
        """What a token takes on disk."""
        return self._shape.layers * self._shape.token_bytes(self._dtype)

    @property
    def model_name(self) -> str:
        """What this model's folder is called; see SnapshotFolder.stored."""
        return self.folder.of(self._key, "").parent.name

    # ---- the verbs -----------------------------------------------------------------------------------------

    def longest(self, book_id: str, ids: Sequence[int]) -> int:
        """How many of the first `ids` are stored. Reads no rows."""
        return _length(self._usable(book_id, ids))

    def load(self, book_id: str, ids: Sequence[int], into: SnapshotSource, *, start: int) -> Iterator[int]:
        """Writes the stored rows of `ids` from `start` on, yielding the length that is whole after each
        block.

        Yields nothing when no more than `start` rows are stored.
        """
        chain = self._usable(book_id, ids)
        touch([block.path for block in chain])
        for block in chain:
            end = block.start + block.common
            if end <= start:
                continue
            try:
                self._read(block, into, max(start, block.start))
                if self._layered and block is chain[-1]:
                    touch([self._beside(block)])
                    kept = load_side(self._beside(block), self._key, self._side_kind)
                    if kept is None or kept.end != end:
                        raise _Unusable("what stood beside it is not there")
                    into.put_side(kept)
            except (OSError, _Unusable) as error:
                self._refuse(block.path, error)
                return
            yield end

    def save(
        self,
        book_id: str,
        ids: Sequence[int],
        source: SnapshotSource,
        *,
        whole: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Appends what is not yet stored of the first rows of `source`, whose tokens are `ids`; `whole`: the
        text ends with them.

        Returns whether there is nothing left to do: all is stored, or it cannot be. `should_stop` is asked
        between layers; False means that a later call goes on from the last whole block.
        """
        try:
            done = self._append(book_id, ids, source, should_stop)
            if done and self._layered and (whole or len(ids) % _SIDE_TOKENS == 0):
                self._keep_side(book_id, ids, source)
            return done
        except OSError as error:
            log.warning("the KV snapshot of a book cannot be stored: %s", error)
            return True

    # ---- finding -------------------------------------------------------------------------------------------

    def _usable(self, book_id: str, ids: Sequence[int]) -> list[_Block]:
        """The stored blocks that an answer can go on from: of a model with windows or states, up to the last
        one at whose end these were kept.
        """
        chain = self._chain(book_id, ids)
        while self._layered and chain:
            last = chain[-1]
            if last.common == len(last.ids) and self._beside(last).is_file():
                break
            chain.pop()
        return chain

    def _beside(self, block: _Block) -> Path:
        """Where windows or states at the end of a block are kept; states had the name of windows before."""
        end = block.path.name.partition("-")[2]
        path, earlier = (block.path.with_name(f"{kind}{end}") for kind in (STATES, WINDOWS))
        return path if self._side_kind is KeptStates and not earlier.is_file() else earlier

    def _keep_side(self, book_id: str, ids: Sequence[int], source: LayeredSource) -> None:
        """Those at the end of `ids`, where `source` still knows them."""
        chain = self._chain(book_id, ids)
        if _length(chain) < len(ids) or chain[-1].common < len(chain[-1].ids):
            return
        path = self._beside(chain[-1])
        kept = None if path.is_file() else source.kept_side(len(ids))
        paths = [block.path for block in chain]
        if kept and self.folder.make_room(kept.nbytes, quota_bytes=self._quota_bytes, keep=paths):
            save_side(path, self._key, kept)

    def _chain(self, book_id: str, ids: Sequence[int]) -> list[_Block]:
        """The stored blocks that hold the longest prefix of `ids`; only of the last one not all rows may be
        wanted.
        """
        folder, parent, chain = self.folder.of(self._key, book_id), _ROOT, []
        for start in range(0, len(ids), BLOCK_TOKENS):
            wanted = ids[start : start + BLOCK_TOKENS]
            block = self._best(folder, parent, start, wanted)
            if block is None:
                break
            chain.append(block)
            if block.common < BLOCK_TOKENS:
                break
            parent = _hash(parent, wanted)
        return chain

    def _best(self, folder: Path, parent: str, start: int, wanted: Sequence[int]) -> _Block | None:
        """Of the blocks that follow `parent`, the one that begins most like `wanted`."""
        exact = folder / f"{parent}-{_hash(parent, wanted)}{SUFFIX}"
        paths = [exact] if exact.is_file() else folder.glob(f"{parent}-*{SUFFIX}")
        found = (self._described(path, start, wanted) for path in paths)
        return max(
            (block for block in found if block is not None and block.common),
            key=lambda block: block.common,
            default=None,
        )

    def _described(self, path: Path, start: int, wanted: Sequence[int]) -> _Block | None:
        """What a file says it is; None, and deleted, when it is damaged or foreign."""
        try:
            facts = self._facts(path)
            ids = facts["ids"]
            if (
                facts["start"] != start
                or path.name != _name(facts["parent"], ids)
                or len(facts["checksums"]) != self._shape.layers
            ):
                raise _Unusable("it is not what its name says")
        except FileNotFoundError:  # another process made room
            return None
        except (OSError, ValueError, KeyError, TypeError, OverflowError, _Unusable) as error:
            self._refuse(path, error)
            return None
        common = next(
            (i for i, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b),
            min(len(ids), len(wanted)),
        )
        return _Block(path, start, ids, facts["checksums"], common)

    def _facts(self, path: Path) -> dict:
        """What a file says it is, read once: a file is never changed, and its rows are checked when they are
        read. Raises what `_description` does, and OSError.
        """
        stat = path.stat()
        seen = stat.st_ino, stat.st_size
        if self._read_before.get(path, (None, {}))[0] != seen:
            with path.open("rb") as file:
                facts = self._description(file)
            self._read_before[path] = seen, {**facts, "ids": array("i", facts["ids"])}
        return self._read_before[path][1]

    def _description(self, file: BinaryIO) -> dict:
        size = file.seek(0, os.SEEK_END)
        if size < _END.size:
            raise _Unusable("it is cut off")
        file.seek(size - _END.size)
        length, checksum, magic = _END.unpack(file.read(_END.size))
        if magic != _MAGIC or length > min(size - _END.size, _MOST_DESCRIPTION):
            raise _Unusable("it is cut off")
        file.seek(size - _END.size - length)
        text = file.read(length)
        if zlib.crc32(text) != checksum:
            raise _Unusable("its description is damaged")
        facts = json.loads(text)
        if facts["model"] != self._key:
            raise _Unusable("it is of another model")
        own = row_format(self._dtype)
        if facts.get("rows", own) != own:  # unnamed by earlier versions: of what the model's key says
            raise _Unusable(f"its rows are {facts['rows']}, not {own}")
        if size != len(facts["ids"]) * self.bytes_per_token + length + _END.size:
            raise _Unusable("its size is wrong")
        return facts

    def _refuse(self, path: Path, error: Exception) -> None:
        log.warning("a KV snapshot is not used and deleted: %s", error)
        self._read_before.pop(path, None)
        try:
            path.unlink(missing_ok=True)
        except OSError:
            log.warning("it cannot be deleted either: %s", path)

    # ---- reading -------------------------------------------------------------------------------------------

    def _read(self, block: _Block, into: SnapshotSource, start: int) -> None:
        """Rows [start, block's common end) of every layer. Raises _Unusable at the first layer whose checksum
        is wrong.

        Read, not memory-mapped: a disk that fails under a map ends the process, a failing read is an
        exception. And the rows are copied in any case, into the cache's own blocks.
        """
        n = len(block.ids)
        data = bytearray(n * self._shape.token_bytes(self._dtype))
        shape = (2, self._shape.kv_heads, n, row_width(self._shape.head_dim, self._dtype))
        wanted = slice(start - block.start, block.common)
        with block.path.open("rb") as file:
            for layer, checksum in enumerate(block.checksums):
                if file.readinto(data) != len(data) or zlib.crc32(data) != checksum:
                    raise _Unusable("its rows are damaged")
                # [n, kv_heads, width] each
                k, v = torch.frombuffer(data, dtype=self._dtype).view(shape)[:, :, wanted].transpose(1, 2)
                into.write(layer, start, k, v)

    # ---- writing -------------------------------------------------------------------------------------------

    def _append(
        self, book_id: str, ids: Sequence[int], source: SnapshotSource, should_stop: Callable[[], bool]
    ) -> bool:
        chain = self._chain(book_id, ids)
        stored = _length(chain)
        if len(ids) - stored <= (0 if self._layered else _NEARLY):
            touch([block.path for block in chain])
            return True
        if len(ids) * self.bytes_per_token > self._quota_bytes:
            log.info("no KV snapshot: %.1f GB are more than the quota", len(ids) * self.bytes_per_token / 1e9)
            return True
        folder = self.folder.of(self._key, book_id)
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        self.folder.drop_stale_parts()
        whole = [block for block in chain if block.common == BLOCK_TOKENS]
        paths, parent = [block.path for block in whole], _ROOT
        for block in whole:
            parent = _hash(parent, block.ids)
        for start in range(len(whole) * BLOCK_TOKENS, len(ids), BLOCK_TOKENS):
            wanted = ids[start : start + BLOCK_TOKENS]
            path = folder / _name(parent, wanted)
            if not self.folder.make_room(
                len(wanted) * self.bytes_per_token, quota_bytes=self._quota_bytes, keep=paths
            ):
                log.info("no room for more of a KV snapshot")
                return True
            if not self._write(path, parent, start, wanted, source, should_stop):
                return False
            self._drop_shorter(path, parent, start, wanted)
            parent = _hash(parent, wanted)
            paths.append(path)
            touch(paths)
        return True

    def _write(
        self,
        path: Path,
        parent: str,
        start: int,
        ids: Sequence[int],
        source: SnapshotSource,
        should_stop: Callable[[], bool],
    ) -> bool:
        """One block, under another name until it is whole. False when it was stopped: then nothing is left of
        it.
        """
        part = part_of(path)
        try:
            with part.open("wb") as file:
                checksums = []
                for layer in range(self._shape.layers):
                    if should_stop():
                        return False
                    data = _bytes(*source.rows(layer, start, len(ids)))
                    checksums.append(zlib.crc32(data))
                    file.write(data)
                facts = {
                    "model": self._key,
                    "rows": row_format(self._dtype),
                    "parent": parent,
                    "start": start,
                    "ids": list(ids),
                    "checksums": checksums,
                }
                text = json.dumps(facts, separators=(",", ":")).encode()
                file.write(text + _END.pack(len(text), zlib.crc32(text), _MAGIC))
            self._read_before.pop(path, None)  # a file that takes one's place may be given its number
            os.replace(part, path)
            return True
        finally:
            part.unlink(missing_ok=True)

    def _drop_shorter(self, path: Path, parent: str, start: int, ids: Sequence[int]) -> None:
        """Deletes the blocks that the one just written continues."""
        for other in path.parent.glob(f"{parent}-*{SUFFIX}"):
            block = self._described(other, start, ids) if other != path else None
            if block is not None and block.common == len(block.ids):
                other.unlink(missing_ok=True)


def _length(chain: Sequence[_Block]) -> int:
    return chain[-1].start + chain[-1].common if chain else 0


def _hash(parent: str, ids: Sequence[int]) -> str:
    return hashlib.sha256(parent.encode() + array("i", ids).tobytes()).hexdigest()[:24]


def _name(parent: str, ids: Sequence[int]) -> str:
    return f"{parent}-{_hash(parent, ids)}{SUFFIX}"


def _bytes(k: torch.Tensor, v: torch.Tensor) -> memoryview:
    """k, v [n, kv_heads, width] as they lie in a file: [k, v][kv_heads][n][width]."""
    return torch.stack((k, v)).transpose(1, 2).contiguous().cpu().view(torch.uint8).numpy().data.cast("B")
