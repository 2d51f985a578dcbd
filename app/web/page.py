"""The regions of the page, rendered when what they show has changed. Sits between the desk (state, services)
and the stream that carries them to the browser.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from app.desk.assembly import AppServices
from app.desk.values import Notice
from app.errors import in_words
from app.web import messages
from app.web.answers import AnswerViews
from app.web.event_stream import Regions
from app.web.region_cache import RegionMemo, RegionValues, names_of
from app.web.region_table import REGIONS, answer_regions
from app.web.values import derived, sources
from core.text.words import in_language

AGAIN_S = 2.0  # until what could not be read is tried again
LOOK_S = 2.0  # while an answer is made of which nothing is heard: it may be late
PANEL_S = 0.25  # between two updates of the numbers while an answer is written: nobody reads faster
PACED = ("panel",)


class Page:
    """Renders the desk, for one thread. A region that has not changed costs a comparison of its values."""

    def __init__(
        self, parts: AppServices, language: str = "en", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`language`: where none is set."""
        self._parts, self._clock, self._wished = parts, clock, language
        self._begin(language)
        self._drawn_at: dict[str, float] = {}  # the paced regions
        self._due_s: float | None = None
        self._shown: Regions = {}
        self._told: type[Exception] | None = None  # the last error that was put in words
        self._words = ""

    def _begin(self, language: str) -> None:
        """Everything is to be rendered anew, in `language`."""
        parts = self._parts
        self._language, self._keep, self._answers = language, RegionMemo(), AnswerViews()
        given = {**sources(parts), "ready": self._is_ready}
        self._view = RegionValues(lambda: parts.state, given, derived(parts), self._keep)
        self._regions = {**REGIONS, **answer_regions(self._answers)}

    def due_s(self) -> float | None:
        """Seconds until there is something new to see though nothing happens; None when there will not be."""
        return self._due_s

    def render(self) -> Regions:
        """All regions as they are now. What cannot be read stays as it was, and so does all where nobody
        foresaw it; it is told.
        """
        language = self._parts.preferences.settings.language or self._wished
        if self._language != language:
            self._begin(language)
        with in_language(self._language):
            return self._told_or_rendered()

    def _told_or_rendered(self) -> Regions:
        self._keep.again()
        try:
            self._shown = self._rendered()
        except Exception as error:  # the page's boundary: one bad state must not end its updates for good
            self._due_s = None
            return self._with(error)
        if self._keep.failed is None:
            return self._shown
        self._due_s = AGAIN_S if self._due_s is None else self._due_s
        return self._shown if self._view["notice"] else self._with(self._keep.failed)

    def _with(self, error: Exception) -> Regions:
        """What was shown last, and why it is not newer."""
        if type(error) is not self._told:
            self._told, self._words = type(error), in_words(error)
        now = self._parts.state
        said = messages.messages_html(
            Notice(self._words), now.failures, now.arrivals, now.deleted, now.opening, now.book_id, None
        )
        return {**self._shown, "notice": (said,)}

    def _rendered(self) -> Regions:
        self._due_s = None
        self._view.refresh()
        found = {name: self._region(name, make) for name, make in self._regions.items()}
        if self._view["running"] and self._answers.hidden:
            self._due_s = 0.0
        elif self._view["running"] and self._due_s is None:
            self._due_s = LOOK_S
        return found

    def _region(self, name: str, make: Callable[..., Any]) -> tuple[str, ...]:
        """The region's HTML in blocks, made again where a value that it names is not what it was."""
        given = self._view.of(make)
        if name in PACED and (waits := self._waits(name, given)):
            return waits
        return self._keep(name, given, lambda: _blocks(make(**dict(zip(names_of(make), given, strict=True)))))

    def _waits(self, name: str, given: tuple[Any, ...]) -> tuple[str, ...] | None:
        """The HTML of before, where it is too early for newer while an answer is written."""
        before, now = self._keep.last(name), self._clock()
        if before and before[0] == given:
            return None
        wait_s = self._drawn_at.get(name, 0.0) + PANEL_S - now
        if before and self._view["running"] and wait_s > 0:
            self._due_s = wait_s
            return before[1]
        self._drawn_at[name] = now
        return None

    def _is_ready(self) -> bool:
        """Whether what was read can be looked through for what sentences rest on; begins to prepare it."""
        book = self._view["read"]
        if book is None:
            return False
        self._answers.prepare(book)
        return self._answers.ready(book)


def _blocks(html: str | tuple[str, ...]) -> tuple[str, ...]:
    return html if isinstance(html, tuple) else (html,)
