"""PDF to a manuscript: text by PDFium, cleaned of print's habits; outline and page labels by pypdf."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from statistics import median

import pypdf
import pypdf.errors
import pypdfium2

from core.documents.files.clean import one_line
from core.documents.pdf.furniture import without_furniture
from core.documents.pdf.layout import PageLayout, body_size, page_layout, with_drop_capitals
from core.documents.pdf.ocr_layer import straightened
from core.documents.pdf.page import LinePiece, merged_pieces
from core.documents.pdf.paragraphs import glued_words, to_blocks, vocabulary
from core.documents.pdf.printed_contents import titled_pages
from core.documents.pdf.rotated import MOST_KEPT_CHARS, TurnedPage, page_lines
from core.documents.pdf.sheets import hold_two_pages, unfolded
from core.documents.pdf.unreadable import UnreadablePages, find_unread
from core.documents.structure.blocks import Block, ContentsEntry, Manuscript
from core.documents.structure.headings import read_heading, title_key
from core.errors import DocumentError, PasswordNeeded
from core.events import Progress
from core.text.words import translated as _
from core.text.words import translated_count as _n

log = logging.getLogger(__name__)
logging.getLogger("pypdf").setLevel(logging.ERROR)  # its remarks on odd files are for nobody's screen

MAX_PAGES = 20_000
# "broken PDF files might cause other exceptions", says its own documentation
_PYPDF_ERRORS = (
    pypdf.errors.PyPdfError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RecursionError,
    OSError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
)
# pages read again before deciding that a file has no glued words
_TRIED_FIRST = 12


def read_pdf(data: bytes, name: str, *, password: str | None, progress: Progress, ocr: bool) -> Manuscript:
    """The book's text in reading order. Raises PasswordNeeded, and DocumentError for damage and scans."""
    pdf = _opened(data, name, password)
    try:
        if len(pdf) > MAX_PAGES:
            raise DocumentError(
                _(
                    "{name} has {pages:,} pages, over the limit of {limit:,} for one book. Split it first."
                ).format(name=name, pages=len(pdf), limit=MAX_PAGES)
            )
        seen = _pages(pdf, progress)
        pages = [page.lines for page in seen]
        known = _part_glued_words(pdf, seen, pages)
        pages = straightened(pages)
        body = body_size(pages)
        outline, labels = _structure(data, password, pdf)
        outline = [_on_shown_page(entry, seen) for entry in outline]
        outline = outline or [(title, 1, page, None) for title, page in titled_pages(pages)]
        named = _named(outline)
        lines, printed = without_furniture([merged_pieces(page) for page in pages], body, named)
        unread = find_unread(pdf, seen, lines, name)
        warnings = unread.warnings()
        if ocr and unread.for_ocr:
            pages, said = _by_ocr(pdf, pages, unread, name, progress)
            warnings = (said, *unread.slanted_warning())
            known, body = vocabulary(pages), body_size(pages)
            lines, printed = without_furniture([merged_pieces(page) for page in pages], body, named)
        else:
            unread.refuse(name)
            for number in unread.garbled:
                pages[number], lines[number] = [], []
        meta = {key: one_line(value) for key, value in pdf.get_metadata_dict().items()}
    finally:
        pdf.close()
    sheets = unfolded(pages)
    if sheets:
        pages, labels, known = sheets.pages, sheets.labels, vocabulary(sheets.pages)
        outline = [(said, level, sheets.page_of(page, said), top) for said, level, page, top in outline]
        lines, printed = without_furniture([merged_pieces(page) for page in pages], body, _named(outline))
    elif hold_two_pages(pages):
        warnings += (_two_up(),)
    kept = [_kept(page, clean) for page, clean in zip(pages, lines, strict=True)]
    openings: dict[int, list[float]] = {}
    for *_label, page, top in outline:
        openings.setdefault(page, []).append(1e6 if top is None else top)
    blocks, places = _laid_out(kept, body, openings, known)
    if not labels and len(printed) > 0.6 * len(pages):
        labels = _filled(printed, len(pages))
    title, author = meta.get("Title", ""), meta.get("Author", "")
    if not title or _looks_generated(title):
        title, writer = _title_page(blocks, places)
        author = author or writer
    return Manuscript(
        "pdf",
        blocks,
        title=title,
        author=author,
        marks=_marks(outline, blocks, places),
        page_labels=labels,
        pages=len(pages),
        warnings=warnings,
        pictures=len(unread.for_ocr) if warnings and not ocr else 0,
    )


def _opened(data: bytes, name: str, password: str | None) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(data, password=password or None)
    except pypdfium2.PdfiumError as error:
        reason = str(error).lower()
        if "password" in reason:
            wrong = _("{name} is protected by a password. The password given does not open it.")
            needed = _("{name} is protected by a password. Give its password to open it.")
            raise PasswordNeeded((wrong if password else needed).format(name=name)) from error
        if "security" in reason:
            raise DocumentError(
                _("{name} is encrypted in a way that cannot be opened here (a certificate or DRM).").format(
                    name=name
                )
            ) from error
        raise DocumentError(
            _("{name} is a damaged or cut-off PDF and cannot be opened. Download or copy it again.").format(
                name=name
            )
        ) from error


