"""Plain text and Markdown to blocks: paragraphs by blank lines or indents, wrapped lines joined, verse left
alone.
"""

from __future__ import annotations

import re
from statistics import median

from core.documents.files.clean import paragraph, repair_mojibake, tidy, without_emphasis
from core.documents.files.decode import decode
from core.documents.formats.markdown_notes import notes_apart, with_notes
from core.documents.formats.plain_pages import without_pages
from core.documents.structure.blocks import Block, Manuscript
from core.documents.structure.headings import Heading, read_heading
from core.documents.structure.matter import kind_by_title
from core.documents.structure.numbered_notes import numbered_notes_in_place
from core.errors import DocumentError
from core.text.words import translated as _

_BLANKS = re.compile(r"\n[ \t]*\n\s*")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\Z")
_UNDERLINED = re.compile(r"^([^\n]+)\n(={3,}|-{3,})[ \t]*$", re.M)
# code stands first, to be left as it is; emphasis goes on within its paragraph
_MARKDOWN_EMPHASIS = re.compile(
    r"^(?:```|~~~).*?^(?:```|~~~)|`[^`\n]+`"
    r"|(?<![\w*\\])(\*{1,3}|__)(?=[^\s*])((?:[^*\n]|\n(?![ \t]*\n)){1,500}?)(?<=\S)\1(?![\w*])",
    re.M | re.S,
)
_QUOTED = re.compile(r"^ {0,3}(?:>[ \t]?)+(?:#{1,6} )?", re.M)
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n(?:---|\.\.\.)\s*\n", re.S)
_CJK_LINE_END = re.compile(
    r"(?<=[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef])\n(?=[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef])"
)
_ENDS_PARAGRAPH = re.compile(r"[.!?:…。！？][”’\"')\]」』*_]*\s*\Z|\A\s*\Z")
_TITLE_BLOCKS, _TITLE_CHARS = 4, 120
_LINE_HYPHEN = re.compile(r"(?<=\w)-\n(?=\w)")


def read_text(data: bytes) -> Manuscript:
    """A text file in any encoding."""
    text, warnings = _decoded(data)
    blocks = numbered_notes_in_place([Block(part) for part in _paragraphs(text)], [])[0]
    return manuscript_of_blocks(blocks, "txt", warnings=warnings)


def manuscript_of(
    text: str, format_: str, *, title: str = "", author: str = "", warnings: tuple[str, ...] = ()
) -> Manuscript:
    """The paragraphs of a text. Title and author are looked for on its first lines when none are known."""
    blocks = [Block(part) for part in _paragraphs(text)]
    return manuscript_of_blocks(blocks, format_, title=title, author=author, warnings=warnings)


def manuscript_of_blocks(
    blocks: list[Block], format_: str, *, title: str = "", author: str = "", warnings: tuple[str, ...] = ()
) -> Manuscript:
    """`manuscript_of` a text whose paragraphs are known."""
    printed, writer = _title_page(blocks)
    return Manuscript(format_, blocks, title=title or printed, author=author or writer, warnings=warnings)


def read_markdown(data: bytes) -> Manuscript:
    """A Markdown file: `#` headings and underlined ones, links shown by their text, code kept; quotations
    and emphasis without their marks; footnotes behind their paragraph.
    """
    text, warnings = _decoded(data)
    fields: dict[str, str] = {}
    front = _FRONT_MATTER.match(text)
    if front:
        fields = {
            key.lower(): value.strip("\"' ")
            for key, value in re.findall(r"^(\w+):\s*(.+)$", front.group(1), re.M)
        }
        text = text[front.end() :]
    text, notes = notes_apart(text)
    parts = _paragraphs(_without_marks(text))
    blocks = [_markdown_block(part) for part in parts if not re.fullmatch(r"[-*_ ]{3,}", part)]
    if notes:
        blocks = with_notes(blocks, [_note_blocks(_without_marks(note)) for note in notes])
    else:
        blocks = numbered_notes_in_place(blocks, [])[0]
    title = fields.get("title") or _headed(blocks)
    return Manuscript("markdown", blocks, title=title, author=fields.get("author", ""), warnings=warnings)


def _without_marks(text: str) -> str:
    """The text with its headings in lines of their own, as "# ...", and no other mark but those of code."""
    text = _UNDERLINED.sub(lambda found: f"{'#' if found[2][0] == '=' else '##'} {found[1]}\n", text)
    text = _QUOTED.sub("", text)
    text = re.sub(r"^(#{1,6} [^\n]*)$", r"\n\1\n", text, flags=re.M)
    text = re.sub(r"!\[([^\]\n]*)\]\([^)\n]*\)", r"\1", text)
    text = re.sub(r"\[([^\]\n]+)\]\([^)\n]*\)", r"\1", text)
    for _depth in range(2):  # emphasis in emphasis
        text = _MARKDOWN_EMPHASIS.sub(lambda found: found[2] or found[0], text)
    return text


def _note_blocks(text: str) -> list[Block]:
    parts = (without_emphasis(_unwrapped(paragraph(one))) for one in _BLANKS.split(text))
    return [Block(part) for part in parts if part]


def _markdown_block(text: str) -> Block:
    found = _HEADING.match(text)
    return Block(found.group(2), heading=len(found.group(1))) if found else Block(text)


