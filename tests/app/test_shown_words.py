"""What was said in another process or on another day is on the page in the language of whoever looks, and in
the answer what the program says; what is the model's or the book's stays as it is.
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.shelf import StoredReading
from app.desk.store import Store
from app.desk.values import DiskShortage, Notice, ReadingsUsage
from app.engine.client import Runtime
from app.errors import in_words
from app.render.export import ConversationFile, as_html, as_markdown
from app.render.footnotes import Footnotes
from app.render.markdown import Citation, blocks
from app.store.book_entry import BookEntry
from app.store.history import History
from app.store.library import Library
from app.store.turns import displayed_text
from app.web import messages, regions
from app.web.citations import Citations, CitedAnswer
from app.web.library import library_html
from app.web.settings import settings_html
from core.config import RULES, Settings
from core.conversation.chapter_names import section_title
from core.conversation.retrieval_result import quotation
from core.documents.document import FRONT_MATTER, NOTICES
from core.documents.safely import read_safely
from core.errors import DocumentError
from core.events import Delta, Finished, Piece, Stats
from core.evidence.support import UNFOUND
from core.request import Request
from core.text.words import in_language, joined_sentences, localized
from core.text.words import translated as _

WORKER = Path(__file__).resolve().parents[1] / "support" / "scripted_worker.py"
NOTHING = "No answer was found. Nearest passages:"


def text_of(html: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", str(html)).split())


def seen(code: str, draw) -> str:
    """The text of what is drawn for somebody of that language."""
    with in_language(code):
        return text_of(draw())


def test_what_a_book_takes_and_what_was_computed_of_it_are_not_called_the_same():
    """12 KB were kept of a book on the shelf, and 0 KB in the settings."""
    entry = BookEntry("a" * 64, "The Lamp", "", "txt", 9, 1, 0.0)
    shelf = library_html(
        [entry],
        covered=frozenset(),
        kept={entry.id: StoredReading(12_000)},
        today=date(2026, 1, 1),
        current="",
        talks=[],
        talk="",
        samples=(),
    )
    settings = settings_html(Settings(), dict.fromkeys(RULES, "default"), [], ReadingsUsage(0, 10**9, ()))
    assert "12 KB on disk" in text_of(shelf) and "kept" not in text_of(shelf)
    assert "What the model computed of books" in text_of(settings[0])


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path / "talks.db")
    yield made
    made.close()


def answered(history: History, *pieces: Piece, **ending) -> History:
    """The history with an answer of these pieces, closed and opened again: as on the next day."""
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    text = "".join(piece.text for piece in pieces)
    events = [Delta(pieces), Finished("stop", text, Stats(), pieces=pieces, **ending)]
    ask = Request("Who?", conversation_id=talk)
    job = AnswerJob(iter(events), history, ask, Store(), Callbacks())
    job.start()
    assert job.join()
    history.close()
    return History(history.path)


def last(history: History):
    (talk,) = history.conversations("book")
    return history.turns(talk.id)[-1]


@pytest.mark.wide
def test_what_the_engines_process_said():
    runtime = Runtime(Settings(), worker=(sys.executable, str(WORKER)))
    try:
        *_before, failed = runtime.ask(Request(None, conversation_id="c"))
    finally:
        runtime.close()
    assert failed.message.startswith("There is no book")
    notice = Notice(failed.message)
    assert "kein Buch" in seen("de", lambda: messages.notice_html(notice))
    assert "书" in seen("zh", lambda: messages.notice_html(notice))


def test_what_the_process_that_reads_books_said(tmp_path):
    file = tmp_path / "book.epub"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    with pytest.raises(DocumentError) as refused:
        read_safely(file)
    notice = Notice(in_words(refused.value))
    assert "it is a PNG picture" in seen("en", lambda: messages.notice_html(notice))
    assert "ein PNG-Bild" in seen("de", lambda: messages.notice_html(notice))
    assert "PNG 图片" in seen("zh", lambda: messages.notice_html(notice))


def test_what_a_book_brought_along_to_the_shelf(tmp_path, book):
    warning = _("{count} of {pages} pages are pictures without text and were left out.")
    Library(tmp_path / "books").add(replace(book, warnings=(warning.format(count=2, pages=9),)))
    back = Library(tmp_path / "books").get(book.sha256)
    card = {"tokens": 9, "share_of_context": 0.5, "fits": True, "parts": [], "notes": []}

    def drawn() -> str:
        return regions.stage_html(back, card, covered=False, opening=None, talking=False)

    assert "2 of 9 pages are pictures" in seen("en", drawn)
    assert "2 von 9 Seiten" in seen("de", drawn) and "of 9" not in seen("de", drawn)


def test_what_was_said_yesterday_in_two_languages_at_once(history):
    """Two tabs, drawn by two threads: neither sees a word of the other's language, nor of English."""
    part = _("Chapters {first}–{last}").format(first="I", last="IV")
    note = _("Not read: {places}.").format(places=joined_sentences(_("Chapter {first}").format(first="V")))
    turn = last(answered(history, Piece("The keeper.", "target"), sources=(part,), notes=(note,)))
    both = {"de": ("Kapitel I–IV", "Nicht gelesen: Kapitel V."), "zh": ("第 I–IV 章", "未读：第 V 章。")}
    wrong: list[tuple[str, str]] = []
    ready = threading.Barrier(len(both))

    def look(code: str) -> None:
        ready.wait()
        for _again in range(30):
            page = seen(code, lambda: regions.turn_html(turn))
            if not all(one in page for one in both[code]) or "Chapter" in page or "The keeper." not in page:
                wrong.append((code, page))

    threads = [threading.Thread(target=look, args=(code,)) for code in both]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


