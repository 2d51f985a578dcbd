"""One question to chosen books: each is asked for itself, one after another, with its places and limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.desk.values import BookAnswer
from app.web.answers import cited_answer
from app.web.citations import Citations
from app.web.composer import book_answers_html
from app.web.page import Page
from core.documents.document import Section
from core.evidence.support import UNFOUND
from core.text.words import in_language
from core.text.words import translated as _
from tests.support.fake_runtime import wait_until

QUESTION = "Who keeps the lamp?"


@pytest.fixture
def shelf(desk, engine, book):
    """Three books, The Lamp open, the other two ticked: (desk, engine, ids of the others)."""
    others = []
    for letter, who in (("b", "miller"), ("c", "pilot")):
        text = book.text.replace("keeper", who)
        sections = tuple(
            Section(one.title, one.start, min(one.end, len(text)), kind=one.kind) for one in book.sections
        )
        desk.library.add(replace(book, sha256=letter * 64, title=who.title(), text=text, sections=sections))
        others.append(letter * 64)
    citations = Citations()
    desk.several.cite_with(lambda *answer: cited_answer(citations, *answer).citations)
    for one in others:
        desk.actions.dispatch({"act": "ask-too", "id": one})
    engine.answer = "It says “Nobody came. Nobody came. Nobody came.” and no more."
    return desk, engine, others


def asked_all(desk) -> tuple:
    wait_until(lambda: all(one.state in ("finished", "failed") for one in desk.state.book_answers))
    wait_until(lambda: not desk.state.busy)
    return desk.state.book_answers


def test_each_book_is_asked_for_itself_in_a_conversation_of_its_own(shelf, book):
    desk, engine, others = shelf
    assert desk.questions.ask(QUESTION)
    answers = asked_all(desk)
    assert [one.book.sha256 for one in engine.asked] == [book.sha256, *others]
    assert [one.question for one in engine.asked] == [QUESTION] * 3
    assert (
        not any(one.history for one in engine.asked)
        and len({one.conversation_id for one in engine.asked}) == 3
    )
    assert [one.reading_mode for one in engine.asked] == ["auto", "retrieval", "retrieval"]
    assert [one.book_id for one in answers] == others
    for one in answers:
        (talk,) = desk.history.conversations(one.book_id)
        assert talk.id == one.conversation_id and len(desk.history.turns(talk.id)) == 2
    assert desk.state.book_id == book.sha256, "the open book stays open"


def test_an_answer_names_places_in_its_own_book_and_leads_there(shelf):
    desk, _engine, others = shelf
    desk.questions.ask(QUESTION)
    first, _second = asked_all(desk)
    assert first.places
    for offset, length, where in first.places:
        assert where and desk.library.get(others[0]).text[offset : offset + length].strip()
    html = "".join(Page(desk).render()["book-answers"])
    assert f'data-book="{others[0]}"' in html and "Miller" in html and "Pilot" in html
    offset, length, _where = first.places[0]
    given = {"act": "place", "book": others[0], "offset": str(offset), "length": str(length)}
    desk.actions.dispatch(given)
    assert desk.state.book_id == others[0] and desk.state.passage.offset == offset


def test_a_place_is_offered_once_however_often_an_answer_leads_there(shelf):
    """Two buttons had one name, a chapter's."""
    desk, engine, _others = shelf
    engine.answer = (
        "“Nobody came. Nobody came. Nobody came.” It says “came. Nobody came. Nobody came.” as well."
    )
    desk.questions.ask(QUESTION)
    for one in asked_all(desk):
        names = [where for _offset, _length, where in one.places]
        assert names and len(names) == len(set(names))


@pytest.mark.parametrize("asked", [True, False])
def test_every_book_keeps_its_own_limit_and_instructions(shelf, book, asked):
    desk, engine, others = shelf
    desk.books.select(others[0])
    desk.books.limit(1)
    desk.reader.instruct("Be brief.")
    if asked:
        desk.questions.ask("Whose mill?")
        asked_all(desk)
    desk.books.select(book.sha256)
    engine.asked.clear()
    desk.questions.ask(QUESTION)
    asked_all(desk)
    by_book = {one.book.sha256: one for one in engine.asked}
    assert [by_book[one].spoiler_limit for one in (book.sha256, *others)] == [None, 1, None]
    assert [by_book[one].instructions for one in (book.sha256, *others)] == ["", "Be brief.", ""]


