"""Builds every sample book's EPUB 3, PDF and cover picture from its one Markdown source. Run: python
assets/build_samples.py

The source is plain: front matter of `key: value` lines, `# ` before a chapter's title, blank lines between
paragraphs, `*stress*`, and straight quotation marks, which the build makes typographic. Two runs on one
machine give the same bytes.
"""

from __future__ import annotations

import argparse
import html
import io
import math
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pypdfium2
from ebooklib import epub
from reportlab.lib.colors import HexColor
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY, TA_LEFT
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
)
from reportlab.platypus.tableofcontents import TableOfContents

FOLDER = Path(__file__).resolve().parent / "samples"
INK, PAPER, LAMP, DEEP = HexColor("#17323A"), HexColor("#F8F3E8"), HexColor("#E9A45B"), HexColor("#1F5560")
COVER_PIXELS_WIDE = 900
MARGIN = 18 * mm


@dataclass(frozen=True, slots=True)
class Chapter:
    """A title and its paragraphs, still in Markdown."""

    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """A sample's source: the front matter and the chapters."""

    slug: str
    meta: dict[str, str]
    chapters: tuple[Chapter, ...]

    @property
    def title(self) -> str:
        """The title as printed."""
        return typographic(self.meta["title"])


def typographic(text: str) -> str:
    """Straight quotation marks and apostrophes become the printed ones; nothing else changes."""
    text = re.sub(r'(^|[\s(\[*—])"', r"\1“", text).replace('"', "”")
    return re.sub(r"(^|[\s(\[*—“])'(?!\d\d)", r"\1‘", text).replace("'", "’")


def printed(text: str) -> str:
    """Typographic and escaped, for the small HTML that both an EPUB and reportlab understand."""
    return html.escape(typographic(text), quote=False)


def inline(text: str) -> str:
    """A paragraph `printed`, with `<i>` for `*stress*`."""
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", printed(text))


def plain(text: str) -> str:
    """A paragraph as a reader sees it, without markup."""
    return re.sub(r"\*([^*]+)\*", r"\1", typographic(text))


def read_source(path: Path) -> Book:
    """Parse one sample. A source without front matter or chapters is our own mistake and fails loudly."""
    _, front, body = path.read_text(encoding="utf-8").split("---\n", 2)
    meta = dict(line.split(": ", 1) for line in front.strip().splitlines())
    chapters = []
    for part in re.split(r"^# ", body, flags=re.MULTILINE)[1:]:
        title, text = part.split("\n", 1)
        chapters.append(
            Chapter(
                typographic(title.strip()), tuple(p.replace("\n", " ") for p in text.strip().split("\n\n"))
            )
        )
    assert chapters, f"{path} has no chapters"
    return Book(path.stem, meta, tuple(chapters))


def _style(name: str, font: str, size: float, leading: float, **more: object) -> ParagraphStyle:
    """A centred style in one of the Times faces, unless `more` says otherwise."""
    centred = {
        "fontName": font,
        "fontSize": size,
        "leading": leading,
        "alignment": TA_CENTER,
        "textColor": INK,
    }
    return ParagraphStyle(name, **{**centred, **more})


_BODY = {"alignment": TA_JUSTIFY, "textColor": HexColor("#1A1A1A"), "allowWidows": 0, "allowOrphans": 0}
STYLES = {
    style.name: style
    for style in (
        _style("cover title", "Times-Bold", 31, 35, textColor=PAPER),
        _style("cover subtitle", "Times-Italic", 13, 17, textColor=LAMP),
        _style("title", "Times-Bold", 26, 30),
        _style("small", "Times-Roman", 9, 12.4, spaceAfter=5),
        _style("number", "Times-Italic", 11, 14, textColor=DEEP),
        _style("heading", "Times-Bold", 18, 22, spaceAfter=22),
        _style("contents", "Times-Roman", 11, 20, alignment=TA_LEFT),
        _style("body", "Times-Roman", 10.6, 14.6, firstLineIndent=14, **_BODY),
        _style("first", "Times-Roman", 10.6, 14.6, **_BODY),
    )
}


# --- the cover: one drawing, on the PDF's first page and as the EPUB's picture ---


