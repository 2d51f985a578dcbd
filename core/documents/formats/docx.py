"""Word documents (DOCX) to a manuscript: checked as an archive, made HTML by mammoth, read as any HTML."""

from __future__ import annotations

import io

from lxml import etree

from core.documents.files.archive import SafeArchive
from core.documents.files.clean import one_line
from core.documents.formats.docx_styles import with_heading_styles
from core.documents.formats.html import parse, walk
from core.documents.formats.tables import TableTags, rows_to_lines
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_STYLES = "p[style-name='Title'] => h1.title:fresh\np[style-name='Subtitle'] => p.subtitle:fresh\n"
_TABLES = TableTags("table", "tr", frozenset({"td", "th"}), "p", "br")
_LARGEST_PART_BYTES = 32 << 20  # mammoth keeps the whole tree of document.xml in memory


def read_docx(data: bytes, name: str) -> Manuscript:
    """Headings by outline level and Word's styles, notes after their paragraph, rows of tables as lines.

    Raises DocumentError for damaged files.
    """
    import mammoth

    archive = SafeArchive(data, name)
    try:
        document = archive.read("word/document.xml")
        if len(document) > _LARGEST_PART_BYTES:
            raise DocumentError(
                _("{name} is too large for a Word document. Save it as EPUB or PDF and open that.").format(
                    name=name
                )
            )
        data, styles = with_heading_styles(data, document, _entry(archive, "word/styles.xml"))
        html = mammoth.convert_to_html(
            io.BytesIO(data), style_map=_STYLES + styles, convert_image=lambda image: [], id_prefix="docx-"
        ).value
    except DocumentError:
        raise
    except Exception as error:  # mammoth has no error type of its own
        raise DocumentError(
            _(
                "{name} is a damaged Word document and cannot be opened. Open it in Word and save it again."
            ).format(name=name)
        ) from error
    root = parse(f"<html><body>{html}</body></html>")
    _put_notes_in_place(root)
    rows_to_lines(root, _TABLES)
    page = walk(root)
    if not page.blocks:
        raise DocumentError(_("{name} is a Word document without text.").format(name=name))
    title, author = _properties(archive)
    if not title and page.blocks[0].heading == 1:
        title = page.blocks[0].text
    return Manuscript("docx", page.blocks, title=one_line(title), author=author)


def _put_notes_in_place(root: etree._Element) -> None:
    """Footnotes and endnotes, which mammoth lists at the end, behind the paragraph that refers to them."""
    references = {
        link.get("href"): link for link in reversed(root.xpath("//a[starts-with(@href, '#docx-')]"))
    }
    behind: dict[etree._Element, etree._Element] = {}
    for item in root.xpath(
        "//ol/li[starts-with(@id, 'docx-footnote-') or starts-with(@id, 'docx-endnote-')]"
    ):
        link = references.get(f"#{item.get('id')}")
        place = _top_of(link) if link is not None else None
        if place is None:
            continue
        for back in item.xpath(f".//a[starts-with(@href, '#{item.get('id').rpartition('-')[0]}-ref-')]"):
            back.text = ""
        note = etree.Element("p")
        note.text = f"{''.join(link.itertext())} {one_line(' '.join(item.itertext()))}"
        behind.get(place, place).addnext(note)
        behind[place] = note
        item.getparent().remove(item)


def _top_of(link: etree._Element) -> etree._Element:
    """The block of the page's body, or of a list, that the link stands in."""
    place = link
    while place.getparent() is not None and place.getparent().tag not in ("body", "ol", "ul"):
        place = place.getparent()
    return place


def _entry(archive: SafeArchive, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        return b""


def _properties(archive: SafeArchive) -> tuple[str, str]:
    """Title and author as the document's properties name them."""
    try:
        root = parse(archive.read("docProps/core.xml").decode("utf-8", errors="replace"))
    except KeyError:
        return "", ""

    def value(tag: str) -> str:
        return one_line(str(root.xpath(f"string(//*[local-name()='{tag}'])")))

    return value("title"), value("creator")
