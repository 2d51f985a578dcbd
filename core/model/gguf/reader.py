"""A GGUF file as a table: metadata and where each tensor lies, with every count and offset checked against
the file. Reads no weights until asked; knows nothing of what the tensors mean.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from core.errors import UserError
from core.model.gguf.shards import require_all
from core.text.words import translated as _

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_DIMENSIONS = 4
# what a header may hold; a vocabulary of 256K tokens with its merges takes about 20 MB and 1.3 M members
MOST_BYTES_OF_HEADER = 1 << 27
MOST_VALUES = MOST_TENSORS = 1 << 16
MOST_MEMBERS = 1 << 22  # of all lists together
# by number: name, weights in a block, bytes of a block
KINDS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
# bits of a code, of the kinds that stay codes in memory
BITS = {"Q4_0": 4, "Q4_1": 4, "Q4_K": 4, "Q5_0": 5, "Q5_1": 5, "Q5_K": 5, "Q6_K": 6, "Q8_0": 8}
_BLOCKS = {name: (weights, nbytes) for name, weights, nbytes in KINDS.values()}
# what other files hold, to be refused by name
_OTHERS = {
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    20: "IQ4_NL",
    23: "IQ4_XS",
    39: "MXFP4",
}
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` with the longest stride first, as torch has it; `start` and `nbytes` in the
    file at `path`.
    """

    path: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a file, or of the parts of one model: then `path` is the first's."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    settings_end: int  # in the file

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor, uint8; a copy of one's own. Raises UserError when the file got shorter
        since.
        """
        info = self.tensors[name]
        with info.path.open("rb") as file:
            found = np.fromfile(file, np.uint8, info.nbytes, offset=info.start)
        if found.size != info.nbytes:
            raise damaged(info.path, _("it ends within “{name}”").format(name=name))
        return found


def is_gguf(path: Path) -> bool:
    """Whether the file begins as a GGUF does; Ollama's have no name that says so."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> GgufFile:
    """Metadata and the table of tensors, of all parts where the file is one of several. Raises UserError for
    what is no GGUF, damaged, or of a kind that this program does not know, with the tensor's name where it
    is one's.
    """
    first, *others = (_header(part) for part in require_all(path))
    tensors = dict(first.tensors)
    for one in others:
        if tensors.keys() & one.tensors.keys():
            raise damaged(one.path, _("another part has the same tensors"))
        tensors |= one.tensors
    return replace(first, tensors=tensors)


def _header(path: Path) -> GgufFile:
    size = _size(path)
    if not size:
        raise UserError(_("{name} is empty (0 bytes). Download or copy it again.").format(name=path))
    try:
        with path.open("rb") as file:
            return _Reader(path, file, size).header()
    except OSError as error:
        raise UserError(_("{file} cannot be read ({error}).").format(file=path, error=error)) from error


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise UserError(_("{file} cannot be read ({error}).").format(file=path, error=error)) from error


def damaged(path: Path, why: str) -> UserError:
    """What is said of a file that is not all there, or not as it was."""
    said = _("{file} is damaged or cut short: {why}. Copy or download it again.")
    return UserError(said.format(file=path, why=why))


def no_gguf(name: object) -> UserError:
    """What is said of a file that does not begin as a GGUF does."""
    said = _(
        "{file} is no GGUF file, or its download is damaged: it does not begin as one does. Download it "
        "again, or choose another file."
    )
    return UserError(said.format(file=name))


def held_bytes(kind: str, numbers: int) -> int:
    """What so many weights of one of BITS take in memory, as codes with their scales."""
    weights, nbytes = _BLOCKS[kind]
    if kind in ("Q4_K", "Q5_K"):  # the 6-bit steps of scale and minimum take a byte each
        nbytes += 4
    return numbers // weights * nbytes