def test_a_question_of_ones_own_goes_before_the_books_that_wait(shelf, book):
    desk, engine, others = shelf
    engine.pace = 0.01
    desk.questions.ask(QUESTION)
    wait_until(lambda: desk.state.working)
    desk.actions.dispatch({"act": "ask-too", "id": others[0]})
    desk.actions.dispatch({"act": "ask-too", "id": others[1]})
    assert desk.questions.ask("And then?")
    engine.pace = 0.001
    asked_all(desk)
    assert [one.question for one in engine.asked] == [QUESTION, "And then?", QUESTION, QUESTION]


def test_a_second_question_waits_behind_the_books_of_the_first(shelf):
    """They were forgotten without a word."""
    desk, engine, others = shelf
    engine.pace = 0.01
    desk.questions.ask(QUESTION)
    wait_until(lambda: desk.state.working)
    assert desk.questions.ask("And then?")
    engine.pace = 0.001
    answers = asked_all(desk)
    assert [(one.question, one.book_id) for one in answers] == [
        *((QUESTION, one) for one in others),
        *(("And then?", one) for one in others),
    ]
    html = "".join(Page(desk).render()["book-answers"])
    assert html.count(f'<q dir="auto">{QUESTION}') == 1 and html.count('<q dir="auto">And then?') == 1


def test_a_question_of_3000_words_is_folded_above_what_the_books_answered(shelf):
    """It was folded in its bubble, and stood whole in this card: the answers lay fifteen screens below."""
    desk, engine, _others = shelf
    engine.context_tokens = 100_000
    desk.questions.ask("Who keeps the lamp? " * 750)
    asked_all(desk)
    html = "".join(Page(desk).render()["book-answers"])
    before = html[: html.index("<article")]
    shown, folded = before.split("</summary>")
    assert '<details class="long-question"><summary>' in shown and shown.count("lamp") < 20
    assert folded.count("lamp") == 750


def test_a_question_that_is_not_to_be_asked_is_asked_of_no_book(shelf):
    desk, engine, others = shelf
    engine.pace = 0.02
    desk.questions.ask(QUESTION)
    wait_until(lambda: desk.state.working)
    desk.questions.ask("And then?")
    desk.actions.dispatch({"act": "drop-queued"})
    engine.pace = 0.001
    assert [one.book_id for one in asked_all(desk)] == others
    assert {one.question for one in engine.asked} == {QUESTION}


def test_a_deleted_book_takes_its_answer_along_and_its_tick_counts_no_more(shelf, monkeypatch):
    desk, _engine, others = shelf
    desk.questions.ask(QUESTION)
    asked_all(desk)
    desk.actions.dispatch({"act": "forget", "id": others[0]})
    assert [one.book_id for one in desk.state.book_answers] == others[1:]
    monkeypatch.setattr("app.desk.several_books.MOST_BOOKS", 2)
    desk.actions.dispatch({"act": "ask-too", "id": desk.state.book_id})
    opened = desk.state.book_id
    assert desk.state.asked_too == ((opened, others[1]), (opened, opened))


def test_books_ticked_beside_one_are_not_asked_beside_another(shelf, book):
    """A tick made for one book had every question to the next one put to three books."""
    desk, engine, others = shelf
    desk.books.select(others[0])
    desk.questions.ask("Whose mill?")
    asked_all(desk)
    assert {one.book.sha256 for one in engine.asked} == {others[0]}
    desk.books.select(book.sha256)
    assert [one.id for one in desk.several.chosen] == others


def test_a_new_conversation_asks_no_other_book(shelf, book):
    """Eighteen questions went to the handbook as well, each of them into a conversation of its own."""
    desk, _engine, others = shelf
    desk.questions.ask("Whose mill?")
    asked_all(desk)
    talk, seen = desk.state.conversation_id, []
    desk.store.watch(lambda: seen.append((desk.state.conversation_id, bool(desk.state.asked_too))))
    desk.actions.dispatch({"act": "new"})
    assert desk.several.chosen == [] and set(seen) <= {(talk, True), ("", False)}, "both at once"
    desk.actions.dispatch({"act": "ask-too", "id": others[0]})
    assert [one.id for one in desk.several.chosen] == others[:1]


