"""Which blocks of a web page are its article, and which the site around it: menus, teasers, comments.

The library `trafilatura` says what the article is. What it passes over in the midst of it stays where it
reads like text: nobody sees that a paragraph is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from lxml import etree

from core.documents.files.clean import one_line
from core.documents.structure.blocks import Block
from core.documents.word_count import count_words
from core.text.words import listed_texts
from core.text.words import translated as _

# sizes are bytes of UTF-8: a Chinese character says as much as three letters
MAX_SIZE = 2_000_000  # of a page; a larger one is no article
MAX_ELEMENTS = 30_000  # of a page, for the time that the library takes: some seconds for so many
MIN_LINKS = 8  # to other pages: with fewer there is no site around the text
_MIN_ARTICLE = 400  # below that it is a page of links, or the library found nothing
_MIN_AROUND = 0.02  # of the page; with less around the article the page is read whole
_MOST_LOST = 0.3  # of the article: text outside of it that is no part of the site
_PROSE = 60  # a paragraph, not a label
_LONG = 40  # a paragraph that may be part of a longer line
_EXAMPLES, _EXAMPLE_CHARS = 4, 40
_REACH = 6  # blocks between the text and a heading or item of its own: date, author
_HEADLINE_REACH = 20  # between the text and its headline: buttons, too
_PICTURE = re.compile(r"(?:jpe?g|png|gif|svg|webp)(?:[?#]|\Z)", re.I)
_TEXT_TAGS = {"p", "pre", "blockquote", "dd", "dt", "td", "th", "tr", "li", "caption", "figcaption"}
# no "footer": the notes of a table are called so, too
_SITE_TAGS = {"nav", "aside", "form"}
_SITE_ROLES = {"navigation", "complementary", "contentinfo", "search", "banner"}
_SITE_NAMES = re.compile(
    r"(?:\A|[\s_-])(?:nav(?:bar|box|igation)?|(?:main|top)?menu|side-?bar|comment(?:s|list)?|disqus"
    r"|respond|related|recommend(?:ed|ations)?|teasers?|promo|shar(?:e|ing)|social|cookie|consent|newsletter"
    r"|subscribe|breadcrumbs?|pagination|pager|advert(?:isement)?|sponsored|signature|editsection)"
    r"(?:[\s_-]|\Z)",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Article:
    """`kept`: the numbers of its blocks, rising. `left_out`: what else the page holds, as a person is
    told.
    """

    kept: list[int]
    left_out: str


def article_of(
    root: etree._Element, blocks: Sequence[Block], places: Sequence[etree._Element | None]
) -> Article | None:
    """The article of a page, of which `blocks[n]` stands in the element `places[n]`. None for a page without
    a site around it, such as a book, and where text would be lost with the site.
    """
    elements = sum(1 for _element in islice(root.iter(), MAX_ELEMENTS + 1))
    if elements > MAX_ELEMENTS or _size(blocks) > MAX_SIZE or _links(root) < MIN_LINKS:
        return None
    found = _found(root, blocks)
    if not found:
        return None
    longest = max(found, key=lambda number: len(blocks[number].text))
    site = _Site(places, places[longest])
    kept = _kept(blocks, found, site)
    around = sorted(set(range(len(blocks))).difference(kept))
    article_size = _size([blocks[number] for number in kept])
    lost = [
        blocks[number]
        for number in around
        if _bytes(blocks[number].text) >= _PROSE and not site.around(number)
    ]
    left_out = [blocks[number] for number in around]
    if (
        article_size < _MIN_ARTICLE
        or _size(left_out) < _MIN_AROUND * _size(blocks)
        or _size(lost) > _MOST_LOST * article_size
    ):
        return None
    return Article(kept, _named(left_out))


def _size(blocks: Sequence[Block]) -> int:
    return sum(_bytes(block.text) for block in blocks)


def _bytes(text: str) -> int:
    return len(text.encode())


def _links(root: etree._Element) -> int:
    """To how many other pages it leads; pictures are none."""
    found = {str(link.get("href") or "").split("#")[0] for link in root.iter("a", "{*}a")}
    return sum(
        bool(href) and not _PICTURE.search(href) and not href.startswith(("mailto:", "javascript:"))
        for href in found
    )


def _found(root: etree._Element, blocks: Sequence[Block]) -> list[int]:
    """The numbers of the blocks that the library calls the article, rising."""
    lines = [_letters(line) for line in _extracted(root).splitlines()]
    whole_lines, text = frozenset(lines), "".join(lines)
    letters = [_letters(block.text) for block in blocks]
    return [
        number
        for number, said in enumerate(letters)
        if said and (said in whole_lines or (_bytes(said) >= _LONG and said in text))
    ]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _extracted(root: etree._Element) -> str:
    """The article's text, a line for each of its paragraphs, headings, items and rows; empty without one."""
    from trafilatura import extract  # 0.2 s, for web pages alone

    markup = etree.tostring(root, encoding="unicode", method="html")
    return extract(markup, include_comments=False, include_tables=True) or ""


