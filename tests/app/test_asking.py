"""Before a question is sent: what has no room is chosen by the person, and several books are refused."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import gradio as gr
import pytest

from app.desk.other_books import another_book
from app.desk.questions import too_many
from app.desk.retelling import RETOLD_TOKENS
from app.store.turns import exchanges, retelling
from app.web import layout
from app.web.page import Page
from core.errors import UserError
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.said import text_in

LEFT_OUT, IGNORED = 'class="left-out"', 'class="own-ignored"'

LONG = " ".join([ANSWER] * 8)


def ask(desk, question: str) -> None:
    desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)


@pytest.fixture
def full(desk):
    """A conversation of three questions, and a fourth that the context has no room for."""
    desk.engine.answer = LONG
    for question in ("First?", "Second?", "Third?"):
        ask(desk, question)
    said = desk.engine.room(
        replace(desk.requests.make(), book=desk.books.current, history=exchanges(desk.books.turns))
    )
    desk.engine.context_tokens = said["text"] + sum(said["turns"]) + said["answer"] - 5
    assert desk.questions.ask("Fourth?")
    return desk


def history(desk) -> list[str]:
    return [one.question for one in desk.engine.asked[-1].history]


def test_the_choice_comes_before_the_question_is_sent(full):
    waiting = full.state.overflow
    assert (waiting.wording, waiting.oldest, waiting.count) == ("Fourth?", 2, 3)
    assert len(full.books.turns) == 6 and len(full.engine.asked) == 3, "nothing was sent, and nothing is lost"
    shown = Page(full).render()["crowded"][0]
    assert "Fourth?" in shown and "oldest 2 questions of 3" in shown and "summary" in shown


def test_a_question_does_not_wait_for_a_long_book_to_be_counted(full, monkeypatch):
    """After a restart of the engine it was not taken for up to 30 s, without a word."""

    def counting(_ask, timeout_s: float = 30.0):
        time.sleep(timeout_s)
        raise UserError("The engine did not answer in time.")

    full.actions.dispatch({"act": "not-now"})
    monkeypatch.setattr(full.engine, "room", counting)
    begun = time.monotonic()
    assert full.questions.ask("Fifth?") and time.monotonic() - begun < 15
    assert full.books.turns[-2].text == "Fifth?"
    wait_until(lambda: not full.state.busy)
    assert full.engine.asked[-1].forbid_truncation


def test_the_oldest_are_left_out_and_stay_so_to_be_read(full):
    full.actions.dispatch({"act": "drop-oldest"})
    wait_until(lambda: not full.state.busy)
    assert history(full) == ["Third?"] and len(full.books.turns) == 8
    assert full.engine.asked[-1].forbid_truncation
    full.engine.context_tokens = 8192
    ask(full, "Fifth?")
    assert history(full) == ["Third?", "Fourth?"], "a turn that comes and goes would make all behind it new"
    full.actions.dispatch({"act": "regenerate"})
    wait_until(lambda: not full.state.busy)
    assert history(full) == ["Third?", "Fourth?"]
    assert "less" in text_in("".join(Page(full).render()["turns"]), LEFT_OUT)


def test_a_summary_of_the_oldest_goes_on_in_their_place(full):
    full.actions.dispatch({"act": "retell-oldest"})
    wait_until(lambda: not full.state.busy)
    retold, asked = full.engine.asked[-2:]
    assert retold.book is None and "First?" in retold.question and LONG in retold.question
    assert retold.params["max_new_tokens"] == RETOLD_TOKENS
    assert [(one.question, one.answer) for one in asked.history[:1]] == [(retelling(), LONG)]
    full.engine.context_tokens = 8192
    ask(full, "Fifth?")
    assert history(full) == [retelling(), "Third?", "Fourth?"]
    assert "summary" in text_in("".join(Page(full).render()["turns"]), LEFT_OUT)


def test_a_summary_that_fails_answers_nothing_and_leaves_nothing_out_silently(full):
    full.engine.fail = "No room."
    full.actions.dispatch({"act": "retell-oldest"})
    wait_until(lambda: not full.state.busy)
    assert full.books.turns[-1].state == "failed" and full.books.turns[-1].extra["error"] == "No room."
    assert full.engine.asked[-1].book is None


def test_a_fresh_conversation_takes_the_question(full):
    before = full.state.conversation_id
    full.actions.dispatch({"act": "start-fresh"})
    wait_until(lambda: not full.state.busy)
    assert full.state.conversation_id != before and [one.text for one in full.books.turns] == [
        "Fourth?",
        LONG,
    ]
    assert full.engine.asked[-1].history == ()
    assert full.engine.asked[-1].conversation_id == full.state.conversation_id
    assert len(full.history.turns(before)) == 6


def test_a_question_that_is_not_asked_is_forgotten(full):
    full.actions.dispatch({"act": "not-now"})
    assert full.state.overflow is None
    full.actions.dispatch({"act": "drop-oldest"})
    assert not full.state.busy and len(full.engine.asked) == 3


def test_a_question_of_another_conversation_is_not_sent_into_this_one(full):
    full.books.begin_conversation()
    full.actions.dispatch({"act": "drop-oldest"})
    assert not full.state.busy and len(full.engine.asked) == 3


def test_a_question_that_waits_is_shown_in_its_own_conversation_alone(full):
    """Deleted or left, a conversation took its choice along: the buttons did nothing any more."""
    before = full.state.conversation_id
    full.books.begin_conversation()
    assert Page(full).render()["crowded"][0] == ""
    full.books.open_conversation(before)
    assert "Fourth?" in Page(full).render()["crowded"][0], "what was typed is not lost"
    full.trash.throw_conversation(before)
    assert Page(full).render()["crowded"][0] == ""


def test_where_leaving_out_does_not_help_it_is_not_offered(full):
    """A book that fills the context alone: "leave out the oldest 4 questions of 3"."""
    full.questions.cancel()
    said = full.engine.room(full.requests.make())
    full.engine.context_tokens = said["text"]
    full.questions.ask("Fifth?")
    wait_until(lambda: not full.state.busy)
    assert full.state.overflow is None and full.engine.asked[-1].question == "Fifth?"


def test_an_answer_made_anew_waits_too(full):
    full.questions.cancel()
    full.engine.context_tokens -= 700
    full.actions.dispatch({"act": "regenerate"})
    assert full.state.overflow.instead_of is not None
    full.actions.dispatch({"act": "drop-oldest"})
    wait_until(lambda: not full.state.busy)
    assert history(full) == ["Second?"] and len(full.books.turns) == 6 and full.books.turns[-1].versions


def test_passages_and_a_loading_engine_do_not_ask(desk):
    ask(desk, "First?")
    desk.engine.context_tokens = 10
    desk.engine.room = lambda ask, timeout_s: (_ for _ in ()).throw(UserError("not there"))
    ask(desk, "Second?")
    assert desk.state.overflow is None and len(desk.engine.asked) == 2


def test_how_many_must_go():
    room = {"context": 100, "text": 40, "question": 10, "answer": 20, "turns": [10, 10, 20]}
    assert too_many(room) == 1
    assert too_many(room, beside=10) == 2 and too_many(room, beside=11) == 3
    assert too_many({**room, "turns": [10, 20]}, beside=50) == 0
    assert too_many({**room, "text": 90}) == 4


def test_other_books_are_refused_in_words_and_the_same_question_again_is_meant(desk, book):
    other = replace(book, title="Moby Dick; or, The Whale", sha256="b" * 64)
    desk.library.add(other)
    assert not desk.questions.ask("How does it differ from Moby-Dick?")
    assert "Moby Dick; or, The Whale" in desk.state.notice.text and "The Lamp" in desk.state.notice.text
    assert not desk.books.turns
    assert not desk.questions.ask("Which of my books has a lamp?")
    assert "several" in desk.state.notice.text
    ask(desk, "Which of my books has a lamp?")
    assert len(desk.books.turns) == 2


def test_a_title_that_stands_in_the_open_book_is_no_other_book(desk, book):
    shelf = [
        replace(entry, id=str(at), title=title)
        for entry in desk.library.entries()
        for at, title in enumerate(("The keeper", "It", "Emma"))
    ]
    assert another_book("Who is the keeper? Is it Emma?", book, shelf).title == "Emma"
    assert another_book("Who is the keeper, is it he?", book, shelf) is None


@pytest.mark.parametrize(
    "question",
    [
        "Compare the clocks of both books.",
        "Vergleiche die Uhren beider Bücher.",
        "Was steht in meinen anderen Büchern?",
        "Kommt er in einem anderen Buch vor?",
        "比较这两本书里的时钟。",
        "我的书架上还有谁？",
        "他在《论语》里说了什么？",
    ],
)
def test_several_books_are_refused_in_the_languages_of_the_page(desk, book, question):
    desk.library.add(replace(book, title="论语：译注", sha256="b" * 64))
    assert not desk.questions.ask(question)
    assert not desk.books.turns


@pytest.mark.parametrize(
    "question",
    [
        "Welche Bücher las er?",
        "Wo liegt das Buch?",
        "这本书讲什么？",
        "他读了什么书？",
        "Who kept the books?",
    ],
)
def test_books_within_the_book_are_asked_about(desk, book, question):
    desk.library.add(replace(book, title="书", sha256="b" * 64))
    assert desk.questions.ask(question)


def test_instructions_of_book_and_app_go_with_every_question_and_its_history(desk):
    desk.actions.dispatch({"act": "instruct", "value": "Briefly: no names."})
    desk.actions.dispatch({"act": "instruct-book", "value": "Answer in German."})
    ask(desk, "First?")
    assert desk.engine.asked[-1].instructions == "Briefly: no names.\nAnswer in German."
    page = "".join(Page(desk).render()["turns"])
    assert "Briefly: no names.<br>Answer in German." in page
    desk.actions.dispatch({"act": "instruct", "value": ""})
    desk.questions.regenerate()
    wait_until(lambda: not desk.state.busy)
    assert desk.engine.asked[-1].instructions == "Answer in German."
    ask(desk, "Second?")
    assert [one.instructions for one in desk.engine.asked[-1].history] == ["Answer in German."]
    assert "Answer in German." in text_in("".join(Page(desk).render()["turns"]), 'class="anew"')
    desk.books.select(desk.state.book_id)
    assert desk.state.notebook.instructions == "Answer in German."
    with pytest.raises(UserError, match="1,000 characters"):
        desk.actions.dispatch({"act": "instruct-book", "value": "x" * 1001})


def test_the_meter_follows_the_conversation(desk):
    page = Page(desk)
    wait_until(lambda: "Conversation 0" in page.render()["meter"][0])
    ask(desk, "First?")
    said = sum(
        desk.engine.room(
            replace(desk.requests.make(), book=desk.books.current, history=exchanges(desk.books.turns))
        )["turns"]
    )
    wait_until(lambda: f"Conversation {said}" in page.render()["meter"][0])
    desk.engine.reading = "retrieval"
    ask(desk, "Second?")
    wait_until(lambda: "takes no room" in page.render()["meter"][0])


def test_the_meter_follows_the_way_of_reading(desk):
    """It is chosen for each book, and is no setting."""
    page = Page(desk)
    wait_until(lambda: "Conversation 0" in page.render()["meter"][0])
    desk.engine.reading = "retrieval"
    desk.actions.dispatch({"act": "reading-mode", "value": "retrieval"})
    wait_until(lambda: "takes no room" in page.render()["meter"][0])


def test_failed_answers_do_not_count(desk):
    ask(desk, "First?")
    desk.engine.fail = "Gone."
    ask(desk, "Second?")
    assert [one.question for one in exchanges(desk.books.turns)] == ["First?"]


def test_instructions_that_the_model_ignores_are_said_before_they_are_typed(desk, engine):
    """It stood in a footer below the answer that was made without them."""
    engine.model_name = "SmolLM2-135M-Instruct"
    assert IGNORED in "".join(Page(desk).render()["instructions"])
    engine.model_name = "Qwen3-4B-Instruct-2507"
    assert IGNORED not in "".join(Page(desk).render()["instructions"])
    engine.model_name = "my-own.gguf"
    assert IGNORED not in "".join(Page(desk).render()["instructions"])


def test_a_question_that_is_too_long_is_refused_whole_and_nothing_of_it_is_cut(desk):
    """Its box took 20,000 characters and dropped the rest without a word."""
    asked = "lamp " * 4001
    assert not desk.questions.ask(asked) and not desk.engine.asked
    assert "20,004" in desk.state.notice.text
    ask(desk, "lamp " * 3999)
    assert len(desk.engine.asked) == 1
    with gr.Blocks():
        assert layout._composer()[0].max_length is None


def test_a_long_question_is_folded_to_its_beginning(desk):
    ask(desk, "Is it dark? " * 200)
    ask(desk, "Is it dark?")
    html = "".join(Page(desk).render()["turns"])
    (folded,) = re.findall('<details class="long-question">.*?</summary>', html, re.DOTALL)
    assert len(folded) < 500 and "600 words" in folded
