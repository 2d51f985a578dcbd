"""OpenDocument texts (ODT) to a manuscript: headings by outline level, footnotes after their paragraph."""

from __future__ import annotations

from lxml import etree

from core.documents.files.archive import SafeArchive
from core.documents.formats.markup import Collector, attribute, local, markup_events, text_of, tree_of
from core.documents.formats.tables import TableTags, rows_to_lines
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_SKIPPED = frozenset(
    {"tracked-changes", "annotation", "note", "sequence-decls", "scripts", "font-face-decls", "forms"}
    | {"automatic-styles", "table-of-content", "alphabetical-index", "frame", "bookmark-ref"}
)
_TABLES = TableTags("table", "table-row", frozenset({"table-cell"}), "p", "line-break")
_MOST_BYTES = 32 << 20


def read_odt(data: bytes, name: str) -> Manuscript:
    """Raises DocumentError for damaged and encrypted files and those without text."""
    archive = SafeArchive(data, name)
    try:
        content = archive.read("content.xml")
        if len(content) > _MOST_BYTES:
            raise DocumentError(
                _(
                    "{name} is too large for an OpenDocument text. Save it as EPUB or PDF and open that."
                ).format(name=name)
            )
        root = tree_of(content)
        rows_to_lines(root, _TABLES)
        found = _walked(root)
    except (KeyError, etree.LxmlError, ValueError) as error:
        raise DocumentError(
            _(
                "{name} is a damaged or encrypted OpenDocument file. Open it and save it again, "
                "without a password."
            ).format(name=name)
        ) from error
    if not found.blocks:
        raise DocumentError(_("{name} is an OpenDocument file without text.").format(name=name))
    title, author = _properties(archive)
    return Manuscript("odt", found.blocks, title=title, author=author)


def _walked(root: etree._Element) -> Collector:
    found = Collector()
    notes: list[str] = []
    for event, name, element in markup_events(root, _SKIPPED - {"note"}):
        if event == "start":
            if name == "note":
                label = next((text_of(part) for part in element if local(part) == "note-citation"), "")
                body = next((text_of(part) for part in element if local(part) == "note-body"), "")
                notes.append(f"[{label}] {body}")
                found.add(f"[{label}]")
                for part in list(element):
                    element.remove(part)
                continue
            if name in ("p", "h"):
                found.close()
            found.put({"tab": "\t", "line-break": "\n", "s": " "}.get(name, ""))
            found.add(element.text)
            continue
        if event == "end" and name in ("p", "h"):
            level = attribute(element, "outline-level")
            found.close(heading=min(6, int(level)) if name == "h" and level.isdigit() else int(name == "h"))
            for note in notes:
                found.add(note)
                found.close()
            notes.clear()
        found.add(element.tail)
    found.close()
    return found


def _properties(archive: SafeArchive) -> tuple[str, str]:
    """Title and author as the document's own data names them."""
    try:
        root = tree_of(archive.read("meta.xml"))
    except (KeyError, etree.LxmlError):
        return "", ""
    found = {local(element): text_of(element) for element in root.iter() if not len(element)}
    return found.get("title", ""), found.get("initial-creator") or found.get("creator", "")
