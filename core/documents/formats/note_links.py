"""Which links of pages of HTML refer to notes. Knows neither the book's file nor where its notes go."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from core.documents.formats.html import HtmlFile, NoteLink
from core.documents.structure.blocks import Block
from core.documents.structure.notes import NoteReference, says_its_mark


def link_target(folder: str, href: str | None) -> str:
    """ "text/a.xhtml#n1": the page that a link of a page in `folder` leads to, and the place there."""
    if not href:
        return ""
    path, _, anchor = href.partition("#")
    return f"{posixpath.normpath(posixpath.join(folder, unquote(path)))}#{unquote(anchor)}"


def note_references(
    blocks: Sequence[Block], pages: Mapping[str, tuple[int, HtmlFile]]
) -> Iterator[NoteReference]:
    """The notes that the text refers to further down, in its own or in another page. `pages`: by name, the
    first of the blocks that are its own, and what was read of it.
    """
    for name, (first, page) in pages.items():
        for link in page.note_links:
            target, _, anchor = link_target(posixpath.dirname(name), link.href).partition("#")
            target = target if link.href.partition("#")[0] else name
            at, noted = pages.get(target, (0, HtmlFile()))
            if anchor not in noted.ends or anchor not in noted.anchors:
                continue
            start, end = at + noted.anchors[anchor], at + noted.ends[anchor]
            says_so = start < len(blocks) and says_its_mark(blocks[start].text, link.mark)
            is_note = link.named or says_so or _leads_back(noted, anchor, page, link)
            if first + link.block < start < len(blocks) and is_note and not blocks[start].heading:
                yield NoteReference(first + link.block, link.mark, start, end)


def _leads_back(noted: HtmlFile, anchor: str, page: HtmlFile, link: NoteLink) -> bool:
    """Whether a link in the note leads to the paragraph that refers to it."""
    own = range(noted.anchors[anchor], noted.ends[anchor])
    back = (page.anchors.get(one) for block in own for one in noted.links.get(block, ()))
    return link.block in back
