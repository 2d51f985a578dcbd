"""Pages in a plain text, as print or a word processor left them: form feeds, page numbers, running heads."""

from __future__ import annotations

import re
from collections import Counter

_MARK = re.compile(
    r"[ \t]*(?:[-–—~]\s*(\d{1,4})\s*[-–—~]|(?:page|seite|página|pagina|стр\.?|p\.)\s*(\d{1,4})"
    r"(?:\s*(?:of|von|de|/)\s*\d+)?)[ \t]*",
    re.I,
)
_BARE = re.compile(r"[ \t]*[\[(|]?\s*(\d{1,4})\s*[\])|]?[ \t]*")
_GOES_ON = re.compile(r"[^.!?:…。！？\"”’»)\]\s*_][ \t]*\Z")
_FEWEST_PAGES = 4
_PAGE_CHARS = 4500


def without_pages(text: str) -> str:
    """The text as one, a sentence that runs over the end of a page whole again. Texts without pages stay as
    they are.
    """
    feeds = text.count("\f") >= _FEWEST_PAGES - 1
    lines = text.replace("\f", "\n\f\n").split("\n") if feeds else text.split("\n")
    marks = _numbers(lines, feeds)
    if not feeds and not marks:
        return text
    gone = marks | (_running_heads(lines) if feeds else set())
    return "\n".join(_joined(lines, gone))


def _numbers(lines: list[str], feeds: bool) -> set[int]:
    """The lines that are page numbers: those that count on from page to page."""
    found = [
        (index, value) for index, line in enumerate(lines) if (value := _value(lines, index, line, feeds))
    ]
    steps = [later - value == 1 for (_line, value), (_next, later) in zip(found, found[1:], strict=False)]
    if len(found) < _FEWEST_PAGES or sum(steps) < 0.8 * len(steps):
        return set()
    if not feeds and not _as_long_as_pages(lines, [index for index, _value in found]):
        return set()
    return {index for index, _value in found}


def _as_long_as_pages(lines: list[str], marks: list[int]) -> bool:
    """What stands between two marks is about as much each time, and no more than a page holds: else the
    numbers may be those of chapters.
    """
    sizes = sorted(
        sum(map(len, lines[first:second])) for first, second in zip(marks, marks[1:], strict=False)
    )
    usual = sizes[len(sizes) // 2]
    return usual < _PAGE_CHARS and sizes[int(0.9 * (len(sizes) - 1))] < 2 * usual


def _value(lines: list[str], index: int, line: str, feeds: bool) -> int | None:
    """The page number that the line shows; a number alone is one only beside a form feed."""
    if found := _MARK.fullmatch(line):
        return int(found.group(1) or found.group(2))
    if feeds and (found := _BARE.fullmatch(line)) and "\f" in _neighbours(lines, index):
        return int(found.group(1))
    return None


def _neighbours(lines: list[str], index: int) -> list[str]:
    """The next lines before and after that are not blank; a form feed counts as one."""
    before = next((line for line in reversed(lines[max(0, index - 4) : index]) if line.strip(" \t\r")), "")
    after = next((line for line in lines[index + 1 : index + 5] if line.strip(" \t\r")), "")
    return [before, after]


def _running_heads(lines: list[str]) -> set[int]:
    """The first lines of pages that are alike, whatever number they hold, on most of the pages."""
    tops = [
        index + step
        for index, line in enumerate(lines)
        if line == "\f"
        for step in [next((n for n in range(1, 5) if lines[index + n : index + n + 1] not in ([""], [])), 0)]
        if step
    ]
    alike = Counter(re.sub(r"\d+", "#", lines[index].strip()) for index in tops)
    head, count = alike.most_common(1)[0] if alike else ("", 0)
    if count < _FEWEST_PAGES or count < 0.4 * len(tops) or not head:
        return set()
    return {index for index in tops if re.sub(r"\d+", "#", lines[index].strip()) == head}


def _joined(lines: list[str], gone: set[int]) -> list[str]:
    """The lines without page ends; the blank lines around one go too where a sentence runs on."""
    result: list[str] = []
    ended = False
    for index, line in enumerate(lines):
        if index in gone or line == "\f":
            ended = True
            continue
        if ended and not line.strip():
            continue
        if ended:
            while result and not result[-1].strip():
                result.pop()
            goes_on = bool(result) and _GOES_ON.search(result[-1]) and line[:1].islower()
            result += [] if goes_on else [""]
            ended = False
        result.append(line)
    return result
