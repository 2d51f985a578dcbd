"""Chapters for files without a usable table of contents: from a printed contents page, marked headings, or
label lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from core.documents.blocks import Block, Mark
from core.documents.headings import Heading, read_heading

_MAX_LINES = 3
_LEADER = re.compile(r"[\s.·…_]*(?:\b\d{1,4}|\b[ivxlc]{1,7})?\s*\Z")
_CONTENTS = re.compile(
    r"(?:table of )?contents|inhalt(?:sverzeichnis)?|índice|indice|table des "
    r"matières|目录|目次|содержание|оглавление",
    re.I,
)


def find_marks(blocks: Sequence[Block], first: int, last: int) -> list[Mark]:
    """Marks between the blocks `first` and `last`; the most trustworthy way that finds at least two chapters
    wins.
    """
    for find in (_by_contents_page, _by_marked_headings, _by_labels):
        marks = find(blocks, first, last)
        if len(marks) >= 2:
            return marks
    return []


def title_key(text: str) -> str:
    """What two spellings of one title have in common: letters and digits, without the word "chapter"."""
    plain = re.sub(r"\b(?:chapter|chap)\b\.?", " ", text.casefold())
    return re.sub(r"[\W_]+", "", plain)


# ---- a printed list of contents ----


def _by_contents_page(blocks: Sequence[Block], first: int, last: int) -> list[Mark]:
    start = next(
        (
            index
            for index in range(first, min(last, first + 200))
            if _CONTENTS.fullmatch(blocks[index].text.split("\n")[0].strip(" .:_*[]"))
        ),
        None,
    )
    if start is None:
        return []
    entries, end = _contents_entries(blocks, start, last)
    found = _match_entries(blocks, entries, end, last)
    if len(found) < 3 or len(found) < 0.7 * len(entries):
        found = _match_entries(blocks, entries, start + 1, last) if len(found) < 3 else found
    if len(found) < 3 or len(found) < 0.7 * len(entries):
        return []
    return [Mark("Contents", 1, start), *found]


def _contents_entries(blocks: Sequence[Block], start: int, last: int) -> tuple[list[str], int]:
    """The lines of the list, page numbers cut off, and the number of the first block after it."""
    entries = [line for line in blocks[start].text.split("\n")[1:] if line.strip()]
    seen = {title_key(_LEADER.sub("", line)) for line in entries}
    index = start + 1
    for index in range(start + 1, min(last, start + 400)):
        lines = blocks[index].text.split("\n")
        keys = {title_key(_LEADER.sub("", lines[0])), title_key(blocks[index].text[:300])} - {""}
        if any(len(line) > 110 for line in lines) or keys & seen:
            break  # running text, or the first heading of the body
        if len(entries) >= 3 and _begins_body(blocks, index, last, seen):
            break
        entries += lines
        seen |= {title_key(_LEADER.sub("", line)) for line in lines}
    cleaned = [_LEADER.sub("", line).strip() for line in entries]
    return [line for line in cleaned if title_key(line)], index


def _begins_body(blocks: Sequence[Block], index: int, last: int, seen: set[str]) -> bool:
    """A bare "I" whose title follows, together already listed: the first chapter's heading."""
    return index + 1 < last and title_key(blocks[index].text + " " + blocks[index + 1].text) in seen


def _match_entries(blocks: Sequence[Block], entries: list[str], start: int, last: int) -> list[Mark]:
    """Each entry's heading in the body, in order. An entry with no heading is left out."""
    keys = [title_key(block.text) if len(block.text) <= 200 else "" for block in blocks[start:last]]
    pairs = [
        key + following if key and following else ""
        for key, following in zip(keys, keys[1:] + [""], strict=True)
    ]
    marks: list[Mark] = []
    position = 0
    for entry in entries:
        key = title_key(entry)
        bare = title_key(re.sub(r"\A\W*(?:\d+|[IVXLC]+)\b\W*", "", entry))
        hit = next(
            (
                index
                for index in range(position, len(keys))
                if keys[index]
                and (keys[index] == key or pairs[index] == key or (len(bare) > 5 and keys[index] == bare))
            ),
            None,
        )
        if hit is not None:
            marks.append(Mark(" ".join(entry.split()), 1, start + hit))
            position = hit + 1
    return marks


# ---- headings the file itself marks (HTML h1-h6, Markdown #, Word styles, large type) ----


def _by_marked_headings(blocks: Sequence[Block], first: int, last: int) -> list[Mark]:
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
        Mark(" ".join(block.text.split()), max(1, ranks[block.heading] - once_on_top), index)
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
    return next((level for level in sorted(members) if members[level] >= 2), None)


# ---- label lines in plain text ----


def _by_labels(blocks: Sequence[Block], first: int, last: int) -> list[Mark]:
    candidates = [(index, heading) for index in range(first, last) if (heading := _candidate(blocks[index]))]
    candidates = _without_contents_list(blocks, candidates)
    words = Counter(heading.word for _, heading in candidates if heading.word not in ("", "special"))
    chapters = {word for word, count in words.items() if count >= 2}
    numerals = (
        []
        if any(not Heading(word, None, "").is_part for word in chapters)
        else _longest_count(
            [(index, heading) for index, heading in candidates if heading.word == "" and heading.number]
        )
    )
    kept = {index for index, heading in candidates if heading.word in chapters} | {
        index for index, _ in numerals
    }
    if len(kept) < 2:
        return []
    kept |= {index for index, heading in candidates if heading.word in words or heading.word == "special"}
    chosen = [(index, heading) for index, heading in candidates if index in kept]
    below = any(heading.is_part for _, heading in chosen) and any(
        not heading.is_part and heading.word != "special" for _, heading in chosen
    )
    named = _titles_follow(blocks, chosen, last)
    marks: list[Mark] = []
    for index, heading in chosen:
        title = " ".join(blocks[index].text.split()).strip("_* ")
        if named and heading.is_bare and _could_be_title(blocks, index + 1, last):
            title = join_title(title, blocks[index + 1].text)
        marks.append(
            Mark(title, 2 if below and not heading.is_part and heading.word != "special" else 1, index)
        )
    return marks


def _candidate(block: Block) -> Heading | None:
    if len(block.text) > 160 or block.text.count("\n") >= _MAX_LINES:
        return None
    return read_heading(block.text)


def _without_contents_list(
    blocks: Sequence[Block], candidates: list[tuple[int, Heading]]
) -> list[tuple[int, Heading]]:
    """Entries that stand close together and come again further on, as headings, are a list of contents."""
    keys = [title_key(blocks[index].text) for index, _ in candidates]
    later = Counter(keys)
    result = []
    for position, (index, heading) in enumerate(candidates):
        later[keys[position]] -= 1
        following = candidates[position + 1][0] if position + 1 < len(candidates) else None
        crowded = (
            following is not None and sum(len(block.text) for block in blocks[index + 1 : following]) < 80
        )
        if not (crowded and later[keys[position]]):
            result.append((index, heading))
    return result


def _longest_count(candidates: list[tuple[int, Heading]]) -> list[tuple[int, Heading]]:
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
        if number not in last_with or best[position][0] >= best[last_with[number]][0]:
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


def _titles_follow(blocks: Sequence[Block], chosen: list[tuple[int, Heading]], last: int) -> bool:
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
