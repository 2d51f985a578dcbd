"""What a file is, by its content. The extension is asked only where content cannot tell (Markdown and plain
text).
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from core.documents.files.zipped import ARCHIVES, PICTURES, book_entries
from core.errors import DocumentError
from core.text.words import joined_sentences
from core.text.words import translated as _


def supported() -> str:
    """What can be opened, in one sentence."""
    return _("Supported are EPUB, PDF, FB2, DOCX, ODT, RTF, HTML, Markdown and TXT.")


def _others() -> tuple[tuple[int, bytes, str, str], ...]:
    """(offset, bytes, what it is, what to do): files people take for books."""
    calibre = _("Convert it to EPUB first (Calibre can, for books without DRM).")
    scan = _("If it shows pages, turn them into text with an OCR program first.")
    unpack = _("Unpack it first.")
    office = _("Open it and save it as DOCX or PDF.")
    djvu = _("Convert it to PDF with a text layer first (DjVuLibre and OCRmyPDF can).")
    none = supported()
    return (
        (60, b"BOOKMOBI", _("a Kindle book (MOBI or AZW)"), calibre),
        (60, b"TEXtREAd", _("a Palm e-book (binary)"), calibre),
        (60, b"TPZ", _("a Kindle Topaz book"), calibre),
        (0, b"TPZ", _("a Kindle Topaz book"), calibre),
        (60, b"PNRdPPrs", _("an eReader e-book (binary)"), calibre),
        (0, b"\xeaDRMION", _("a DRM-protected Kindle book (KFX)"), calibre),
        (0, b"CONT\x02\x00", _("a Kindle book (KFX)"), calibre),
        (0, b"\xff\xd8\xff", _("a JPEG picture"), scan),
        (0, b"\x89PNG", _("a PNG picture"), scan),
        (0, b"GIF8", _("a GIF picture"), scan),
        (0, b"II*\x00", _("a TIFF picture"), scan),
        (0, b"MM\x00*", _("a TIFF picture"), scan),
        (8, b"WEBP", _("a WebP picture"), scan),
        (4, b"ftyp", _("a video or a phone picture"), none),
        (0, b"AT&TFORM", _("a DjVu scan"), djvu),
        (0, b"ITOLITLS", _("a Microsoft Reader book (LIT)"), calibre),
        (0, b"ITSF", _("a Windows help file (CHM)"), calibre),
        (0, b"L\x00R\x00F\x00", _("a Sony book (LRF)"), calibre),
        (0, b"\xd0\xcf\x11\xe0", _("an old Microsoft Office document (DOC or the like)"), office),
        (0, b"Rar!", _("a RAR archive"), unpack),
        (0, b"7z\xbc\xaf\x27\x1c", _("a 7-Zip archive"), unpack),
        (0, b"\x1f\x8b", _("a gzip archive"), unpack),
        (0, b"BZh", _("a bzip2 archive"), unpack),
        (0, b"\xfd7zXZ", _("an xz archive"), unpack),
        (0, b"%!PS", _("a PostScript file"), none),
        (0, b"ID3", _("a sound file"), none),
        (0, b"OggS", _("a sound or video file"), none),
        (0, b"MZ", _("a Windows program"), none),
        (0, b"\x7fELF", _("a program"), none),
        (0, b"SQLite format 3", _("a database"), none),
        (0, b"wOFF", _("a font"), none),
        (0, b"OTTO", _("a font"), none),
    )


_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
# letters of the living alphabets with their signs, kana, common ideographs, and the punctuation of all
_USUAL = re.compile(
    r"[\t\n\r\f -~\u00a0-\u024f\u0300-\u052f\u0590-\u06ff\u0900-\u097f\u0e00-\u0e7f\u1e00-\u1fff\u2010-\u2044"
    r"\u20a0-\u20bf\u2116\u2122\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff9f\ufeff]"
)
_MHTML = re.compile(
    rb"\A(?:[\w-]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?Content-Type:\s*(?:multipart/related|text/html)", re.I
)
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_FB2 = re.compile(rb"<FictionBook\b")


def sniff(data: bytes, path: Path) -> str:
    """The format: "epub", "pdf", "docx", "odt", "fb2", "rtf", "html", "mhtml", "markdown" or "txt"; "zip" for
    an archive that may hold one of them. Raises DocumentError that names anything else.
    """
    name, suffix = path.name, path.suffix.lower()
    if not data:
        raise DocumentError(_("{name} is empty (0 bytes). Download or copy it again.").format(name=name))
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return _inside_zip(data, path)
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data[:5] == b"{\\rtf":
        return "rtf"
    _refuse_protected(data, path)
    for offset, magic, what, remedy in _others():
        if data[offset : offset + len(magic)] == magic:
            raise _unsupported(path, what, remedy)
    if _FB2.search(data[:4096].replace(b"\0", b"")):
        return "fb2"
    if _looks_binary(data):
        if suffix == ".pdf":
            raise DocumentError(
                _("{name} is not a PDF: it has no PDF header and is damaged or something else.").format(
                    name=name
                )
            )
        raise _unsupported(path, _("a binary file"), supported())
    return _kind_of_text(data, path)


def _refuse_protected(data: bytes, path: Path) -> None:
    """What a password or a shop protects is called so: another program would not open it either."""
    if data[:4] == b"\xd0\xcf\x11\xe0" and _ENCRYPTED_OFFICE in data:
        open_it = _("Open it with its password and save it without one.")
        raise _unsupported(path, _("a Word or Office document encrypted with a password"), open_it)
    if data[60:68] == b"BOOKMOBI":
        first = int.from_bytes(data[78:82], "big")
        if int.from_bytes(data[first + 12 : first + 14], "big"):
            elsewhere = _("Read it in the shop's own app, or get a copy without DRM.")
            raise _unsupported(path, _("a DRM-protected Kindle book (MOBI or AZW)"), elsewhere)


def _kind_of_text(data: bytes, path: Path) -> str:
    name, suffix = path.name, path.suffix.lower()
    if _MHTML.search(data[:4096]):
        return "mhtml"
    claimed = suffix[1:].upper() if suffix in (".epub", ".pdf", ".docx", ".odt") else ""
    if _HTML.match(data[:4096].lstrip(b"\xef\xbb\xbf")):
        if claimed:
            said = _(
                "{name} is not a valid {format} file: it is a web page (HTML), as a failed download leaves "
                "behind. Download the book again."
            )
            raise DocumentError(said.format(name=name, format=claimed))
        return "html"
    if claimed:
        said = _(
            "{name} is not a valid {format} file: it holds plain text or is damaged. "
            "Download it again, or rename it to .txt if text is what it is."
        )
        raise DocumentError(said.format(name=name, format=claimed))
    return "markdown" if suffix in (".md", ".markdown", ".mkd") else "txt"


def _unsupported(path: Path, what: str, remedy: str) -> DocumentError:
    said = {
        ".epub": _("{name} is not a valid EPUB: it is {what}."),
        ".pdf": _("{name} is not a PDF: it is {what}."),
        ".txt": _("{name} is not a text file: it is {what}."),
        ".docx": _("{name} is not a valid DOCX: it is {what}."),
    }.get(path.suffix.lower(), _("{name} is not supported: it is {what}."))
    return DocumentError(joined_sentences(said.format(name=path.name, what=what), remedy))


def _looks_binary(data: bytes) -> bool:
    """Control bytes in text are rare, except the NULs of UTF-16 and UTF-32."""
    head = data[:65536]
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")) or utf16_without_mark(head):
        return False
    control = sum(head.count(bytes((code,))) for code in range(32) if code not in (9, 10, 12, 13, 26, 27))
    return control > max(2, len(head) // 200)


def utf16_without_mark(data: bytes) -> str | None:
    """ "utf-16-le" or "utf-16-be" when the bytes are such a text without a mark that says so."""
    head = data[: min(8192, len(data) // 2 * 2)]
    if len(head) < 8 or b"\0" not in head:  # every text has spaces or line ends, and each of them a NUL
        return None
    found = {encoding: _plausible(head, encoding) for encoding in ("utf-16-le", "utf-16-be")}
    best = max(found, key=lambda encoding: found[encoding])
    return best if found[best] > 0.97 else None


def _plausible(head: bytes, encoding: str) -> float:
    """The share of characters that texts are made of: no text in the wrong order of bytes reaches half."""
    text = head.decode(encoding, errors="replace")
    return len(_USUAL.findall(text)) / len(text)


def _inside_zip(data: bytes, path: Path) -> str:
    """A zip container is known by its entries: EPUB, Word, OpenDocument, or an archive with a book in it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        kind = {".epub": "EPUB", ".docx": "DOCX", ".odt": "ODT"}.get(path.suffix.lower(), "zip")
        said = _(
            "{name} is a damaged or cut-off {format} file and cannot be opened. Download or copy it again."
        )
        raise DocumentError(said.format(name=path.name, format=kind)) from error
    if "META-INF/container.xml" in names or any(_is_package(name) for name in names):
        return "epub"
    if any(name.startswith("word/") for name in names):
        return _word(path)
    for folder, said in (
        ("xl/", _("{name} is a spreadsheet, not a book.")),
        ("ppt/", _("{name} is a presentation, not a book.")),
    ):
        if any(name.startswith(folder) for name in names):
            raise DocumentError(joined_sentences(said.format(name=path.name), supported()))
    if "content.xml" in names and "mimetype" in names:
        return "odt"
    return _archive(names, path)


