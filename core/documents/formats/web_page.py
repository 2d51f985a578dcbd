"""A web page, or a book in one HTML file, to a manuscript. Of a page with a site around it the article, and
all of it beside that.
"""

from __future__ import annotations

from dataclasses import replace

from lxml import etree

from core.documents.files.clean import one_line, repair_mojibake
from core.documents.files.decode import decode_markup
from core.documents.formats.article import Article, article_of
from core.documents.formats.html import HtmlFile, parse, walk_placed
from core.documents.structure.blocks import Block, ContentsEntry, Manuscript
from core.text.words import translated as _


def read_html(data: bytes, *, charset: str | None = None) -> Manuscript:
    """The article of a page that a site's menus and teasers surround, with all of the page as its `whole`;
    else the page. `charset`: what came with it says of its encoding.
    """
    text, repaired = repair_mojibake(decode_markup(data, charset)[0])
    root = parse(text)
    page, places = walk_placed(root)
    garbled = _("Some characters had been garbled by a wrong encoding and were repaired.")
    whole = Manuscript(
        "html",
        page.blocks,
        title=one_line(page.title or _first_heading(page.blocks)),
        author=one_line(_author(root)),
        warnings=(garbled,) if repaired else (),
        marks=_contents(root, page),
    )
    article = article_of(root, page.blocks, places)
    return whole if article is None else _of_article(whole, article, root, page)


def _of_article(whole: Manuscript, article: Article, root: etree._Element, page: HtmlFile) -> Manuscript:
    blocks = [page.blocks[index] for index in article.kept]
    new = {index: number for number, index in enumerate(article.kept)}
    anchors = {name: new[index] for name, index in page.anchors.items() if index in new}
    headings = (one_line(block.text) for block in blocks if block.heading in (1, 2))
    return replace(
        whole,
        blocks=blocks,
        # "The Light on the Holm - The Saltby Gazette"
        title=next((heading for heading in headings if heading in whole.title), whole.title),
        warnings=(*whole.warnings, article.left_out),
        marks=_contents(root, HtmlFile(blocks, anchors)),
        whole=whole,
    )


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
