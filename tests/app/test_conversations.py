"""Conversations are named, pinned, deleted with a way back, forked at a turn; versions of an answer stay."""

from __future__ import annotations

import pytest

from app.desk import trash as module
from app.store.history import History
from app.web.page import Page
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.full_disks import FullAtCommit


def ask(desk, question: str) -> str:
    """Asks in a new conversation; returns its id."""
    desk.books.begin_conversation()
    again(desk, question)
    return desk.state.conversation_id


def again(desk, question: str, answer: str = ANSWER) -> None:
    desk.engine.answer = answer
    desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)


def texts(desk) -> list[str]:
    return [turn.text for turn in desk.books.turns]


def titles(desk) -> list[str]:
    return [talk.title for talk in desk.history.conversations(desk.state.book_id)]


@pytest.fixture
def deleted(desk, monkeypatch):
    """Two conversations, the second one deleted: (desk, its id)."""
    monkeypatch.setattr(module, "UNDO_S", 30.0)
    ask(desk, "First?")
    gone = ask(desk, "A-very-private-question?")
    desk.actions.dispatch({"act": "forget-talk", "id": gone})
    return desk, gone


def test_a_bin_that_is_pressed_twice_deletes_once(deleted):
    """A double click had two deletions to take back."""
    desk, gone = deleted
    desk.actions.dispatch({"act": "forget-talk", "id": gone})
    assert [one.id for one in desk.state.deleted] == [gone]
    assert f'data-act="undo" data-id="{gone}"' in Page(desk).render()["notice"][0]


def test_names_and_pins_last_and_pinned_ones_come_first(desk, tmp_path):
    first, second = ask(desk, "First?"), ask(desk, "Second?")
    assert titles(desk) == ["Second?", "First?"]
    desk.actions.dispatch({"act": "pin-talk", "id": first})
    desk.actions.dispatch({"act": "rename-talk", "id": second, "text": "  About \n the lamp " + "x" * 500})
    desk.actions.dispatch({"act": "rename-talk", "id": first, "text": "   "})
    again = History(tmp_path / "chats.db")
    shown = again.conversations(desk.state.book_id)
    again.close()
    assert [one.pinned for one in shown] == [True, False] and shown[0].title == "First?"
    assert shown[1].title.startswith("About the lamp x") and len(shown[1].title) <= 120
    library = Page(desk).render()["library"][0]
    assert "About the lamp" in library and "data-bring-in" not in library
    desk.actions.dispatch({"act": "pin-talk", "id": first})
    assert not any(one.pinned for one in desk.history.conversations(desk.state.book_id))


def test_a_deleted_conversation_can_be_brought_back(deleted):
    desk, gone = deleted
    assert titles(desk) == ["First?"] and desk.state.conversation_id == "" and desk.engine.forgotten == []
    assert f'data-act="undo" data-id="{gone}"' in Page(desk).render()["notice"][0]
    desk.actions.dispatch({"act": "undo", "id": gone})
    assert (
        desk.state.conversation_id == gone
        and texts(desk)[0] == "A-very-private-question?"
        and desk.state.notice is None
    )


def test_it_is_gone_from_the_file_when_the_time_is_over(deleted, tmp_path):
    desk, gone = deleted
    desk.trash._clock = lambda: 1e12
    desk.trash.purge()
    assert desk.engine.forgotten == [gone] and desk.state.notice is None
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("chats.db*"))
    assert b"First?" in stored and b"private" not in stored
    desk.actions.dispatch({"act": "undo", "id": gone})
    assert "late" in desk.state.notice.text and titles(desk) == ["First?"]


def test_the_time_runs_by_itself(desk, monkeypatch):
    monkeypatch.setattr(module, "UNDO_S", 0.05)
    gone = ask(desk, "First?")
    desk.actions.dispatch({"act": "clear"})
    wait_until(lambda: desk.engine.forgotten == [gone])


def test_a_killed_app_deletes_a_minute_after_the_next_start_what_was_deleted(deleted, make_desk):
    desk, gone = deleted
    again = make_desk(desk.engine)
    assert [one.id for one in again.state.deleted] == [gone] and titles(desk) == ["First?"]
    again.trash.purge(all_of_them=True)
    assert again.history.turns(gone) == [] and not again.history.unmark_forgotten(gone)


def test_a_fork_goes_on_from_a_turn_and_leaves_the_rest_alone(desk):
    first = ask(desk, "One?")
    again(desk, "Two?", "Second answer.")
    again(desk, "Three?", "Third answer.")
    desk.actions.dispatch({"act": "fork", "value": "4"})
    assert desk.state.conversation_id != first and texts(desk) == ["One?", ANSWER, "Two?", "Second answer."]
    assert "“Two?”" in titles(desk)[0] and titles(desk)[0] != "“Two?”", "by the question it goes on from"
    again(desk, "Or else?", "Another third.")
    assert titles(desk)[0] == "Or else?", "three forks of one question were called alike"
    again(desk, "And then?")
    assert titles(desk)[0] == "Or else?"
    assert [said.question for said in desk.engine.asked[-1].history] == ["One?", "Two?", "Or else?"]
    assert desk.engine.asked[-1].history[0].ids, "the ids go along: the prefix is in the cache"
    desk.actions.dispatch({"act": "talk", "id": first})
    assert texts(desk)[-2:] == ["Three?", "Third answer."]
    before = desk.state.conversation_id
    desk.actions.dispatch({"act": "fork", "value": "99"})
    assert desk.state.conversation_id == before


