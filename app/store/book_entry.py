"""What the shelf shows of a book without opening it, and how that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from core.documents.document import Document

_KINDS = {"str": str, "int": int, "float": int | float, "bool": bool, "float | None": int | float | None}


@dataclass(frozen=True, slots=True)
class BookEntry:
    """What the shelf shows of a book without opening it."""

    id: str
    title: str
    author: str
    format: str
    words: int
    chapters: int
    opened: float
    tokens: int = 0  # of its text, for the model that read it last
    series: str = ""  # as its file says; "" and None where it does not
    volume: float | None = None
    named: bool = False  # by the person: whatever its file says, title and author stay
    missing: bool = False  # its text is no longer in the data folder
    away: bool = False  # with the whole data folder: as where its drive was pulled out

    @classmethod
    def of(cls, document: Document, *, opened: float, tokens: int = 0, named: bool = False) -> BookEntry:
        """Of a book that was just read."""
        return cls(
            id=document.sha256,
            title=document.title,
            author=document.author,
            format=document.format,
            words=document.words,
            chapters=len(document.chapters),
            opened=opened,
            tokens=tokens,
            named=named,
            series=document.series,
            volume=document.volume,
        )

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> BookEntry:
        """As it was stored, without what a newer version added. Raises TypeError for another form."""
        entry = cls(**{one.name: stored[one.name] for one in fields(cls) if one.name in stored})
        for one in fields(cls):
            value = getattr(entry, one.name)
            if not isinstance(value, _KINDS[one.type]):
                raise TypeError(f"{one.name} is {value!r}")
        return entry
