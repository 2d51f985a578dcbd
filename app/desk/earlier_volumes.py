"""What the volumes before a book have of the names in it: who is known from there, and where. No model.

An earlier volume counts whole, since whoever reads the next has read it; under a spoiler limit of its own it
counts up to there. Later volumes are not looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from app.desk.reader import as_known, last_limit, where
from app.desk.values import EarlierMention
from app.store.book_entry import BookEntry
from app.store.history import History
from app.store.library import Library
from core.documents.document import Document
from core.evidence.occurrences import Occurrence, introduced, occurrences
from core.evidence.same_names import SameNames

_KEPT = 16  # volumes that need not be looked through again


@dataclass(frozen=True, slots=True)
class EarlierVolume:
    """A volume, what of it is `known`, and the chapter up to which that is; None: all of it."""

    entry: BookEntry
    known: Document
    spoiler_limit: int | None


class EarlierVolumes:
    """Looks names up in the volumes before a book. Thread-safe."""

    def __init__(self, library: Library, history: History) -> None:
        self._library, self._history = library, history
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], SameNames] = {}

    def of(self, book_id: str) -> list[EarlierVolume]:
        """The volumes before a book, the first one first; none that is not there."""
        series = self._library.series.of(self._library.entries(), book_id)
        before = series.volumes[: series.position(book_id)] if series else ()
        return [volume for one in before if (volume := self._volume(one))]

    def known_names(self, book_id: str, found: Iterable[Occurrence]) -> frozenset[str]:
        """The names of those that an earlier volume has, too."""
        volumes = [self._names_of(one) for one in self.of(book_id)]
        return frozenset(one.name for one in found if any(names.of(one) for names in volumes))

    def mentions(self, book_id: str, one: Occurrence) -> tuple[EarlierMention, ...]:
        """Where earlier volumes name it."""
        volumes = self.of(book_id)
        return tuple(_mention(in_one, same) for in_one in volumes for same in self._names_of(in_one).of(one))

    def _volume(self, entry: BookEntry) -> EarlierVolume | None:
        book = None if entry.missing else self._library.find(entry.id)
        if book is None:
            return None
        limit = last_limit(self._history, self._library, entry.id)
        return EarlierVolume(entry, as_known(book, limit), limit)

    def _names_of(self, volume: EarlierVolume) -> SameNames:
        known = volume.known
        key = (known.sha256, hash(known.text))
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        told = known.only(range(1, len(known.chapters) + 1)) if known.chapters else known
        names = SameNames(occurrences(told.text, len(told.text)))
        with self._lock:
            self._kept[key] = names
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return names


def _mention(volume: EarlierVolume, one: Occurrence) -> EarlierMention:
    text = volume.known.text
    start, end = introduced(text, len(text), one)
    first, first_end = one.mentions[0]
    return EarlierMention(
        book_id=volume.entry.id,
        title=volume.entry.title,
        name=one.name,
        times=len(one.mentions),
        sentence=" ".join(text[start:end].split()),
        span=(start, end - start),
        place=where(volume.known, start),
        first=(first, first_end - first),
        first_place=where(volume.known, first),
        spoiler_limit=volume.spoiler_limit,
    )
