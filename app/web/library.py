"""The left side of the page: the shelf of books, and what was found on it. Values in, HTML out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

from app.desk.search import Results
from app.desk.shelf import StoredReading
from app.desk.values import FolderBooks
from app.render.templating import render
from app.store.allowed_folders import offered
from app.store.book_entry import BookEntry
from app.store.turns import Conversation
from core.text.words import translated as _
from core.text.words import translated_count as _n

SMALL_WORDS = {"a", "an", "and", "at", "by", "in", "of", "on", "the", "to"}


def library_html(
    entries: list[BookEntry],
    *,
    covered: frozenset[str],
    kept: Mapping[str, StoredReading],
    today: date,
    current: str,
    talks: list[Conversation],
    talk: str,
    samples: tuple[str, ...],
) -> str:
    """The shelf, with the open book's conversations under it. `covered`: books with a cover of their own;
    `kept`: what lies on disk of each. A sample that stands on the shelf is not offered again.
    """
    there = {one.title for one in entries}
    return render(
        "library.html",
        books=[(one, kept.get(one.id, StoredReading()), _last_read(one.opened, today)) for one in entries],
        covered=covered,
        current=current,
        talks=talks,
        talk=talk,
        samples=[(name, title) for name, title in map(_sample, samples) if title not in there],
    )


def folders_html(now: FolderBooks, chosen: tuple[str, ...], *, fixed: bool) -> str:
    """What is new in the person's folders, and which are `chosen`. `fixed`: that is set elsewhere."""
    return render("folders.html", now=now, offered=offered(chosen), fixed=fixed)


def hits_html(results: Results) -> str:
    """What was looked for on the shelf and found; empty where nothing was looked for."""
    return render("hits.html", results=results) if results.wanted else ""


def _last_read(opened: float, today: date) -> str:
    """The day a book was opened last, in words."""
    day = date.fromtimestamp(opened)
    days = (today - day).days
    if days <= 0:  # a clock may be set back
        return _("opened today")
    if days == 1:
        return _("opened yesterday")
    if days < 14:
        return _n("opened {count} day ago", "opened {count} days ago", days).format(count=days)
    return _("opened on {date}").format(date=day.isoformat())


def _sample(name: str) -> tuple[str, str]:
    """A sample's file and its title."""
    stem = name.rpartition(".")[0]
    words = [
        word if at and word in SMALL_WORDS else word.capitalize()
        for at, word in enumerate(re.split(r"[-_ ]+", stem))
    ]
    return name, " ".join(words)
