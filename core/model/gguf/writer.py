"""Writes a GGUF: the settings of another one, or a few of its own, and tensors one after the other. What a
stopped writing left is gone on with. Knows nothing of models.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.model.gguf.reader import KINDS, MAGIC, VERSIONS, GgufFile

_ALIGNMENT = 32  # that of the format, where a file names none
_NUMBERS = {name: number for number, (name, _weights, _bytes) in KINDS.items()}
_HEAD = "<4sIQQ"  # mark, version, counts of tensors and settings
_TEXT, _WHOLE = 8, 4  # kinds of settings


@dataclass(frozen=True, slots=True)
class Tensor:
    """One that is to be written; `shape` with the longest stride first, as torch has it."""

    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its blocks."""
        _name, weights, nbytes = KINDS[_NUMBERS[self.kind]]
        return math.prod(self.shape) // weights * nbytes


@dataclass(frozen=True, slots=True)
class Metadata:
    """The settings of a file, as they stand in it."""

    count: int
    packed: bytes

    @classmethod
    def of_file(cls, file: GgufFile) -> Metadata:
        """Those of another file."""
        assert file.metadata.get("general.alignment", _ALIGNMENT) == _ALIGNMENT, file.path
        with file.path.open("rb") as reader:
            count = struct.unpack(_HEAD, reader.read(struct.calcsize(_HEAD)))[3]
            return cls(count, reader.read(file.settings_end - struct.calcsize(_HEAD)))

    @classmethod
    def of_values(cls, values: dict[str, str | int]) -> Metadata:
        """A few of one's own."""
        packed = b""
        for name, value in values.items():
            if isinstance(value, str):
                packed += _text(name) + struct.pack("<I", _TEXT) + _text(value)
            else:
                packed += _text(name) + struct.pack("<II", _WHOLE, value)
        return cls(len(values), packed)


def write(
    path: Path,
    metadata: Metadata,
    tensors: Sequence[Tensor],
    blocks: Callable[[str], np.ndarray],
    report: Callable[[float], None] = lambda share: None,
) -> None:
    """Writes `tensors`, whose bytes `blocks` gives by name, one at a time. Where `path` holds the beginning
    of that very file, only what is missing is asked for.

    `report` hears the share that is done.
    """
    head = _header(metadata, tensors)
    path.touch()
    with path.open("r+b") as file:
        begun = file.read(len(head)) == head
        size = file.seek(0, 2) if begun else 0
        end = total = len(head)
        for tensor in tensors:
            total += _padded(tensor.nbytes)
        if not begun:
            file.seek(0)
            file.truncate()
            file.write(head)
        for tensor in tensors:
            start, end = end, end + _padded(tensor.nbytes)
            if end <= size:
                continue
            found = np.ascontiguousarray(blocks(tensor.name)).view(np.uint8).reshape(-1)
            assert found.size == tensor.nbytes, f"{tensor}: {found.size} bytes"
            file.seek(start)
            file.truncate()
            file.write(found.tobytes() + bytes(end - start - tensor.nbytes))
            report(end / total)


def _header(metadata: Metadata, tensors: Sequence[Tensor]) -> bytes:
    """Everything before the weights."""
    head = struct.pack(_HEAD, MAGIC, VERSIONS[-1], len(tensors), metadata.count) + metadata.packed
    offset = 0
    for tensor in tensors:
        sizes = tensor.shape[::-1]
        head += _text(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", _NUMBERS[tensor.kind], offset)
        offset += _padded(tensor.nbytes)
    return head + bytes(_padded(len(head)) - len(head))


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded
