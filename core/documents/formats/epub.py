"""EPUB 2 and 3 to a manuscript: the archive is checked, then EbookLib reads it; a bad item is a warning."""

from __future__ import annotations

import io
import logging
import posixpath
import re
import warnings as python_warnings
from urllib.parse import unquote

from lxml import etree

from core.documents.files.archive import SafeArchive
from core.documents.files.clean import one_line
from core.documents.files.decode import decode_markup
from core.documents.formats.html import HtmlFile, parse, walk
from core.documents.formats.note_links import link_target, note_references
from core.documents.formats.series import epub_series
from core.documents.structure.blocks import Block, ContentsEntry, Manuscript
from core.documents.structure.notes import notes_in_place
from core.errors import DocumentError
from core.events import Progress
from core.text.words import translated as _
from core.text.words import translated_count as _n

with python_warnings.catch_warnings():
    python_warnings.simplefilter("ignore")
    from ebooklib import epub as ebooklib_epub

log = logging.getLogger(__name__)

_FONT_OBFUSCATION = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_RIGHTS = {
    "META-INF/rights.xml": "Adobe DRM",
    "META-INF/license.lcpl": "LCP (Readium) DRM",
    "META-INF/sinf.xml": "Apple FairPlay DRM",
}
_TEXT_SUFFIXES = (".xhtml", ".html", ".htm", ".xml", ".opf", ".ncx")
_BROKEN = (
    KeyError,
    AttributeError,
    TypeError,
    IndexError,
    ValueError,
    AssertionError,
    RecursionError,
    etree.LxmlError,
    ebooklib_epub.EpubException,
)


def read_epub(data: bytes, name: str, *, progress: Progress) -> Manuscript:
    """The book's text in spine order with its table of contents.

    Raises DocumentError for DRM, bombs and books without text.
    """
    archive = SafeArchive(data, name)
    _refuse_drm(archive, name)
    reader = _Reader(archive)
    book = reader.load()
    pages: dict[str, tuple[int, HtmlFile]] = {}
    blocks: list[Block] = []
    items = reader.spine_items()
    for position, item_name in enumerate(items):
        if len(items) > 20 and position % 10 == 0:
            progress(_("Reading the book"), position / len(items))
        page = reader.page(item_name)
        if page is not None and item_name not in pages:
            pages[item_name] = (len(blocks), page)
            blocks += page.blocks
    if not blocks:
        raise DocumentError(
            _("{name} is an EPUB without readable text: its pages are missing, damaged or pictures.").format(
                name=name
            )
        )
    marks = _marks(reader.contents(), pages, len(blocks))
    blocks, labels = _printed_pages(blocks, pages)
    blocks, marks = notes_in_place(blocks, marks, list(note_references(blocks, pages)))
    series, volume = epub_series(reader.package)
    return Manuscript(
        "epub",
        blocks,
        title=_title(book),
        author=_authors(book),
        marks=marks,
        page_labels=labels,
        pages=len(labels),
        warnings=tuple(reader.notes),
        series=series,
        volume=volume,
    )


def _refuse_drm(archive: SafeArchive, name: str) -> None:
    """DocumentError that names the protection; font obfuscation is none."""

    def refusal(scheme: str) -> DocumentError:
        return DocumentError(
            _(
                "{name} is protected by {scheme} and cannot be opened here. "
                "Read it in the shop's own app, or get a copy without DRM."
            ).format(name=name, scheme=scheme)
        )

    try:
        root = parse(decode_markup(archive.read("META-INF/encryption.xml"))[0])
    except KeyError:
        root = None
    if root is not None:
        methods = [
            element.get("Algorithm") or element.get("algorithm") or ""
            for element in root.iter()
            if isinstance(element.tag, str) and element.tag.rsplit("}", 1)[-1].lower() == "encryptionmethod"
        ]
        if any(method not in _FONT_OBFUSCATION for method in methods):
            raise refusal(next((scheme for path, scheme in _RIGHTS.items() if path in archive.names), "DRM"))
    for path, scheme in _RIGHTS.items():
        if path in archive.names and path != "META-INF/rights.xml":
            raise refusal(scheme)


class _Reader(ebooklib_epub.EpubReader):
    """EbookLib's reader over a checked archive: what is missing or unreadable is noted and left out."""

    def __init__(self, archive: SafeArchive) -> None:
        super().__init__(io.BytesIO())
        self._archive = archive
        self._documents: dict[str, bytes] = {}
        self._styles: dict[str, str] = {}
        self.notes: list[str] = []
        if archive.refused:
            count = len(archive.refused)
            self.note(
                _n(
                    "{count} entry with an unsafe name was ignored.",
                    "{count} entries with unsafe names were ignored.",
                    count,
                ).format(count=count)
            )

    def note(self, text: str) -> None:
        """One warning for the user; the first twenty are kept."""
        if text not in self.notes and len(self.notes) < 20:
            self.notes.append(text)

    # ---- EbookLib's steps, each allowed to fail by itself ----

    def _load(self) -> None:
        for step in (self._load_container, self._load_opf_file):
            try:
                step()
            except _BROKEN as error:
                log.info("EPUB %s: %r", step.__name__, error)

    def _load_container(self) -> None:
        try:
            super()._load_container()
        except _BROKEN as error:
            log.info("container.xml: %r", error)
        if not self.opf_file or self.opf_file not in self._archive.names:
            packages = [name for name in self._archive.names if name.lower().endswith(".opf")]
            self.opf_file = packages[0] if packages else self.opf_file or ""
            self.opf_dir = posixpath.dirname(self.opf_file)

    def _load_metadata(self) -> None:
        try:
            super()._load_metadata()
        except _BROKEN as error:
            log.info("metadata: %r", error)
            self.note(_("The book's own data (title, author) is damaged."))

    def _load_spine(self) -> None:
        try:
            super()._load_spine()
        except _BROKEN as error:
            log.info("spine: %r", error)

    def _parse_ncx(self, data: bytes) -> None:
        """Left to `contents`: both kinds of contents are read there, with anchors and levels."""

    def _parse_nav(self, data: bytes, base_path: str, navtype: str = "toc") -> None:
        """Left to `contents`."""

    def read_file(self, name: str) -> bytes:
        """An entry's bytes; empty when it is no text, missing or unsafe: pictures and fonts stay packed."""
        if not name.lower().endswith(_TEXT_SUFFIXES):
            return b""
        try:
            return self._archive.read(name)
        except KeyError:
            self.note(
                _("The item {name} is missing or unreadable and was left out.").format(
                    name=posixpath.basename(name)[:80]
                )
            )
            return b""

    # ---- what the manuscript needs ----

    @property
    def package(self) -> etree._Element | None:
        """The package document; None where it is damaged or missing."""
        package = getattr(self, "container", None)  # EbookLib's, once it could be read
        return package.getroot() if package is not None else None

    def path(self, href: str) -> str:
        """An href of the package as a normalised archive name."""
        return posixpath.normpath(posixpath.join(self.opf_dir, unquote(href)))

    def spine_items(self) -> list[str]:
        """Archive names of the text files in reading order; without a usable spine all text files."""
        items = {item.id: item for item in self.book.get_items()}
        in_spine = [items[idref] for idref, _ in self.book.spine or [] if idref in items]
        pages = [item for item in items.values() if isinstance(item, ebooklib_epub.EpubHtml)]
        texts = [item for item in in_spine or pages if not isinstance(item, ebooklib_epub.EpubNav)]
        if not texts:
            self.note(_("The book's reading order is damaged; its files were read by name."))
            return sorted(
                (name for name in self._archive.names if name.lower().endswith(_TEXT_SUFFIXES[:3])),
                key=_natural,
            )
        for item in texts:
            if item.content:
                self._documents.setdefault(self.path(item.file_name), item.content)
        return [self.path(item.file_name) for item in texts]

    def page(self, name: str) -> HtmlFile | None:
        """The blocks of one text file; None when it cannot be read."""
        data = self._documents.get(name) or self.read_file(name)
        if not data:
            return None
        root = parse(decode_markup(data)[0])
        return walk(root, [self._style_sheet(path) for path in _linked_styles(root, posixpath.dirname(name))])

    def _style_sheet(self, path: str) -> str:
        """A style sheet's text; empty when it is missing or unsafe: it may hide text, nothing else."""
        if path not in self._styles:
            try:
                self._styles[path] = self._archive.read(path).decode("utf-8", "replace")
            except KeyError:
                self._styles[path] = ""
        return self._styles[path]

    def contents(self) -> list[tuple[str, int, str]]:
        """(title, level, archive name#anchor) of the navigation document, else of the NCX, else empty."""
        navs = [item for item in self.book.get_items() if isinstance(item, ebooklib_epub.EpubNav)]
        for item in navs:
            entries = self._nav_entries(item.content or b"", posixpath.dirname(self.path(item.file_name)))
            if entries:
                return entries
        listed = [
            self.path(item.file_name)
            for item in self.book.get_items()
            if isinstance(item, ebooklib_epub.EpubNcx)
        ]
        for name in listed or [name for name in self._archive.names if name.lower().endswith(".ncx")]:
            entries = self._ncx_entries(self.read_file(name), posixpath.dirname(name))
            if entries:
                return entries
        return []

    def _nav_entries(self, data: bytes, folder: str) -> list[tuple[str, int, str]]:
        root = parse(decode_markup(data)[0])
        navs = root.xpath("//*[local-name()='nav']")
        nav = next((nav for nav in navs if _is_contents(nav)), navs[0] if len(navs) == 1 else None)
        if nav is None:
            return []
        entries = []
        for link in nav.xpath(".//*[local-name()='a' or local-name()='span'][parent::*[local-name()='li']]"):
            level = sum(
                isinstance(above.tag, str) and above.tag.rsplit("}", 1)[-1] == "ol"
                for above in link.iterancestors()
            )
            entries.append(
                (one_line("".join(link.itertext())), max(1, level), link_target(folder, link.get("href")))
            )
        return _with_targets(entries)

    def _ncx_entries(self, data: bytes, folder: str) -> list[tuple[str, int, str]]:
        root = parse(decode_markup(data)[0]) if data else etree.Element("ncx")
        entries = []
        for point in root.xpath("//*[translate(local-name(), 'P', 'p')='navpoint']"):
            label = point.xpath("./*[translate(local-name(), 'L', 'l')='navlabel']//text()")
            source = point.xpath("string(./*[local-name()='content']/@src)")
            level = 1 + sum(
                isinstance(above.tag, str) and above.tag.rsplit("}", 1)[-1].lower() == "navpoint"
                for above in point.iterancestors()
            )
            entries.append((one_line("".join(label)), level, link_target(folder, str(source))))
        return _with_targets(entries)


