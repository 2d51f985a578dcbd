"""Model output and book text as HTML. Everything is escaped; the only tags are the ones made here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

LEVELS = {"draft": "Draft", "ngram": "N-gram", "retrieval": "Retrieval", "target": "Full model"}
LIST_ITEM = re.compile(r"^\s{0,3}(?:[-*•]|\d{1,3}[.)])\s+")
HEADING = re.compile(r"^#{1,6}\s+")
EMPHASIS = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![\w*])")


@dataclass(frozen=True, slots=True)
class Citation:
    """A quotation in an answer: `text[start:end]` of the answer; `offset` in the book, None when it is not
    there.
    """

    start: int
    end: int
    offset: int | None
    length: int = 0
    where: str = ""  # "Chapter 4, page 31"


@dataclass(frozen=True, slots=True)
class _Range:
    start: int
    end: int
    kind: str  # "hide" | "strong" | "em" | level name


def answer_html(pieces: tuple[tuple[str, str], ...], citations: tuple[Citation, ...] = ()) -> str:
    """An answer's paragraphs, lists and headings, each run of text marked with its level, quotations as
    buttons.
    """
    text = "".join(piece for piece, _ in pieces)
    ranges, at = _inline(text), 0
    for piece, level in pieces:
        if level in LEVELS:
            ranges.append(_Range(at, at + len(piece), level))
        at += len(piece)
    blocks, in_list = [], False
    for kind, start, end in _blocks(text):
        if (kind == "li") != in_list:
            blocks.append("<ul>" if kind == "li" else "</ul>")
            in_list = kind == "li"
        blocks.append(f"<{kind}>{_spans(text, start, end, ranges, citations)}</{kind}>")
    return "".join(blocks) + ("</ul>" if in_list else "")


def plain_html(text: str) -> str:
    """Plain text: escaped, paragraphs at empty lines, line breaks kept."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    return "".join("<p>" + escape(part).replace("\n", "<br>") + "</p>" for part in parts)


def _blocks(text: str) -> list[tuple[str, int, int]]:
    """(tag, start, end) of every paragraph, list item and heading, in order."""
    found: list[tuple[str, int, int]] = []
    at, joins = 0, False
    for line in text.splitlines(keepends=True):
        start, end = at, at + len(line.rstrip())
        at += len(line)
        if end <= start:
            joins = False
        elif match := LIST_ITEM.match(line):
            found.append(("li", start + match.end(), end))
            joins = True
        elif match := HEADING.match(line):
            found.append(("h4", start + match.end(), end))
            joins = False
        elif joins:
            found[-1] = (found[-1][0], found[-1][1], end)
        else:
            found.append(("p", start, end))
            joins = True
    return [(kind, start, end) for kind, start, end in found if end > start]


def _inline(text: str) -> list[_Range]:
    ranges = []
    for match in EMPHASIS.finditer(text):
        group = 1 if match.group(1) is not None else 2
        start, end = match.span(group)
        ranges += [
            _Range(match.start(), start, "hide"),
            _Range(end, match.end(), "hide"),
            _Range(start, end, "strong" if group == 1 else "em"),
        ]
    return ranges


def _spans(text: str, start: int, end: int, ranges: list[_Range], citations: tuple[Citation, ...]) -> str:
    """`text[start:end]` as inline HTML; a citation that crosses the block's border is cut at it."""
    out, at = [], start
    for citation in sorted(citations, key=lambda one: one.start):
        left, right = max(at, citation.start), min(end, citation.end)
        if left >= right:
            continue
        out.append(_run(text, at, left, ranges))
        out.append(_cited(_run(text, left, right, ranges), citation))
        at = right
    out.append(_run(text, at, end, ranges))
    return "".join(out)


def _run(text: str, start: int, end: int, ranges: list[_Range]) -> str:
    near = [one for one in ranges if one.start < end and one.end > start]
    edges = sorted(
        {start, end, *(edge for one in near for edge in (one.start, one.end) if start < edge < end)}
    )
    out = []
    for left, right in zip(edges, edges[1:], strict=False):
        kinds = [one.kind for one in near if one.start <= left and one.end >= right]
        if "hide" in kinds:
            continue
        piece = escape(text[left:right]).replace("\n", "<br>")
        for kind in kinds:
            if kind in LEVELS:
                piece = f'<span class="lv lv-{kind}">{piece}</span>'
        for tag in ("em", "strong"):
            if tag in kinds:
                piece = f"<{tag}>{piece}</{tag}>"
        out.append(piece)
    return "".join(out)


def _cited(inner: str, citation: Citation) -> str:
    if citation.offset is None:
        return (
            f'<span class="cite cite-missing" title="Not in the book">{inner}<sup>not in the '
            "book</sup></span>"
        )
    where = escape(citation.where)
    return (
        f'<button type="button" class="cite" data-act="cite" data-offset="{citation.offset}" '
        f'data-length="{citation.length}" title="Show in the book: '
        f'{where}">{inner}<sup>{where}</sup></button>'
    )
