"""Lines in reading order to paragraphs: what belongs together across lines, columns and pages. Pure functions
on lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from core.documents.files.clean import paragraph
from core.documents.pdf.layout import PageLayout, Region, ends_with_pages
from core.documents.pdf.page import CJK, NOTE_CLOSE, NOTE_OPEN, LinePiece
from core.documents.structure.blocks import Block

_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_ENDS_SENTENCE = re.compile(r"[.!?:…。！？؟۔][”’\"')\]»」』" + NOTE_OPEN + NOTE_CLOSE + r"\d*]*\Z")
_HYPHENS = ("-", "\u00ad", "\u2010")
_HYPHEN_END = re.compile(r"([^\W\d_]+)[-\u00ad\u2010]\Z")
_CJK = re.compile(CJK)
_MARKS = re.compile(f"{NOTE_OPEN}([^{NOTE_CLOSE}]*){NOTE_CLOSE}")
_PREFIXES = frozenset(
    [
        "self",
        "well",
        "ill",
        "half",
        "quasi",
        "semi",
        "ex",
        "vice",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "seventy",
        "eighty",
        "ninety",
    ]
)
_SUFFIXES = frozenset(
    [
        "shaped",
        "fashioned",
        "looking",
        "colored",
        "coloured",
        "natured",
        "minded",
        "hearted",
        "headed",
        "eyed",
    ]
)
_INDENT = 0.7  # of the font size
_HEADING_SIZE = 1.15  # of the body size
_OTHER_SIZE = 0.03


@dataclass(slots=True)
class OpenParagraph:
    """A paragraph while it grows, and where it began."""

    line: LinePiece  # its last line
    region: Region
    page: int
    y: float
    size: float
    text: str
    breaks: list[tuple[int, int]] = field(default_factory=list)
    first_x0: float = 0.0
    lines: int = 1
    notes: list[OpenParagraph] = field(default_factory=list)


def vocabulary(pages: Iterable[list[LinePiece]]) -> Counter[str]:
    """How often each word stands whole in the text: neither the end of a broken line nor the start of the one
    after.
    """
    known: Counter[str] = Counter()
    broken = False
    for lines in pages:
        for line in lines:
            words = _WORD.findall(line.text.lower())
            known.update(words[1 if broken else 0 :])
            broken = line.text.endswith(_HYPHENS) and bool(_HYPHEN_END.search(line.text[-60:]))
            if broken and words:
                known[words[-1]] -= 1
    return known


def glued_words(known: Counter[str]) -> dict[str, int]:
    """Words seen once or twice that may be two words of the book run together, and where the second begins:
    "leanwolf" -> 4.
    """
    usable = {
        word
        for word, count in known.items()
        if count >= (1 if len(word) > 3 else 3 if len(word) == 3 else 20)
    }
    result = {}
    for word, count in known.items():
        if 0 < count <= 2 and len(word) >= 5 and word.isalpha():
            parts = [cut for cut in range(2, len(word) - 1) if word[:cut] in usable and word[cut:] in usable]
            if parts:
                result[word] = max(parts, key=lambda cut: min(known[word[:cut]], known[word[cut:]]))
    return result


def to_blocks(
    layouts: Sequence[PageLayout], *, body: float, known: Counter[str], openings: dict[int, list[float]]
) -> tuple[list[Block], list[tuple[int, float]]]:
    """The blocks, and the place (page, y of the first line) of each. Footnotes follow the paragraph they
    belong to.

    `openings`: page -> heights at which the outline lets a chapter begin; no paragraph runs across one.
    """
    done: list[OpenParagraph] = []
    current: OpenParagraph | None = None
    for layout in layouts:
        notes = {mark: _note(mark, lines, known) for mark, lines in layout.notes}
        for region in layout.regions:
            for line, following in zip(region.lines, (*region.lines[1:], None), strict=True):
                text = _without_marks(line.text, notes)
                if (
                    current is None
                    or _begins(current, line, region, body, openings)
                    or _one_after_another(current, line, following, region)
                ):
                    done += _with_notes(current)
                    current = OpenParagraph(
                        line, region, line.page, line.y, line.size, text, [(0, line.page)], line.x0
                    )
                else:
                    _add(current, line, region, text, _relation(current, line, region, body), known)
                current.notes += [notes.pop(mark) for mark in _MARKS.findall(line.text) if mark in notes]
        if current:
            current.notes += notes.values()
    return _finished(done + _with_notes(current), body)


def _begins(
    open_: OpenParagraph, line: LinePiece, region: Region, body: float, openings: dict[int, list[float]]
) -> bool:
    return (
        _opens(openings.get(line.page, ()), open_.line, line)
        or _relation(open_, line, region, body) == "break"
    )


def _with_notes(item: OpenParagraph | None) -> list[OpenParagraph]:
    return [item, *item.notes] if item else []


def _without_marks(text: str, marks: Container[str]) -> str:
    """A raised mark is dropped when its note stands on this page, else shown as "[3]"."""
    return _MARKS.sub(lambda found: "" if found.group(1) in marks else f"[{found.group(1)}]", text)


def _opens(heights: Sequence[float], last: LinePiece, line: LinePiece) -> bool:
    """True when a chapter begins between the last line and this one."""
    return any(line.y <= height + 4 and (last.page != line.page or last.y > height + 4) for height in heights)


def _note(mark: str, lines: tuple[LinePiece, ...], known: Counter[str]) -> OpenParagraph:
    first = lines[0]
    region = Region(lines, first.x0, first.x1, first.size)
    note = OpenParagraph(first, region, first.page, first.y, first.size, f"[{mark}] {first.text}")
    for line in lines[1:]:
        _add(note, line, region, line.text, "join", known)
    note.breaks = []
    return note


def _finished(done: list[OpenParagraph], body: float) -> tuple[list[Block], list[tuple[int, float]]]:
    sizes = sorted({round(item.size) for item in done if _is_heading(item, body)}, reverse=True)
    blocks, places = [], []
    for item in done:
        text = paragraph(_MARKS.sub(r"[\1]", item.text))
        if not text:
            continue
        heading = min(6, sizes.index(round(item.size)) + 1) if _is_heading(item, body) else 0
        breaks = tuple((min(offset, len(text)), page) for offset, page in item.breaks)
        blocks.append(Block(text, heading, breaks))
        places.append((item.page, item.y))
    return blocks, places


def _is_heading(item: OpenParagraph, body: float) -> bool:
    return item.size > _HEADING_SIZE * body and len(item.text) <= 200 and any(map(str.isalpha, item.text))


# ---- does a line go on where the last one ended? ----


def _relation(open_: OpenParagraph, line: LinePiece, region: Region, body: float) -> str:
    """ "join" (one sentence goes on), "line" (a line of verse or a list, an entry of an index), or "break" (a
    new paragraph).
    """
    last = open_.line
    same = open_.region is region
    if abs(last.size - line.size) > 0.12 * max(last.size, line.size):
        return "break"
    if line.size > _HEADING_SIZE * body:
        return "join" if same and last.y - line.y < 2.2 * line.size else "break"
    if line.text[:1].islower() and last.text.endswith(_HYPHENS) and _HYPHEN_END.search(last.text[-60:]):
        return "join"
    if same and not 0 < last.y - line.y <= 1.4 * region.leading:
        return "break"
    more_pages = line.text[:1].isdigit()
    if open_.region.listed and (more_pages or ends_with_pages(last)):
        return "join" if more_pages else "line"
    if not same and line.text[:1].islower() and not _ENDS_SENTENCE.search(last.text[-12:]):
        return "join"  # a sentence runs over the end of a column or a page
    indented = line.x0 - (last.x0 if same else region.left)
    if region.hanging and same:
        return "break" if line.x0 - region.left < 2 else "join"
    if indented > _INDENT * line.size:
        return "line" if _centred(last, open_.region) and _centred(line, region) else "break"
    if same and last.x0 - line.x0 > _INDENT * line.size and open_.lines > 1 and open_.first_x0 - last.x0 < 1:
        return "break"  # the end of an indented quotation
    if _ends_early(last, open_.region, line):
        other_size = abs(last.size - line.size) > _OTHER_SIZE * line.size  # a heading a little larger
        return "break" if _ENDS_SENTENCE.search(last.text[-12:]) or not same or other_size else "line"
    return "join"


def _one_after_another(
    open_: OpenParagraph, line: LinePiece, following: LinePiece | None, region: Region
) -> bool:
    """True for the indented first line of a paragraph right below a paragraph of one line, as in a dialogue:
    seen by the line after it, which goes back to the margin, or by its quotation mark. Lines indented alike
    are else a quotation or verse.
    """
    last, indent = open_.line, _INDENT * line.size
    alike = (
        open_.lines == 1
        and open_.region is region
        and abs(line.x0 - last.x0) < 1
        and line.x0 - region.left > indent
    )
    if not alike or region.hanging or _centred(last, region) or not _ENDS_SENTENCE.search(last.text[-12:]):
        return False
    back = (
        following is not None and line.x0 - following.x0 > indent and not _ends_early(line, region, following)
    )
    return back or line.text.startswith(("“", '"', "„", "«", "—"))


def _centred(line: LinePiece, region: Region) -> bool:
    inside = line.x0 > region.left + 2 * line.size and line.x1 < region.right - 2 * line.size
    off_centre = (line.x0 + line.x1) / 2 - (region.left + region.right) / 2
    return inside and abs(off_centre) < 0.05 * (region.right - region.left)


def _ends_early(last: LinePiece, region: Region, line: LinePiece) -> bool:
    """The next line's first word would have fitted: the last line was ended on purpose."""
    letter = (last.x1 - last.x0) / max(1, len(last.text))
    word = line.text[:1] if _CJK.match(line.text) else line.text.split(" ", 1)[0]
    return region.right - last.x1 > letter * (len(word) + 1) + 0.8 * last.size


