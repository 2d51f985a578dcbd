"""What a file is, by its content. The extension is asked only where content cannot tell (Markdown and plain
text).
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from core.errors import DocumentError

SUPPORTED = "Supported are EPUB, PDF, TXT, Markdown, HTML and DOCX."

# (offset, bytes, what it is): files people take for books
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (60, b"BOOKMOBI", "a Kindle book (MOBI or AZW)"),
    (60, b"TEXtREAd", "a Palm e-book (binary)"),
    (60, b"TPZ", "a Kindle Topaz book"),
    (0, b"TPZ", "a Kindle Topaz book"),
    (60, b"PNRdPPrs", "an eReader e-book (binary)"),
    (0, b"\xeaDRMION", "a DRM-protected Kindle book (KFX)"),
    (0, b"CONT\x02\x00", "a Kindle book (KFX)"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"GIF8", "a GIF picture"),
    (0, b"II*\x00", "a TIFF picture"),
    (0, b"MM\x00*", "a TIFF picture"),
    (8, b"WEBP", "a WebP picture"),
    (4, b"ftyp", "a video or a phone picture"),
    (0, b"AT&TFORM", "a DjVu scan"),
    (0, b"ITOLITLS", "a Microsoft Reader book (LIT)"),
    (0, b"ITSF", "a Windows help file (CHM)"),
    (0, b"L\x00R\x00F\x00", "a Sony book (LRF)"),
    (0, b"{\\rtf", "a rich text file (RTF)"),
    (0, b"\xd0\xcf\x11\xe0", "an old Microsoft Office document (DOC or the like)"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0, b"%!PS", "a PostScript file"),
    (0, b"ID3", "a sound file"),
    (0, b"OggS", "a sound or video file"),
    (0, b"MZ", "a Windows program"),
    (0, b"\x7fELF", "a program"),
    (0, b"SQLite format 3", "a database"),
    (0, b"wOFF", "a font"),
    (0, b"OTTO", "a font"),
)
_REMEDY = {
    "Kindle": "Convert it to EPUB first (Calibre can, for books without DRM).",
    "e-book": "Convert it to EPUB first.",
    "picture": "If it shows a page, turn it into text with an OCR program first.",
    "DjVu": "Convert it to PDF with a text layer first.",
    "Office": "Open it and save it as DOCX or PDF.",
    "RTF": "Open it and save it as DOCX or PDF.",
    "archive": "Unpack it first.",
}
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
_FB2 = re.compile(rb"<FictionBook\b")


def sniff(data: bytes, path: Path) -> str:
    """The format: "epub", "pdf", "docx", "html", "markdown" or "txt". Raises DocumentError that names
    anything else.
    """
    suffix = path.suffix.lower()
    if not data:
        raise DocumentError(f"{path.name} is empty (0 bytes). Download or copy it again.")
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return _inside_zip(data, path)
    if b"%PDF-" in data[:1024]:
        return "pdf"
    name = _other(data)
    if name is None and _looks_binary(data):
        if suffix == ".pdf":
            raise DocumentError(
                f"{path.name} is not a PDF: it has no PDF header and is damaged or something else."
            )
        name = "a binary file"
    if name is not None:
        raise _unsupported(path, name)
    if _MHTML.search(data[:4096]):
        return "mhtml"
    if _HTML.match(data[:4096].lstrip(b"\xef\xbb\xbf")):
        if suffix in (".epub", ".pdf", ".docx"):
            raise DocumentError(
                f"{path.name} is not a valid {suffix[1:].upper()} file: it is a web page (HTML), as a failed "
                "download leaves behind. Download the book again."
            )
        return "html"
    if suffix in (".epub", ".pdf", ".docx"):
        raise DocumentError(
            f"{path.name} is not a valid {suffix[1:].upper()} file: it holds plain text or is damaged. "
            "Download it again, or rename it to .txt if text is what it is."
        )
    return "markdown" if suffix in (".md", ".markdown", ".mkd") else "txt"


def _other(data: bytes) -> str | None:
    for offset, magic, name in _OTHERS:
        if data[offset : offset + len(magic)] == magic:
            return name
    return "a FictionBook (FB2)" if _FB2.search(data[:2048]) else None


def _unsupported(path: Path, name: str) -> DocumentError:
    wanted = {
        ".epub": "not a valid EPUB",
        ".pdf": "not a PDF",
        ".txt": "not a text file",
        ".docx": "not a valid DOCX",
    }
    wrong = wanted.get(path.suffix.lower(), "not supported")
    remedy = next((text for key, text in _REMEDY.items() if key in name), SUPPORTED)
    return DocumentError(f"{path.name} is {wrong}: it is {name}. {remedy}")


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
    """A zip container is known by its entries: EPUB, Word or something to be named."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        kind = {".epub": "EPUB", ".docx": "DOCX"}.get(path.suffix.lower(), "zip")
        raise DocumentError(
            f"{path.name} is a damaged or cut-off {kind} file and cannot be opened. "
            "Download or copy it again."
        ) from error
    if "META-INF/container.xml" in names or any(name.lower().endswith(".opf") for name in names):
        return "epub"
    office = next(
        (folder for folder in ("word/", "xl/", "ppt/") if any(name.startswith(folder) for name in names)),
        None,
    )
    if office == "word/":
        if path.suffix.lower() in (".pdf", ".epub"):
            raise DocumentError(
                f"{path.name} is not a valid {path.suffix[1:].upper()} file: it looks like a Word document "
                "(DOCX). Rename it to .docx, or save it as PDF from Word."
            )
        return "docx"
    if office:
        raise DocumentError(
            f"{path.name} is a {'spreadsheet' if office == 'xl/' else 'presentation'}, not a book. "
            f"{SUPPORTED}"
        )
    if "content.xml" in names and "mimetype" in names:
        raise DocumentError(f"{path.name} is an OpenDocument file. Open it and save it as DOCX, EPUB or PDF.")
    if any(name.lower().endswith((".jpg", ".jpeg", ".png", ".webp")) for name in names):
        raise DocumentError(
            f"{path.name} is an archive of pictures (a comic, CBZ?) without text. {SUPPORTED}"
        )
    raise DocumentError(
        f"{path.name} is not a valid EPUB: it is a zip archive without a book in it. {SUPPORTED}"
    )
