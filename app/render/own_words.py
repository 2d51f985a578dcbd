"""What the program itself says in an answer: that the book does not say, and where a quotation stands. It is
stored in English as all of the answer is, and rendered in the page's language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from app.render.markdown import QUOTED, Block, Run, Stretch
from core.evidence.support import UNSAID
from core.text.said import said
from core.text.words import translated as _

_PLACE = re.compile(r"(?P<chapter>.+), p\. (?P<page>\S+)")


def in_text(text: str) -> str:
    """The answer, as it is copied and exported."""
    lines = text.split("\n")
    below = [*lines[1:], ""]
    return "\n".join(_line(line, next_) for line, next_ in zip(lines, map(_quotes, below), strict=True))


def sources_said(sources: Sequence[str]) -> str:
    """What was read for an answer, in one line."""
    return "; ".join(map(said, sources))


def in_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The same of an answer in blocks: what is the model's has levels, and is left as it is."""
    below = [*(one.tag == "blockquote" for one in blocks[1:]), False]
    return tuple(_block(one, quoted) for one, quoted in zip(blocks, below, strict=False))


def _block(block: Block, quoted: bool) -> Block:
    runs = [run for item in block.items for stretch in item for run in stretch.runs]
    if block.tag != "p" or len(runs) != 1 or runs[0].level or runs[0].kind:
        return block
    told = _line(runs[0].text, quoted)
    if told == runs[0].text:
        return block
    return replace(block, items=((Stretch((Run(told),)),),))


def _line(line: str, quoted: bool) -> str:
    if line.startswith(UNSAID):
        return said(line)
    if not quoted or not line.endswith(":"):
        return line
    return _("{place}:").format(place=_place(line[:-1]))


def _place(name: str) -> str:
    found = _PLACE.fullmatch(name)
    if found is None:
        return said(name)
    return _("{chapter}, p. {page}").format(chapter=said(found["chapter"]), page=found["page"])


def _quotes(line: str) -> bool:
    return QUOTED.match(line) is not None