# ---- joining ----


def _add(
    open_: OpenParagraph, line: LinePiece, region: Region, text: str, how: str, known: Counter[str]
) -> None:
    if how == "line":
        joined = open_.text + "\n"
    else:
        joined, text = _seam(open_.text, text, known)
    if line.page != open_.line.page:
        open_.breaks.append((len(joined), line.page))
    open_.text = joined + text
    open_.line, open_.region = line, region
    open_.lines += 1


def _seam(before: str, after: str, known: Counter[str]) -> tuple[str, str]:
    """The two sides of a line end, ready to be put together: with a space, without one, or with the word made
    whole.
    """
    tail = before[-60:]
    found = _HYPHEN_END.search(tail) if tail.endswith(_HYPHENS) else None
    following = _WORD.match(after)
    if found and following:
        compound = tail[: found.start()].endswith("-") or (
            after[0].isupper() and not found.group(1).isupper()
        )
        if compound or _keeps_hyphen(found.group(1).lower(), following.group().lower(), known):
            return before[:-1] + "-", after
        return before[:-1], after
    if tail.endswith(("-", "\u00ad", "\u2010")) and not tail.endswith(" -"):
        return before, after
    if before and after and _CJK.match(before[-1]) and _CJK.match(after[0]):
        return before, after
    return (before, after) if before.endswith(("—", "/")) else (before + " ", after)


def _keeps_hyphen(first: str, second: str, known: Counter[str]) -> bool:
    """ "well-" "known" keeps it, "under-" "stand" does not: as the rest of the book spells it, else by its
    parts.
    """
    whole, parted = known[first + second], known[f"{first}-{second}"]
    if whole or parted:
        return parted > whole
    if first in _PREFIXES or second in _SUFFIXES:
        return True
    head = second.split("-")[0]
    return known[first] > 0 and known[head] > 0 and len(first) >= 3 and len(head) >= 3