def clock_motif(canvas: Canvas, x: float, y: float, radius: float) -> None:
    """A station clock at twenty to seven whose dial has seven lit minutes, from :42 to :49."""
    canvas.setStrokeColor(PAPER)
    canvas.setLineWidth(radius * 0.035)
    canvas.circle(x, y, radius)
    for minute in range(60):
        angle, lit = math.radians(90 - minute * 6), 42 <= minute < 49
        inner = 0.80 if minute % 5 == 0 else 0.88
        canvas.setStrokeColor(LAMP if lit else PAPER)
        canvas.setLineWidth(radius * (0.035 if lit else 0.022 if minute % 5 == 0 else 0.008))
        canvas.line(
            *_polar(x, y, radius * (0.76 if lit else inner), angle), *_polar(x, y, radius * 0.93, angle)
        )
    canvas.setLineCap(1)
    for degrees, length, width in ((90 - 201, 0.46, 0.06), (90 - 252, 0.70, 0.035)):
        canvas.setStrokeColor(PAPER)
        canvas.setLineWidth(radius * width)
        canvas.line(x, y, *_polar(x, y, radius * length, math.radians(degrees)))
    canvas.setFillColor(LAMP)
    canvas.circle(x, y, radius * 0.06, stroke=0, fill=1)


def lighthouse_motif(canvas: Canvas, x: float, y: float, radius: float) -> None:
    """A tower on a low island, two broad beams, and a thin one that goes astray below them."""
    lamp = y + radius * 0.52
    for reach, near, far, colour in (
        (1.32, 0.34, 0.02, LAMP),
        (-1.32, 0.34, 0.02, LAMP),
        (1.32, -0.62, -0.66, PAPER),
    ):
        beam = canvas.beginPath()
        beam.moveTo(x, lamp)
        beam.lineTo(x + radius * reach, lamp + radius * near)
        beam.lineTo(x + radius * reach, lamp + radius * far)
        beam.close()
        canvas.setFillColor(colour)
        canvas.drawPath(beam, stroke=0, fill=1)
    canvas.setFillColor(PAPER)
    tower = canvas.beginPath()
    for index, (across, up) in enumerate(((-0.20, -0.80), (-0.12, 0.40), (0.12, 0.40), (0.20, -0.80))):
        (tower.lineTo if index else tower.moveTo)(x + radius * across, y + radius * up)
    canvas.drawPath(tower, stroke=0, fill=1)
    canvas.rect(x - radius * 0.17, y + radius * 0.38, radius * 0.34, radius * 0.045, stroke=0, fill=1)
    canvas.rect(x - radius * 0.085, y + radius * 0.64, radius * 0.17, radius * 0.05, stroke=0, fill=1)
    canvas.setFillColor(LAMP)
    canvas.rect(x - radius * 0.085, y + radius * 0.425, radius * 0.17, radius * 0.215, stroke=0, fill=1)
    canvas.setStrokeColor(PAPER)
    canvas.setLineCap(1)
    for half, down, width in ((0.55, 0.80, 0.03), (1.0, 0.92, 0.018), (0.8, 1.03, 0.012)):
        canvas.setLineWidth(radius * width)
        canvas.line(x - radius * half, y - radius * down, x + radius * half, y - radius * down)


MOTIFS: dict[str, Callable[[Canvas, float, float, float], None]] = {
    "clock": clock_motif,
    "lighthouse": lighthouse_motif,
}


def _polar(x: float, y: float, radius: float, angle: float) -> tuple[float, float]:
    return x + radius * math.cos(angle), y + radius * math.sin(angle)


def draw_cover(canvas: Canvas, book: Book, size: tuple[float, float]) -> None:
    """The whole cover on one page of `size` points."""
    width, height = size
    canvas.setFillColor(INK)
    canvas.rect(0, 0, width, height, stroke=0, fill=1)
    canvas.setStrokeColor(LAMP)
    canvas.setLineWidth(0.8)
    canvas.rect(width * 0.055, width * 0.055, width * 0.89, height - width * 0.11)
    MOTIFS[book.meta["cover"]](canvas, width / 2, height * 0.615, width * 0.29)
    top = height * 0.33
    for text, style in (
        (book.title, STYLES["cover title"]),
        (book.meta["subtitle"], STYLES["cover subtitle"]),
    ):
        paragraph = Paragraph(printed(text), style)
        top -= paragraph.wrap(width * 0.78, height)[1]
        paragraph.drawOn(canvas, width * 0.11, top)
        top -= 10


