"""Who and what occurs in the open book up to a place: the panel of people, places and terms. No model.

The place is where the book stands open when the panel is unfolded, or further on where the person was
before; it is kept with the book. Under a spoiler limit it is the limit. What stands behind it is not looked
at.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from app.desk.earlier_volumes import EarlierVolumes
from app.desk.reader import Reader, as_known, read_up_to
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import NamesPanel
from app.errors import guarded
from app.store.library import Library
from core.documents.document import Document
from core.evidence.occurrences import KINDS, Occurrence, occurrences

_KEPT = 4  # places that need not be looked through again


class BookNames:
    """The panel beside the open book. Thread-safe."""

    def __init__(self, store: Store, library: Library, reader: Reader, earlier: EarlierVolumes) -> None:
        self._store, self._library, self._reader, self._earlier = store, library, reader, earlier
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int, int], tuple[Occurrence, ...]] = {}

    def fold(self) -> None:
        """Unfolds the panel, or folds it."""
        if self._store.state.names.open:
            self._store.update(names=NamesPanel())
        elif book := self._known():
            end = self._reached(book)
            self._look(book, end)
            if not self._store.state.spoiler_limit:
                self._reader.names_shown(end)

    def up_to(self, end: str) -> None:
        """Shows what occurs up to where the book stands open ("here"), or in all that may be read ("all")."""
        if book := self._known():
            reached = len(book.text) if end == "all" else read_up_to(book, self._store.state)
            self._look(book, reached)
            self._reader.names_shown(reached)

    def show(self, kind: str) -> None:
        """Lists one of core.evidence.occurrences.KINDS."""
        if kind in KINDS:
            self._change(kind=kind, chosen="", earlier=(), every=False)

    def choose(self, name: str) -> None:
        """Shows the mentions of one, or no longer."""
        chosen = "" if self._store.state.names.chosen == name else name
        self._change(chosen=chosen, earlier=(), unfolded=-1)
        self._show_earlier()

    def unfold(self, chapter: int) -> None:
        """Shows all mentions in the chapter that begins there."""
        self._change(unfolded=chapter)

    def every(self) -> None:
        """Lists also those that are named once."""
        self._change(every=True)

    def look_earlier(self) -> None:
        """Finds which of the names that are shown the volumes before the open book have, too."""
        now = self._store.state
        if now.names.open and now.names.found:
            book_id, found = now.book_id, now.names.found
            if not self._earlier.of(book_id):
                self._change(known_before=frozenset(), earlier=())
                return
            self._change(known_before=None)
            given = (book_id, found)
            threading.Thread(target=self._know, args=given, name="earlier volumes", daemon=True).start()

    def _know(self, book_id: str, found: tuple[Occurrence, ...]) -> None:
        known = guarded(lambda: self._earlier.known_names(book_id, found), self._store.say, frozenset[str]())

        def with_them(now: AppState) -> AppState:
            same = now.book_id == book_id and now.names.found is found
            return replace(now, names=replace(now.names, known_before=known)) if same else now

        self._store.update(with_them)
        self._show_earlier()

    def _show_earlier(self) -> None:
        """Shows where earlier volumes name the one that is chosen."""
        state, now = self._store.state, self._store.state.names
        one = next((one for one in now.found or () if (one.kind, one.name) == (now.kind, now.chosen)), None)
        if one and now.known_before and one.name in now.known_before:
            earlier = self._earlier.mentions(state.book_id, one)
            self._store.update(
                lambda later: (
                    replace(later, names=replace(later.names, earlier=earlier))
                    if (later.names.found, later.names.chosen) == (now.found, now.chosen)
                    else later
                )
            )

    def limited(self, spoiler_limit: int | None) -> dict[str, NamesPanel]:
        """The field of the state that keeps inside of a new limit: further on there is more, and behind it
        nothing.
        """
        now, whole = self._store.state.names, self._library.find(self._store.state.book_id)
        if not now.open or whole is None:
            return {"names": NamesPanel()}
        book = as_known(whole, spoiler_limit)
        end = len(book.text) if spoiler_limit else min(now.end, len(book.text))
        return {"names": replace(now, end=end, found=self._found(book, end))}

    def _known(self) -> Document | None:
        state = self._store.state
        return as_known(book, state.spoiler_limit) if (book := self._library.find(state.book_id)) else None

    def _reached(self, book: Document) -> int:
        """How far the person is."""
        if self._store.state.spoiler_limit:
            return len(book.text)
        before = self._store.state.notebook.names_end or 0
        return min(len(book.text), max(before, read_up_to(book, self._store.state)))

    def _look(self, book: Document, end: int) -> None:
        kind = self._store.state.names.kind
        waiting = NamesPanel(open=True, end=end, found=None, kind=kind)
        self._store.update(names=waiting)
        found = self._found(book, end)
        self._store.update(
            lambda now: replace(now, names=replace(waiting, found=found)) if now.names is waiting else now
        )
        self.look_earlier()

    def _found(self, book: Document, end: int) -> tuple[Occurrence, ...]:
        """What occurs in its chapters up to `end`."""
        key = (book.sha256, hash(book.text[:end]), end)
        with self._lock:
            if key not in self._kept:
                told = book.only(range(1, len(book.chapters) + 1)) if book.chapters else book
                self._kept[key] = occurrences(told.text, end)
                while len(self._kept) > _KEPT:
                    del self._kept[next(iter(self._kept))]
            return self._kept[key]

    def _change(self, **changes: object) -> None:
        self._store.update(lambda now: replace(now, names=replace(now.names, **changes)))