def _pages(pdf: pypdfium2.PdfDocument, progress: Progress) -> list[TurnedPage]:
    """The lines of every page. A page that cannot be read is empty."""
    pages: list[TurnedPage] = []
    kept = 0
    for number in range(len(pdf)):
        if number % 20 == 0:
            progress(_("Reading pages"), number / len(pdf))
        pages.append(_page(pdf, number, keep=kept < MOST_KEPT_CHARS))
        kept += pages[-1].text.chars if pages[-1].text else 0
    return pages


def _page(
    pdf: pypdfium2.PdfDocument, number: int, glued: dict[str, int] | None = None, *, keep: bool = False
) -> TurnedPage:
    """`keep`: as of `page_lines`; what is kept is closed with the file."""
    try:
        page = pdf[number]
        result = page_lines(page, number, glued, keep=keep)
        if result.text is None:
            page.close()
        return result
    except pypdfium2.PdfiumError as error:
        log.info("page %d: %s", number + 1, error)
        return TurnedPage([])


def _part_glued_words(
    pdf: pypdfium2.PdfDocument, seen: list[TurnedPage], pages: list[list[LinePiece]]
) -> Counter[str]:
    """The book's words. Pages on which some may have run together, as happens in tight settings, are read
    again in place.
    """
    known = vocabulary(pages)
    glued = glued_words(known)
    suspects = [
        number
        for number, lines in enumerate(pages)
        if glued
        and not glued.keys().isdisjoint(
            word for line in lines for word in re.findall(r"[^\W\d_]+", line.text.lower())
        )
    ]
    parted = 0
    for tried, number in enumerate(suspects):
        if tried == _TRIED_FIRST and not parted:
            break  # this file's spaces are wide enough
        text = seen[number].text
        again = text.lines_parted(glued) if text else _page(pdf, number, glued).lines
        parted += again != pages[number]
        pages[number] = again
    return vocabulary(pages) if parted else known


def _by_ocr(
    pdf: pypdfium2.PdfDocument,
    pages: list[list[LinePiece]],
    unread: UnreadablePages,
    name: str,
    progress: Progress,
) -> tuple[list[list[LinePiece]], str]:
    """The pages with what was unread read by OCR, and what to tell of it."""
    from core.documents.pdf.ocr import recognise

    count = len(unread.for_ocr)
    said = _n("{count} scanned page was read by OCR.", "{count} scanned pages were read by OCR.", count)
    return recognise(pdf, pages, unread.for_ocr, name, progress), said.format(count=count)


def _kept(pieces: list[LinePiece], clean: list[LinePiece]) -> list[LinePiece]:
    """The pieces of a page that lie between what is left of it when running heads and page numbers are
    gone.
    """
    if not clean:
        return []
    top, bottom = clean[0].y + 0.5 * clean[0].size, clean[-1].y - 0.5 * clean[-1].size
    return [piece for piece in pieces if bottom <= piece.y <= top]


def _two_up() -> str:
    return _(
        "The sheets of this file seem to hold two pages each, without numbers that say their order: the left "
        "one is read before the right one. Of a booklet made for printing, pages stand in the wrong order; "
        "take a copy with single pages."
    )


def _laid_out(
    pages: list[list[LinePiece]], body: float, openings: dict[int, list[float]], known: Counter[str]
) -> tuple[list[Block], list[tuple[int, float]]]:
    whole = [with_drop_capitals(page, body, known) for page in pages]
    first = [page_layout(page, body=body, known=known) for page in whole]
    widths = [
        region.right - region.left for layout in first for region in layout.regions if len(region.lines) >= 12
    ]
    gutters = Counter(round(layout.gutter) for layout in first if layout.gutter is not None)
    usual = [gutter for gutter, count in gutters.most_common(4) if count >= 3]
    layouts = [
        page_layout(page, body=body, known=known, width=median(widths), gutters=usual)
        if _unsure(layout, usual) and widths
        else layout
        for page, layout in zip(whole, first, strict=True)
    ]
    return to_blocks(layouts, body=body, known=known, openings=openings)


def _unsure(layout: PageLayout, gutters: list[int]) -> bool:
    """A page too short to know its own margins, or one that may have the other pages' columns."""
    return any(len(region.lines) < 12 for region in layout.regions) or (
        bool(gutters) and layout.gutter is None
    )


# ---- outline and labels ----

_Entry = tuple[str, int, int, float | None]  # title, level, page, y


def _on_shown_page(entry: _Entry, seen: list[TurnedPage]) -> _Entry:
    """The entry, without its height on a page whose lines are not where the file has them."""
    return (*entry[:3], None) if entry[2] < len(seen) and seen[entry[2]].turned else entry


