"""The desk's regions say what is known: a book from before needs no time to read, progress names what came
from disk, one word is one word, and a heading stands once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.desk.answer_snapshot import Snapshot
from app.desk.values import ShownPassage
from app.render.templating import render
from app.store.turns import StoredTurn
from app.web.reader import reader_html
from app.web.regions import progress_html, stage_html, turn_html
from core.documents.document import READ_OTHERWISE, READER_VERSION, Document, Section
from core.events import Prefill, ReadingStep
from tests.support.said import figures, text_in

ROOT = Path(__file__).resolve().parents[2]
BOOK = Document("B", "", "txt", "Once upon a time.", (Section("One", 0, 17),), sha256="b")
CARD = {
    "tokens": 7000,
    "share_of_context": 0.85,
    "fits": True,
    "parts": ["Whole book"],
    "read_s_estimate": 42.0,
    "notes": [],
}


def card(**changes) -> str:
    return stage_html(BOOK, {**CARD, **changes}, covered=False, opening=None, talking=False)


def strong(html: str) -> list[str]:
    """What stands out among the facts of a card."""
    return re.findall("<b>(.*?)</b>", html)


def test_a_book_from_before_opens_at_once():
    assert "<b>40\u00a0s</b>" in card(snapshot_tokens=0)
    # a reading that was cancelled early
    assert "<b>40\u00a0s</b>" in card(snapshot_tokens=1024)
    assert "40\u00a0s" in card(read_s_estimate=43.9) and "44" not in card(read_s_estimate=43.9), "it swung"
    known = card(snapshot_tokens=6990, read_s_estimate=0.06)
    fresh = card(snapshot_tokens=0, read_s_estimate=None)
    assert len(strong(known)) == len(strong(fresh)) + 1 and not re.search(r"\d\s*m?s</b>", known)


def test_what_is_held_in_memory_opens_at_once_too():
    """A book that was read and is stored nowhere had no time on its card, as if nothing were known."""
    held, known = (
        card(snapshot_tokens=0, read_s_estimate=0.0),
        card(snapshot_tokens=7000, read_s_estimate=0.0),
    )
    words = known.split("<b>")[-1].split("<span>")[1].split("</span>")[0]
    assert words in held and words not in card(), "the words of a book that opens at once"
    half = card(snapshot_tokens=4000, read_s_estimate=20.0)
    assert words not in half and "<b>20\u00a0s</b>" in half, "the other half has to be read"


@pytest.mark.parametrize("known", ["nothing", "all", "some"])
@pytest.mark.parametrize("parts", [1, 2, 75])
@pytest.mark.parametrize("read_s", [0.0, 0.02, 3.0, 400.0, 90_000.0])
@pytest.mark.parametrize("passages_s", [0.0, 4.0, 70.0])
def test_no_card_is_without_a_time_that_is_known(known: str, parts: int, read_s: float, passages_s: float):
    html = card(
        parts=["A part"] * parts,
        fits=parts == 1,
        snapshot_tokens={"nothing": 0, "all": 7000, "some": 4000}[known],
        prefill_s_estimate=read_s,
        read_s_estimate=read_s,
        passages_s_estimate=passages_s,
        from_passages=passages_s == 4.0,
    )
    facts = html.split('class="card-facts"')[1].split("</p>")[0]
    timed = re.compile(r"\d\xa0(s|min|h)\b")
    at_once = len(facts.split("<span>")) == 5 + (known != "nothing")
    assert timed.search(html) or at_once
    ways = re.findall(r"<b>[^<]*</b><span>([^<]*)</span></button>", html)
    assert all(timed.search(way) for way in ways)


def test_what_was_not_measured_is_no_promise():
    """The card said "up to 9.8 s" of a computer at rest, beside five other programs."""
    given = {"passages_s_estimate": 9.8, "prefill_s_estimate": 90.0, "from_passages": True}
    before, after = card(**given), card(**given, is_measured=True)
    assert before != after and all("9.8\u00a0s" in one for one in (before, after))


@pytest.mark.parametrize(("parts", "part_s"), [(75, 5.1), (75, 6.9), (12, 40.0), (4, 17.0), (30, 1900.0)])
def test_the_times_of_all_parts_and_of_one_add_up(parts: int, part_s: float):
    """Seventy-five parts of 6.9 s each stood beside 8 minutes for all, which would be 6.4 s each."""
    html = card(
        parts=["A part"] * parts,
        fits=False,
        prefill_s_estimate=parts * part_s,
        read_s_estimate=parts * part_s,
        passages_s_estimate=1.0,
        from_passages=False,
    )
    unit = {"s": 1, "min": 60, "h": 3600}
    times = [float(amount) * unit[of] for amount, of in re.findall(r"([\d.]+)\xa0(s|min|h)\b", html)]
    assert len(times) == 3
    assert parts * max(times[1:]) == pytest.approx(times[0], rel=0.02)
    assert times[0] == pytest.approx(parts * part_s, rel=0.15)


def test_what_is_told_beside_being_read_is_named_with_its_time():
    """16 minutes "to read" stood beside ten parts of a minute each: the parts were told in the others."""
    given = {"parts": ["A part"] * 10, "fits": False, "prefill_s_estimate": 600.0}
    read, told = card(**given, read_s_estimate=600.0), card(**given, read_s_estimate=960.0)
    words = [one.split("<b>")[-1].split("</b>")[1].split("<")[0] for one in map(_timed, (read, told))]
    assert words[0] != words[1]


def test_a_book_of_days_is_not_promised_in_eight_hours():
    assert "<b>25.0\u00a0h</b>" in card(read_s_estimate=90_000.0)


def _timed(html: str) -> str:
    """The fact that has a time."""
    facts = html.split('class="card-facts"')[1].split("</p>")[0].split("<span>")
    return next(one for one in facts if re.search(r"\d\xa0(s|min|h)</b>", one))


def test_a_book_of_an_older_reader_says_that_its_file_may_be_dropped_again():
    """Its chapters may be wrong in ways that were mended since; nothing else would tell."""
    assert 'class="notes"' in card()
    new = replace(BOOK, reader_version=READER_VERSION)
    assert 'class="notes"' not in stage_html(new, CARD, covered=False, opening=None, talking=False)


@pytest.mark.parametrize(
    ("format_", "version", "kind", "said"),
    [
        ("txt", 7, "chapter", False),
        ("txt", 7, "front", True),
        ("txt", 5, "chapter", True),
        ("docx", 6, "chapter", False),
        ("markdown", 6, "chapter", True),
        ("markdown", 7, "chapter", False),
        ("epub", 7, "chapter", True),
        ("txt", 8, "back", True),
        ("txt", 8, "front", False),
        ("docx", 8, "back", False),
    ],
)
def test_a_book_in_which_nothing_would_change_says_nothing(format_, version, kind, said):
    """Of every book on the shelf it was said after an update that its file be dropped again."""
    first = Section("Front matter", 0, 5, kind=kind)
    sections = (first, Section("One", 5, 17))
    book = replace(BOOK, format=format_, reader_version=version, sections=sections)
    html = stage_html(book, CARD, covered=False, opening=None, talking=False)
    assert ('class="notes"' in html) is said


@pytest.mark.parametrize(("format_", "text", "said"), [("markdown", "[^1]", True), ("txt", "[^1]", False)])
def test_a_book_with_marks_of_footnotes_left_may_be_dropped_again(format_: str, text: str, said: bool):
    book = replace(BOOK, format=format_, reader_version=9, text=BOOK.text + text)
    html = stage_html(book, CARD, covered=False, opening=None, talking=False)
    assert ('class="notes"' in html) is said


def test_every_version_of_the_reader_names_what_it_reads_otherwise():
    """One that is not named would be told of no book."""
    assert max(READ_OTHERWISE) == READER_VERSION


def test_what_the_card_says_of_the_book_itself_stands_there_once():
    """The engine's card brings it along; before it has come, and where it cannot, it stands there all the
    same.
    """
    warned = replace(BOOK, warnings=("Two pages are pictures.",), reader_version=READER_VERSION)
    for known in ({**CARD, "notes": ["It fits.", "Two pages are pictures."]}, {"notes": ["It fits."]}, {}):
        html = stage_html(warned, known, covered=False, opening=None, talking=False)
        assert html.count("Two pages are pictures.") == 1


@pytest.mark.parametrize("count", [1, 9])
def test_the_card_names_what_of_the_book_is_not_read(count: int):
    """Notes and index were in the list of chapters and reached by no question, and the card, which says what
    is read before it is, said nothing of them. A title page is not named.
    """
    sections = [Section("A Title Page", 0, 3, kind="front"), Section("One", 3, 17)]
    text, index = "Once upon a time.", "Boats, a list of where they are named. " * 9
    for number in range(count):
        sections.append(Section(f"Index {number} of boats", len(text), len(text) + len(index), kind="back"))
        text += index
    book = replace(BOOK, text=text, sections=tuple(sections), reader_version=READER_VERSION)
    html = stage_html(book, CARD, covered=False, opening=None, talking=False)
    assert html.count("Index ") == count and "Title Page" not in html
    assert html.count("<details") == (count > 1)


@pytest.mark.parametrize("sources", [("One",), ("One", "Two")])
def test_what_was_read_for_an_answer_unfolds_where_it_is_more_than_one_place(sources: tuple[str, ...]):
    """Short lists stood there open, long ones were counted: it differed from answer to answer."""
    turn = StoredTurn(2, "assistant", "It rang.", "finished", {"sources": list(sources)})
    html = turn_html(turn)
    assert ("<details" in html) == (len(sources) > 1) and "; ".join(sources) in html


def test_progress_names_what_came_from_disk():
    fresh = progress_html(Snapshot(phase="prefill", prefill=Prefill(100, 7000, 1.0, 9.0)))
    assert figures(text_in(fresh, 'id="prefill-detail"'))[:2] == ["100", "7,000"] and "6,976" not in fresh
    again = progress_html(Snapshot(phase="prefill", prefill=Prefill(0, 24, 0.1, None, 6976, 6976)))
    assert figures(text_in(again, 'id="prefill-detail"')) == ["0", "24", "6,976"]


def test_one_word_is_one_word():
    said = stage_html(
        replace(BOOK, text="Once"), {**CARD, "tokens": 1}, covered=False, opening=None, talking=False
    )
    assert all(re.search(rf"<b>1</b> {name}\b", said) for name in ("word", "token", "chapter"))


def test_the_reader_does_not_repeat_a_chapters_heading():
    """It stands above the text, and most files begin the chapter with it once more."""
    book = replace(BOOK, text="ONE.\n\nOnce upon a time.", sections=(Section("One", 0, 24),))
    page = reader_html(book, ShownPassage())
    assert page.count("<h3") == 1 and "ONE." not in page and "Once upon a time." in page
    assert ">ONE.<" in reader_html(book, ShownPassage(0, 4)), "what is marked is shown"


PARAGRAPH = "The keeper lit the lamp at dusk. Nobody came by sea. "


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ((PARAGRAPH * 9 + "\n\n") * 200, ("The keeper",)),
        (PARAGRAPH * 1800, ("The keeper", "Nobody")),
        ("keeper " * 14_000, ("keeper",)),
        ("守灯人在黄昏点灯。没有人来。" * 6000, ("守灯人", "没有人")),
        ("x" * 90_000, ("x",)),
    ],
    ids=["paragraphs", "sentences", "words", "Chinese", "neither"],
)
def test_the_reader_begins_where_something_begins(text, begins):
    """Of a long chapter the text began, and ended, inside a word."""
    book = replace(BOOK, text=text, sections=(Section("One", 0, len(text)),))
    offset = 30_011
    for _page in range(2):
        page = reader_html(book, ShownPassage(offset))
        earlier, first, *_others, later = (int(at) for at in re.findall(r'data-offset="([0-9]+)"', page))
        assert earlier < first <= offset < later
        assert all(text[at:].startswith(begins) for at in (earlier, first, later))
        offset = later


def test_the_place_to_drop_a_book_names_every_format_that_opens():
    """As the file dialog offers them: a format that is not named is not tried."""
    script = (ROOT / "assets" / "js" / "app.js").read_text(encoding="utf-8")
    offered = set(re.search(r'BOOKS = "([^"]*)"', script)[1].split(","))
    words = render("hero.html").casefold()
    names = {".txt": "text", ".md": "markdown", ".htm": "html", ".mhtml": "html", ".docx": "word", ".zip": ""}
    names[".json"] = ""  # a conversation
    assert offered >= {".pdf", ".epub", ".fb2", ".docx", ".odt", ".rtf", ".txt", ".md", ".html"}
    assert all(names.get(one, one[1:]) in words for one in offered)


def shares(*moments: Snapshot) -> list[float]:
    found = (re.search(r'aria-valuenow="(\d+)"', progress_html(one)) for one in moments)
    return [float(one[1]) for one in found if one]


def test_one_bar_runs_through_all_of_an_answer():
    """Eight bars ran from 0 to 100, each followed by seconds of "0.0 s left"."""
    moments = []
    for number in range(1, 9):
        step = ReadingStep(number, 8, "One", "passage", left_s=9.0 * (9 - number))
        moments.append(Snapshot("prefill", reading=step))
        for done in (0, 300, 600):
            moments.append(Snapshot("prefill", reading=step, prefill=Prefill(done, 600, 1.0, 0.0)))
    seen = shares(*moments)
    assert seen == sorted(seen) and seen[0] == 0 and 90 < seen[-1] < 100
    assert not any("0.0\u00a0s" in progress_html(one) for one in moments)


def test_a_reading_that_is_done_has_no_seconds_left():
    done = progress_html(Snapshot("prefill", prefill=Prefill(600, 600, 1.0, 0.0)))
    assert "left" not in done and "600 of 600" in done


def test_the_bar_of_one_part_of_several_is_its_own():
    """A question goes to one of twelve parts: nothing of the others is read for it."""
    step = ReadingStep(7, 12, "Seven")
    assert shares(Snapshot("prefill", reading=step, prefill=Prefill(300, 600, 1.0, 3.0))) == [50]


def test_the_motto_of_a_chapter_is_set_apart():
    """It and its source stood there as two paragraphs of the story."""
    text = "Ink dries.\n\n— Old proverb\n\nThe letter came.\n\n—Yes, said he."
    known = Document("T", "", "txt", text, (Section("One", 0, len(text)),), sha256="m")
    html = reader_html(known, ShownPassage())
    assert [("motto" in one.split(">")[0]) for one in html.split("<p ")[1:]] == [True, True, False, False]
