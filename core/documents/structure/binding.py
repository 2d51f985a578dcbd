"""Binds a manuscript into a Document: one text, the sections that cover it, page starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from core.documents.document import FRONT_MATTER, NOTICES, READER_VERSION, Document, Section
from core.documents.legible import is_legible
from core.documents.structure.blocks import Block, ContentsEntry, Manuscript
from core.documents.structure.body import Body
from core.documents.structure.matter import gutenberg_books, gutenberg_fields
from core.documents.structure.parts import SectionStart, even_parts
from core.documents.structure.readings import best_parts
from core.documents.word_count import count_words
from core.text.words import joined_sentences
from core.text.words import translated as _
from core.text.words import translated_count as _n

# what programs write where nobody was named; "Anonymous" is how books say it
_NOBODY = re.compile(
    r"(?:\(anonymous\)|anonymous|python-docx|unknown|unspecified|user|admin|administrator|author|none|"
    r"(?:Microsoft )?Office User|Windows User|calibre|libreoffice|apache poi|docx4j|\W*)"
)
_GAP = "\n\n"  # between blocks
_SAMPLE_CHARS = 200_000
_FEW_WORDS = 10  # fewer are no book


def bind(manuscript: Manuscript, *, sha256: str, fallback_title: str) -> Document:
    """The finished Document. `fallback_title` is used when neither the file nor its text names one."""
    blocks = [block for block in manuscript.blocks if block.text]
    starts = list(accumulate((len(block.text) + len(_GAP) for block in blocks), initial=0))
    text = _GAP.join(block.text for block in blocks)
    fields = gutenberg_fields(blocks)
    # "The Project Gutenberg eBook of ..."
    named = manuscript.title if any(map(str.isalnum, manuscript.title)) else ""  # not "???"
    own = "" if "project gutenberg" in named.lower() else named
    title = own or fields.get("title", "") or named or fallback_title
    parts = _parts(manuscript, blocks, title)
    ends = [part.start for part in parts[1:]] + [len(blocks)]
    sections = tuple(
        Section(part.title, starts[part.start], min(starts[end], len(text)), part.level, part.kind)
        for part, end in zip(parts, ends, strict=True)
    )
    author = "" if _NOBODY.fullmatch(manuscript.author.strip()) else manuscript.author
    author = author or fields.get("author", "")
    return Document(
        title=title,
        author=author,
        format=manuscript.format,
        text=text,
        sections=sections,
        page_starts=_page_starts(manuscript, blocks, starts, len(text)),
        page_labels=manuscript.page_labels,
        warnings=manuscript.warnings + _doubts(text),
        sha256=sha256,
        reader_version=READER_VERSION,
        pictures=manuscript.pictures,
        series=manuscript.series,
        volume=manuscript.volume,
    )


def _doubts(text: str) -> tuple[str, ...]:
    """What to tell of a text that is none, or next to none."""
    sample = text[:_SAMPLE_CHARS]
    if not is_legible(sample):
        return (
            joined_sentences(
                _("The letters of this text make no words: its encoding is unknown, or it is no text."),
                _("Save the book anew from the program it comes from, or take another format of it."),
            ),
        )
    words = count_words(sample)
    if words >= _FEW_WORDS:
        return ()
    return (
        _n(
            "Only {count} word was found in it. If it should hold more, take another format of it.",
            "Only {count} words were found in it. If it should hold more, take another format of it.",
            words,
        ).format(count=words),
    )


def _page_starts(
    manuscript: Manuscript, blocks: Sequence[Block], starts: Sequence[int], length: int
) -> tuple[int, ...]:
    """One offset per page; a page without text begins where the next one with text does."""
    if not manuscript.pages:
        return ()
    known: dict[int, int] = {}
    for index, block in enumerate(blocks):
        for offset, page in block.breaks:
            known.setdefault(page, starts[index] + offset)
    result = [length] * manuscript.pages
    following = length
    for page in range(manuscript.pages - 1, -1, -1):
        following = min(following, known.get(page, following))
        result[page] = following
    result[0] = 0
    return tuple(result)


def _parts(manuscript: Manuscript, blocks: Sequence[Block], title: str) -> list[SectionStart]:
    """The sections of the book, or of the books one behind the other, with the notices around them."""
    if not blocks:
        return [SectionStart(title, 1, 0, "chapter")]
    parts: list[SectionStart] = []
    end = 0
    for first, last in gutenberg_books(blocks):
        if first > end:
            header = not parts
            parts.append(SectionStart(NOTICES[not header], 1, end, "front" if header else "back"))
        own = gutenberg_fields(blocks[end:first]).get("title", title) if end else title
        parts += _parts_of_book(manuscript.marks, Body(blocks, first, last), own)
        end = last
    if end < len(blocks):
        parts.append(SectionStart(NOTICES[1], 1, end, "back"))
    return parts


def _parts_of_book(marks: list[ContentsEntry], body: Body, title: str) -> list[SectionStart]:
    parts = best_parts(marks, body) or even_parts(body, title)
    if parts[0].start > body.first:
        parts.insert(0, _opening(body, parts[0].start, title))
    return parts


def _opening(body: Body, end: int, title: str) -> SectionStart:
    """What stands before the first mark: a title page, or a large part of the book."""
    words = body.words(body.first, end)
    large = words > 300 and words > 0.15 * body.words(0, len(body.blocks))
    return SectionStart(title if large else FRONT_MATTER, 1, body.first, "chapter" if large else "front")
