"""Summaries as an e-book (EPUB 3): every mark leads to the book's own words, and from there back."""

from __future__ import annotations

import io
import uuid
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from markupsafe import Markup

from app.render.export import SIGN, answer_markup
from app.render.footnotes import Footnotes, unsure_legend
from app.render.markdown import Citation
from app.render.origin import held
from app.render.summary_files import SummaryFile
from app.render.templating import render
from core.documents.document import Document, Section
from core.text.language_detection import spoken_language
from core.text.words import translated as _

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ebooklib import epub

AROUND_CHARS = 600  # of its paragraph, before and behind a place
PLACES = "places.xhtml"


class PrintedPlace(NamedTuple):
    """What a mark leads to: the book's `words` between what stands around them in their paragraph. `back`:
    the file of the first mark.
    """

    number: int
    where: str
    before: str
    words: str
    after: str
    back: str


def as_epub(file: SummaryFile) -> bytes:
    """A page a summary, and behind them one with the words of every place, by the book's chapters."""
    footnotes = Footnotes(file.cited, SIGN)
    back: dict[int, str] = {}
    pages = [_title_page(file)]
    for at, (title, turn) in enumerate(file.told, 1):
        name = f"summary-{at}.xhtml"
        text = answer_markup(turn, footnotes, lambda number, name=name: _link(number, name, back))
        said = [*held(turn), *unsure_legend(text)]
        pages.append(_page(name, title, "epub_told.html", text=text, said=said))
    chapters = _by_chapter(file.book, footnotes.citations, back)
    contents = [*pages]
    if chapters:
        pages.append(_page(PLACES, _("In the book's words"), "epub_places.html", chapters=chapters))
        contents.append(
            (
                epub.Section(pages[-1].title, PLACES),
                [
                    epub.Link(f"{PLACES}#chapter-{at}", str(section.title), f"chapter-{at}")
                    for at, (section, _some) in enumerate(chapters, 1)
                ],
            )
        )
    return _bound(file, pages, contents)


def _link(number: int, name: str, back: dict[int, str]) -> Markup:
    """A mark; the first one of a place is where that leads back to, and is noted in `back`."""
    first = number not in back
    back.setdefault(number, name)
    return render("footnote.html", number=number, target=PLACES, first=first)


def _by_chapter(
    book: Document, citations: Mapping[int, Citation], back: Mapping[int, str]
) -> list[tuple[Section, list[PrintedPlace]]]:
    """The places under the chapters that they stand in, in the order of the book."""
    found: dict[Section, list[PrintedPlace]] = {}
    for number, one in sorted(citations.items(), key=lambda item: (item[1].offset, item[0])):
        section = book.section_at(one.offset)
        found.setdefault(section, []).append(_place(book.text, section, number, one, back[number]))
    return list(found.items())


def _place(text: str, section: Section, number: int, one: Citation, back: str) -> PrintedPlace:
    start, end = one.offset, min(one.offset + one.length, section.end)
    begin = max(text.rfind("\n\n", section.start, start) + 2, section.start, start - AROUND_CHARS)
    gap = text.find("\n\n", end, section.end)
    stop = min(gap if gap >= 0 else section.end, end + AROUND_CHARS)
    return PrintedPlace(
        number, one.where, text[begin:start].lstrip(), text[start:end], text[end:stop].rstrip(), back
    )


def _title_page(file: SummaryFile) -> epub.EpubHtml:
    return _page("title.xhtml", file.title, "epub_title.html", made=file.made)


def _page(name: str, title: str, template: str, **values: object) -> epub.EpubHtml:
    content = str(render(template, title=title, **values))
    return epub.EpubHtml(title=str(title), file_name=name, content=content)


def _bound(file: SummaryFile, pages: list[epub.EpubHtml], contents: list) -> bytes:
    """The file itself. Its identifier comes of its text: the same summaries are the same e-book."""
    book, text = file.book, "".join(turn.text for _title, turn in file.told)
    made = epub.EpubBook()
    made.set_identifier(f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, book.sha256 + text)}")
    made.set_title(str(file.title))
    made.set_language(spoken_language(text) or "und")
    made.add_author("TriForce Chat")
    made.add_metadata("DC", "source", " · ".join(filter(None, (book.title, book.author))))
    made.add_metadata("DC", "description", str(file.made))
    for page in pages:
        made.add_item(page)
    made.toc = contents
    made.add_item(epub.EpubNcx())
    made.add_item(epub.EpubNav())
    made.spine = ["nav", *pages]
    out = io.BytesIO()
    epub.write_epub(out, made)
    return out.getvalue()
