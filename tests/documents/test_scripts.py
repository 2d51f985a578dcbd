"""PDFs in scripts that run leftwards or without spaces: letters in the order of reading, paragraphs and
columns as on the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.documents import Document, read_document
from core.documents.pdf.leftwards import Glyph, leftward_pieces
from tests.support.minimal_pdf import SIZE, Placed, text_pdf

RIGHT, TOP, LEADING = 370, 540, 14
HEBREW = [  # lines of two paragraphs; the second begins with an indent
    ("בראשית ברא אלהים את השמים ואת", 0),
    ("הארץ והארץ היתה תהו ובהו וחשך", 0),
    ("על פני תהום ורוח אלהים מרחפת", 0),
    ("על פני המים.", 0),
    ("ויאמר אלהים יהי אור ויהי אור", 2),
    ("וירא אלהים את האור כי טוב ויב", 0),
    ("דל אלהים בין האור ובין החשך.", 0),
]


def read(pages: list[list[Placed]], folder: Path) -> Document:
    path = folder / "script.pdf"
    path.write_bytes(text_pdf(pages))
    return read_document(path)


def leftwards(lines: list[tuple[str, int]], right: float = RIGHT) -> list[Placed]:
    """Lines that begin at the right margin, drawn as most programs draw them: from left to right as they
    look.
    """
    return [
        (right - SIZE * (len(text) + indent), TOP - LEADING * row, text[::-1])
        for row, (text, indent) in enumerate(lines)
    ]


def test_hebrew_is_in_logical_order_and_its_paragraphs_begin_at_the_right(tmp_path: Path):
    """Margins taken from the left tear paragraphs apart at every line of another length, and miss those that
    begin.
    """
    whole = [" ".join(text for text, _ in part) for part in (HEBREW[:4], HEBREW[4:])]
    assert read([leftwards(HEBREW)], tmp_path).text == "\n\n".join(whole)


def test_a_hebrew_paragraph_goes_on_over_the_page(tmp_path: Path):
    whole = " ".join(text for text, _ in HEBREW[:4])
    document = read([leftwards(HEBREW[:2]), leftwards(HEBREW[2:4])], tmp_path)
    assert document.text == whole and document.page_at(whole.index("על פני")) == "2"


def test_columns_of_hebrew_are_read_from_the_right_one_on(tmp_path: Path):
    """Also when both are drawn row by row across the page."""
    words = [
        "בראשית",
        "ברא",
        "אלהים",
        "השמים",
        "הארץ",
        "היתה",
        "תהו",
        "ובהו",
        "וחשך",
        "תהום",
        "ורוח",
        "מרחפת",
    ]
    right = [(" ".join((words[row], words[row + 1], words[row + 2])), 0) for row in range(10)]
    left = [(" ".join((words[row + 2], words[row], words[row + 1])), 0) for row in range(10)]
    rows = [piece for pair in zip(leftwards(left, 200), leftwards(right, 400), strict=True) for piece in pair]
    text = " ".join(read([rows], tmp_path).text.split())
    assert text == " ".join(line for line, _ in (*right, *left))


def test_latin_words_and_numbers_inside_hebrew_keep_their_order(tmp_path: Path):
    """Drawn: full stop, the name as it is, Hebrew backwards, the year as it is, Hebrew backwards."""
    before, after = "ויהי בארץ רחוקה בשנת", "נולד הסופר"
    drawn = f".John Smith {after[::-1]} 1948 {before[::-1]}"
    assert read([[(10, 500, drawn)]], tmp_path).text == f"{before} 1948 {after} John Smith."


MIXED = {  # as it is read; what is drawn by itself ends at a bar
    "brackets": "בשנת |1948 |נולד |הסופר |John |Smith |(בעיר |הבירה), |וכתב |12 |ספרים.",
    "numbers": "ענה: |״בשעה |7:30 |בערב, |ב-|3.5 |קילומטר |[הערה |15|].״",
    "Latin words": "הוא |כתב |את |Python |(3.11) |ואת |Rust |על |50% |מן |הדפים",
    "Arabic": "قال |المهندس |(وهو |طيب): |«هذا |في |عام |1872|»، |ثم |ضحك |مع |Saltby |وشرب",
}
MIRRORED = str.maketrans("()[]«»", ")(][»«")


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("order", [1, -1], ids=["drawn as read", "drawn as seen"])
def test_words_of_both_directions_are_in_the_order_of_reading(kind: str, order: int, tmp_path: Path):
    """Browsers draw each word by itself: what PDFium made of that had Arabic words backwards, brackets that
    closed first, and numbers at the other end. Words of another script run to the right between the others.
    """
    pieces, right = [], float(RIGHT)
    for run in re.findall(r"(?:[A-Z0-9(][A-Za-z0-9.:%)]+ ?\|?)+|[^|]+", MIXED[kind]):
        rightward = run.isascii()
        words = run.split("|") if rightward else [run]
        left = right - SIZE * len(run.replace("|", ""))
        at = left + SIZE * run.endswith((" ", " |")) if rightward else left
        for word in filter(None, words):
            seen = word if rightward else word.translate(MIRRORED)[::-1]
            skipped = len(seen) - len(seen.lstrip())
            pieces.append((at + SIZE * skipped, 500.0, seen.strip()))
            at += SIZE * len(word)
        right = left
    whole = MIXED[kind].replace("|", "")
    assert read([pieces[::order]], tmp_path).text == whole


def test_points_stand_behind_their_letters_and_lam_before_alef():
    """PDFium shares a pointed letter's box out among its characters, and leaves a gap beside it."""
    row = [("ת", 10, 17), ("ִ", 18, 20), ("ׁ", 20, 22), ("ש", 22, 24), ("ا", 33, 40), ("ل", 33, 40)]
    glyphs = [Glyph(text, x0, x1, 0.0, 10.0, order) for order, (text, x0, x1) in enumerate(row)]
    (piece,) = leftward_pieces(glyphs)
    assert "".join(glyph.text for glyph in piece) == "لا ש\u05c1\u05b4ת"


