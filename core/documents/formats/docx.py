"""Word documents (DOCX) to a manuscript: checked as an archive, made HTML by mammoth, read as any HTML."""

from __future__ import annotations

import io

from core.documents.files.archive import SafeArchive
from core.documents.files.clean import one_line
from core.documents.formats.html import parse, walk
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_STYLES = "p[style-name='Title'] => h1.title:fresh\np[style-name='Subtitle'] => p.subtitle:fresh"
_LARGEST_PART_BYTES = 32 << 20  # mammoth keeps the whole tree of document.xml in memory


def read_docx(data: bytes, name: str) -> Manuscript:
    """Headings by Word's styles, footnotes after the text. Raises DocumentError for damaged files."""
    import mammoth

    archive = SafeArchive(data, name)
    try:
        if len(archive.read("word/document.xml")) > _LARGEST_PART_BYTES:
            raise DocumentError(
                _("{name} is too large for a Word document. Save it as EPUB or PDF and open that.").format(
                    name=name
                )
            )
        html = mammoth.convert_to_html(
            io.BytesIO(data), style_map=_STYLES, convert_image=lambda image: [], id_prefix="docx-"
        ).value
    except DocumentError:
        raise
    except Exception as error:  # mammoth has no error type of its own
        raise DocumentError(
            _(
                "{name} is a damaged Word document and cannot be opened. Open it in Word and save it again."
            ).format(name=name)
        ) from error
    page = walk(parse(f"<html><body>{html}</body></html>"))
    if not page.blocks:
        raise DocumentError(_("{name} is a Word document without text.").format(name=name))
    title, author = _properties(archive)
    if not title and page.blocks[0].heading == 1:
        title = page.blocks[0].text
    return Manuscript("docx", page.blocks, title=one_line(title), author=author)


def _properties(archive: SafeArchive) -> tuple[str, str]:
    """Title and author as the document's properties name them."""
    try:
        root = parse(archive.read("docProps/core.xml").decode("utf-8", errors="replace"))
    except KeyError:
        return "", ""

    def value(tag: str) -> str:
        return one_line(str(root.xpath(f"string(//*[local-name()='{tag}'])")))

    return value("title"), value("creator")
