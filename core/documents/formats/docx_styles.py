"""Which paragraphs of a Word document are headings: by outline level, of the style or of the paragraph,
and by styles based on Word's own. Said in mammoth's words, which knows these by name only.
"""

from __future__ import annotations

import io
import re
import zipfile

from core.documents.formats.markup import attribute, local, tree_of

_HEADING = re.compile(r"heading ?([1-9])", re.I)
_OWN_LEVEL = re.compile(
    rb"<w:outlineLvl\s[^>]*w:val=\"([0-8])\"[^>]*/>"  # of a paragraph or, in the styles, of a style
)
_PARAGRAPH_STYLE = re.compile(rb"<w:pStyle\s[^>]*/>")
_PROPERTIES = re.compile(rb"<w:pPr>.{0,4000}?</w:pPr>", re.S)
_NAME = "Outline level {}"


def with_heading_styles(data: bytes, document: bytes, styles: bytes) -> tuple[bytes, str]:
    """The file, and lines for mammoth's map of styles. Paragraphs with an outline level of their own are
    given a style that says so.

    `document`, `styles`: its entries word/document.xml and word/styles.xml. Raises etree.LxmlError.
    """
    levels = _heading_levels(styles) if styles else {}
    lines = [f"p[style-name='{_quoted(name)}'] => h{level}:fresh" for name, level in levels.items()]
    named = _OWN_LEVEL.search(document) and styles.rfind(b"</w:styles>") >= 0
    if not named:
        return data, "\n".join(lines)
    lines += [f"p[style-name='{_NAME.format(n)}'] => h{min(6, n)}:fresh" for n in range(1, 10)]
    own = "".join(
        f'<w:style w:type="paragraph" w:styleId="OutlineLevel{n}"><w:name w:val="{_NAME.format(n)}"/>'
        "</w:style>"
        for n in range(1, 10)
    )
    end = styles.rfind(b"</w:styles>")
    changed = {
        "word/document.xml": _PROPERTIES.sub(_styled, document),
        "word/styles.xml": styles[:end] + own.encode() + styles[end:],
    }
    return _zipped_anew(data, changed), "\n".join(lines)


def _styled(found: re.Match[bytes]) -> bytes:
    """A paragraph's properties with the style for its outline level in the place of its own."""
    level = _OWN_LEVEL.search(found.group())
    if not level:
        return found.group()
    style = b'<w:pStyle w:val="OutlineLevel%d"/>' % (int(level.group(1)) + 1)
    return b"<w:pPr>" + style + _PARAGRAPH_STYLE.sub(b"", found.group())[len(b"<w:pPr>") :]


def _zipped_anew(data: bytes, changed: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            if name in changed:
                new.writestr(name, changed[name])
            elif name.endswith((".xml", ".rels")):
                new.writestr(name, old.read(name))
    return buffer.getvalue()


def _heading_levels(styles: bytes) -> dict[str, int]:
    """Name of a paragraph style -> level of heading, 1 to 6."""
    own: dict[str, int] = {}  # by the style's id; 0 says that it is none
    bases: dict[str, str] = {}
    names: dict[str, str] = {}
    for style in tree_of(styles):
        if local(style) != "style" or attribute(style, "type") not in ("paragraph", ""):
            continue
        key = attribute(style, "styleId")
        found = {local(part): attribute(part, "val") for part in style.iter()}
        names[key], bases[key] = found.get("name", ""), found.get("basedon", "")
        level, named = found.get("outlinelvl", ""), _HEADING.fullmatch(names[key])
        if level.isdigit():
            own[key] = int(level) + 1 if int(level) < 9 else 0
        elif named:
            own[key] = int(named.group(1))
    return {
        names[key]: min(6, level) for key in names if (level := _inherited(key, own, bases)) and names[key]
    }


def _inherited(key: str, own: dict[str, int], bases: dict[str, str]) -> int:
    seen: set[str] = set()
    while key not in own and bases.get(key) and key not in seen:
        seen.add(key)
        key = bases[key]
    return own.get(key, 0)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
