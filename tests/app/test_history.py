"""Conversations survive a killed app, and a forgotten book leaves no text behind."""

from __future__ import annotations

import pytest

from app.render.export import ConversationFile, as_markdown
from app.store.history import History
from app.store.turns import wording
from core.request import Request
from core.text.words import in_language, localized


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path / "chats.db")
    yield made
    made.close()


def test_turns_are_on_disk_before_the_answer_ends(tmp_path, history):
    """A killed app must keep what was already streamed; a second connection sees it at once."""
    talk = history.create("book")
    history.add(talk.id, "user", "Who is Weena?")
    number = history.add(talk.id, "assistant", "", state="writing")
    history.update(talk.id, number, "She is an Eloi of", state="writing")

    other = History(tmp_path / "chats.db")
    assert [turn.text for turn in other.turns(talk.id)] == ["Who is Weena?", "She is an Eloi of"]
    assert other.settle() == 1
    assert other.turns(talk.id)[-1].state == "stopped"
    other.close()


def test_two_summaries_of_a_book_are_told_apart_in_the_list(history):
    """Both were "Summarise this book", whatever their lengths; another book has its own."""
    talks = [history.create(book) for book in ("book", "book", "book", "other")]
    for talk in talks:
        history.add(talk.id, "user", wording(Request(None)))
    titles = [history.title(talk.id) for talk in talks]
    assert len(set(titles)) == 3 and titles[3] == titles[0]
    with in_language("de"):
        assert [localized(one)[-4:] for one in titles[1:3]] == [" (2)", " (3)"]


def test_a_conversation_brought_in_beside_one_of_its_title_is_told_apart(history):
    """Both stood on the shelf under the same first question."""
    talk = history.create("book")
    history.add(talk.id, "user", "Who paid?")
    turns = [("user", "Who paid?", "finished", {}), ("assistant", "Nobody.", "finished", {})]
    named = [history.title(history.bring_in(book, "Who paid?", turns, None)) for book in ("book", "other")]
    assert named == ["Who paid? (2)", "Who paid?"] and history.title(talk.id) == "Who paid?"


def test_the_first_question_names_the_conversation(history):
    talk = history.create("book")
    assert history.conversations("book") == [], "an empty conversation is not listed"
    history.add(
        talk.id,
        "user",
        "Why does the\n\nTime Traveller go back for his machine in the White Sphinx, of all places?",
    )
    history.add(talk.id, "assistant", "Because.")
    history.add(talk.id, "user", "And then?")
    title = history.conversations("book")[0].title
    assert title.startswith("Why does the Time Traveller") and title.endswith("…") and len(title) <= 60


def test_newest_conversation_comes_first(tmp_path):
    ticks = iter(range(100))
    history = History(tmp_path / "ordered.db", clock=lambda: float(next(ticks)))
    first, second = history.create("book"), history.create("book")
    history.add(second.id, "user", "second")
    history.add(first.id, "user", "first, but spoken last")
    assert [talk.id for talk in history.conversations("book")] == [first.id, second.id]
    history.close()


def test_a_clock_that_was_set_back_does_not_shuffle_the_conversations(tmp_path):
    ticks = iter((1000.0, 1001.0, 1002.0, 1003.0, 5.0))
    history = History(tmp_path / "ordered.db", clock=lambda: next(ticks))
    first, second = history.create("book"), history.create("book")
    history.add(first.id, "user", "first")
    history.add(second.id, "user", "second")
    history.add(first.id, "user", "spoken last")
    assert [talk.id for talk in history.conversations("book")] == [first.id, second.id]
    history.close()


def test_a_forgotten_book_leaves_no_text_in_the_file(tmp_path, history):
    """DELETE alone leaves the rows readable in the file's free pages and in the write-ahead log."""
    kept, gone = history.create("kept"), history.create("gone")
    history.add(kept.id, "user", "stays here")
    history.add(gone.id, "user", "a-very-private-question")
    history.add(gone.id, "assistant", "an-equally-private-answer")
    assert history.forget_book("gone") == [gone.id]
    assert history.turns(gone.id) == [] and history.turns(kept.id)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("chats.db*"))
    assert b"stays here" in stored
    assert b"private-question" not in stored and b"private-answer" not in stored


def test_export_holds_questions_answers_and_sources(history):
    talk = history.create("book")
    history.add(talk.id, "user", "Summarize")
    history.add(
        talk.id, "assistant", "It is short.", extra={"sources": ["Chapters 1-3", "Chapter 4"], "ids": [1, 2]}
    )
    page = as_markdown(ConversationFile(None, "The Time Machine", history.turns(talk.id)))
    assert page.startswith("# The Time Machine\n")
    assert "## Summarize" in page and "It is short." in page and "Chapters 1-3; Chapter 4" in page
    assert history.turns(talk.id)[1].extra["ids"] == [1, 2]


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("# A\n\nOne.\n\n## B\n\nTwo.", "### A\n\nOne.\n\n#### B"),
        ("#### C\n\nIt.", "#### C"),
        ("#1 is he.", "#1 is"),
    ],
)
def test_an_answers_headings_stand_below_its_question_in_markdown(history, said, written):
    """Elsewhere a table of contents had the chapters of a summary beside the questions."""
    talk = history.create("book")
    history.add(talk.id, "user", "Summarize")
    history.add(talk.id, "assistant", said)
    page = as_markdown(ConversationFile(None, "The Time Machine", history.turns(talk.id)))
    assert f"## Summarize\n\n{written}" in page