def test_a_fork_with_a_name_of_its_own_keeps_it(desk):
    ask(desk, "One?")
    desk.actions.dispatch({"act": "fork", "value": "2"})
    desk.actions.dispatch({"act": "rename-talk", "id": desk.state.conversation_id, "text": "Mine"})
    again(desk, "Two?")
    assert "Mine" in titles(desk) and "Two?" not in titles(desk)


def test_a_fork_keeps_the_limit(desk):
    ask(desk, "One?")
    desk.books.limit(1)
    desk.actions.dispatch({"act": "fork", "value": "2"})
    assert desk.state.spoiler_limit == 1


def test_a_question_in_other_words_begins_before_it(desk):
    first = ask(desk, "One?")
    again(desk, "Two?")
    desk.actions.dispatch({"act": "ask-otherwise", "value": "3", "text": "Two?"})
    assert desk.state.conversation_id != first and texts(desk) == ["One?", ANSWER]
    assert titles(desk) == ["One?"], "thought better of, a copy stayed on the shelf"
    again(desk, "Two, then?")
    assert texts(desk) == ["One?", ANSWER, "Two, then?", ANSWER] and "Two, then?" in titles(desk)
    assert desk.engine.asked[-1].history[0].question == "One?"
    desk.actions.dispatch({"act": "talk", "id": first})
    assert len(texts(desk)) == 4
    desk.actions.dispatch({"act": "ask-otherwise", "value": "3", "text": "Two?"})
    desk.actions.dispatch({"act": "fork", "value": "2"})
    assert len(titles(desk)) == 3 and texts(desk) == ["One?", ANSWER], "a fork of what is no copy yet"
    desk.actions.dispatch({"act": "talk", "id": first})
    desk.actions.dispatch({"act": "ask-otherwise", "value": "1", "text": "One?"})
    assert desk.state.conversation_id == "" and len(titles(desk)) == 3


def test_words_that_an_answer_is_asked_in_again_stand_in_their_copy_on_a_full_disk(desk, tmp_path):
    """What was said before them was asked without, and gone from the page."""
    ask(desk, "One?")
    again(desk, "Two?")
    desk.actions.dispatch({"act": "ask-otherwise", "value": "3", "text": "Two?"})
    desk.history._db = FullAtCommit(desk.history._db)
    desk.history._db.is_full = True
    again(desk, "Two, then?")
    assert texts(desk) == ["One?", ANSWER, "Two, then?", ANSWER]
    desk.history._db.is_full = False
    desk.history.store_again()
    assert texts(desk) == ["One?", ANSWER, "Two, then?", ANSWER]
    made = History(tmp_path / "chats.db")
    assert [turn.text for turn in made.turns(desk.state.conversation_id)] == texts(desk)
    made.close()


def test_versions_of_an_answer_stay_and_change_places(desk):
    ask(desk, "One?")
    for answer in ("Second.", "Third."):
        desk.engine.answer = answer
        desk.questions.regenerate()
        wait_until(lambda: not desk.state.busy)
    assert texts(desk) == ["One?", "Third."] and desk.books.turns[1].versions == ((1, ANSWER), (2, "Second."))
    shown = "".join(Page(desk).render()["turns"])
    assert shown.count("data-version") == 2 and "Second." in shown
    desk.actions.dispatch({"act": "version", "id": "2", "value": "1"})
    assert texts(desk) == ["One?", ANSWER] and {text for _n, text in desk.books.turns[1].versions} == {
        "Second.",
        "Third.",
    }
    again(desk, "Two?")
    assert desk.engine.asked[-1].history[0].answer == ANSWER
    desk.actions.dispatch({"act": "version", "id": "2", "value": "99"})
    assert texts(desk)[1] == ANSWER


def test_a_stopped_regeneration_adds_no_version(opened):
    desk, engine = opened(pace=0.01, prefill_steps=1)
    again(desk, "One?")
    desk.questions.regenerate()
    desk.stop()
    wait_until(lambda: not desk.state.busy)
    assert desk.books.turns[1].versions == () and texts(desk)[1] == ANSWER


def test_nothing_of_it_happens_under_a_running_answer(opened):
    desk, _engine = opened(pace=0.05)
    desk.questions.ask("One?")
    talk = desk.state.conversation_id
    for sent in (
        {"act": "forget-talk", "id": talk},
        {"act": "fork", "value": "2"},
        {"act": "version", "id": "2", "value": "1"},
        {"act": "limit", "value": "1"},
    ):
        desk.actions.dispatch(sent)
        assert desk.state.conversation_id == talk and desk.state.busy and desk.state.spoiler_limit is None
    desk.stop()


def test_a_book_that_was_not_talked_about_says_where_a_conversation_is_brought_in(desk):
    """The way stood in the menu of a conversation that was open."""
    assert Page(desk).render()["library"][0].count("data-bring-in") == 1
