"""English sentences that were made elsewhere (in the engine's process, in a book's reader, on another day),
said again in the language at hand. They carry no mark of the entry that they were made of, so it is found by
what stands between their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from core.text import catalogues
from core.text.words import in_language, language, localised, translated

# values that are nobody's words, and those that name a place in a book
_NAMES = {"title", "name", "file", "folder", "path", "package", "repo", "model", "wanted", "address", "log"}
_PLACES = {"place", "part", "places", "sources", "chapter", "book"}
_NUMBERS = {"first", "last", "number", "count", "index", "total", "tokens", "resident", "layers", "page"}
_CLEAR = 7  # letters without which any title might have been made of an entry
_NUMBER = r"(?:[\d.,]+|[IVXLCDM]+)"
_FIELD = re.compile(r"\{(\w+)[^}]*\}")
_SENTENCE = re.compile(r"(?<=[.!?:]) (?=[^a-z])")
_WIDE = ("。", "：", "！", "？", "；")
_AMOUNT = re.compile(r"(.+) ([\d.,]+ [KMGT]B)")


def said(text: str) -> str:
    """The text, sentence by sentence, as far as the catalogue of the language at hand has them; the rest as
    it is. A single word is never translated: it may be the title of a chapter.
    """
    return text if catalogues.of(language()) is None else _said(language(), text)


def stage(text: str) -> str:
    """The same of what the program says that it does, perhaps in a word: no title of a chapter."""
    return said(text) if " " in text else str(translated(text)) if text else ""


@lru_cache(maxsize=4096)
def _said(code: str, text: str) -> str:
    with in_language(code):
        return _sentences(text)


def _sentences(text: str) -> str:
    """As many sentences at once as make an entry; then the rest."""
    pieces = _SENTENCE.split(text)
    for count in range(len(pieces), 0, -1):
        told = _entry(" ".join(pieces[:count]), clearly=True)
        if told is None and count == 1 and text.startswith(f"{pieces[0][:-1]}: "):
            told = _headed(pieces[0])
        if told is not None or count == 1:
            rest = _sentences(" ".join(pieces[count:])) if pieces[count:] else ""
            return _joined(pieces[0] if told is None else told, rest)
    return text


def _joined(first: str, rest: str) -> str:
    """Two sentences; behind a full stop that brings its own space stands no other."""
    between = "" if not rest or first.endswith(_WIDE) else " "
    return first + between + rest


def _headed(head: str) -> str | None:
    """A label before a name, such as "Chapter 3:"."""
    told = _entry(head[:-1], clearly=True)
    return None if told is None else f"{told}:"


def _entry(text: str, *, clearly: bool) -> str | None:
    """What one entry makes of all of the text; None where none does. `clearly`: no title looks like it."""
    if " " in text and text in catalogues.of(language()).forms:
        return _filled(str(translated(text)), {})
    for message, shape, clear in _shapes(language()):
        if (clear or not clearly) and (found := shape.fullmatch(text)):
            return _filled(str(translated(message)), found.groupdict())
    return None


def _phrase(text: str) -> str | None:
    """What an entry makes of a text that may have become a sentence: with a capital and a full stop."""
    bare, stop = (text[:-1], ".") if text.endswith(".") else (text, "")
    small = bare[:1].lower() + bare[1:]
    for one, clearly in ((text, True), (small, True), (small, False), (text, False)):
        told = _entry(one, clearly=clearly)
        if told is not None and one == small != text:
            return (told[:1].upper() + told[1:] if small != bare else told) + stop
        if told is not None:
            return told
    return None


def _filled(message: str, values: Mapping[str, str]) -> str:
    one = {"count": "1"}  # which an English singular need not say
    told = one | {name: _value(name, value) for name, value in values.items()}
    return _FIELD.sub(lambda field: told.get(field[1], field[0]), message)


def _value(name: str, text: str) -> str:
    """A value that stood in a sentence: perhaps a sentence itself, an enumeration, or a quantity."""
    if name in _NAMES:
        return text
    told = _phrase(text) if name not in _PLACES else _entry(text, clearly=True)
    if told is not None:
        return told
    for mark in ("; ", ", "):
        if mark in text:
            return mark.join(_value(name, part) for part in text.split(mark))
    if amount := _AMOUNT.fullmatch(text):
        return f"{translated(amount[1])} {localised(amount[2])}"
    return localised(text)


@cache
def _shapes(code: str) -> list[tuple[str, re.Pattern, bool]]:
    """(entry, what a text made of it looks like, whether nothing else does), the longest first."""
    found = []
    for message in catalogues.of(code).forms:
        letters = len(re.sub(r"[^\w]", "", _FIELD.sub("", message)))
        if letters and (names := _FIELD.findall(message)):
            numbers = letters < _CLEAR and _NUMBERS.issuperset(names)
            clear = numbers or letters >= _CLEAR
            found.append((letters, message, _shape(message, _NUMBER if numbers else ".*?"), clear))
    return [entry[1:] for entry in sorted(found, key=lambda entry: -entry[0])]


def _shape(message: str, value: str) -> re.Pattern:
    seen: set[str] = set()
    pattern, end = "", 0
    for field in _FIELD.finditer(message):
        name = field[1]
        pattern += re.escape(message[end : field.start()])
        pattern += f"(?P={name})" if name in seen else f"(?P<{name}>{value})"
        seen.add(name)
        end = field.end()
    return re.compile(pattern + re.escape(message[end:]), re.DOTALL)
