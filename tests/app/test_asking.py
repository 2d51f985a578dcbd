"""Before a question is sent: what has no room is chosen by the person, and several books are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.desk.actions import dispatch, make_wish
from app.desk.questions import RETOLD_TOKENS, another_title, too_many
from app.store.turns import exchanges, retelling
from app.web.page import Page
from core.errors import UserError
from tests.support.fake_runtime import ANSWER, wait_until

LONG = " ".join([ANSWER] * 8)


def ask(desk, question: str) -> None:
    desk.ask(question, make_wish(desk))
    wait_until(lambda: not desk.busy)


@pytest.fixture
def full(desk):
    """A conversation of three questions, and a fourth that the context has no room for."""
    desk.engine.answer = LONG
    for question in ("First?", "Second?", "Third?"):
        ask(desk, question)
    said = desk.engine.room(replace(make_wish(desk), book=desk.book, history=exchanges(desk.turns)))
    desk.engine.context_tokens = said["text"] + sum(said["turns"]) + said["answer"] - 5
    assert desk.ask("Fourth?", make_wish(desk))
    return desk


def history(desk) -> list[str]:
    return [one.question for one in desk.engine.asked[-1].history]


def test_the_choice_comes_before_the_question_is_sent(full):
    waiting = full.asking.crowded
    assert (waiting.wording, waiting.oldest, waiting.count) == ("Fourth?", 2, 3)
    assert len(full.turns) == 6 and len(full.engine.asked) == 3, "nothing was sent, and nothing is lost"
    shown = Page(full).render()["crowded"][0]
    assert "Fourth?" in shown and "oldest 2 questions of 3" in shown and "summary" in shown


def test_the_oldest_are_left_out_and_stay_so_to_be_read(full):
    dispatch(full, {"act": "drop-oldest"})
    wait_until(lambda: not full.busy)
    assert history(full) == ["Third?"] and len(full.turns) == 8
    assert full.engine.asked[-1].keep_all
    full.engine.context_tokens = 8192
    ask(full, "Fifth?")
    assert history(full) == ["Third?", "Fourth?"], "a turn that comes and goes would make all behind it new"
    dispatch(full, {"act": "regenerate"})
    wait_until(lambda: not full.busy)
    assert history(full) == ["Third?", "Fourth?"]
    assert "gets less of what is above" in "".join(Page(full).render()["turns"])


def test_a_summary_of_the_oldest_goes_on_in_their_place(full):
    dispatch(full, {"act": "retell-oldest"})
    wait_until(lambda: not full.busy)
    retold, asked = full.engine.asked[-2:]
    assert retold.book is None and "First?" in retold.question and LONG in retold.question
    assert retold.params["max_new_tokens"] == RETOLD_TOKENS
    assert [(one.question, one.answer) for one in asked.history[:1]] == [(retelling(), LONG)]
    full.engine.context_tokens = 8192
    ask(full, "Fifth?")
    assert history(full) == [retelling(), "Third?", "Fourth?"]
    assert "gets a summary" in "".join(Page(full).render()["turns"])


def test_a_summary_that_fails_answers_nothing_and_leaves_nothing_out_silently(full):
    full.engine.fail = "No room."
    dispatch(full, {"act": "retell-oldest"})
    wait_until(lambda: not full.busy)
    assert full.turns[-1].state == "failed" and full.turns[-1].extra["error"] == "No room."
    assert full.engine.asked[-1].book is None


def test_a_fresh_conversation_takes_the_question(full):
    before = full.conversation_id
    dispatch(full, {"act": "start-fresh"})
    wait_until(lambda: not full.busy)
    assert full.conversation_id != before and [one.text for one in full.turns] == ["Fourth?", LONG]
    assert full.engine.asked[-1].history == ()
    assert full.engine.asked[-1].conversation_id == full.conversation_id
    assert len(full.history.turns(before)) == 6


@pytest.mark.parametrize("leave", ["not-now", "new-book"])
def test_a_question_that_is_not_asked_is_forgotten(full, leave):
    if leave == "not-now":
        dispatch(full, {"act": "not-now"})
    else:
        full.select_book(full.book_id)
    assert full.asking.crowded is None
    dispatch(full, {"act": "drop-oldest"})
    assert not full.busy and len(full.engine.asked) == 3


def test_a_question_of_another_conversation_is_not_sent_into_this_one(full):
    full.talks.begin()
    dispatch(full, {"act": "drop-oldest"})
    assert not full.busy and len(full.engine.asked) == 3


def test_a_question_that_waits_is_shown_in_its_own_conversation_alone(full):
    """Deleted or left, a conversation took its choice along: the buttons did nothing any more."""
    before = full.conversation_id
    full.talks.begin()
    assert Page(full).render()["crowded"][0] == ""
    full.talks.select(before)
    assert "Fourth?" in Page(full).render()["crowded"][0], "what was typed is not lost"
    full.talks.forget(before)
    assert Page(full).render()["crowded"][0] == ""


def test_where_leaving_out_does_not_help_it_is_not_offered(full):
    """A book that fills the context alone: "leave out the oldest 4 questions of 3"."""
    full.asking.cancel()
    said = full.engine.room(replace(make_wish(full), book=full.book))
    full.engine.context_tokens = said["text"]
    full.ask("Fifth?", make_wish(full))
    wait_until(lambda: not full.busy)
    assert full.asking.crowded is None and full.engine.asked[-1].question == "Fifth?"


def test_an_answer_made_anew_waits_too(full):
    full.asking.cancel()
    full.engine.context_tokens -= 700
    dispatch(full, {"act": "regenerate"})
    assert full.asking.crowded.instead_of is not None
    dispatch(full, {"act": "drop-oldest"})
    wait_until(lambda: not full.busy)
    assert history(full) == ["Second?"] and len(full.turns) == 6 and full.turns[-1].versions


def test_passages_and_a_loading_engine_do_not_ask(desk):
    ask(desk, "First?")
    desk.engine.context_tokens = 10
    desk.engine.room = lambda ask: (_ for _ in ()).throw(UserError("not there"))
    ask(desk, "Second?")
    assert desk.asking.crowded is None and len(desk.engine.asked) == 2


def test_how_many_must_go():
    room = {"context": 100, "text": 40, "question": 10, "answer": 20, "turns": [10, 10, 20]}
    assert too_many(room) == 1
    assert too_many(room, beside=10) == 2 and too_many(room, beside=11) == 3
    assert too_many({**room, "turns": [10, 20]}, beside=50) == 0
    assert too_many({**room, "text": 90}) == 4


def test_other_books_are_refused_in_words_and_the_same_question_again_is_meant(desk, book):
    other = replace(book, title="Moby Dick; or, The Whale", sha256="b" * 64)
    desk.library.add(other)
    assert not desk.ask("How does it differ from Moby-Dick?", make_wish(desk))
    assert "Moby Dick; or, The Whale" in desk.notice.text and "The Lamp" in desk.notice.text
    assert not desk.turns
    assert not desk.ask("Which of my books has a lamp?", make_wish(desk))
    assert "several" in desk.notice.text
    ask(desk, "Which of my books has a lamp?")
    assert len(desk.turns) == 2


def test_a_title_that_stands_in_the_open_book_is_no_other_book(desk, book):
    shelf = [
        replace(entry, id=str(at), title=title)
        for entry in desk.library.entries()
        for at, title in enumerate(("The keeper", "It", "Emma"))
    ]
    assert another_title("Who is the keeper? Is it Emma?", book, shelf) == "Emma"
    assert another_title("Who is the keeper, is it he?", book, shelf) == ""


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
    assert not desk.ask(question, make_wish(desk))
    assert not desk.turns


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
    assert desk.ask(question, make_wish(desk))


def test_instructions_of_book_and_app_go_with_every_question_and_its_history(desk):
    dispatch(desk, {"act": "instruct", "value": "Briefly: no names."})
    dispatch(desk, {"act": "instruct-book", "value": "Answer in German."})
    ask(desk, "First?")
    assert desk.engine.asked[-1].instructions == "Briefly: no names.\nAnswer in German."
    page = "".join(Page(desk).render()["turns"])
    assert "Briefly: no names.<br>Answer in German." in page
    dispatch(desk, {"act": "instruct", "value": ""})
    desk.regenerate(make_wish(desk))
    wait_until(lambda: not desk.busy)
    assert desk.engine.asked[-1].instructions == "Answer in German."
    ask(desk, "Second?")
    assert [one.instructions for one in desk.engine.asked[-1].history] == ["Answer in German."]
    assert "Answered anew with these instructions" in "".join(Page(desk).render()["turns"])
    desk.select_book(desk.book_id)
    assert desk.reading.notebook.instructions == "Answer in German."
    with pytest.raises(UserError, match="1,000 characters"):
        dispatch(desk, {"act": "instruct-book", "value": "x" * 1001})


def test_the_meter_follows_the_conversation(desk):
    page = Page(desk)
    wait_until(lambda: "Conversation 0" in page.render()["meter"][0])
    ask(desk, "First?")
    said = sum(
        desk.engine.room(replace(make_wish(desk), book=desk.book, history=exchanges(desk.turns)))["turns"]
    )
    wait_until(lambda: f"Conversation {said}" in page.render()["meter"][0])
    desk.engine.reading = "passages"
    ask(desk, "Second?")
    wait_until(lambda: "takes no room" in page.render()["meter"][0])


def test_failed_answers_do_not_count(desk):
    ask(desk, "First?")
    desk.engine.fail = "Gone."
    ask(desk, "Second?")
    assert [one.question for one in exchanges(desk.turns)] == ["First?"]
