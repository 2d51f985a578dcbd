"""A limit "up to chapter N": nothing behind it gets into a prompt or is shown, however the book is read."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from core.config import LENGTHS, READING_MODES
from core.conversation.part_summaries import PartSummaryStore
from core.conversation.spoiler_guard import told_so_far
from core.documents.document import Document, Section
from core.errors import UserError
from core.request import HistoryTurn
from tests.support.fakes import CharTokenizer
from tests.support.said import worded_by
from tests.support.talks import STYLE, ask, encoded, finished, make

MARKER = "Zyxomma"
KNOWN = 3  # chapters


def marked() -> Document:
    """Six chapters in two books; the marker stands in all text and titles after the third."""
    text, sections = "", []

    def add(title: str, body: str, kind: str = "chapter") -> None:
        nonlocal text
        start = len(text)
        text += f"{title}\n\n{body}\n\n"
        sections.append(Section(title, start, len(text), kind=kind))

    add("Title page", "The Ferry, a tale.", "front")
    add("BOOK ONE. THE RIVER", "", "part")
    for number in range(1, 7):
        if number == KNOWN + 1:
            add(f"BOOK TWO. {MARKER.upper()}", "", "part")
        late = f" and {MARKER} rowed the ferry" if number > KNOWN else ""
        body = f"The ferryman Oddo hid the silver key of day {number}{late}. " * 12
        add(f"Chapter {number}" + (f" {MARKER}" if late else ""), body)
    add("Afterword", f"Of {MARKER} and the ferry.", "back")
    pages = tuple(section.start for section in sections)
    return Document("Ferry", "", "pdf", text, tuple(sections), pages, sha256="f")


def seen(events: list, engine) -> str:
    """All that a person or the model gets to see."""
    told = [CharTokenizer().decode(ids) for ids in engine.prompts]
    return json.dumps([*told, *(asdict(event) for event in events)], ensure_ascii=False).lower()


QUESTIONS = [
    "Where is the silver key of Oddo?",
    "Who rowed the ferry?",
    "Why?",
    f"Who is {MARKER[:4]}?",
    None,
]


@pytest.mark.parametrize("known", [False, True], ids=["fresh", "read before without a limit"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("reading_mode", [*READING_MODES, "slow auto", "auto by passages"])
def test_nothing_behind_the_limit_is_read_or_shown(reading_mode: str, question: str | None, known: bool):
    """Notes, word indexes, plans and contexts of the whole book may be kept: none of them may leak."""
    book = marked()
    style = replace(STYLE, part_tokens=500, whole_tokens=4000, passages=reading_mode == "auto by passages")
    options = {"read_whole_s": 0.0} if reading_mode == "slow auto" else {}

    def reply(ids, params):
        prompt = CharTokenizer().decode(ids)
        return encoded(f"{MARKER} hid it." if MARKER in prompt else "Oddo hid the silver key of the ferry.")

    session, engine = make(reply, context_tokens=9000, style=style, notes=PartSummaryStore(), **options)
    plainly = reading_mode if reading_mode in READING_MODES else "auto"
    if known:
        for one in (None, "Who rowed the ferry?", "Where is the silver key?"):
            for way in ("chunked", "full", "retrieval"):
                ask(session, book, one, reading_mode=way, conversation="before")
        assert MARKER.lower() in seen([], engine), "else this test shows nothing"
        engine.prompts.clear()

    events, said = [], ()
    for turn in (question, "And why did he?", None):
        events += ask(session, book, turn, reading_mode=plainly, spoiler_limit=KNOWN, history=said)
        done = finished(events)
        said = (*said, HistoryTurn(turn or "Summarise this book", done.text, done.token_ids))
    assert engine.prompts
    assert MARKER.lower() not in seen(events, engine)
    assert known or "day 3" in seen(events, engine), "the last chapter of the limit is read"
    assert MARKER.lower() not in json.dumps(session.card(book, KNOWN)).lower()


@pytest.mark.parametrize("length", LENGTHS)
def test_a_summary_of_any_length_ends_at_the_limit(length: str):
    """What was told of the whole book before is kept, and must not be told again."""
    style = replace(STYLE, part_tokens=500, whole_tokens=500)

    def reply(ids, params):
        prompt = CharTokenizer().decode(ids)
        return encoded(
            f"The ferryman gave {MARKER} the silver key." if MARKER in prompt else "Oddo hid the key."
        )

    session, engine = make(reply, context_tokens=9000, style=style, notes=PartSummaryStore())
    whole = ask(session, marked(), None, reading_mode="chunked", summary_length=length)
    assert MARKER.lower() in seen(whole, engine), "else this test shows nothing"
    engine.prompts.clear()
    known = ask(session, marked(), None, reading_mode="chunked", summary_length=length, spoiler_limit=KNOWN)
    assert finished(known).text and MARKER.lower() not in seen(known, engine)


def test_the_book_ends_with_the_limit():
    cut = marked().up_to(KNOWN)
    assert MARKER.lower() not in cut.text.lower() and len(cut.chapters) == KNOWN
    assert cut.text.endswith("day 3. \n\n") and marked().text.startswith(cut.text)
    assert len(cut.page_starts) == len(cut.sections) and cut.page_starts[-1] < len(cut.text)
    assert marked().up_to(None) == marked()
    assert len(marked().up_to(6).chapters) == 6


@pytest.mark.parametrize("spoiler_limit", [0, 7, -1])
def test_a_limit_that_is_no_chapter_is_refused_in_words(spoiler_limit: int):
    session, _ = make()
    with pytest.raises(UserError, match="this book has 6"):
        ask(session, marked(), "Who?", spoiler_limit=spoiler_limit)


def test_the_card_is_of_the_chapters_that_were_chosen():
    session, _engine = make()
    whole, one = session.card(marked()), session.card(marked(), chapters=(2, 2))
    picked = session.card(marked(), selected_chapters=(1, 3))
    assert whole["words"] == marked().words, "as the shelf has it"
    for key in ("tokens", "words", "chapters"):
        assert 0 < one[key] < picked[key] < whole[key], key
    assert one["chapters"] == 1 and picked["chapters"] == 2


def test_a_book_that_is_read_whole_where_it_fits_is_not_said_to_be_read_in_parts():
    session, _engine = make(context_tokens=12_000)
    assert not session.card(marked())["fits"] and session.card(marked(), whole=True)["fits"]
    longer, _engine = make()
    assert longer.card(marked(), whole=True)["parts"] == longer.card(marked())["parts"]


def test_the_card_is_of_what_may_be_read():
    session, _ = make(context_tokens=9000)
    known, whole = session.card(marked(), KNOWN), session.card(marked())
    assert known["chapters"] == KNOWN and known["tokens"] < whole["tokens"]
    assert known["read_s_estimate"] < whole["read_s_estimate"]


def test_a_recap_ends_in_the_middle_of_a_chapter():
    """What stands behind the person's place in the chapter at hand is in no prompt, and nothing shows it."""
    book = marked()
    second = book.chapters[1]
    late = book.text.rindex("day 2", second.start, second.end)
    book = replace(book, text=book.text[:late] + "Quux!" + book.text[late + 5 :], sha256="g")
    end = book.text.index("day 2", second.start) + 6
    assert book.before(end).chapters[-1].end == end and book.before(None) is book
    wanted = {"chapters": (2, 2), "summary_length": "paragraph"}
    session, engine = make()
    told = seen(ask(session, book, None, end=end, **wanted), engine)
    assert "silver key of day 2" in told and "quux" not in told
    assert "quux" in seen(ask(session, book, None, **wanted), engine), "else this test shows nothing"


def test_a_summary_to_where_the_book_stands_open_does_not_claim_the_chapter():
    """ "Read for this answer: all 6 chapters", of the sixth the first paragraph."""
    session, _engine = make(style=replace(STYLE, summaries="own"))
    for chapters, end in ((None, 60), ((2, 2), 60), (None, None)):
        end = end and marked().chapters[1].start + end
        *_before, last = finished(ask(session, marked(), None, chapters=chapters, end=end)).sources
        assert bool(worded_by(told_so_far, last)) == (end is not None)