def test_an_answer_of_another_book_is_laid_out_and_in_the_languages_words(shelf):
    """Its quotations stood there as "> …", and on a German page the program's own words in English."""
    desk, engine, _others = shelf
    engine.answer = "The keeper.\n\n> Nobody came."
    desk.questions.ask(QUESTION)
    asked_all(desk)
    html = "".join(Page(desk).render()["book-answers"])
    assert "&gt; Nobody" not in html and html.count("<blockquote") == 2
    unsaid = BookAnswer("b" * 64, "B", "t", QUESTION, "finished", ((_(UNFOUND), ""),))
    with in_language("de"):
        assert "Es wurde keine Antwort gefunden." in book_answers_html([unsaid])


def test_what_other_books_answered_stands_beside_its_question_alone(shelf):
    """It stood below whatever conversation was opened next."""
    desk, _engine, others = shelf
    desk.questions.ask(QUESTION)
    asked_all(desk)
    asked_in = desk.state.conversation_id
    desk.books.begin_conversation()
    desk.actions.dispatch({"act": "put-away-books"})
    assert "".join(Page(desk).render()["book-answers"]) == ""
    desk.books.open_conversation(asked_in)
    assert "".join(Page(desk).render()["book-answers"]).count("<article") == len(others)
    desk.actions.dispatch({"act": "put-away-books"})
    assert "".join(Page(desk).render()["book-answers"]) == "" and desk.state.book_answers == ()


def test_the_doubt_about_another_books_answer_stands_with_it(shelf):
    """In its own conversation it bore the circle, in the row of all books none."""
    desk, engine, _others = shelf
    engine.answer = "The bishop of Nowhere."
    desk.questions.ask(QUESTION)
    answers = asked_all(desk)
    html = "".join(Page(desk).render()["book-answers"])
    assert all(one.unsure for one in answers) and html.count("book-unsure") == len(answers) > 0


def test_another_book_is_asked_from_passages_whatever_it_was_read_by(shelf):
    """The page says so; one that had been read in parts before was read in parts again."""
    desk, engine, others = shelf
    for one in others:
        notes = replace(desk.library.notebook(one), reading_mode="chunked")
        desk.library.write_notebook(one, notes)
    desk.questions.ask(QUESTION)
    asked_all(desk)
    assert [one.reading_mode for one in engine.asked[1:]] == ["retrieval"] * len(others)


def test_stop_ends_the_row_and_what_is_answered_stays(shelf):
    desk, engine, _others = shelf
    engine.pace = 0.02
    desk.questions.ask(QUESTION)
    wait_until(lambda: desk.state.working)
    desk.actions.dispatch({"act": "stop"})
    wait_until(lambda: not desk.state.busy)
    assert desk.state.book_answers == () and len(engine.asked) == 1


def test_a_book_that_fails_or_is_gone_is_said_and_the_next_is_asked(shelf, monkeypatch):
    desk, _engine, others = shelf
    find = desk.library.find
    monkeypatch.setattr(desk.library, "find", lambda one: None if one == others[0] else find(one))
    desk.questions.ask(QUESTION)
    first, second = asked_all(desk)
    assert (first.state, second.state) == ("failed", "finished") and "gone" in first.pieces[0][0]


def test_the_open_book_is_never_asked_twice_and_nobody_else_where_none_is_ticked(shelf, book):
    desk, engine, others = shelf
    desk.books.select(others[0])
    for one in others:
        desk.actions.dispatch({"act": "ask-too", "id": one})
    desk.questions.ask(QUESTION)
    asked_all(desk)
    assert [one.book.sha256 for one in engine.asked] == others
    desk.actions.dispatch({"act": "ask-too", "id": others[1]})
    desk.actions.dispatch({"act": "ask-too", "id": "f" * 64})
    desk.actions.dispatch({"act": "put-away-books"})
    desk.questions.ask("And now?")
    wait_until(lambda: not desk.state.busy)
    assert desk.state.book_answers == () and engine.asked[-1].book.sha256 == others[0]


def test_a_question_about_both_books_is_asked_where_they_are_ticked(shelf):
    """Without a tick the page says that a question is put to one book."""
    desk, _engine, others = shelf
    assert desk.questions.ask("Who is the keeper in both books?")
    asked_all(desk)
    for one in others:
        desk.actions.dispatch({"act": "ask-too", "id": one})
    assert not desk.questions.ask("Who is the miller in both books?")
