"""What a model file is, by its content: SHA-256, computed once and remembered by path, size and time. Knows
nothing of what is in it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from core.events import Progress
from core.model.gguf.shards import parts_of
from core.paths import subdir, write_whole
from core.text.words import translated as _

POINTER = "gguf.json"  # in the folder that stands for a file: where that is
_PIECE = 1 << 24  # bytes, between two words about progress


def digest_of(file: Path, report: Progress) -> str:
    """SHA-256 of the file, in hexadecimal; of a model in parts, of their hashes one after the other. `file`
    is settled (core.model.gguf.shards). Raises OSError.
    """
    parts = parts_of(file)
    if len(parts) == 1:
        return _digest(file, report)
    of_parts = []
    for number, part in enumerate(parts):
        of_parts.append(
            _digest(part, lambda stage, share, before=number: report(stage, (before + share) / len(parts)))
        )
    return hashlib.sha256("".join(of_parts).encode()).hexdigest()


def _digest(file: Path, report: Progress) -> str:
    stat, known = file.stat(), _known().get(_key(file))
    if known is not None:
        return known
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as reader:
        while piece := reader.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            report(_("Looking at the model file"), done / stat.st_size)
    remember_digest(file, digest.hexdigest())
    return digest.hexdigest()


def remember_digest(file: Path, digest: str) -> None:
    """Keep the SHA-256 of a file that was checked already, so that it is not read for it again."""
    others = {key: value for key, value in _known().items() if not key.startswith(f"{file} ")}
    write_whole(_memory(), json.dumps({**others, _key(file): digest}, indent=1))


def _memory() -> Path:
    return subdir("gguf") / "known.json"


def _key(file: Path) -> str:
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"


def _known() -> dict[str, str]:
    try:
        return dict(json.loads(_memory().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