def test_arabic_in_the_shapes_of_print_is_spelt_with_its_letters(tmp_path: Path):
    """Presentation forms, drawn from left to right: "peace", its lam and alef one ligature."""
    assert read([[(60, 500, "\ufee1\ufefc\ufeb3")]], tmp_path).text == "سلام"


@pytest.mark.parametrize("gap", [0.0, 2.5, 6.0])
def test_stretched_lines_of_japanese_get_no_spaces(gap: float, tmp_path: Path):
    """A justified line is set in pieces with gaps; Japanese has no spaces that they could be."""
    lines = ["吾輩は猫である。名前はまだ無い。", "どこで生れたかとんと見当がつかぬ。"]
    pieces = [
        (50 + (SIZE + gap / 2) * start, TOP - LEADING * row, line[start : start + 2])
        for row, line in enumerate(lines)
        for start in range(0, len(line) - 1, 2)
    ]
    whole = "".join(line[: len(line) // 2 * 2] for line in lines)
    assert read([pieces], tmp_path).text == whole


def test_a_wide_space_of_a_chinese_title_stays_and_latin_words_keep_theirs(tmp_path: Path):
    assert read([[(50, 500, "第一章"), (110, 500, "开始之前")]], tmp_path).text == "第一章 开始之前"
    assert read([[(50, 500, "我用 Python 写程序")]], tmp_path).text == "我用 Python 写程序"


def test_short_last_lines_end_chinese_paragraphs(tmp_path: Path):
    """Without spaces a whole line looks like one long word that would never have fitted."""
    lines = [
        "话说天下大势分久必合合久必分",
        "周末七国分争并入于秦。",
        "及秦灭之后楚汉分争又并入于汉",
        "汉朝自高祖而起义。",
    ] * 2
    text = read([[(50, TOP - LEADING * row, line) for row, line in enumerate(lines)]], tmp_path).text
    assert text.split("\n\n")[:2] == ["".join(lines[:2]), "".join(lines[2:4])]