class _Reader:
    """Takes values off the front of a file; never more than it holds."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path, self._file, self._size, self._at = path, file, size, 0
        self._members = 0

    def header(self) -> GgufFile:
        if self._bytes(4, "GGUF") != MAGIC:
            raise no_gguf(self._path)
        version = self._number("I", _("its version"))
        if version not in VERSIONS:
            said = _("{file} is GGUF of version {version}; versions 2 and 3 are known here. Convert it anew.")
            raise UserError(said.format(file=self._path, version=version))
        num_tensors = self._number("Q", _("the number of tensors"))
        num_values = self._number("Q", _("the number of settings"))
        if num_values > MOST_VALUES or num_tensors > MOST_TENSORS:
            said = _("it says that it has {values} settings and {tensors} tensors")
            raise damaged(self._path, said.format(values=num_values, tensors=num_tensors))
        metadata: dict[str, Any] = {}
        for _index in range(num_values):
            name = self._text(_("the name of a setting"))
            metadata[name] = self._value(self._number("I", name), name)
        settings_end = self._at
        described = [self._described() for _index in range(num_tensors)]
        start = self._aligned(metadata.get("general.alignment", 32))
        tensors = {one[0]: self._placed(start, *one) for one in described}
        if len(tensors) != num_tensors:
            raise damaged(self._path, _("two tensors have one name"))
        return GgufFile(self._path, metadata, tensors, settings_end)

    def _aligned(self, alignment: object) -> int:
        if not isinstance(alignment, int) or alignment <= 0 or alignment > 1 << 20:
            raise damaged(self._path, _("its alignment is {number}").format(number=alignment))
        return -(-self._at // alignment) * alignment

    def _described(self) -> tuple[str, int, tuple[int, ...], int]:
        """Name, number of its kind, shape, offset."""
        name = self._text(_("the name of a tensor"))
        dimensions = self._number("I", name)
        if not 0 < dimensions <= MOST_DIMENSIONS:
            said = _("“{tensor}” has {count} dimensions")
            raise damaged(self._path, said.format(tensor=name, count=dimensions))
        shape = tuple(self._number("Q", name) for _index in range(dimensions))
        return name, self._number("I", name), shape[::-1], self._number("Q", name)

    def _placed(self, data: int, name: str, number: int, shape: tuple[int, ...], offset: int) -> TensorInfo:
        if number not in KINDS:
            known = ", ".join(kind for kind, *_sizes in KINDS.values())
            said = _(
                "{file} holds “{tensor}” as {kind}, which does not run here. Choose a file of one of {known}."
            )
            kind = _OTHERS.get(number, number)
            raise UserError(said.format(file=self._path, tensor=name, kind=kind, known=known))
        kind, block, block_bytes = KINDS[number]
        numbers = math.prod(shape)
        if numbers <= 0 or shape[-1] % block:
            said = _("“{tensor}” has the sizes {sizes}, which {kind} cannot have")
            raise damaged(self._path, said.format(tensor=name, sizes=list(shape), kind=kind))
        nbytes = numbers // block * block_bytes
        if data + offset + nbytes > self._size:
            raise damaged(self._path, _("it ends within “{name}”").format(name=name))
        return TensorInfo(self._path, name, kind, shape, data + offset, nbytes)

    def _value(self, kind: int, name: str) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind], name)
        if kind == _TEXT:
            return self._text(name)
        if kind == _ARRAY:
            return self._array(name)
        raise damaged(self._path, _("“{name}” is of the unknown kind {kind}").format(name=name, kind=kind))

    def _array(self, name: str) -> list[Any]:
        kind, count = self._number("I", name), self._number("Q", name)
        self._members += count
        if self._members > MOST_MEMBERS:
            raise damaged(self._path, _("“{name}” is a list of {count}").format(name=name, count=count))
        if kind in _NUMBERS:
            form = _NUMBERS[kind]
            return list(struct.unpack(f"<{count}{form}", self._bytes(count * struct.calcsize(form), name)))
        if kind != _TEXT or count > self._size:
            raise damaged(
                self._path, _("“{name}” is a list of the unknown kind {kind}").format(name=name, kind=kind)
            )
        return [self._text(name) for _index in range(count)]

    def _text(self, what: str) -> str:
        return self._bytes(self._number("Q", what), what).decode("utf-8", errors="replace")

    def _number(self, form: str, what: str) -> Any:
        return struct.unpack("<" + form, self._bytes(struct.calcsize(form), what))[0]

    def _bytes(self, count: int, what: str) -> bytes:
        found = self._file.read(count) if self._at + count <= min(self._size, MOST_BYTES_OF_HEADER) else b""
        if len(found) != count:
            raise damaged(self._path, _("it ends within “{name}”").format(name=what))
        self._at += count
        return found
