"""Words for people: the one catalogue of user errors, notes and the page, and quantities as they are said.

English stands in the code as it is shown; other languages are gettext catalogues of the same sentences
(assets/locale). Values are put in afterwards, so that a sentence is one entry whatever it is filled with:
`_("{title} was not opened.").format(title=title)`. What comes of that is a `Message`: it is sent and stored
as its entry and its values (core.text.packing), and `localized` where it is shown, in the language of whoever
looks.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
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

# a full stop of Chinese brings its own space
_SPACED = re.compile(r"(?<=[。：！？；]) ")

Value = str | int | float

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


class Message(str):
    """What is said to a person: `template`, an entry of the catalogues (its English sentence), and the
    `values` that fill it, or None before that; of a counted entry also its English of `many` and the `count`.

    As text it reads in the language at hand when it was made; `localized` says it in another. Whatever takes
    a string takes it: an error, a log, a template. Only core.text.packing knows how it travels and is kept.
    """

    __slots__ = ("count", "many", "template", "values")

    template: str
    values: Mapping[str, Value] | None
    many: str
    count: int

    def __new__(
        cls, template: str, values: Mapping[str, Value] | None = None, *, many: str = "", count: int = 0
    ) -> Message:
        """Raises KeyError, ValueError or IndexError where the values are not those of the entry."""
        made = super().__new__(cls, _filled(entry(template, many, count), values))
        made.template, made.values, made.many, made.count = template, values, many, count
        return made

    def format(self, **values: object) -> Message:
        """The entry filled with numbers, texts and messages; anything else is said as its text."""
        bound = {name: _value(value) for name, value in values.items()}
        return Message(self.template, bound, many=self.many, count=self.count)

    def __str__(self) -> Message:
        """Itself: `str(error)` is still the message."""
        return self

    def __reduce__(self) -> tuple:
        return _made, (self.template, self.values, self.many, self.count)

    def __copy__(self) -> Message:
        return self

    def __deepcopy__(self, memo: dict) -> Message:
        return self


def localized(text: str) -> str:
    """A message in the language at hand; other text (a title, what an older version kept) as it is."""
    if not isinstance(text, Message):
        return text
    return _filled(entry(text.template, text.many, text.count), text.values)


def reread(text: str) -> str:
    """A message that reads in the language at hand as text, too; other text as it is."""
    if not isinstance(text, Message):
        return text
    return Message(text.template, text.values, many=text.many, count=text.count)


def joined_sentences(*said: str) -> Message:
    """Sentences one after the other, as one message."""
    return listed_texts(said, " ")


def listed_texts(parts: Iterable[str], mark: str | None = None) -> Message:
    """Messages and other texts with a mark between them, as one message. `mark`: None for that of a list in
    the language at hand.
    """
    values = {f"part{index}": _value(part) for index, part in enumerate(parts)}
    if mark is not None:
        return Message(mark.join(f"{{{name}}}" for name in values), values)
    template = "{mark}".join(f"{{{name}}}" for name in values)
    return Message(template, {**values, "mark": _(", ")})


def _made(template: str, values: Mapping[str, Value] | None, many: str, count: int) -> Message:
    return Message(template, values, many=many, count=count)


def _value(value: object) -> Value:
    return value if isinstance(value, str | int | float) else str(value)


def entry(template: str, many: str = "", count: int = 0) -> str:
    """The sentence in the language at hand, before it is filled; with `many` its form for `count`."""
    known = catalogues.of(_language.get())
    if not many:
        return known.sentence(template) if known else template
    if known:
        return known.counted(template, many, count)
    return template if count == 1 else many


def _filled(sentence: str, values: Mapping[str, Value] | None) -> str:
    if values is None:
        return localised(sentence)
    here = {name: localized(value) if isinstance(value, Message) else value for name, value in values.items()}
    if _language.get() == "en":
        return sentence.format_map(here)
    filled = _FILLER.vformat(sentence, (), here)
    return _SPACED.sub("", filled) if _language.get() == "zh" else filled


class _Filler(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """Numbers and quantities are written as the language at hand writes them."""
        return localised(super().format_field(value, format_spec))


_FILLER = _Filler()


def translated(message: str) -> Message:
    """The entry of the catalogues, in the language at hand. Imported as `_`, the name that the extractor
    knows.
    """
    return Message(message)


_ = translated  # a list's mark is an entry, too


def translated_count(one: str, many: str, count: int) -> Message:
    """The entry in its form for `count`. Imported as `_n`."""
    return Message(one, many=many, count=count)


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


def size(amount: float) -> Message:
    """Bytes for people, in units of 1,000: 68.7 GB, below one GB in MB, below one MB in KB."""
    if amount >= GB:
        return Message(f"{amount / GB:.1f} GB")
    return Message(f"{amount / 1e6:.0f} MB" if amount >= 1e6 else f"{amount / 1e3:.0f} KB")


def duration(seconds: float) -> Message:
    """A time for people: 4.2 s, 48 s, 12 min, 1.5 h. Nothing takes no time: 0.1 s is the least."""
    if seconds < 90:
        return Message(f"{max(seconds, 0.1):.1f} s" if seconds < 10 else f"{seconds:.0f} s")
    return Message(f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h")
