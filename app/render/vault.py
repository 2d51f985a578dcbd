"""What a file needs to lie among a person's notes: a name that every system and Obsidian's links take, and
the properties at the head of Markdown.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from datetime import date

from core.documents.document import Document
from core.model.store.catalogue import title_of

_NAME_CHARS = 80
_NAME_BYTES = 200  # of UTF-8: file systems of Unix take 255 with the ending
# what Windows and Unix refuse in a name, and what would end or change a link to it
_REFUSED = re.compile(r'[\\/:*?"<>|#^\[\]\x00-\x1f\x7f-\x9f]+')
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.I)


def file_name(title: str, form: str) -> str:
    """The title as a file's name, of 120 characters at most; `form`: its ending."""
    plain = _REFUSED.sub(" ", unicodedata.normalize("NFC", title))
    name = " ".join(plain.split())[: _NAME_CHARS + 40].strip(". ")
    if not name or _DEVICES.fullmatch(name):
        name = f"{name or 'book'} -"
    return f"{name}.{form}"


def short_title(title: str) -> str:
    """As much of a title as a file's name has room for, with words behind it."""
    short = " ".join(title.split())[:_NAME_CHARS]
    return short.encode()[:_NAME_BYTES].decode(errors="ignore")


def properties(book: Document | None, models: Iterable[str], day: date) -> str:
    """The head of a file of Markdown: what Obsidian shows as its properties, and others pass over."""
    titles = list(dict.fromkeys(title_of(name) for name in models if name))
    values = {
        "title": " ".join(book.title.split()) if book else "",
        "author": " ".join(book.author.split()) if book else "",
        "models": titles,
        "source": "TriForce Chat",
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value]
    return "\n".join(["---", *lines, f"date: {day.isoformat()}", "---", "", ""])
