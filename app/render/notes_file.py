"""What a person marked in a book and what its answers quote of it, as a file: Markdown, a page, cards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from app.render.export import Noted, as_heading, notes_markdown, reading_page, verbatim
from app.render.flash_cards import as_tsv, cards_of_notes
from app.render.markdown import Citation
from app.store.turns import StoredTurn, displayed_text
from core.documents.document import Document
from core.text.words import translated as _

_STOP = re.compile(r"[.!?…]*")  # what is quoted is told apart without it


def quotations(
    book: Document, turns: Sequence[StoredTurn], cited: Mapping[int, Sequence[Citation]]
) -> list[Noted]:
    """The book's words that answers quote, each once, in the order of the book, with a full stop where their
    sentence ends, "…" where the answer has cut it, and with the question under them; quotations that overlap
    are one, under the first. `cited`: the marks of the answers by their turns' numbers.
    """
    quoted = [
        _quoted(one, answer.text, displayed_text(question))
        for question, answer in pairwise(turns)
        for one in _quoting(cited.get(answer.number, ()))
    ]
    found: list[_Quoted] = []
    for one in sorted(quoted, key=lambda quotation: (quotation.start, quotation.end)):
        if not found or one.start >= found[-1].end:
            found.append(one)
        elif one.end > found[-1].end:
            found[-1] = found[-1]._replace(end=one.end, after=one.after)
    return [(one.words_in(book.text), one.where, one.question) for one in found]


class _Quoted(NamedTuple):
    """Of a book's text what a question's answer quotes; `before` and `after`: the marks of what it leaves
    out.
    """

    start: int
    end: int
    where: str
    question: str
    before: str
    after: str

    def words_in(self, text: str) -> str:
        """The words with their marks."""
        return self.before + text[self.start : _STOP.match(text, self.end).end()] + self.after


def _quoted(one: Citation, answer: str, question: str) -> _Quoted:
    shown = answer[one.start : one.end]
    before, after = ("… " if shown.startswith("…") else ""), (" …" if shown.endswith("…") else "")
    return _Quoted(one.offset, one.offset + one.length, one.where, question, before, after)


def _quoting(citations: Sequence[Citation]) -> Iterator[Citation]:
    return (one for one in citations if one.offset is not None and one.length and one.kind in ("", "quoted"))


def notes_as(form: str, book: Document, notes: Sequence[Noted], quoted: Sequence[Noted], made: str) -> str:
    """The file; `form`: md, html or tsv (cards of the bookmarks; quotations are behind their questions)."""
    if form == "tsv":
        return as_tsv(book, cards_of_notes(notes, made))
    marked, in_answers = _("Bookmarks and notes"), _("Quoted in answers")
    if form == "html":
        under = [(marked, notes), (in_answers, quoted)]
        return reading_page(book, " ".join(book.title.split()), (), notes=under, made=made)
    noted = (notes_markdown(marked, notes), notes_markdown(in_answers, quoted, below=verbatim))
    parts = [as_heading(book.title, 1), *noted, f"*{verbatim(made)}*"]
    return "\n\n".join(part for part in parts if part) + "\n"
