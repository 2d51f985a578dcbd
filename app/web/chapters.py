"""Menus and the tree of chapters, and the summary beside a chapter's text. Values in, HTML out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from app.desk.values import ShownPassage
from app.render.templating import render
from app.store.notebook import Notebook
from core.conversation.chapter_names import chapter_names, section_title
from core.conversation.reading import book_chapters
from core.documents.document import Document, Section
from core.documents.word_count import count_words


def tree_html(
    book: Document | None,
    card: Mapping[str, Any] | None,
    passage: ShownPassage,
    *,
    words: Sequence[int],
    selected_chapters: Collection[int],
    told: Collection[int],
) -> str:
    """All sections with their lengths; empty without a book. `card`: what the engine says of it; `words`: of
    each section; `told`: the
    chapters whose summary is kept.
    """
    if book is None:
        return ""
    numbers = chapter_numbers(book)
    tokens, read = (list((card or {}).get(key, ())) for key in ("chapter_tokens", "chapters_read"))
    rows = [
        {
            "number": number,
            "title": section_title(one.title),
            "start": one.start,
            "level": one.level,
            "here": one == book.section_at(passage.offset),
            "words": count,
            "tokens": _of(tokens, number) or 0,
            "read": bool(_of(read, number)),
            "told": number in told,
        }
        for one, number, count in zip(book.sections, numbers, words, strict=True)
    ]
    shown = [number for number in selected_chapters if number in numbers]
    return render("tree.html", rows=rows, count=max(numbers, default=0), selected=shown, told=bool(told))


def section_words(book: Document) -> list[int]:
    """The words of each section."""
    return [count_words(book.text[one.start : one.end]) for one in book.sections]


def chapter_menu(
    book: Document | None, limit: int | None = None
) -> list[tuple[str, list[tuple[int, str, bool]]]]:
    """The chapters as (number, title, whether the title stands alone), under the part of the book they stand
    in; "" where there are none, and behind the spoiler `limit`, where only numbers are said. A title
    stands alone with a number of its own, and where the book numbers others otherwise than they are counted.
    """
    chapters = book.chapters if book else ()
    named = list(zip(chapter_names(book, chapters), chapters, strict=True)) if book else []
    otherwise = any(name.number not in (None, number) for number, (name, _one) in enumerate(named, 1))
    rows = []
    for number, (name, one) in enumerate(named, 1):
        title, alone = section_title(" ".join(one.title.split())), otherwise or name.number is not None
        hidden = limit is not None and 0 < limit < number
        rows.append(("", number, "", False) if hidden else (name.part, number, title, alone))
    return [(part, [row[1:] for row in inside]) for part, inside in groupby(rows, key=lambda row: row[0])]


def told_html(
    book: Document | None,
    passage: ShownPassage,
    told: Mapping[int, str],
    outlines: Mapping[int, Mapping[str, Sequence[str]]],
) -> str:
    """The summary of the chapter at the passage with whom and where it names, or a way to it; empty where no
    chapter stands open.
    """
    if book is None or not book.sections:
        return ""
    number = chapter_numbers(book)[book.sections.index(book.section_at(passage.offset))]
    if not number:
        return ""
    named = outlines.get(number, {})
    who, where = named.get("person", ()), named.get("place", ())
    return render("told.html", number=number, text=told.get(number, ""), who=who, where=where)


def recap_html(known: Document | None, notebook: Notebook) -> str:
    """What may be told once more of what was read; empty without a book."""
    if known is None:
        return ""
    return render("recap.html", visited=notebook.visit is not None, several=len(book_chapters(known)) > 1)


def chapter_numbers(book: Document) -> list[int]:
    """The number of each section among the chapters that can be read (1-based); 0 for one that is none."""
    ends = {one.end: number for number, one in enumerate(book_chapters(book), 1)}
    return [ends.get(one.end, 0) if _is_chapter(book, one) else 0 for one in book.sections]


def _is_chapter(book: Document, section: Section) -> bool:
    return section.kind == "chapter" or not book.chapters


def _of(values: Sequence[Any], number: int) -> Any:
    return values[number - 1] if 0 < number <= len(values) else None
