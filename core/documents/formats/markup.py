"""Paragraphs, headings and chapters out of the XML of books (FB2, ODT), whatever its elements are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from core.documents.files.clean import paragraph
from core.documents.structure.blocks import Block, ContentsEntry

_PARSER_LIMITS = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def tree_of(data: bytes) -> etree._Element:
    """The tree, of damaged XML as far as it goes. No entity is resolved, no tree is deeper or larger than
    libxml2 allows. Raises etree.XMLSyntaxError when nothing can be read.
    """
    root = etree.fromstring(data, etree.XMLParser(recover=True, **_PARSER_LIMITS))
    if root is None:
        raise etree.XMLSyntaxError("no element", 0, 0, 0)
    return root


def local(element: etree._Element) -> str:
    """The element's name without its namespace; "" for comments and the like."""
    return etree.QName(element).localname.lower() if isinstance(element.tag, str) else ""


def attribute(element: etree._Element, name: str) -> str:
    """The value of an attribute whatever its namespace, else ""."""
    return next((value for key, value in element.attrib.items() if key.rsplit("}", 1)[-1] == name), "")


def text_of(element: etree._Element) -> str:
    """All text inside the element, on one line."""
    return " ".join("".join(element.itertext()).split())


def markup_events(root: etree._Element, skipped: frozenset[str]) -> Iterator[tuple[str, str, etree._Element]]:
    """("start" | "end", local name, element) in document order, without the `skipped` elements' insides, of
    which the tails are given as ("tail", "", element).
    """
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name = local(element)
        if event == "start" and name in skipped:
            walk.skip_subtree()
            continue
        if name and not (event == "end" and name in skipped):
            yield event, name, element
        elif event == "end":
            yield "tail", "", element


@dataclass(slots=True)
class Collector:
    """Blocks and marks while a tree is walked."""

    blocks: list[Block] = field(default_factory=list)
    marks: list[ContentsEntry] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)

    def add(self, text: str | None) -> None:
        """Text of the paragraph that is open, as it stands in the markup: line ends are spaces."""
        if text:
            self._parts.append(re.sub(r"\s+", " ", text))

    def put(self, sign: str) -> None:
        """A tab or a line end that is meant."""
        self._parts.append(sign)

    def close(self, *, heading: int = 0, marked: int = 0) -> None:
        """End the paragraph. `marked`: it begins a section of that level."""
        text = paragraph("".join(self._parts))
        self._parts.clear()
        if not text:
            return
        if marked:
            self.marks.append(ContentsEntry(" ".join(text.split()), marked, len(self.blocks)))
        self.blocks.append(Block(text, heading))
