"""Words for people: the one catalogue of user errors, notes and the page, and quantities as they are said.

English stands in the code as it is shown; other languages are gettext catalogues of the same sentences
(assets/locale). Values are put in afterwards, so that a sentence is one entry whatever it is filled with:
`_("{title} was not opened.").format(title=title)`. Everything is said, sent and stored in English: only what
renders for a person does so `in_language`, and has what comes from elsewhere `said` again (core.text.said).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from core.text import catalogues

GB = 1_000_000_000
LANGUAGES = {"en": "English", "de": "Deutsch", "zh": "简体中文"}

_QUANTITY = re.compile(r"((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?:( ?)(%|s|ms|min|h|[KMGT]B|[MG]iB|GB/s))?")
# what stands between thousands and before decimals, and units that are written otherwise
_MARKS = {"de": str.maketrans(",.", ".,")}
_UNITS = {"de": {"%": "\N{NO-BREAK SPACE}%"}, "zh": {"s": " 秒", "ms": " 毫秒", "min": " 分钟", "h": " 小时"}}

_language: ContextVar[str] = ContextVar("language", default="en")


def language() -> str:
    """The language of what is rendered now: a key of LANGUAGES."""
    return _language.get()


@contextmanager
def in_language(code: str) -> Iterator[None]:
    """While this lasts, words of this thread (or task) are those of `code`; English where there is no
    catalogue of it.
    """
    before = _language.set(code)
    try:
        yield
    finally:
        _language.reset(before)


class _Filler(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return localised(super().format_field(value, format_spec))


class Sentence(str):
    """A translated sentence: the numbers that are put in are written as its language writes them."""

    __slots__ = ()

    def format(self, *args: object, **values: object) -> str:
        """See str.format."""
        return _Filler().vformat(self, args, values)


def translated(message: str) -> str:
    """The sentence in the language at hand. Imported as `_`, the name that the extractor knows."""
    known = catalogues.of(_language.get())
    return Sentence(known.sentence(message)) if known else message


def translated_count(one: str, many: str, count: int) -> str:
    """`one` or `many`, as the language counts. Imported as `_n`."""
    known = catalogues.of(_language.get())
    return Sentence(known.counted(one, many, count)) if known else one if count == 1 else many


def marked(message: str) -> str:
    """The sentence as it is: a key in the code, translated where it is shown. Imported as `N_`, for the
    extractor.
    """
    return message


def localised(quantity: str) -> str:
    """'8,192', '9.1 GB', '92%' or '1.5 h' as the language at hand writes it; other text as it is."""
    code = _language.get()
    if code == "en" or not (found := _QUANTITY.fullmatch(quantity)):
        return quantity
    number, space, unit = found.groups(default="")
    return number.translate(_MARKS.get(code, {})) + _UNITS.get(code, {}).get(unit, space + unit)


def size(amount: float) -> str:
    """Bytes for people, in units of 1,000: 68.7 GB, below one GB in MB, below one MB in KB."""
    if amount >= GB:
        return localised(f"{amount / GB:.1f} GB")
    return localised(f"{amount / 1e6:.0f} MB" if amount >= 1e6 else f"{amount / 1e3:.0f} KB")


def duration(seconds: float) -> str:
    """A time for people: 4.2 s, 48 s, 12 min, 1.5 h."""
    if seconds < 90:
        return localised(f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s")
    return localised(f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h")
