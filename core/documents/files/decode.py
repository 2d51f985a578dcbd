"""Bytes to text, whatever the encoding: byte order marks, declarations, then statistics. Never fails, says
what it guessed.
"""

from __future__ import annotations

import codecs
import re

from core.documents.files.sniff import utf16_without_mark

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"""<\?xml[^>]*?encoding=["']([\w.:-]+)|<meta[^>]*?charset=["']?([\w.:-]+)""", re.I)
_SAMPLE_BYTES = 1 << 18
_WESTERN = {
    "cp1250",
    "cp1252",
    "cp1254",
    "cp1257",
    "cp1258",
    "latin_1",
    "iso8859_15",
    "iso8859_9",
    "mac_roman",
    "cp437",
    "cp850",
    "cp858",
    "cp775",
    "cp1140",
    "hp_roman8",
    "cp037",
    "cp500",
}
_WESTERN_MARKS = frozenset("‘’“”–—…•€£§©°«»¿¡ºŒœŠšŽžŸ\xa0")


def decode(data: bytes, *, declared: str | None = None) -> tuple[str, str]:
    """The text and the encoding used. Order: byte order mark, UTF-8 if valid, `declared`, statistics,
    Windows-1252.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace"), encoding
    wide = utf16_without_mark(data)
    if wide:
        return data.decode(wide, errors="replace"), wide
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        if _nearly_utf8(data, error):
            return data.decode("utf-8", errors="replace").replace("\ufffd", ""), "utf-8"
    for encoding in (declared, _guess(data)):
        text = _try(data, encoding)
        if text is not None:
            return text, str(encoding)
    return data.decode("cp1252", errors="replace").replace("\ufffd", ""), "cp1252"


def decode_markup(data: bytes, charset: str | None = None) -> tuple[str, str]:
    """`decode`, with the encoding that the XML declaration or a <meta> names as a hint, else `charset`."""
    found = _DECLARED.search(data[:2048])
    name = (found.group(1) or found.group(2)).decode("ascii", errors="ignore") if found else charset
    if name and name.lower() in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"):
        name = "cp1252"  # browsers do the same: the curly quotes live there
    return decode(data, declared=name)


def _try(data: bytes, encoding: str | None) -> str | None:
    try:
        return data.decode(encoding) if encoding else None
    except (LookupError, UnicodeError):
        return None


def _nearly_utf8(data: bytes, error: UnicodeDecodeError) -> bool:
    """A UTF-8 file with a few spoilt bytes: far more valid multi-byte characters than broken ones, or cut off
    at the end.
    """
    if error.start >= len(data) - 3 and error.start > 0 and any(byte > 0x7F for byte in data[: error.start]):
        return True
    text = data[:_SAMPLE_BYTES].decode("utf-8", errors="replace")
    broken = text.count("\ufffd")
    valid = sum(1 for char in text if char > "\x7f") - broken
    return valid > 20 * broken


def _guess(data: bytes) -> str | None:
    """By charset-normalizer on a sample that holds the bytes in question. Western guesses become Windows-1252
    where it fits.
    """
    from charset_normalizer import from_bytes

    first = next((index for index, byte in enumerate(data) if byte > 0x7F), 0)
    best = from_bytes(data[max(0, first - 4096) : first + _SAMPLE_BYTES]).best()
    if best is None:
        return None
    if best.encoding in _WESTERN and _reads_as_cp1252(data):
        return "cp1252"
    return best.encoding


def _reads_as_cp1252(data: bytes) -> bool:
    """True when the high bytes are what Western texts use: curly quotes, dashes and accented letters inside
    words.
    """
    text = data[: 1 << 20].decode("cp1252", errors="replace")
    high = [char for char in text if char > "\x7f"]
    usual = sum(char in _WESTERN_MARKS or ("À" <= char <= "ÿ" and char not in "×÷") for char in high)
    return usual >= 0.98 * len(high)
