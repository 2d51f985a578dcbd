"""The panel of people, places and terms: who and what occurs up to a place in the book, with every mention.
Values in, HTML out.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.desk.reader import where
from app.desk.values import NamesPanel
from app.render.templating import render
from app.web.reader import places_in_chapters
from core.documents.document import Document
from core.evidence.occurrences import KINDS, Occurrence, introduced
from core.text.language_detection import foreign

SHOWN_NAMES = 12  # until more are asked for
COLUMNS = 36  # of the drawing of where somebody is named
FORMS = 6  # of a name that are said


def names_html(book: Document | None, names: NamesPanel, *, limited: bool) -> str:
    """The panel, folded or not; empty without a book. `limited`: there is a spoiler limit."""
    if book is None or names.end > len(book.text):  # of a book that was open before
        return ""
    found = names.found or ()
    of_kind = [one for one in found if one.kind == names.kind]
    often = [one for one in of_kind if len(one.mentions) > 1] or of_kind
    shown = of_kind if names.every else often[:SHOWN_NAMES]
    return render(
        "names.html",
        names=names,
        limited=limited,
        place=where(book, max(0, names.end - 1)),
        whole=names.end >= len(book.text),
        english=not foreign(book.text),
        counts={kind: sum(one.kind == kind for one in found) for kind in KINDS},
        rows=[(one, columns(one.mentions, names.end)) for one in shown],
        left=len(of_kind) - len(shown),
        card=next((_card(book, names, one) for one in shown if one.name == names.chosen), None),
    )


def columns(mentions: Sequence[tuple[int, int]], end: int) -> list[float]:
    """How often somebody is named in stretches of equal length up to `end`: 1 where it is most often."""
    counts = [0] * COLUMNS
    for start, _end in mentions:
        counts[min(COLUMNS - 1, start * COLUMNS // max(1, end))] += 1
    return [count / max(counts) for count in counts]


def _card(book: Document, names: NamesPanel, one: Occurrence) -> dict[str, object]:
    """What is said of one: the sentence that introduces it, its forms, first and last place, and mentions."""
    start, end = introduced(book.text, names.end, one)
    first, last = one.mentions[0], one.mentions[-1]
    return {
        "sentence": " ".join(book.text[start:end].split()),
        "span": (start, end - start),
        "place": where(book, start),
        "forms": [form for form in one.forms if form != one.name][:FORMS],
        "first": (first[0], first[1] - first[0]),
        "first_place": where(book, first[0]),
        "last": (last[0], last[1] - last[0]),
        "last_place": where(book, last[0]),
        "chapters": places_in_chapters(book, one.mentions, names.unfolded),
    }
