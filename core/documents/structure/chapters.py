"""Accounts of where the chapters begin that the text itself gives: a printed contents list, marked headings,
lines that look like headings. Which of them to believe is decided in `readings`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from core.documents.structure.blocks import Block, ContentsEntry
from core.documents.structure.body import Body
from core.documents.structure.headings import Heading, read_heading

_MAX_LINES = 3
_MANY_BELOW_TWO = 4  # headings below two of the first level: then these are no chapters
_SURE_ENTRIES = 5  # fewer lines that come again may do so by chance
_LIST_GAP_CHARS = 80  # between two entries of a printed contents list: a name, a page number
Numbered = tuple[int, Heading]  # a block and the heading it may be


# ---- a printed list of contents ----


def by_contents_page(body: Body) -> list[ContentsEntry]:
    """The entries of a contents list whose headings come again in the body, in order."""
    page = body.contents
    return [ContentsEntry("Contents", 1, page.start), *page.found] if page else []


# ---- headings the file itself marks (HTML h1-h6, Markdown #, Word styles, large type) ----


def by_marked_headings(body: Body) -> list[ContentsEntry]:
    """The headings down to the level of the chapters."""
    blocks, first, last = body.blocks, body.first, body.last
    headings = [(index, blocks[index]) for index in range(first, last) if blocks[index].heading]
    headings = [(index, block) for index, block in headings if len(block.text) <= 200]
    if len(headings) < 2:
        return []
    level = _chapter_level([block for _, block in headings])
    if level is None:
        return []
    chosen = [(index, block) for index, block in headings if block.heading <= level]
    ranks = {
        rank: position for position, rank in enumerate(sorted({block.heading for _, block in chosen}), 1)
    }
    once_on_top = sum(block.heading == min(ranks) for _, block in chosen) == 1 and len(ranks) > 1
    return [
        ContentsEntry(" ".join(block.text.split()), max(1, ranks[block.heading] - once_on_top), index)
        for index, block in chosen
    ]


def _chapter_level(headings: list[Block]) -> int | None:
    """The heading level whose members are the chapters: the one with most labels, else the first with several
    members.
    """
    labelled = Counter(
        block.heading
        for block in headings
        if (found := read_heading(block.text)) and found.word != "special" and not found.is_part
    )
    level, count = labelled.most_common(1)[0] if labelled else (0, 0)
    if count >= 3:
        return level
    members = Counter(block.heading for block in headings)
    levels = [level for level in sorted(members) if members[level] >= 2]
    if len(levels) > 1 and members[levels[0]] == 2 and members[levels[1]] >= _MANY_BELOW_TWO:
        return levels[1]  # two parts, or a title and an appendix
    return levels[0] if levels else None


# ---- label lines in plain text ----


def labelled_lines(body: Body) -> list[int]:
    """The blocks that say "Chapter 7" or the like, outside of contents lists. Empty when there are few or all
    stand in one corner of the book, as the sections of a licence do.
    """
    found = [index for index, heading in _labelled(_candidates(body), least=3) if not heading.is_part]
    return found if found and body.words(found[0], found[-1]) > 0.4 * body.total else []


def by_labels(body: Body) -> list[ContentsEntry]:
    """Lines that say "Chapter 7" or "Part Two"; where there are none, numerals that count on."""
    candidates = _candidates(body)
    labelled = _labelled(candidates, least=2)
    words = {heading.word for _index, heading in labelled}
    if not any(not Heading(word, None, "").is_part for word in words):
        labelled += _counted_numerals(candidates, bool(words))
    if len(labelled) < 2:
        return []
    # a "Part Two" whose first part has no label, and whatever has a name of its own
    singles = [
        pair
        for pair in candidates
        if pair not in labelled and (pair[1].word == "special" or (pair[1].is_part and not words - {""}))
    ]
    return _as_marks(sorted([*labelled, *singles], key=lambda pair: pair[0]), body)


def by_numbers(body: Body) -> list[ContentsEntry]:
    """Headings that count 1, 2, 3 in whatever form, as in a book that changes it midway."""
    candidates = _candidates(body)
    run = _longest_count([pair for pair in candidates if pair[1].number and not pair[1].is_part])
    if len(run) < 3:
        return []
    special = [pair for pair in candidates if pair[1].word == "special"]
    return _as_marks(sorted([*run, *special], key=lambda pair: pair[0]), body)


def _as_marks(chosen: list[Numbered], body: Body) -> list[ContentsEntry]:
    """Marks for the lines, with the names that follow bare labels; chapters lie below the parts, if any."""
    blocks, last = body.blocks, body.last
    parts = _part_like(chosen)
    below = bool(parts) and any(index not in parts and heading.word != "special" for index, heading in chosen)
    named = _titles_follow(blocks, chosen, last)
    marks: list[ContentsEntry] = []
    for index, heading in chosen:
        title = " ".join(blocks[index].text.split()).strip("_*[] ")
        if named and heading.is_bare and _could_be_title(blocks, index + 1, last):
            title = join_title(title, blocks[index + 1].text)
        above = not below or index in parts or heading.word == "special"
        marks.append(ContentsEntry(title, 1 if above else 2, index))
    return marks


def _part_like(chosen: list[Numbered]) -> set[int]:
    """The lines that stand above the others: "Part Two", or roman numerals among fewer than half as many
    arabic ones.
    """
    parts = {index for index, heading in chosen if heading.is_part}
    forms = Counter(heading.form for _index, heading in chosen if heading.word == "" and heading.number)
    if len(forms) == 2:
        (_many, most), (few, least) = forms.most_common()
        if 2 * least < most:
            parts |= {index for index, heading in chosen if heading.word == "" and heading.form == few}
    return parts


def _labelled(candidates: list[Numbered], *, least: int) -> list[Numbered]:
    """Those with a label that comes at least so often; labels that only come between two chapters, such as
    "Section 2", stand below them.
    """
    words = Counter(heading.word for _index, heading in candidates if heading.word not in ("", "special"))
    chosen = [pair for pair in candidates if words[pair[1].word] >= least]
    chapters = [index for index, heading in chosen if heading.is_chapter]
    if len(chapters) < least:
        return chosen
    inside = Counter(heading.word for index, heading in chosen if chapters[0] < index < chapters[-1])
    return [
        (index, heading)
        for index, heading in chosen
        if heading.is_chapter or heading.is_part or 2 * inside[heading.word] < words[heading.word]
    ]


def _counted_numerals(candidates: list[Numbered], below_parts: bool) -> list[Numbered]:
    """Bare numerals of the form that counts furthest, and those of another form that stand above them."""
    numerals = [pair for pair in candidates if pair[1].word == "" and pair[1].number]
    forms = {heading.form for _index, heading in numerals}
    runs = [_longest_count([pair for pair in numerals if pair[1].form == form]) for form in forms]
    runs.sort(key=len, reverse=True)
    if not runs or not runs[0]:
        return []
    above = runs[1] if len(runs) > 1 and not below_parts and 2 * len(runs[1]) < len(runs[0]) else []
    return [*runs[0], *above]


def _candidates(body: Body) -> list[Numbered]:
    """The lines that may be headings, without those of a contents list."""
    page = body.contents
    inside = range(page.start + 1, page.end) if page else range(0)
    return _without_contents_list(
        body.blocks, [(index, heading) for index, heading in body.headings if index not in inside]
    )


def _without_contents_list(blocks: Sequence[Block], candidates: list[Numbered]) -> list[Numbered]:
    """Three and more lines close together, most of which come again further on as headings, are a list of
    contents. Its last lines that do not come again are the first headings of the body.
    """
    keys = [
        (heading.word, heading.number, "" if heading.number else heading.rest) for _i, heading in candidates
    ]
    result: list[Numbered] = []
    start = 0
    while start < len(candidates):
        end = start + 1
        while (
            end < len(candidates)
            and _close(blocks, candidates[end - 1][0], candidates[end][0])
            and keys[end] not in keys[start:end]
        ):
            end += 1
        later = set(keys[end:])
        numbers = {key[1:] for key in later}
        again = [key in later or (not key[0] and key[1:] in numbers) for key in keys[start:end]]
        listed = end - start if end - start >= 3 and 2 * sum(again) >= end - start else 0
        while listed and not again[listed - 1]:
            listed -= 1
        result += candidates[start + listed : end]
        start = end
    return result


def _close(blocks: Sequence[Block], first: int, second: int) -> bool:
    return sum(len(block.text) for block in blocks[first + 1 : second]) < _LIST_GAP_CHARS


def _longest_count(candidates: list[Numbered]) -> list[Numbered]:
    """The longest run that counts 1, 2, 3, ... (and may begin again at 1); empty when shorter than three."""
    # (length, previous position) of the best run that ends at each candidate
    best: list[tuple[int, int]] = []
    # number -> position of the candidate that ends the longest run with it
    last_with: dict[int, int] = {}
    longest = -1
    for position, (_, heading) in enumerate(candidates):
        number = heading.number or 0
        previous = (
            last_with.get(number - 1, -1)
            if number > 1
            else (longest if longest >= 0 and best[longest][0] >= 3 else -1)
        )
        if number > 1 and previous < 0:
            best.append((0, -1))
            continue
        best.append((best[previous][0] + 1 if previous >= 0 else 1, previous))
        old = last_with.get(number)
        if old is None or (best[position][0], bool(heading.word)) >= (
            best[old][0],
            bool(candidates[old][1].word),
        ):
            last_with[number] = position
        if longest < 0 or best[position][0] > best[longest][0]:
            longest = position
    if longest < 0 or best[longest][0] < 3:
        return []
    run = []
    while longest >= 0:
        run.append(candidates[longest])
        longest = best[longest][1]
    return run[::-1]


def _titles_follow(blocks: Sequence[Block], chosen: list[Numbered], last: int) -> bool:
    """True when most bare labels are followed by a short line: then those lines are the chapters' names."""
    bare = [index for index, heading in chosen if heading.is_bare]
    return bool(bare) and sum(_could_be_title(blocks, index + 1, last) for index in bare) > 0.6 * len(bare)