def test_a_full_disk_offers_to_delete_here_only_what_stands_here():
    """ "Delete something here" stood above a single button, *Look again*."""
    for readings_bytes, models in ((0, ()), (10, ()), (0, (("a", 3),)), (0, (("used", 3),))):
        shortage = DiskShortage(Path("drive"), 0, readings_bytes, models)
        page = messages.shortage_html(shortage, "used", None, ())
        assert ("something here" in text_of(page)) == ("data-confirm" in page), (readings_bytes, models)


def test_why_an_answer_failed_yesterday(history):
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    why = _("{reason} The earlier answer is kept.").format(reason=_("The engine is not running."))
    history.add(talk, "assistant", "", state="failed", extra={"error": why})
    history.close()
    turn = last(History(history.path))
    assert "Die Engine läuft nicht. Die frühere Antwort bleibt." in seen(
        "de", lambda: regions.turn_html(turn)
    )


def test_what_an_older_version_kept_is_shown_as_it_is(history):
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    extra = {"error": "The engine is not running.", "sources": ["Chapter 1"], "level_pieces": [[NOTHING, ""]]}
    history.add(talk, "assistant", NOTHING, extra=extra)
    page = seen("de", lambda: regions.turn_html(last(history)))
    assert NOTHING in page and "Chapter 1" in page and "The engine is not running." in page


def test_a_summary_that_was_asked_for_and_the_conversation_named_by_it(history):
    talk = history.create("book").id
    history.ask(talk, Request(None, chapters=(3, 5)))
    history.add(talk, "assistant", "It rains.")
    question = history.turns(talk)[0]
    assert question.text == "Summarise chapters 3 to 5", "what the engine and the search read"
    wanted = "Kapitel 3 bis 5 zusammenfassen"
    assert wanted in seen("de", lambda: regions.turn_html(question))
    forked = history.fork(talk, 2)
    titles = {one.id: one.title for one in history.conversations("book")}
    with in_language("de"):
        assert (localized(titles[talk]), localized(titles[forked])) == (wanted, f"Abzweig von „{wanted}“")
    assert [one.under for one in history.search("Summarise")] == [titles[talk], titles[forked]]
    history.rename(talk, "Rain")
    assert history.title(talk) == "Rain"