def _is_package(name: str) -> bool:
    """An EPUB's package file, not one that lies beside a book."""
    return name.lower().endswith(".opf") and name.count("/") <= 2


def _word(path: Path) -> str:
    if path.suffix.lower() not in (".pdf", ".epub"):
        return "docx"
    said = _(
        "{name} is not a valid {format} file: it looks like a Word document (DOCX). "
        "Rename it to .docx, or save it as PDF from Word."
    )
    raise DocumentError(said.format(name=path.name, format=path.suffix[1:].upper()))


def _archive(names: set[str], path: Path) -> str:
    """ "zip" when there is something in it that may be a book."""
    if book_entries(sorted(names)):
        return "zip"
    if any(name.lower().endswith(PICTURES) for name in names):
        said = _(
            "{name} is an archive of pictures (a comic, CBZ?) without text. Make a PDF of them with a text "
            "layer (OCRmyPDF can) and open that."
        )
        raise DocumentError(said.format(name=path.name))
    if any(name.lower().endswith(ARCHIVES) for name in names):
        said = _("{name} is an archive with another archive in it. Unpack it first.")
        raise DocumentError(said.format(name=path.name))
    said = _("{name} is not a valid EPUB: it is a zip archive without a book in it.")
    raise DocumentError(joined_sentences(said.format(name=path.name), supported()))
