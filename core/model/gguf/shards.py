"""GGUF files that are one model in several: how they are named, and what they are together. Opens none.

llama.cpp's `llama-gguf-split` names them NAME-00001-of-00003.gguf; the first has all settings, each has
tensors of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

from core.errors import UserError
from core.text.words import translated as _

MOST_PARTS = 1000
_PART = re.compile(r"^(?P<name>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})(?P<kind>\.gguf)$", re.IGNORECASE)


def parts_of(file: Path) -> list[Path]:
    """All files of the model that `file` is or belongs to, in order, whether or not they are there."""
    found = _PART.match(file.name)
    count = int(found["count"]) if found else 0
    if not 0 < count <= MOST_PARTS:
        return [file]
    names = (f"{found['name']}-{one:05d}-of-{count:05d}{found['kind']}" for one in range(1, count + 1))
    return [file.with_name(name) for name in names]


def is_later_part(file: Path) -> bool:
    """Whether the file is a part, and not the first."""
    return parts_of(file)[0].name != file.name


def stem_of(file: Path) -> str:
    """The file's name without its ending, and without which part it is."""
    found = _PART.match(file.name)
    return found["name"] if found else file.stem


def first_shard(file: Path) -> Path:
    """The first file of the model, absolute. Links are followed, but for parts: they know each other by
    their names.
    """
    file = parts_of(file.expanduser())[0]
    return file.parent.resolve() / file.name if len(parts_of(file)) > 1 else file.resolve()


def bytes_of(file: Path) -> int:
    """What all files of the model take. Raises OSError."""
    return sum(one.stat().st_size for one in parts_of(file))


def require_all(file: Path) -> list[Path]:
    """`parts_of`. Raises UserError where one is missing."""
    parts = parts_of(file)
    missing = [one.name for one in parts if len(parts) > 1 and not one.is_file()]
    if missing:
        said = _("{file} is one of {count} parts of a model; {missing} is missing. Put all into one folder.")
        words = {"file": file, "count": len(parts), "missing": ", ".join(missing[:3])}
        raise UserError(said.format(**words))
    return parts
