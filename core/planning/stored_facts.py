"""What earlier runs left in the data folder and a plan rests on: tuned values, in `tuned.json`, and the room
that snapshots take. Values that no longer hold are read too, with the reason.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from core.cache.disk import SnapshotFolder
from core.model.store.manifest import fingerprint
from core.paths import write_whole
from core.planning.tuned import Tuned
from core.text.words import translated as _

NAME = "tuned.json"
# one more whenever passes or the way of measuring change so that old values mislead
FORMAT = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """`tuned`: what `tune` measured, of any model, stale or not. `snapshot_bytes`: what KV snapshots take."""

    tuned: tuple[Tuned, ...] = ()
    snapshot_bytes: int = 0


NOTHING = StoredFacts()


def known_in(data_folder: Path) -> StoredFacts:
    """What is known from earlier runs that kept their data here."""
    return StoredFacts(read_tuned(data_folder), SnapshotFolder(data_folder / "snapshots").usage().bytes)


def tuning_version() -> str:
    """What else decides how fast a pass is: this program's format of tuned values, and torch."""
    try:
        return f"format {FORMAT}, torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        return f"format {FORMAT}, no torch"


def read_tuned(data_folder: Path) -> tuple[Tuned, ...]:
    """Everything that is stored; `stale` says what must not be used. A damaged file counts as empty."""
    try:
        kept = json.loads((data_folder / NAME).read_text(encoding="utf-8"))
        return tuple(replace(one, stale=_stale(one)) for one in map(Tuned.from_json, kept["tuned"]))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("tuned values in %s are not used: %s", data_folder / NAME, error)
        return ()


def _stale(one: Tuned) -> str:
    if one.version != tuning_version():
        return _("they were measured with {then}, and this is {now}").format(
            then=one.version, now=tuning_version()
        )
    try:
        same = fingerprint(Path(one.folder)) == one.fingerprint
    except OSError:
        return _("the model they were measured with is no longer in {folder}").format(folder=one.folder)
    return "" if same else _("the model's files have changed since")


def store_tuned(data_folder: Path, tuned: Tuned) -> Path:
    """Stores it in place of what was there for the same machine, model, device and size of context. Returns
    the file. Raises OSError.
    """
    return _write(data_folder, [*_others(data_folder, tuned), tuned])


def forget_tuned(data_folder: Path, like: Tuned) -> bool:
    """Drops what is stored for the same machine, model, device and size of context; whether it was there."""
    kept, others = read_tuned(data_folder), _others(data_folder, like)
    if len(others) == len(kept):
        return False
    _write(data_folder, others)
    return True


def _others(data_folder: Path, tuned: Tuned) -> list[Tuned]:
    return [
        one
        for one in read_tuned(data_folder)
        if one.machine != tuned.machine or not one.is_for(tuned.model, tuned.device, tuned.context_tokens)
    ]


def _write(data_folder: Path, values: list[Tuned]) -> Path:
    path = data_folder / NAME
    write_whole(path, json.dumps({"tuned": [one.to_json() for one in values]}, indent=1))
    return path