def refused(book) -> tuple[Piece, ...]:
    """As a session says it (core.conversation.retrieval_result)."""
    at = book.text.index("Nobody came.")
    place = (at, at + len("Nobody came."))
    return (
        Piece(joined_sentences(_(UNFOUND), _("Nearest passages:")), ""),
        Piece("\n\n", ""),
        *quotation(book, place),
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("en", "No answer was found. Nearest passages: Chapter 2, p. 1: Nobody came."),
        ("de", "Es wurde keine Antwort gefunden. Am nächsten kommen: Kapitel 2, S. 1: Nobody came."),
        ("zh", "没有找到答案。最接近的片段： 第 2 章，第 1 页： Nobody came."),
    ],
)
def test_a_refusal_is_the_programs_and_what_it_quotes_the_books(history, book, code: str, words: str):
    """On the page while it is written and on the next day; and as it is copied and exported."""
    front, one, two = book.sections
    book = replace(
        book,
        sections=(front, replace(one, title="Chapter 1"), replace(two, title="Chapter 2")),
        page_starts=(0,),
    )
    pieces = [(piece.text, piece.level) for piece in refused(book)]
    assert seen(code, lambda: regions.answer_html(pieces)) == words
    turn = last(answered(history, *refused(book)))
    assert words in seen(code, lambda: regions.turn_html(turn))
    with in_language(code):
        assert " ".join(displayed_text(turn).replace("\n> ", " ").split()) == words
        talk = ConversationFile(None, "Talk", [turn])
        assert words.split(" ")[0] in as_markdown(talk) and words.split(" ")[0] in as_html(talk)
        cited = Citations()(turn.text, book, "Who came?")
    assert not any(one.kind for one in cited.citations), "no sign stands behind a refusal"


@pytest.mark.parametrize("code", ["en", "de", "zh"])
def test_marks_stand_at_their_words_in_whatever_language_the_page_reads(history, code: str):
    """They are counted in the text as it was written: in German they stood in the middle of other words."""
    said = _(UNFOUND)
    history = answered(history, Piece(said, ""), Piece(" “The keeper rowed.” And", "target"))
    with in_language(code):  # as the page's thread reads it
        turn = last(history)
        at = turn.text.index("The keeper")
        mark = Citation(at, at + 17, 3, 17, "Chapter 1")
        shown = regions.turn_html(turn, CitedAnswer((mark,)))
        exported = Footnotes({turn.number: [mark]}, lambda number: f"[{number}]").text_of(turn)
    (marked,) = re.findall(r'<a [^>]*data-offset="3"[^>]*>(.*?)</a>', shown, re.DOTALL)
    assert text_of(marked) == "The keeper rowed. Chapter 1"
    assert " “The keeper rowed.[1]” And" in exported
    assert exported.startswith(UNFOUND) == (UNFOUND in text_of(shown)) == (code == "en")


def test_the_models_words_stay_whatever_they_are(history):
    said = [(NOTHING, "target"), ("\n\nChapter 2:", "target"), ("\n> x", "target")]
    assert seen("de", lambda: regions.answer_html(said)) == f"{NOTHING} Chapter 2: x"
    turn = last(answered(history, Piece(NOTHING, "target")))
    assert NOTHING in seen("de", lambda: regions.turn_html(turn)) and displayed_text(turn) == NOTHING


def test_a_message_that_is_cut_is_text():
    """While letters are still to come the page shows a part of it; half an entry has no translation."""
    with in_language("de"):
        (whole,) = blocks([(_(UNFOUND), "")])
        (cut,) = blocks([(str(_(UNFOUND))[:8], "")])
    assert localized(whole.items[0][0].runs[0].text) == UNFOUND
    assert len(cut.items[0][0].runs[0].text) == 8


def test_titles_that_the_program_gave_are_in_the_language_of_the_page():
    """A German footer had "Nicht gelesen: Front matter (vor dem eigentlichen Buch)"."""
    own = (FRONT_MATTER, *NOTICES, "Section 3")
    with in_language("de"):
        assert not {localized(section_title(one)) for one in own} & set(own)
    assert [str(section_title(one)) for one in own] == list(own)
    assert section_title("Section 3 of the Act") == "Section 3 of the Act", "the book's own"
