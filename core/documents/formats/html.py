"""HTML and XHTML to blocks, with the blocks that anchors point at. No entity from outside is followed."""

from __future__ import annotations

import html.entities
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from lxml import etree
from lxml import html as lxml_html

from core.documents.files.clean import POWER, one_line, paragraph
from core.documents.formats.tables import is_listing
from core.documents.structure.blocks import Block
from core.documents.structure.headings import CELL_END

BY_HAND = 7  # below all marked headings: a line set in bold, or of a class that is called a title
_BOLD = {"b", "strong"}
_TITLE_CLASS = re.compile(
    r"(?:\A|\s)(?:h[1-6]|heading\d?"
    r"|(?:chapter|chap|part|section)[-_]?(?:title|head|heading|name|number|num|no)?)"
    r"(?:\s|\Z)",
    re.I,
)
_LIKE_TITLE = re.compile(r"(?=.*[^\W_])[^\n]{1,90}(?:\n[^\n]{1,60})?(?<![,;])", re.S)
_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_FLUSH = {
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "aside",
    "blockquote",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "tr",
    "caption",
    "figure",
    "figcaption",
    "hr",
    "pre",
    "body",
    "center",
    "address",
    "form",
    "fieldset",
    "nav",
    "details",
    "summary",
    "tbody",
    "thead",
    *_HEADINGS,
}
_SKIP = {
    "script",
    "style",
    "head",
    "template",
    "svg",
    "rt",
    "rp",
    "audio",
    "video",
    "object",
    "iframe",
    "noscript",
    "select",
    "button",
    "canvas",
}
_OWN_NOTES = re.compile(r"\s*\[?\(?(\d{1,4}|[*†‡§])\)?\]?\s*\Z")
_NOTE_CLASS = re.compile(r"(?:\A|[\s_-])(?:(?:foot|end|rear)?note)(?:\Z|\s)", re.I)  # not "footnotes"
_EMPTY_ROW = re.compile(r"^[ \t]*\|[ \t|]*$", re.M)
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[>]*", re.I)
_DECLARED_ENTITY = re.compile(r"<!ENTITY\s+(?:%\s+)?([\w.-]+)")
_XML_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
_EMPTY = re.compile(
    r"<(title|script|style|textarea|iframe|noscript|a|span|div|p|i|b|em|strong)\b"
    r"((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)/>",
    re.I,
)
_BESIDE_HEADINGS = frozenset({"headerlink", "mw-editsection"})  # "¶" and "[edit]", of no heading's words
_HIDING = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.I)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_DEVICES = re.compile(r"@media[^{}]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_STYLE_CHARS = 200_000
_MOST_HIDDEN = 0.2  # of a page's text
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class NoteLink:
    """A link that is a note's number or sign, in running text. `named`: the file itself says that it refers
    to a note.
    """

    block: int
    mark: str
    href: str
    named: bool


@dataclass(slots=True)
class HtmlFile:
    """One file's blocks. `anchors`: id -> index of the block it stands in; `ends`: of the first block behind
    what it is the id of; `note_links`: those that a note's number bears; `links`: of each block, which
    anchors its links lead to, in whatever page; `page_breaks`: (block, label) of printed pages.
    """

    blocks: list[Block] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    note_links: list[NoteLink] = field(default_factory=list)
    links: dict[int, set[str]] = field(default_factory=dict)
    page_breaks: list[tuple[int, str]] = field(default_factory=list)
    title: str = ""


def parse(text: str) -> etree._Element:
    """The element tree: strict XML where it holds, else the lenient HTML parser. Never raises for broken
    markup.
    """
    declared = set(_DECLARED_ENTITY.findall(text[:65536])) if "<!ENTITY" in text[:65536] else set()
    clean = _XML_DECLARATION.sub("", _CONTROL.sub("", text))
    clean = _without_doctype(clean)
    clean = _NAMED.sub(lambda match: _entity(match, declared), clean)
    if "xmlns" in clean[:2048]:
        parser = etree.XMLParser(
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            return etree.fromstring(clean.strip().encode("utf-8"), parser)
        except etree.XMLSyntaxError:
            pass
    lenient = lxml_html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    try:
        root = lxml_html.document_fromstring(
            _EMPTY.sub(r"<\1\2></\1>", clean).encode("utf-8", "ignore"), parser=lenient
        )
    except (etree.ParserError, etree.XMLSyntaxError, ValueError, AssertionError):
        root = None
    return root if root is not None else etree.Element("html")


def _without_doctype(text: str) -> str:
    """Cut out the document type declaration, with whatever entities it declares."""
    found = _DOCTYPE.search(text[:65536])
    if found is None:
        return text
    end = found.end()
    if text[end : end + 1] == "[":
        end = text.find("]", end)
    close = text.find(">", end) if end >= 0 else -1
    return text[: found.start()] + text[close + 1 :] if close >= 0 else text


def walk(root: etree._Element, linked: Iterable[str] = ()) -> HtmlFile:
    """The blocks in document order. `linked`: the style sheets that the page names.

    Iterative: nesting as deep as the parser allows costs no stack.
    """
    return walk_placed(root, linked)[0]


def walk_placed(
    root: etree._Element, linked: Iterable[str] = ()
) -> tuple[HtmlFile, list[etree._Element | None]]:
    """`walk`, and for each block the innermost block element that it stands in."""
    walker = _walked(root, _hidden_classes(root, linked))
    return walker.page, walker.places


def _hidden_classes(root: etree._Element, linked: Iterable[str]) -> frozenset[str]:
    """Classes for which a style sheet of the page says "display: none", whatever the device.

    None at all when much of the text would be gone: then a script was to show it.
    """
    own = "".join(root.xpath("//*[local-name()='style']//text()"))
    classes = frozenset().union(*map(_hiding, (own, *linked)))
    hidden = [
        element
        for element in (root.iter() if classes else ())
        if not classes.isdisjoint((element.get("class") or "").split())
    ]
    lost = sum(len(text) for element in hidden for text in element.itertext())
    hides_much = lost >= _MOST_HIDDEN * len("".join(root.itertext()))
    return _BESIDE_HEADINGS if hides_much else classes | _BESIDE_HEADINGS


@lru_cache(maxsize=64)  # a book's pages name the same sheets
def _hiding(css: str) -> frozenset[str]:
    """The classes that a style sheet hides on every device."""
    rules = _RULE.findall(_DEVICES.sub("", css[:_STYLE_CHARS]))
    return frozenset(
        name
        for selectors, style in rules
        if _HIDING.search(style)
        for selector in selectors.split(",")
        for name in re.findall(r"\A\s*[\w*]*\.([\w-]+)\s*\Z", selector)
    )


def _walked(root: etree._Element, hidden: frozenset[str]) -> _Walker:
    walker = _Walker(hidden)
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if isinstance(element.tag, str):
            (walker.start if event == "start" else walker.end)(element)
    walker.flush()
    page = walker.page
    for name in walker.waiting:
        page.anchors.setdefault(name, max(0, len(page.blocks) - 1))
    page.title = one_line("".join(root.xpath("//*[local-name()='title'][1]//text()"))[:500])
    return walker


class _Walker:
    """Collects text until a block element begins or ends."""

    def __init__(self, hidden: frozenset[str]) -> None:
        """`hidden`: classes that the style sheet does not show."""
        self.page = HtmlFile()
        self.places: list[etree._Element | None] = []  # of each block, where it stands
        self._place: etree._Element | None = None
        self._hidden = hidden
        self.waiting: list[str] = []  # anchors of the block that is being collected
        self._held: dict[etree._Element, list[str]] = {}  # anchors by the element that they are the name of
        self._parts: list[str] = []
        self._heading = 0
        self._skip = 0
        self._pre = 0
        self._bold = 0
        self._table: etree._Element | None = None  # whose rows are collected as lines of one block
        self._plain = False  # the block holds something that is not bold

    def start(self, element: etree._Element) -> None:
        tag = _tag(element)
        if self._skip or tag in _SKIP or self._is_hidden(element):
            self._skip += 1
            return
        if self._table is not None:
            self._parts.append(_before_in_a_table(element, tag))
        elif tag in _FLUSH:
            self.flush()
            self._place = element
            self._table = element if tag == "table" and is_listing(element) else None
        if tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _FLUSH and _TITLE_CLASS.search(element.get("class") or "") and not _holds_blocks(element):
            self._heading = BY_HAND
        self._anchor(element)
        self._pre += tag == "pre"
        self._bold += tag in _BOLD
        self._note_link(element, tag)
        if tag == "br" and self._table is None:
            self._parts.append("\n")
        elif tag in ("td", "th") and self._table is None:
            self._parts.append("\t")
        elif tag == "img" and re.fullmatch(r"[A-Z“‘\"']{1,2}", (element.get("alt") or "").strip()):
            self._parts.append((element.get("alt") or "").strip())  # a drop capital drawn as a picture
        self._text(_note_mark(element, tag, self._parts[-1][-8:] if self._parts else "") or element.text)

    def end(self, element: etree._Element) -> None:
        tag = _tag(element)
        self._table = None if element is self._table else self._table
        if self._skip:
            self._skip -= 1
            if not self._skip:
                self._text(element.tail)
            return
        if tag in _FLUSH and self._table is None:
            self.flush()
            self._heading = 0
            self._place = element.getparent()
        for name in self._held.pop(element, ()):
            self.page.ends[name] = len(self.page.blocks) + (tag not in _FLUSH or self._table is not None)
        self._pre -= tag == "pre"
        self._bold -= tag in _BOLD
        self._text(element.tail)

    def flush(self) -> None:
        text = paragraph(_EMPTY_ROW.sub("", "".join(self._parts)))
        self._parts.clear()
        heading = self._heading or (0 if self._plain else BY_HAND)
        if heading == BY_HAND and (CELL_END in text or not _LIKE_TITLE.fullmatch(text)):
            heading = 0
        self._plain = False
        if not text:
            return
        for name in self.waiting:
            self.page.anchors.setdefault(name, len(self.page.blocks))
        self.waiting.clear()
        self.page.blocks.append(Block(text, heading=heading))
        self.places.append(self._place)

    def _is_hidden(self, element: etree._Element) -> bool:
        """Not shown by any reader: by an attribute, its own style, or a rule of the page's style sheet."""
        if element.get("hidden") is not None or _HIDING.search(element.get("style") or ""):
            return True
        return not self._hidden.isdisjoint((element.get("class") or "").split())

    def _anchor(self, element: etree._Element) -> None:
        for name in (element.get("id"), element.get("name") if _tag(element) == "a" else None):
            if name and len(name) < 500:
                self.waiting.append(name)
                self._held.setdefault(_note_around(element), []).append(name)
        if "pagebreak" in _kind(element):
            label = element.get("title") or element.get("aria-label") or "".join(element.itertext())
            self.page.page_breaks.append((len(self.page.blocks), one_line(label)[:20]))

    def _note_link(self, element: etree._Element, tag: str) -> None:
        """Keep a link whose words are a note's mark, behind a word or where the file says that it is one."""
        if tag == "sup" and len(element) == 1 and isinstance(element[0].tag, str):
            element, tag = element[0], _tag(element[0])
        if tag != "a" or not element.get("href"):
            return
        anchor = unquote(element.get("href").partition("#")[2])
        self.page.links.setdefault(len(self.page.blocks), set()).add(anchor)
        found, named = _OWN_NOTES.match("".join(element.itertext())), "noteref" in _kind(element)
        before = "".join(self._parts[-2:])
        if found and before.strip() and (named or not before[-1].isspace()):
            link = NoteLink(len(self.page.blocks), found.group(1), element.get("href"), named)
            self.page.note_links.append(link)

    def _text(self, text: str | None) -> None:
        if text:
            self._plain |= not self._bold and not text.isspace()
            self._parts.append(text if self._pre else _on_one_line(text))


def _on_one_line(text: str) -> str:
    """The text without line ends; `paragraph` makes one space of several."""
    return text.replace("\n", " ").replace("\r", " ").replace("\t", " ").replace("\f", " ")


def _tag(element: etree._Element) -> str:
    return element.tag.rsplit("}", 1)[-1].lower()


def _kind(element: etree._Element) -> str:
    """What the file says that the element is: "pagebreak", "noteref"; by EPUB's attribute, else its role."""
    named = element.get("{http://www.idpf.org/2007/ops}type") or element.get("epub:type")
    return named or element.get("role") or ""


def _note_around(element: etree._Element) -> etree._Element:
    """The element of the note that begins with this one; itself where none is called so."""
    above = element
    for _level in range(3):
        if _tag(above) in ("li", "aside", "dd") or _NOTE_CLASS.search(above.get("class") or ""):
            return above
        above = above.getparent()
        if above is None:
            break
    return element


def _holds_blocks(element: etree._Element) -> bool:
    return any(isinstance(child.tag, str) and _tag(child) in _FLUSH for child in element)


def _before_in_a_table(element: etree._Element, tag: str) -> str:
    """What parts an element inside a table from what stands before it."""
    if tag in ("tr", "caption"):
        return "\n"
    if tag in ("td", "th"):
        return CELL_END if any(True for _cell in element.itersiblings(preceding=True)) else ""
    return " " if tag in _FLUSH or tag == "br" else ""


def _note_mark(element: etree._Element, tag: str, before: str) -> str | None:
    """ "[3]" for a raised 3 that refers to a note, so that it never melts into the word before it; "^3" for a
    power.
    """
    if tag == "a" and "noteref" in _kind(element) and not len(element):
        found = _OWN_NOTES.match(element.text or "")
        return f"[{found.group(1)}]" if found else None
    power = tag == "sup" and not len(element) and POWER.search(before)
    if power and (element.text or "").strip().isdigit():
        return f"^{(element.text or '').strip()}"
    if tag == "sup" and len(element) <= 1:
        found = _OWN_NOTES.match("".join(element.itertext()))
        if found and (len(element) == 0 or _tag(element[0]) == "a"):
            for child in element:
                child.text = None
            return f"[{found.group(1)}]"
    return None


def _entity(match: re.Match[str], declared: set[str]) -> str:
    name = match.group(1)
    if name in ("amp", "lt", "gt", "quot", "apos"):
        return match.group(0)
    if name in declared:
        return ""
    return html.entities.html5.get(name + ";", match.group(0).replace("&", "&amp;"))