def _named(outline: list[_Entry]) -> dict[int, list[str]]:
    """The outline's titles by page."""
    titles: dict[int, list[str]] = {}
    for title, _level, page, _top in outline:
        titles.setdefault(page, []).append(title)
    return titles


def _structure(
    data: bytes, password: str | None, pdf: pypdfium2.PdfDocument
) -> tuple[list[_Entry], tuple[str, ...]]:
    """Outline and page labels by pypdf; by PDFium when the file is too damaged for it."""
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted:
            reader.decrypt(password or "")
        labeled = "/PageLabels" in reader.root_object  # else it would walk all pages to number them from 1
        labels = tuple(reader.page_labels) if labeled else ()
        plain = tuple(str(number + 1) for number in range(len(labels)))
        return _outline(reader), labels if len(labels) == len(pdf) and labels != plain else ()
    except _PYPDF_ERRORS as error:
        log.info("pypdf: %r", error)
    try:
        entries = [
            (one_line(item.get_title()), item.level + 1, dest.get_index() or 0, None)
            for item in pdf.get_toc(max_depth=6)
            if (dest := item.get_dest())
        ]
        return entries, ()
    except (pypdfium2.PdfiumError, ValueError, RecursionError):
        return [], ()


def _outline(reader: pypdf.PdfReader) -> list[_Entry]:
    entries: list[_Entry] = []
    waiting = [(item, 1) for item in reversed(reader.outline)]
    while waiting:
        item, level = waiting.pop()
        if isinstance(item, list):
            waiting += [(child, level + 1) for child in reversed(item)]
            continue
        page = reader.get_destination_page_number(item)
        top = item.top if isinstance(item.top, (int, float)) else None
        if page is not None and page >= 0 and item.title:
            entries.append((one_line(str(item.title)), level, page, float(top) if top is not None else None))
    return entries


def _marks(
    outline: list[_Entry], blocks: list[Block], places: list[tuple[int, float]]
) -> list[ContentsEntry]:
    """Where in the text each outline entry points: the block with its words, else the first one below its
    place.
    """
    by_page: dict[int, list[int]] = {}
    for index, (page, _height) in enumerate(places):
        by_page.setdefault(page, []).append(index)
    marks = []
    for title, level, page, top in outline:
        here = by_page.get(page, [])
        named = [
            index
            for index in here
            if title_key(blocks[index].text[:200]) and _names(title, blocks[index].text)
        ]
        below = [index for index in here if top is None or places[index][1] <= top + 4]
        following = next((index for index, place in enumerate(places) if place[0] >= page), None)
        if (
            named
            and below
            and below[0] < named[0]
            and all(len(blocks[index].text) < 60 for index in range(below[0], named[0]))
        ):
            named = below  # "Part I" stands above the name
        chosen = named[0] if named else below[0] if below else following
        if chosen is not None:
            marks.append(ContentsEntry(title, level, chosen))
    return marks


def _names(title: str, text: str) -> bool:
    """The block is the entry's heading, or a part of it ("Chapter 1" above the name)."""
    key, own = title_key(title), title_key(text[:200])
    return (
        len(text) <= 200
        and bool(own)
        and (own == key or (len(own) > 3 and own in key) or (len(key) > 3 and key in own))
    )


def _filled(printed: dict[int, str], count: int) -> tuple[str, ...]:
    """Printed page numbers for all pages: those found, the ones between counted on from their neighbours."""
    labels: list[str] = []
    for page in range(count):
        before = labels[-1] if labels else ""
        labels.append(printed.get(page) or (str(int(before) + 1) if before.isdigit() else f"({page + 1})"))
    return tuple(labels)


def _title_page(blocks: list[Block], places: list[tuple[int, float]]) -> tuple[str, str]:
    """Title and author as the first page prints them: its largest line, and the short line below on a page of
    few words.
    """
    page = [block for block, (number, _) in zip(blocks, places, strict=True) if number == 0]
    large = [index for index, block in enumerate(page) if block.heading and len(block.text) <= 120]
    if not large:
        return "", ""
    first = min(large, key=lambda index: page[index].heading)
    title = " ".join(page[first].text.split())
    following = page[first + 1].text if first + 1 < len(page) else ""
    few_words = sum(len(block.text.split()) for block in page) < 40
    name = re.fullmatch(r"(?:by\s+)?((?:[^\W\d_][\w.’'-]*\s?){2,5})", following, re.I)
    return ("", "") if read_heading(title) else (title, name.group(1).strip() if name and few_words else "")


def _looks_generated(title: str) -> bool:
    """ "Microsoft Word - draft3.doc", file names and "???" are no titles."""
    lowered = title.lower()
    return (
        not any(map(str.isalnum, title))
        or lowered.startswith(("microsoft word", "untitled", "document", "(anonymous)"))
        or lowered.endswith((".doc", ".docx", ".pdf", ".tex", ".dvi", ".indd", ".qxd"))
    )
