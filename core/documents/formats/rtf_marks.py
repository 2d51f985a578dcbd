"""Marks in the source of a rich text (RTF): what its control words say of paragraphs, headings, rows and
notes, as private characters that come through the reading of its words. Knows no other format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PARAGRAPH = "\ue010"  # the end of running text; the nine after it end a heading of level 1 to 9
ROW = "\ue01a"  # the end of a table's row
NOTE_OPEN, NOTE_CLOSE = "\ue01b", "\ue01c"  # around a note, at the place it belongs to
_LEVELS = 9
_WORDS = re.compile(
    r"\\[\\{}]|([{}])|\\(pard|par|row|footnote|chftn)(?![a-z])-?\d* ?"
    r"|\\(s|outlinelevel)(\d{1,4})(?![a-z\d]) ?"
)
_STYLE = re.compile(r"\{((?:\\[a-z]+-?\d*|\\\*|\s)*)([^{};\\]*);?\s*\}")
_DEEPEST = 10_000
_HEADING = re.compile(r"(?:heading|überschrift|titre|标题|título|заголовок)\s*(\d)", re.I)


@dataclass(slots=True)
class _Group:
    """What holds inside a pair of braces. `level`: of a heading by itself, `style`: of its paragraph."""

    level: int | None = None
    style: int = 0
    note: bool = False


@dataclass(slots=True)
class _Marking:
    styles: dict[int, int]
    out: list[str] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=lambda: [_Group()])

    def brace(self, sign: str) -> None:
        if sign == "{":
            above = self.groups[-1]
            if len(self.groups) > _DEEPEST:
                raise ValueError("groups too deep")
            self.groups.append(_Group(above.level, above.style))
        elif len(self.groups) > 1:
            self.out.append(NOTE_CLOSE if self.groups.pop().note else "")
        self.out.append(sign)

    def word(self, word: str, source: str) -> None:
        group = self.groups[-1]
        if word == "footnote":
            group.note = True
            source = NOTE_OPEN
        elif word == "chftn":
            source = ""
        elif word == "pard":
            group.level, group.style = None, 0
        elif word == "par":
            level = self.styles.get(group.style, 0) if group.level is None else group.level
            source = chr(ord(PARAGRAPH) + level) + source
        elif word == "row":
            source = ROW + source
        self.out.append(source)

    def number(self, word: str, value: int) -> None:
        if word == "s":
            self.groups[-1].style = value
        else:
            self.groups[-1].level = value + 1 if value < _LEVELS else 0


def marked_source(source: str) -> str:
    """The source with private characters where paragraphs, rows and notes end, notes no longer left out."""
    marking, last = _Marking(_heading_styles(source)), 0
    for found in _WORDS.finditer(source):
        marking.out.append(source[last : found.start()])
        last = found.end()
        brace, word, property_, value = found.groups()
        if brace:
            marking.brace(brace)
        elif word:
            marking.word(word, found.group())
        else:
            marking.out.append(found.group())
            if property_:
                marking.number(property_, int(value))
    marking.out.append(source[last:])
    return "".join(marking.out)


def _heading_styles(source: str) -> dict[int, int]:
    """Style number -> level of heading, 1 to 9: by its outline level, its name or the style below it."""
    begin = source.find("{\\stylesheet")
    if begin < 0:
        return {}
    levels: dict[int, int] = {}
    bases: dict[int, int] = {}
    for controls, name in _STYLE.findall(source, begin, begin + 200_000):
        number = re.search(r"\\s(\d{1,4})(?!\d)", controls)
        own = re.search(r"\\outlinelevel(\d)(?!\d)", controls)
        named = _HEADING.fullmatch(name.strip())
        base = re.search(r"\\sbasedon(\d{1,4})(?!\d)", controls)
        style = int(number.group(1)) if number else 0
        if own and int(own.group(1)) < _LEVELS:
            levels[style] = int(own.group(1)) + 1
        elif named and not own:
            levels[style] = int(named.group(1))
        elif base and not own:
            bases[style] = int(base.group(1))
    for style in bases:
        above, seen = style, set()
        while above in bases and above not in seen:
            seen.add(above)
            above = bases[above]
        if above in levels:
            levels[style] = levels[above]
    levels.pop(0, None)
    return levels
