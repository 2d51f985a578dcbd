"""What in a book is not the book: licences, contents lists, indexes, title pages. Judged by title, place and
wording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.documents.structure.blocks import Block
from core.documents.structure.headings import is_cast_list

_FRONT = re.compile(
    r"(?:table of )?contents\b.*|"
    r"(?:a )?(?:list|table) of (?:the )?(?:illustrations|figures|tables|maps|plates|abbreviations).*|"
    r"illustrations|dedication|copyright.*|title ?page|half.?title.*|cover|epigraph|acknowledge?ments?|"
    r"about this (?:e-?text|e-?book|edition).*|(?:original )?transcriber.?s.? notes?.*|colophon|imprint|"
    r"also by .*|praise for .*|permissions|front ?matter|frontispiece|inhalt(?:sverzeichnis)?|impressum|"
    r"inhaltsübersicht|(?:bild|abbildungs|abkürzungs|tabellen)verzeichnis|titelseite|widmung|"
    r"danksagung(?:en)?|mentions légales|remerciements|dédicace|page de titre|couverture|du même auteur|"
    r"(?:table|liste) des (?:illustrations|figures|tableaux|abréviations)|"
    r"table des matières|índice|indice|sumário|sommaire|目录|目次|оглавление|содержание|"
    r"the (?:full )?project gutenberg (?:e-?book|e-?text).*|landmarks|list of pages",
    re.I,
)
_BACK = re.compile(
    r"index|(?:\w+(?: and \w+)* )?index|index of .*|bibliography|works cited|references|"
    r"glossary.*|(?:foot|end|descriptive )?notes|(?:a )?(?:suggested |further |recommended )?reading(?: "
    r"list)?|"
    r"discussion questions|suggestions (?:to|for) (?:teachers|further reading|readers).*|"
    r"about the (?:author|publisher|translator).*|.*project gutenberg.*licen[cs]e.*|(?:the )?(?:full "
    r")?licen[cs]e|"
    r"uncopyright|gnu (?:free|general|lesser).*licen[cs]e.*|creative commons.*|licen[cs]e agreement|"
    r"anmerkungen|fußnoten|endnoten|quellen(?:verzeichnis|angaben)?|(?:sach|personen|namen)register|"
    r"(?:über|zu) (?:den|die|der) autor(?:in|en)?|bildnachweise?|glossar|lizenz|weiterführende literatur|"
    r"notes (?:de fin|de bas de page|et références)|références|index (?:des|général).*|lexique|crédits.*|"
    r"à propos de l.auteur.*|ouvrages cités|licence d.utilisation|"
    r"примечания|сноски|комментарии|przypisy|poznámky|notas|注释|註釋|脚注|"
    r"back ?matter|literatur(?:verzeichnis|hinweise)?|register|stichwortverzeichnis|bibliographie|"
    r"glossaire|bibliografía|bibliografia|errata|索引|参考文献|end of (?:the |this )?project gutenberg.*",
    re.I,
)
# words of the titles of what somebody wrote for the reader of this book
_OPENING = re.compile(
    r"(?:.*\b)?(?:introduction|introductory|preface|prefatory|prologue|prolog|fore-?word|"
    r"letters?|proem|prelude|preamble|note|remarks|(?:a|few) words?|readers?|about this book|"
    r"epistle|dedicatory|advertisement|argument|induction|apology|preliminary|"
    r"vorwort|vorrede|zuvor|(?:vor)?bemerkung(?:en)?|anmerkung|geleit(?:wort)?|einleitung|einführung|leser|"
    r"prólogo|prologo|prefazione|prefacio|prefácio|introducción|introduzione|introdução|premessa|"
    r"nota|advertencia|avvertenza|lector(?:es)?|lettor[ei]|leitor(?:es)?|"
    r"avant-propos|préface|avertissement|lecteurs?|voorwoord|inleiding|förord|inledning|"
    r"przedmowa|wstęp|předmluva|úvod|前言|楔子|序.*|自序|译者序|譯者序|はじめに|まえがき|"
    r"пролог|предисловие|введение|вступление|от (?:автора|редактора|переводчика|издателя)|читател[юя]м?|"
    r"overture|invocation)\b.*",
    re.I,
)
_GUTENBERG_START = re.compile(
    r"\*{2,}\s*START OF TH(?:E|IS) PROJECT GUTENBERG|\*END\s?\*?\s?THE SMALL PRINT", re.I
)
_GUTENBERG_END = re.compile(
    r"\*{2,}\s*END OF TH(?:E|IS) PROJECT GUTENBERG|\A\W*End of (?:the |this )?Project Gutenberg|"
    r"\A\W*(?:the )?(?:full )?project gutenberg(?:-tm|™)? licen[cs]e\W*\Z",
    re.I,
)
_GUTENBERG_HEAD = re.compile(
    r"\A\W*(?:the )?project gutenberg(?:.s)? (?:e-?book|e-?text|edition)\b|\A\W*Project Gutenberg.s |"
    r"\A\W*this (?:e-?book|e-?text) is for the use of anyone anywhere",
    re.I,
)
_NOTICE_LINE = re.compile(
    r"gutenberg|\A(?:title|author|release date|language|illustrator|translator|character set|produced "
    r"by|posting date)\b",
    re.I,
)
# the first line of an edition of the 1990s, which has no "Title:"
_GUTENBERG_NAMED = re.compile(
    r"\W*(?:the )?project gutenberg(?:.s)?(?: (?:e-?book|e-?text|edition))?(?: of)? "
    r"(.+?),? by ([^,\[\]*]+?)\W*",
    re.I,
)
_LEAST_BOOK_CHARS = 3000  # between two notices


def kind_by_title(title: str) -> str | None:
    """ "front" or "back" when the title alone says so, else None."""
    plain = re.sub(r"\s+", " ", title).strip(" .:*_[]")
    if _FRONT.fullmatch(plain):
        return "front"
    return "back" if _BACK.fullmatch(plain) else None


def opens_the_book(title: str) -> bool:
    """True for a preface, prologue, author's or editor's note or the persons of a play: it stands before
    chapter 1 and still is the book.
    """
    return bool(_OPENING.fullmatch(title.strip())) or is_cast_list(title)


def gutenberg_books(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """(first block, first block behind it) of every book between its notices: one, unless a file holds
    several with a notice each.
    """
    starts = [index for index, block in enumerate(blocks) if _marks_line(_GUTENBERG_START, block.text)]
    ends = [index for index, block in enumerate(blocks) if _marks_line(_GUTENBERG_END, block.text)]
    books = []
    for start, following in zip(starts, [*starts[1:], len(blocks)], strict=False):
        end = next((end for end in ends if start < end < following), None)
        if end is not None and sum(len(block.text) for block in blocks[start + 1 : end]) > _LEAST_BOOK_CHARS:
            books.append((start + 1, end))
    return books if len(books) > 1 else [_cuts(blocks)]


def _marks_line(pattern: re.Pattern[str], text: str) -> bool:
    """The block has the line of stars that begins or ends a book; a short one, as such lines are."""
    return len(text) < 600 and "gutenberg" in text.lower() and bool(pattern.search(text))


def _cuts(blocks: Sequence[Block]) -> tuple[int, int]:
    """(first block after the Project Gutenberg header, first block of its closing licence); (0, len) when
    there is none.
    """
    first, last = 0, len(blocks)
    for index, block in enumerate(blocks):
        text = block.text
        if len(text) > 20_000:
            text = text[:10_000] + text[-10_000:]
        if "gutenberg" not in text.lower() and "SMALL PRINT" not in text:
            continue
        if _GUTENBERG_START.search(text) and _share(blocks, index) < 0.5:
            first = index + 1
        elif _GUTENBERG_END.search(text) and index > first and _share(blocks, index) > 0.5:
            last = index
            break
    if first == 0 and blocks and any(_GUTENBERG_HEAD.search(block.text) for block in blocks[:3]):
        first = _end_of_notice(blocks)
    # nothing but the notice: then that is the text
    return (first, last) if first < last else (0, len(blocks))


def _share(blocks: Sequence[Block], index: int) -> float:
    before = sum(len(block.text) for block in blocks[:index])
    return before / max(1, before + sum(len(block.text) for block in blocks[index:]))


def _end_of_notice(blocks: Sequence[Block]) -> int:
    """Without a start line: the notice and the lines "Title: ...", "Produced by ..." after it."""
    end = 0
    for index, block in enumerate(blocks[:30]):
        if _NOTICE_LINE.search(block.text):
            end = index + 1
        elif index - end > 3:
            break
    return end


def gutenberg_fields(blocks: Sequence[Block]) -> dict[str, str]:
    """ "title" and "author" as the Project Gutenberg header names them."""
    fields: dict[str, str] = {}
    for block in blocks[:40]:
        lines = block.text.split("\n")
        for position, line in enumerate(lines):
            found = re.match(r"(title|author)\s*:\s*(.+)", line.strip(), re.I)
            if found and found.group(1).lower() not in fields:
                following = lines[position + 1 : position + 2]
                goes_on = following and ":" not in following[0] and found.group(1).lower() == "title"
                more = following[0].strip() if goes_on else ""
                fields[found.group(1).lower()] = f"{found.group(2).strip()} {more}".strip()
        if _GUTENBERG_START.search(block.text):
            break
    else:
        fields = {}
    return fields or _named_at_once(blocks)


def _named_at_once(blocks: Sequence[Block]) -> dict[str, str]:
    """What the first line names. "by Dickens" there is "by Charles Dickens" a few lines further down."""
    lines = [line.strip() for block in blocks[:40] for line in block.text.split("\n")]
    found = next(filter(None, map(_GUTENBERG_NAMED.fullmatch, lines[:6])), None)
    if found is None:
        return {}
    title, name = (part.strip() for part in found.groups())
    whole = re.compile(rf"{re.escape(title)},? by (.*\b{re.escape(name)})", re.I)
    author = next((full.group(1) for full in map(whole.fullmatch, lines) if full), name)
    return {"title": title, "author": author}