def _kept(blocks: Sequence[Block], found: Sequence[int], site: _Site) -> list[int]:
    """From the first to the last block of the article, without what belongs to the site."""
    long = [number for number in found if _bytes(_letters(blocks[number].text)) >= _LONG] or found
    first, last = long[0], long[-1]
    for number in reversed(found):  # a short item before the text, a heading further up
        if 0 < first - number <= _REACH:
            first = number
    for number in found:
        if 0 < number - last <= _REACH:
            last = number
    headings = [n for n in range(first) if blocks[n].heading in (1, 2) and not site.around(n)]
    headlines = [n for n in headings if blocks[n].heading == 1 and first - n <= _HEADLINE_REACH]
    first = (headlines or [n for n in headings if first - n <= _REACH] or [first])[-1]
    known = set(found)
    return [n for n in range(first, last + 1) if n in known or site.is_text(n, blocks[n])]


class _Site:
    """What of a page is the site around the article: by the names of elements, and by links."""

    def __init__(self, places: Sequence[etree._Element | None], article: etree._Element | None) -> None:
        """`article`: an element of the article; nothing that holds it is the site, whatever it is called."""
        self._places = places
        self._named: dict[etree._Element, bool] = {}
        while article is not None:
            self._named[article] = False
            article = article.getparent()
        self._linked: dict[etree._Element, bool] = {}

    def is_text(self, number: int, block: Block) -> bool:
        """Reads like a part of the article it stands in."""
        place = self._places[number]
        marked = place is not None and _tag(place) in _TEXT_TAGS
        return (marked or block.heading > 0 or _bytes(block.text) >= _PROSE) and not self.around(number)

    def around(self, number: int) -> bool:
        """Belongs to the site."""
        place = self._places[number]
        return place is not None and (self._is_named(place) or self._is_linked(place))

    def _is_named(self, element: etree._Element) -> bool:
        path = []
        above: etree._Element | None = element
        while above is not None and above not in self._named:
            path.append(above)
            above = above.getparent()
        named = above is not None and self._named[above]
        for one in reversed(path):
            named = self._named[one] = named or _names_site(one)
        return named

    def _is_linked(self, element: etree._Element) -> bool:
        """Most of its text are links."""
        if element not in self._linked:
            chars = len("".join(element.itertext()).strip())
            linked = sum(len("".join(link.itertext())) for link in element.iter("a", "{*}a"))
            self._linked[element] = linked > chars / 2
        return self._linked[element]


def _names_site(element: etree._Element) -> bool:
    return (
        _tag(element) in _SITE_TAGS
        or element.get("role") in _SITE_ROLES
        or any(_SITE_NAMES.search(element.get(name) or "") for name in ("class", "id"))
    )


def _tag(element: etree._Element) -> str:
    return element.tag.rsplit("}", 1)[-1].lower() if isinstance(element.tag, str) else ""


def _named(left_out: Sequence[Block]) -> str:
    """The sentence that says what is left out: headings where it has some, else its longest texts."""
    headings = [block for block in left_out if block.heading]
    longest = sorted(left_out, key=lambda block: -len(block.text))
    names = dict.fromkeys(one_line(block.text) for block in (headings or longest)[:_EXAMPLES])
    said = _("This is the article of a web page. Left out around it: {words:,} words, such as {examples}.")
    return said.format(
        words=sum(count_words(block.text) for block in left_out),
        examples=listed_texts(_("“{text}”").format(text=_shortened(name)) for name in names),
    )


def _shortened(text: str) -> str:
    if len(text) <= _EXAMPLE_CHARS:
        return text
    return text[:_EXAMPLE_CHARS].rsplit(" ", 1)[0] + " …"