def _headed(blocks: list[Block]) -> str:
    """The heading above all others; empty where the first is but one of the chapters'."""
    first, *others = [at for at, block in enumerate(blocks) if block.heading == 1] or [len(blocks)]
    if others:
        below = sum(bool(block.heading) for block in blocks[first + 1 : others[0]])
        alone = others[0] == first + 1  # no text of its own
        if not alone and below <= sum(bool(block.heading) for block in blocks[others[0] :]):
            return ""
    return next((block.text for block in blocks[first:]), "")


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    text, repaired = repair_mojibake(decode(data)[0].replace("\r\n", "\n").replace("\r", "\n"))
    text = without_pages(text)
    broken = sum(not char.isprintable() and char not in "\n\t\f\v\x1a\x1b" for char in text[:200_000])
    if broken > 0.05 * min(len(text), 200_000):
        raise DocumentError(
            _(
                "This is not a readable text file: most of it is binary or in an unknown encoding. "
                "Save it as UTF-8 text and try again."
            )
        )
    if not repaired:
        return tidy(text), ()
    return tidy(text), (_("Some characters had been garbled by a wrong encoding and were repaired."),)


def _paragraphs(text: str) -> list[str]:
    """The text cut into paragraphs, each with its wrapped lines joined."""
    lines = text.split("\n")
    filled = [len(line) for line in lines if line.strip()]
    if not filled:
        return []
    blank_share = 1 - len(filled) / len(lines)
    long_lines = median(filled) > 120 or max(filled) > 400
    if long_lines:
        raw = [line for line in lines if line.strip()] if blank_share < 0.2 else _BLANKS.split(text)
    elif blank_share < 0.02:
        raw = _by_indent(lines)
    else:
        raw = _BLANKS.split(text)
    wrap = sorted(filled)[int(len(filled) * 0.9)]
    pieces = [piece for part in raw for piece in _split_heading(part)]
    return [without_emphasis(joined) for piece in pieces if (joined := _joined(piece, wrap))]


def _by_indent(lines: list[str]) -> list[str]:
    """Paragraphs of a text without blank lines: begun by an indent, or without indents ended by a short
    line.
    """
    indented = sum(line[:1] in " \t\u3000" for line in lines if line.strip())
    by_indent = 0.02 * len(lines) < indented < 0.7 * len(lines)
    width = max(map(len, lines))
    result: list[str] = []
    begins = True
    for line in lines:
        label = _label(line)
        alone = label is not None and label.is_bare
        if begins or alone or (by_indent and line[:1] in " \t\u3000"):
            result.append(line)
        else:
            result[-1] += "\n" + line
        begins = alone or (not by_indent and len(line) < 0.8 * width)
    return result


def _split_heading(part: str) -> list[str]:
    """ "CHAPTER I" on a line of its own is a paragraph of its own, also without blank lines around it."""
    lines = part.strip("\n").split("\n")
    if len(lines) < 2:
        return [part]
    pieces: list[list[str]] = [[]]
    for number, line in enumerate(lines):
        ended = number == 0 or _ENDS_PARAGRAPH.search(lines[number - 1])
        heading = _label(line)
        # a wrapped sentence has no line so short with more of it below
        if heading and (ended or (heading.is_bare and number + 1 < len(lines))):
            pieces += [[line], []]
        else:
            pieces[-1].append(line)
    whole = ["\n".join(piece) for piece in pieces if piece]
    # short lines below one another are a title page or a contents list
    return whole if max(map(len, whole)) > 120 else [part]


def _label(line: str) -> Heading | None:
    """The "Chapter 7" or the like that the line is."""
    heading = read_heading(line) if len(line.strip()) <= 70 else None
    return heading if heading and heading.word not in ("", "special") else None


def _joined(part: str, wrap: int) -> str:
    """Wrapped prose becomes one line; verse, lists and tables keep their lines."""
    lines = [line.rstrip() for line in part.split("\n") if line.strip()]
    if len(lines) > 1 and min(map(len, lines[:-1])) >= 0.6 * min(wrap, 120):
        return _unwrapped("\n".join(lines))
    return paragraph("\n".join(lines))


def _unwrapped(text: str) -> str:
    return paragraph(_CJK_LINE_END.sub("", _LINE_HYPHEN.sub("-", text)).replace("\n", " "))


def _title_page(blocks: list[Block]) -> tuple[str, str]:
    """Title and author from "Title / by Author" at the top of a text, or the title alone from a line
    there; empty when it does not begin so.
    """
    for index, block in enumerate(blocks[:_TITLE_BLOCKS]):
        found = re.match(r"(?:by|von|par|por|di|von)\s+(.{3,60})\Z", block.text.split("\n")[-1], re.I)
        if found:
            title = (
                block.text.rsplit("\n", 1)[0]
                if "\n" in block.text
                else blocks[index - 1].text
                if index
                else ""
            )
            if title and len(title) <= _TITLE_CHARS:
                return " ".join(title.split()), found.group(1).strip()
    return _line_on_top(blocks), ""


def _line_on_top(blocks: list[Block]) -> str:
    """The first line, where it stands alone above the first heading, or no other line there is in capitals:
    else it may be the author's name. Empty where prose comes first: then it is that of a story, or a chapter.
    """
    lines: list[str] = []
    for block in blocks[:_TITLE_BLOCKS]:
        if read_heading(block.text) or kind_by_title(block.text):
            first = lines[0] if lines else ""
            return first if [first] in (lines, [line for line in lines if line.isupper()]) else ""
        if len(block.text) > _TITLE_CHARS:
            break
        lines += block.text.split("\n")
    return ""
