"""Small books made on the spot: Word files, EPUBs and whatever else is a zip."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from core.documents import Document, read_document
from core.errors import DocumentError


def word_file(paragraphs: list[tuple[str, str]], *, author: str = "A. Writer") -> bytes:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style or "Normal"}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{word}"><w:style w:type="paragraph" '
        'w:styleId="Heading1"><w:name w:val="heading 1"/>'
        "</w:style></w:styles>",
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship '
        f'Id="s" Type="{office}/styles" '
        'Target="styles.xml"/></Relationships>',
        "docProps/core.xml": '<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Lake</dc:title>'
        f"<dc:creator>{author}</dc:creator></c>",
    }
    return zipped(files)


def zipped(files: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="O/p.opf" '
    'media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def epub(
    pages: dict[str, str],
    *,
    nav: str = "",
    extra: dict[str, str] | None = None,
    missing: tuple[str, ...] = (),
    metadata: str = "",
) -> bytes:
    names = [*pages, *missing]
    items = "".join(
        f'<item id="i{index}" href="{name}" media-type="application/xhtml+xml"/>'
        for index, name in enumerate(names)
    )
    spine = "".join(f'<itemref idref="i{index}"/>' for index in range(len(names)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<dc:title>The Lake</dc:title><dc:creator>A. "
        f"Writer</dc:creator><dc:language>en</dc:language>{metadata}</metadata><manifest>"
        f'{items}<item id="nav" href="nav.xhtml" properties="nav" '
        'media-type="application/xhtml+xml"/></manifest>'
        f"<spine>{spine}</spine></package>"
    )
    html = (
        '<html xmlns="http://www.w3.org/1999/xhtml" '
        'xmlns:epub="http://www.idpf.org/2007/ops"><head><title/></head><body>{}</body></html>'
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER, "O/p.opf": package}
    files |= {f"O/{name}": html.format(body) for name, body in pages.items()}
    if nav:
        files["O/nav.xhtml"] = html.format(f'<nav epub:type="toc"><ol>{nav}</ol></nav>')
    return zipped(files | (extra or {}))


BODY = "<p>" + "The boats lay at anchor and nobody spoke. " * 10 + "</p>"


def read(folder: Path, name: str, data: str | bytes) -> Document:
    """A file of this content, read."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_document(path)


def refused(folder: Path, name: str, data: str | bytes) -> str:
    """Why a file of this content is not read."""
    with pytest.raises(DocumentError) as caught:
        read(folder, name, data)
    return str(caught.value)


def titles(document: Document, kind: str = "chapter") -> list[str]:
    """Of its sections of one kind."""
    return [section.title for section in document.sections if section.kind == kind]
