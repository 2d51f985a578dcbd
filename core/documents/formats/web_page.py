"""A web page, or a book in one HTML file, to a manuscript. Of a page with a site around it the article, and
all of it beside that.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from lxml import etree

from core.documents.files.clean import one_line, repair_mojibake
from core.documents.files.decode import decode_markup
from core.documents.formats.article import Article, article_of
from core.documents.formats.html import HtmlFile, parse, walk_placed
from core.documents.formats.note_links import note_references
from core.documents.structure.blocks import Block, ContentsEntry, Manuscript
from core.documents.structure.notes import notes_in_place
from core.documents.structure.numbered_notes import numbered_notes_in_place
from core.text.words import translated as _


def read_html(data: bytes, *, charset: str | None = None) -> Manuscript:
    """The article of a page that a site's menus and teasers surround, with all of the page as its `whole`;
    else the page. `charset`: what came with it says of its encoding.
    """
    text, repaired = repair_mojibake(decode_markup(data, charset)[0])
    root = parse(text)
    page, places = walk_placed(root)
    garbled = _("Some characters had been garbled by a wrong encoding and were repaired.")
    blocks, marks = _text_and_contents(root, page)
    whole = Manuscript(
        "html",
        blocks,
        title=one_line(page.title or _first_heading(page.blocks)),
        author=one_line(_author(root)),
        warnings=(garbled,) if repaired else (),
        marks=marks,
    )
    article = article_of(root, page.blocks, places)
    return whole if article is None else _of_article(whole, article, root, page)


def _of_article(whole: Manuscript, article: Article, root: etree._Element, page: HtmlFile) -> Manuscript:
    page = _only(page, article.kept)
    blocks, marks = _text_and_contents(root, page)
    headings = (one_line(block.text) for block in page.blocks if block.heading in (1, 2))
    return replace(
        whole,
        blocks=blocks,
        # "The Light on the Holm - The Saltby Gazette"
        title=next((heading for heading in headings if heading in whole.title), whole.title),
        warnings=(*whole.warnings, article.left_out),
        marks=marks,
        whole=whole,
    )


def _only(page: HtmlFile, kept: list[int]) -> HtmlFile:
    """The page with these of its blocks, whose numbers rise."""
    new = {index: number for number, index in enumerate(kept)}
    return HtmlFile(
        [page.blocks[index] for index in kept],
        {name: new[index] for name, index in page.anchors.items() if index in new},
        {name: bisect_left(kept, end) for name, end in page.ends.items()},
        [replace(link, block=new[link.block]) for link in page.note_links if link.block in new],
        {new[index]: anchors for index, anchors in page.links.items() if index in new},
    )


def _text_and_contents(root: etree._Element, page: HtmlFile) -> tuple[list[Block], list[ContentsEntry]]:
    """Its blocks with each note behind the paragraph that refers to it, by a link, else by its number."""
    marks = _contents(root, page)
    if linked := list(note_references(page.blocks, {"": (0, page)})):
        return notes_in_place(page.blocks, marks, linked)
    return numbered_notes_in_place(page.blocks, marks)


def _first_heading(blocks: list[Block]) -> str:
    return next((block.text for block in blocks if block.heading == 1), "")


def _author(root: etree._Element) -> str:
    return root.xpath(
        "string(//meta[translate(@name,'AUTHOR','author')='author' or @name='DC.Creator']/@content)"
    )


def _contents(root: etree._Element, page: HtmlFile) -> list[ContentsEntry]:
    """The page's own table of contents: links that walk forward to the headings they name. Empty when there
    are few of them.
    """
    marks: list[ContentsEntry] = []
    for link in root.iter("a", "{*}a"):
        href, title = str(link.get("href") or ""), one_line("".join(link.itertext()))
        block = page.anchors.get(href[1:]) if href.startswith("#") else None
        if block is None or not any(map(str.isalpha, title)) or (marks and block <= marks[-1].block):
            continue
        if any(_heads(page.blocks[index], title) for index in range(block, min(block + 2, len(page.blocks)))):
            marks.append(ContentsEntry(title, 1, block))
    return marks if len(marks) >= 3 else []


def _heads(block: Block, title: str) -> bool:
    """The block is a heading, or says what the link says."""
    return bool(block.heading) or (
        len(block.text) < 200 and title.casefold() in " ".join(block.text.split()).casefold()
    )
