"""The panel of people, places and terms: who and what occurs up to a place in the book, with every mention.
Values in, HTML out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.desk.reader import where
from app.desk.values import Aside, NamesPanel
from app.render.templating import render
from app.web.reader import places_in_chapters
from core.documents.document import Document
from core.evidence.occurrences import KINDS, Occurrence, introduced
from core.text.language_detection import foreign, partly_foreign

SHOWN_NAMES = 12  # until more are asked for
COLUMNS = 36  # of the drawing of where somebody is named
FORMS = 6  # of a name that are said


def names_html(
    book: Document | None,
    names: NamesPanel,
    *,
    limited: bool,
    aside: Aside | None = None,
    portraits: Sequence[Mapping[str, Any]] = (),
    explains: bool = False,
) -> str:
    """The panel, folded or not; empty without a book. `limited`: there is a spoiler limit; `portraits`: what
    is kept of who somebody is; `explains`: the model tells that.
    """
    if book is None or names.end > len(book.text):  # of a book that was open before
        return ""
    found, english = names.found or (), not foreign(book.text)
    of_kind = [one for one in found if one.kind == names.kind]
    often = [one for one in of_kind if len(one.mentions) > 1] or of_kind
    shown = of_kind if names.every else often[:SHOWN_NAMES]
    return render(
        "names.html",
        names=names,
        limited=limited,
        place=where(book, max(0, names.end - 1)),
        whole=names.end >= len(book.text),
        english=english,
        partly_english=english and names.open and partly_foreign(book.text[: names.end]),
        counts={kind: sum(one.kind == kind for one in found) for kind in KINDS},
        rows=[(one, columns(one.mentions, names.end)) for one in shown],
        left=len(of_kind) - len(shown),
        card=next((_card(book, names, one) for one in shown if one.name == names.chosen), None),
        portrait=_portrait(book, names, portraits),
        aside=aside if aside and aside.kind == "person" and aside.words == names.chosen else None,
        explains=explains,
    )


def aside_html(known: Document | None, aside: Aside | None) -> str:
    """What was asked of selected words, and its answer; empty where nothing was."""
    if known is None or aside is None or aside.kind == "person" or aside.end > len(known.text):
        return ""
    return render("aside.html", aside=aside)


def _portrait(
    book: Document, names: NamesPanel, portraits: Sequence[Mapping[str, Any]]
) -> dict[str, object] | None:
    """Of what was told of the one that is chosen, what goes furthest and not behind the panel's place."""
    known = [one for one in portraits if one["name"] == names.chosen and one["end"] <= names.end]
    if not known:
        return None
    told = max(known, key=lambda one: one["end"])
    return {
        "sentences": [
            (text, (start, end - start), where(book, start)) for text, start, end in told["sentences"]
        ],
        "place": where(book, max(0, told["end"] - 1)),
        "model": told["model"],
        "newest": told["end"] == names.end,
    }


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
