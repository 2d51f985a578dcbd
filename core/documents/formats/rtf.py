"""Rich text (RTF) to a manuscript: its words by striprtf, its paragraphs as those of any text."""

from __future__ import annotations

import re

from core.documents.files.clean import one_line
from core.documents.formats.plain import manuscript_of
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_MOST_BYTES = 64 << 20
# pictures as hexadecimal digits: nothing to read, and most of such a file
_PICTURE = re.compile(rb"(?:[0-9a-fA-F]{2}){64,}\s*(?:(?:[0-9a-fA-F]{2})+\s+)*")
_FIELD = r"\{\\%s ((?:[^{}\\]|\\'[0-9a-f]{2}|\\u-?\d+ ?\??)*)\}"


def read_rtf(data: bytes, name: str) -> Manuscript:
    """Title and author by its own data. Raises DocumentError for damaged files and those without text."""
    from striprtf.striprtf import rtf_to_text

    source = _PICTURE.sub(b"", data)
    if len(source) > _MOST_BYTES:
        raise DocumentError(_("{name} is too large for a rich text file (RTF).").format(name=name))
    source_text = source.decode("latin-1")
    try:
        text = rtf_to_text(source_text, errors="ignore")
        title, author = (_field(source_text, field) for field in ("title", "author"))
    except (ValueError, LookupError, IndexError, OverflowError, RecursionError) as error:
        raise DocumentError(
            _("{name} is a damaged rich text file (RTF). Open it and save it as DOCX or PDF.").format(
                name=name
            )
        ) from error
    if not text.strip():
        raise DocumentError(_("{name} is a rich text file (RTF) without text.").format(name=name))
    return manuscript_of(text, "rtf", title=title, author=author)


def _field(source: str, field: str) -> str:
    from striprtf.striprtf import rtf_to_text

    found = re.search(_FIELD % field, source[:20_000])
    return one_line(rtf_to_text("{\\rtf1 " + found.group(1) + "}", errors="ignore")) if found else ""
