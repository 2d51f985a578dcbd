"""What chapters are called: their titles as one would write them, and one name for several of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.documents.document import FRONT_MATTER, NOTICES, Document, Section
from core.documents.structure.headings import to_number
from core.text.words import Message, listed_texts
from core.text.words import translated as _

_NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
).replace(" ", "|")
_NUMBERED = re.compile(
    rf"^(?:(?P<word>chapter|chap\.|kapitel|chapitre|cap[ií]tulo)\s+)?(?P<number>(?-i:[IVXLC]+)|\d+|"
    rf"(?:{_NUMBERS})(?:[\s-]+(?:and\s+)?(?:{_NUMBERS}))*(?(word)(?=\W|$)|(?=[.:]|$)))"
    r"(?:[.:)\s\u2013\u2014-]+(?P<title>.*))?$",
    re.IGNORECASE,
)
_UNNAMED = re.compile(r"Section (\d+)")  # core.documents.structure calls it so
_LABEL_CHARS = 72
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
_ROMAN = re.compile(r"C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")  # without D and M: MIX is a word
_SMALL = {"a", "an", "and", "at", "by", "for", "in", "of", "on", "or", "the", "to", "with"}


@dataclass(frozen=True, slots=True)
class ChapterName:
    """A chapter's title and, where the book has several parts, the part it stands in."""

    title: str
    part: str = ""

    @property
    def number(self) -> int | None:
        """The number that the title has of its own: 3 of "III: The Return"; None without one."""
        found = _NUMBERED.match(self.title)
        return to_number(found["number"]) if found else None


def section_title(title: str) -> str:
    """A section's title for people: one that the program gave it is said in the language at hand."""
    if title == FRONT_MATTER or title in NOTICES:
        return _(title)
    number = _UNNAMED.fullmatch(title)
    return _("Section {number}").format(number=int(number[1])) if number else title


def chapter_names(document: Document, book: Sequence[Section]) -> list[ChapterName]:
    """The chapters' names, in the order of `book`."""
    parts = [section for section in document.sections if section.kind == "part"]
    names = []
    for i, section in enumerate(book):
        above = [part for part in parts if part.start <= section.start]
        title = _calm(section_title(section.title)) or _("Section {number}").format(number=i + 1)
        names.append(ChapterName(title, _part_name(above[-1].title) if len(parts) > 1 and above else ""))
    return names


def _part_name(title: str) -> str:
    """ "BOOK ONE. THE COMING OF THE MARTIANS" is Book One, "I In Norway" is In Norway."""
    first = _calm(re.split(r"[.:]\s", title)[0])
    numbered = _NUMBERED.match(first)
    return _short(numbered["title"] if numbered and numbered["title"] and not numbered["word"] else first)


def _calm(title: str) -> str:
    """A title on one line, without its full stop; one printed in capitals as one would write it."""
    if isinstance(title, Message):
        return title
    title = re.sub(r"(?<![.\s].)(?<!\.\.)\.$", "", " ".join(title.split()))
    if not title.isupper() or len(title) <= 4:
        return title
    text = _WORD.sub(_calm_word, title)
    return re.sub(r"(^|[.:\u2014-]\s*|[\"\u201c(])([a-z])", lambda match: match[1] + match[2].upper(), text)


def _calm_word(found: re.Match[str]) -> str:
    """A word as one would write it; the number of a chapter stays as it is."""
    word = found[0]
    if _ROMAN.fullmatch(word):
        return word
    return word.lower() if word.lower() in _SMALL else word.capitalize()


def range_name(names: Sequence[ChapterName], chapters: Sequence[int]) -> str:
    """A name for consecutive chapters, such as "Chapters III\u2013V: \u201cThe Return\u201d to \u201cIn the
    Golden Age\u201d"; one with its number in words is called as the book does, "Chapter One: The Fog".
    """
    first, last = names[chapters[0]], names[chapters[-1]]
    numbered = [_NUMBERED.match(name.title) for name in (first, last)]
    figures = [_figures(match["number"]) for match in numbered if match]
    in_words = first == last and not first.part and numbered[0] and figures[0] != numbered[0]["number"]
    if not all(numbered) or in_words or first.part != last.part:
        start = _inside(first.part, _short(first.title))
        if first == last:
            return start
        end = _short(last.title) if first.part == last.part else _inside(last.part, _short(last.title))
        return _("{first} to {last}").format(first=start, last=end)
    titles = dict.fromkeys(_short(match["title"]) for match in numbered if match["title"])
    tail = list(titles)
    head = _numbers(first.part, *figures, single=first == last)
    if not tail:
        return head
    quoted = _("\u201c{first}\u201d to \u201c{last}\u201d")
    name = tail[0] if len(tail) == 1 else quoted.format(first=tail[0], last=tail[1])
    return listed_texts((head, name), ": ")


def _figures(number: str) -> str:
    """A chapter's number: what words say in digits, digits and Roman numerals as they are."""
    return number if number.isdigit() or number.isupper() else str(to_number(number) or number)


def _inside(part: str, name: str) -> str:
    return f"{part}, {name}" if part else name


def _numbers(part: str, first: str, last: str, *, single: bool) -> str:
    if part:
        words = _("{part}, chapter {first}") if single else _("{part}, chapters {first}\u2013{last}")
    else:
        words = _("Chapter {first}") if single else _("Chapters {first}\u2013{last}")
    return words.format(part=part, first=first, last=last)


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_CHARS else name[: _LABEL_CHARS - 1].rsplit(" ", 1)[0] + "\u2026"