def _linked_styles(root: etree._Element, folder: str) -> list[str]:
    """Archive names of the style sheets that hold on every device."""
    links = root.xpath("//*[local-name()='link'][@href]")
    return [
        link_target(folder, link.get("href")).partition("#")[0]
        for link in links
        if (link.get("rel") or "").split() == ["stylesheet"] and link.get("media", "all") in ("all", "screen")
    ]


def _is_contents(nav: etree._Element) -> bool:
    return any("toc" in value.split() for key, value in nav.attrib.items() if key.endswith("type"))


def _with_targets(entries: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """An entry without a link (a part's name) points where the next one does."""
    result: list[tuple[str, int, str]] = []
    following = ""
    for title, level, target in reversed(entries):
        following = target or following
        if title and following:
            result.append((title, level, following))
    return result[::-1]


def _marks(
    entries: list[tuple[str, int, str]], pages: dict[str, tuple[int, HtmlFile]], total: int
) -> list[ContentsEntry]:
    """The marks that the entries stand for; an anchor that does not exist means the start of its file.

    A page without text (a plate, a part's name as a picture) gives its name to nothing else: its entry is
    left out where the text behind it has one of its own on the same level or above.
    """
    marks: list[ContentsEntry] = []
    pictured = False  # the last mark is of a page without text
    for title, level, target in entries:
        name, _, anchor = target.partition("#")
        if name not in pages:
            continue
        first, page = pages[name]
        mark = ContentsEntry(title, level, min(first + page.anchors.get(anchor, 0), total - 1))
        if pictured and marks[-1].block == mark.block and mark.level <= marks[-1].level:
            marks.pop()
        marks.append(mark)
        pictured = not page.blocks
    return marks


def _printed_pages(
    blocks: list[Block], pages: dict[str, tuple[int, HtmlFile]]
) -> tuple[list[Block], tuple[str, ...]]:
    """Page breaks of the printed edition, where the book carries them, as page starts with labels."""
    breaks = [
        (first + block, label) for first, page in pages.values() for block, label in page.page_breaks if label
    ]
    if len(breaks) < 2:
        return blocks, ()
    result, labels = list(blocks), []
    for number, (index, label) in enumerate(breaks):
        labels.append(label)
        if index < len(result):
            block = result[index]
            result[index] = Block(block.text, block.heading, (*block.breaks, (0, number)))
    return result, tuple(labels)


def _first(book: ebooklib_epub.EpubBook, field: str) -> str:
    values = _values(book, field)
    return values[0] if values else ""


def _values(book: ebooklib_epub.EpubBook, field: str) -> list[str]:
    try:
        return [one_line(value) for value, _ in book.get_metadata("DC", field) if value and value.strip()]
    except _BROKEN:
        return []


def _title(book: ebooklib_epub.EpubBook) -> str:
    return _first(book, "title")


def _authors(book: ebooklib_epub.EpubBook) -> str:
    """The authors' names; illustrators, translators and other helpers only when nobody else is named."""
    try:
        creators = [
            (one_line(value), extra)
            for value, extra in book.get_metadata("DC", "creator")
            if value and value.strip()
        ]
        roles = {
            str(extra.get("refines", "")).lstrip("#"): one_line(value or "")
            for value, extra in book.get_metadata("OPF", None) or []
            if extra.get("property") == "role"
        }
    except _BROKEN:
        return ""
    role = "{http://www.idpf.org/2007/opf}role"
    names = [
        name
        for name, extra in creators
        if extra.get(role, roles.get(extra.get("id", ""), "aut")) in ("aut", "")
    ]
    return ", ".join(dict.fromkeys(names or [name for name, _ in creators]))


def _natural(name: str) -> list[object]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
