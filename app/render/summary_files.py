"""Summaries as a file: Markdown, a page of HTML, or JSON. The e-book is app.render.summary_book."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.render.export import (
    SIGN,
    answer_markup,
    as_heading,
    footnotes_markdown,
    reading_page,
    verbatim,
    without_tags,
)
from app.render.footnotes import Footnotes
from app.render.markdown import Citation
from app.render.origin import held
from app.store.turns import StoredTurn
from core.documents.document import Document


@dataclass(frozen=True, slots=True)
class SummaryFile:
    """What is written of a book's summaries: (title, text) each, `cited` by the turns' numbers. `book`: what
    of it may be known. `title`: of an e-book; `made`: where the file comes from (app.render.origin).
    """

    book: Document
    title: str
    told: Sequence[tuple[str, StoredTurn]]
    cited: Mapping[int, Sequence[Citation]]
    made: str


def summaries_markdown(file: SummaryFile) -> str:
    """A page of Markdown, with the marks as footnotes."""
    footnotes = Footnotes(file.cited, "[^{}]".format)
    parts = [as_heading(file.book.title, 1)]
    for title, turn in file.told:
        text = without_tags(footnotes.text_of(turn))
        parts += [as_heading(title, 2), text, *(f"*{verbatim(one)}*" for one in held(turn))]
    parts += ["\n".join(footnotes_markdown(footnotes)), f"*{verbatim(file.made)}*"]
    return "\n\n".join(part for part in parts if part) + "\n"


def summaries_html(file: SummaryFile) -> str:
    """A page that needs nothing else."""
    footnotes = Footnotes(file.cited, SIGN)
    turns = [
        one
        for title, turn in file.told
        for one in (("user", title, ()), ("assistant", answer_markup(turn, footnotes), held(turn)))
    ]
    return reading_page(file.book, file.book.title, turns, footnotes=footnotes.places, made=file.made)


def summaries_json(file: SummaryFile) -> str:
    """For programs: the chapters with their summaries."""
    book = file.book
    known = {"title": book.title, "author": book.author, "sha256": book.sha256}
    chapters = [
        {"title": title, "summary": turn.text, "model": turn.extra.get("model", "")}
        for title, turn in file.told
    ]
    whole = {"book": known, "made": file.made, "chapters": chapters}
    return json.dumps(whole, ensure_ascii=False, indent=1)