def cover_png(pdf: bytes) -> bytes:
    """The first page of a built PDF as a picture."""
    page = pypdfium2.PdfDocument(pdf)[0]
    image = (
        page.render(scale=COVER_PIXELS_WIDE / page.get_width()).to_pil().convert("P", palette=1, colors=64)
    )
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


# --- PDF ---


class _Heading(Paragraph):
    """A chapter title that tells the outline and the contents page where it stands."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(printed(text), STYLES["heading"])
        self.entry, self.key = text, f"chapter-{number}"


class _PdfBook(BaseDocTemplate):
    """A5 pages: the cover, front matter numbered i, ii, iii, and the chapters numbered from 1."""

    def __init__(self, target: io.BytesIO, book: Book) -> None:
        margins = dict.fromkeys(("leftMargin", "rightMargin", "topMargin", "bottomMargin"), MARGIN)
        meta = book.meta
        about = {
            "title": book.title,
            "author": meta["author"],
            "subject": meta["description"],
            "lang": meta["language"],
        }
        # invariant: no time of build and no random file id inside
        super().__init__(target, pagesize=A5, invariant=1, creator=Path(__file__).name, **margins, **about)
        self.book = book
        frame = Frame(MARGIN, MARGIN, A5[0] - 2 * MARGIN, A5[1] - 2 * MARGIN, id="text")
        self.addPageTemplates([
            PageTemplate("cover", [frame], onPage=self._cover),
            PageTemplate("front", [frame]),
            PageTemplate("body", [frame], onPage=self._body, onPageEnd=self._footer),
        ])  # fmt: skip
        self.first_body_page = 0

    def _cover(self, canvas: Canvas, _doc: BaseDocTemplate) -> None:
        canvas.addPageLabel(0, style="ROMAN_LOWER")
        draw_cover(canvas, self.book, A5)

    def _body(self, canvas: Canvas, doc: BaseDocTemplate) -> None:
        if not self.first_body_page or doc.page < self.first_body_page:
            self.first_body_page = doc.page
        if doc.page == self.first_body_page:
            canvas.addPageLabel(doc.page - 1, style="ARABIC", start=1)

    def _footer(self, canvas: Canvas, _doc: BaseDocTemplate) -> None:
        # after the text, so that a reader of the page meets the number last
        canvas.setFont("Times-Roman", 9)
        canvas.setFillColor(DEEP)
        canvas.drawCentredString(A5[0] / 2, 10 * mm, str(self.printed_page()))

    def printed_page(self) -> int:
        """The number printed on the current page of the chapters."""
        return self.page - self.first_body_page + 1

    def afterFlowable(self, flowable: Flowable) -> None:  # noqa: N802 (reportlab's name)
        """Called by reportlab after each piece: chapter titles go into the outline and the contents."""
        if isinstance(flowable, _Heading):
            self.canv.bookmarkPage(flowable.key)
            self.canv.addOutlineEntry(flowable.entry, flowable.key, level=0)
            self.notify("TOCEntry", (0, printed(flowable.entry), self.printed_page(), flowable.key))


def _front_story(book: Book) -> list[Flowable]:
    contents = TableOfContents(dotsMinLevel=0, levelStyles=[STYLES["contents"]])
    title = [Spacer(1, 45 * mm), Paragraph(printed(book.title), STYLES["title"]), Spacer(1, 4 * mm)]
    subtitle = [Paragraph(printed(book.meta["subtitle"]), STYLES["number"]), Spacer(1, 58 * mm)]
    notice = [Paragraph(printed(text), STYLES["small"]) for text in notices(book)]
    return [*title, *subtitle, *notice, PageBreak(), Paragraph("Contents", STYLES["heading"]), contents]


def _chapter_story(number: int, chapter: Chapter) -> list[Flowable]:
    heading = [
        Spacer(1, 14 * mm),
        Paragraph(str(number), STYLES["number"]),
        Spacer(1, 2 * mm),
        _Heading(chapter.title, number),
    ]
    first, *rest = (inline(paragraph) for paragraph in chapter.paragraphs)
    return [
        PageBreak(),
        *heading,
        Paragraph(first, STYLES["first"]),
        *(Paragraph(text, STYLES["body"]) for text in rest),
    ]


def _pdf_story(book: Book) -> list[Flowable]:
    story = [NextPageTemplate("front"), PageBreak(), *_front_story(book), NextPageTemplate("body")]
    for number, chapter in enumerate(book.chapters, start=1):
        story += _chapter_story(number, chapter)
    return story


def build_pdf(book: Book) -> bytes:
    """The book as a PDF with outline, page labels and a contents page."""
    out = io.BytesIO()
    _PdfBook(out, book).multiBuild(_pdf_story(book))
    return out.getvalue()


# --- EPUB ---

CSS = """body { font-family: serif; line-height: 1.5; margin: 0 5%; }
h1 { text-align: center; font-size: 1.5em; margin: 2.5em 0 1.5em; page-break-before: always; }
p { margin: 0; text-indent: 1.3em; }
h1 + p, .notice p { text-indent: 0; }
.notice { text-align: center; margin-top: 6em; }
.notice p { margin: .5em 0; font-size: .9em; }
"""


def notices(book: Book) -> tuple[str, ...]:
    """The lines of the rights page."""
    maker = f"{book.meta['author']}, {book.meta['date'][:4]}"
    return (
        book.meta["description"],
        maker,
        book.meta["rights"],
        "https://creativecommons.org/publicdomain/zero/1.0/",
    )


def _page(book: Book, name: str, title: str, body: str) -> epub.EpubHtml:
    page = epub.EpubHtml(title=title, file_name=name, lang=book.meta["language"])
    page.content = f"<html><head><title>{html.escape(title)}</title></head><body>{body}</body></html>"
    page.add_link(href="style.css", rel="stylesheet", type="text/css")
    return page


def _epub_pages(book: Book) -> tuple[epub.EpubHtml, list[epub.EpubHtml]]:
    lines = "".join(f"<p>{printed(text)}</p>" for text in notices(book))
    notice = f'<section class="notice"><h2>{printed(book.title)}</h2>{lines}</section>'
    title = _page(book, "title.xhtml", book.title, notice)
    chapters = []
    for number, chapter in enumerate(book.chapters, start=1):
        text = "\n".join(f"<p>{inline(paragraph)}</p>" for paragraph in chapter.paragraphs)
        heading = f"<h1>{printed(chapter.title)}</h1>"
        chapters.append(_page(book, f"chapter-{number:02}.xhtml", chapter.title, f"{heading}\n{text}"))
    return title, chapters


def _made_repeatable(archive: bytes, when: datetime) -> bytes:
    """The same archive with one date on every entry: zip would otherwise carry the time of the build."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w") as target:
        for entry in source.infolist():
            info = zipfile.ZipInfo(entry.filename, date_time=when.timetuple()[:6])
            info.compress_type, info.external_attr = entry.compress_type, 0o644 << 16
            target.writestr(info, source.read(entry), compresslevel=9)
    return out.getvalue()