def _could_be_title(blocks: Sequence[Block], index: int, last: int) -> bool:
    if index >= last:
        return False
    text = blocks[index].text.strip()
    return (
        len(text) <= 90
        and text.count("\n") < _MAX_LINES
        and not re.search(r"[,;:]\Z|\A[“\"‘_]", text)
        and read_heading(text) is None
        and not text[:1].islower()
    )


def join_title(label: str, name: str) -> str:
    """ "CHAPTER ONE" and "THE EVE OF THE WAR" as one title; bare numerals take a space only."""
    label, name = " ".join(label.split()), " ".join(name.split())
    heading = read_heading(label)
    gap = (
        " "
        if label.endswith((".", ":", "—")) or (heading and heading.word == "" and heading.is_bare)
        else ". "
    )
    return f"{label}{gap}{name}"


def _always(trust: float) -> Callable[[list[ContentsEntry], Body], float]:
    return lambda _found, _body: trust


def _of_contents_page(found: list[ContentsEntry], body: Body) -> float:
    """A list of which every line is a heading of the body was made for this text."""
    listed = len(body.contents.entries) if body.contents else 0
    return 0.88 if listed >= _SURE_ENTRIES and len(found) - 1 >= 0.9 * listed else 0.81


Account = Callable[[Body], list[ContentsEntry]]
Trust = Callable[[list[ContentsEntry], Body], float]
# each with how far it is to be believed where two tell about the same; the file's own contents count 1
ACCOUNTS: tuple[tuple[Account, Trust], ...] = (
    (by_marked_headings, _always(0.85)),
    (by_labels, _always(0.84)),
    (by_contents_page, _of_contents_page),
    (by_numbers, _always(0.78)),
)
