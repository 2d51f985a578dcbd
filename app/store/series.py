"""Books in the order of a series: as their files say, and as the person has put them. Kept beside the library
in one small file, which holds only what the person has changed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from app.store.book_entry import BookEntry
from core.paths import write_whole

log = logging.getLogger(__name__)
_NAME_CHARS = 200
_NONE = ""  # the key of no series
_UNKNOWN = float("inf")  # the number of a volume that has none
Place = tuple[str, float]  # the key of a series, and the number of the volume in it


@dataclass(frozen=True, slots=True)
class Series:
    """Books of the shelf, the first volume first. `name`: "" where nobody has named it."""

    key: str
    name: str
    volumes: tuple[BookEntry, ...]

    def position(self, book_id: str) -> int:
        """Of a book among them, from 0 on. Raises ValueError where it is none of them."""
        return [one.id for one in self.volumes].index(book_id)


class SeriesFile:
    """Where the person has put books, by their ids, and how they call a series, by its key. Thread-safe.

    A book that is off the shelf for now keeps its place. The changes raise OSError where they cannot be
    written; nothing has changed then.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.RLock()
        self._places, self._names = _read(path)
        self.version = 0  # rises with every change

    def of(self, entries: Sequence[BookEntry], book_id: str) -> Series | None:
        """The series that a book belongs to; of a single book only where it has a name."""
        inside = defaultdict(list)
        for entry in entries:
            inside[self._place(entry)[0]].append(entry)
        key = next((key for key, books in inside.items() if any(one.id == book_id for one in books)), _NONE)
        volumes = sorted(inside[key], key=lambda one: (self._place(one)[1], one.title))
        name = self._names.get(key) or next((one.series for one in volumes if _key(one.series) == key), "")
        return Series(key, name, tuple(volumes)) if key and (name or len(volumes) > 1) else None

    def put_behind(self, entries: Sequence[BookEntry], book_id: str, other_id: str) -> None:
        """Makes a book the volume behind another one; the first of another series takes that along."""
        with self._lock:
            shelf = {one.id: one for one in entries}
            if book_id == other_id or not {book_id, other_id} <= shelf.keys():
                return
            before, into = self.of(entries, book_id), self.of(entries, other_id)
            first = before and before != into and before.position(book_id) == 0
            if into is None:
                into = Series(before.key if first else uuid.uuid4().hex, "", (shelf[other_id],))
            name = "" if into.name or not first else before.name  # of a series that is taken along
            new = before.volumes if first else (shelf[book_id],)
            volumes = [one for one in into.volumes if one.id != book_id]
            numbers, at = self._numbers(volumes), [one.id for one in volumes].index(other_id) + 1
            here = numbers[at - 1]
            step = ((numbers[at] if at < len(numbers) else here + len(new) + 1) - here) / (len(new) + 1)
            numbers[at:at] = [here + step * n for n in range(1, len(new) + 1)]
            volumes[at:at] = new
            self._put(into.key, volumes, numbers, name)

    def move(self, entries: Sequence[BookEntry], book_id: str, step: int) -> None:
        """Moves a book one volume on (1) or back (-1) in its series."""
        with self._lock:
            if series := self.of(entries, book_id):
                volumes, at = list(series.volumes), series.position(book_id)
                if 0 <= at + step < len(volumes):
                    numbers = self._numbers(volumes)
                    volumes[at], volumes[at + step] = volumes[at + step], volumes[at]
                    self._put(series.key, volumes, numbers)

    def take_out(self, book_id: str) -> None:
        """Has a book belong to no series, whatever its file says."""
        with self._lock:
            self._become({**self._places, book_id: (_NONE, _UNKNOWN)}, self._names)

    def rejoin(self, book_id: str) -> None:
        """Has a book belong to the series that its file names, if it names one."""
        with self._lock:
            self._become({book: at for book, at in self._places.items() if book != book_id}, self._names)

    def rename(self, entries: Sequence[BookEntry], book_id: str, name: str) -> None:
        """Names the series of a book; "": as its files do."""
        with self._lock:
            if series := self.of(entries, book_id):
                name = " ".join(name.split())[:_NAME_CHARS]
                self._become(self._places, {**self._names, series.key: name})

    def forget(self, book_id: str) -> None:
        """Keeps nothing of a book that is deleted, nor of a series that was made of it by hand."""
        with self._lock:
            places = {book: place for book, place in self._places.items() if book != book_id}
            if places != self._places:
                keys = {key for key, _number in places.values()}
                gone = {self._places[book_id][0]} - keys
                self._become(places, {key: name for key, name in self._names.items() if key not in gone})

    def _place(self, entry: BookEntry) -> Place:
        number = _UNKNOWN if entry.volume is None else entry.volume
        return self._places.get(entry.id, (_key(entry.series), number))

    def _numbers(self, volumes: Sequence[BookEntry]) -> list[float]:
        """Those that the volumes have, so that one that comes later finds its place; from 1 on where one has
        none, or two have the same.
        """
        own = [self._place(one)[1] for one in volumes]
        rising = all(before < behind < _UNKNOWN for before, behind in pairwise([-1.0, *own]))
        return own if rising else [float(number) for number in range(1, len(own) + 1)]

    def _put(self, key: str, volumes: Sequence[BookEntry], numbers: Sequence[float], name: str = "") -> None:
        placed = {one.id: (key, number) for one, number in zip(volumes, numbers, strict=True)}
        self._become({**self._places, **placed}, {**self._names, key: name} if name else self._names)

    def _become(self, places: dict[str, Place], names: dict[str, str]) -> None:
        data = {"places": {book: _stored(place) for book, place in places.items()}, "names": names}
        with self._lock:
            write_whole(self._path, json.dumps(data, ensure_ascii=False, allow_nan=False))
            self._places, self._names = places, names
            self.version += 1


def _key(name: str) -> str:
    """Of a series that files name."""
    return " ".join(name.split()).casefold()


def _stored(place: Place) -> list[str | float | None]:
    key, number = place
    return [key, None if number == _UNKNOWN else number]


def _read(path: Path) -> tuple[dict[str, Place], dict[str, str]]:
    """Places and names; none where there is no file, or a damaged one, which is put aside, so that nothing
    writes over it.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        places = {book: _place_of(*place) for book, place in kept["places"].items()}
        return places, {key: str(name) for key, name in kept["names"].items()}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("%s is not used: %s", path, error)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".damaged.json"))
    return {}, {}


def _place_of(key: str, number: float | None) -> Place:
    """Raises TypeError for another form."""
    if not isinstance(key, str) or not isinstance(number, int | float | None):
        raise TypeError("a place that is none")
    return key, _UNKNOWN if number is None else float(number)