def build_epub(book: Book, cover: bytes) -> bytes:
    """The book as EPUB 3 with navigation, an NCX for old readers, and `cover` (PNG) as its picture."""
    when = datetime.fromisoformat(book.meta["date"]).replace(tzinfo=timezone.utc)
    made = epub.EpubBook()
    made.set_identifier(book.meta["identifier"])
    made.set_title(book.title)
    made.set_language(book.meta["language"])
    made.add_author(book.meta["author"])
    for name in ("description", "subject", "rights", "date"):
        made.add_metadata("DC", name, typographic(book.meta[name]))
    made.set_cover("cover.png", cover)
    made.add_item(epub.EpubItem("style", "style.css", "text/css", CSS.encode()))
    title, chapters = _epub_pages(book)
    for item in (title, *chapters, epub.EpubNcx(), epub.EpubNav()):
        made.add_item(item)
    made.toc = chapters
    made.spine = [("cover", "no"), title, ("nav", "no"), *chapters]
    out = io.BytesIO()
    epub.write_epub(out, made, {"mtime": when, "raise_exceptions": True})
    return _made_repeatable(out.getvalue(), when)


def build(source: Path, folder: Path) -> list[Path]:
    """Write `<slug>.pdf`, `<slug>.epub` and `<slug>.png` into `folder`; returns what was written."""
    book = read_source(source)
    pdf = build_pdf(book)
    cover = cover_png(pdf)
    written = []
    for suffix, content in (("pdf", pdf), ("epub", build_epub(book, cover)), ("png", cover)):
        written.append(folder / f"{book.slug}.{suffix}")
        written[-1].write_bytes(content)
    return written


def main() -> None:
    """Build all samples into their own folder, or into --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    folder = parser.parse_args().out
    for source in sorted(FOLDER.glob("*.md")):
        build(source, folder)


if __name__ == "__main__":
    main()
