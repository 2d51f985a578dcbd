"""Questions, notes and highlights as cards for Anki: its text format, a line a card."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from app.render.export import Noted
from app.render.footnotes import Footnotes, unsure_legend
from app.render.markdown import Citation
from app.render.origin import held, incomplete
from app.store.turns import StoredTurn, answered_limit, displayed_text
from core.documents.document import Document
from core.evidence.support import REFUSALS
from core.text.words import translated as _

# https://docs.ankiweb.net/importing/text-files.html#file-headers
HEADER = "#separator:tab\n#html:true\n#tags column:3\n#columns:Front\tBack\tTags\n"
BEGUN_WORDS = 4  # of a highlight without a note, in front
_QUOTED = re.compile(r"^&gt; ?(.*)$")  # a line of Markdown that quotes the book


class Card(NamedTuple):
    """`below`: what stands under the back, in small letters."""

    front: str
    back: str
    below: str


def cards_of_answers(
    turns: Sequence[StoredTurn], cited: Mapping[int, Sequence[Citation]], origin: Callable[[StoredTurn], str]
) -> list[Card]:
    """One for each question that was answered, and to the end, with the places of its marks (`cited`, by the
    turns' numbers), how far the answer holds and where it comes from. One under a spoiler limit says so in
    front: of the whole book another answer may be right.
    """
    asked = [(one, two) for one, two in pairwise(turns) if _answers(one, two)]
    return [Card(_front(one, two), *_with_places(two, cited, origin(two))) for one, two in asked]


def cards_of_notes(notes: Iterable[Noted], origin: str) -> list[Card]:
    """One for each bookmark: its note in front and the book's words behind. Of one without a note the first
    words stand in front, where there are enough to go on with.
    """
    found = []
    for words, place, note in notes:
        begun = words.split()
        front = note or f"“{' '.join(begun[:BEGUN_WORDS])} …”"
        if note or len(begun) > 2 * BEGUN_WORDS:
            found.append(Card(front, words, f"{place} · {origin}"))
    return found


def as_tsv(book: Document | None, cards: Sequence[Card]) -> str:
    """The file; every card has the book's title as its tag."""
    tag = re.sub(r"\W+", "_", book.title).strip("_") if book else ""
    lines = [
        f"{_cell(one.front)}\t{_cell(one.back)}<br><br><small>{_cell(one.below)}</small>\t{tag}\n"
        for one in cards
    ]
    return HEADER + "".join(lines)


def _answers(question: StoredTurn, answer: StoredTurn) -> bool:
    asked = question.role == "user" and not question.extra.get("summary")
    whole = answer.role == "assistant" and bool(answer.text) and not incomplete(answer)
    return asked and whole and not answer.text.startswith(REFUSALS)


def _front(question: StoredTurn, answer: StoredTurn) -> str:
    asked, limit = displayed_text(question), answered_limit(question, answer)
    words = _("{question} (up to chapter {number})")
    return words.format(question=asked, number=limit) if limit else asked


def _with_places(answer: StoredTurn, cited: Mapping[int, Sequence[Citation]], origin: str) -> tuple[str, str]:
    footnotes = Footnotes(cited, "[{}]".format)
    text = footnotes.text_of(answer)
    below = [
        *(f"[{number}] {where}" for number, where in footnotes.places),
        *unsure_legend(text),
        *held(answer),
        origin,
    ]
    return text, " · ".join(below)


def _cell(text: str) -> str:
    """As HTML on one line: neither a tab nor a quotation mark ends the cell, and no # makes it a comment."""
    safe = html.escape(text.strip(), quote=False).replace('"', "&quot;").replace("#", "&#35;")
    lines = (one for one in safe.splitlines() if one != "&gt;")  # between two paragraphs of a quotation
    lines = (_QUOTED.sub(r"<blockquote>\1</blockquote>", line) for line in lines)
    return "<br>".join(lines).replace("\t", " ").replace("</blockquote><br>", "</blockquote>")
