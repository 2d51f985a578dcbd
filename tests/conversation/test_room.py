"""What the page is told of the context's room before a question is the same as what the answer then finds."""

from __future__ import annotations

import dataclasses

import pytest

from app.desk.questions import too_many
from core.errors import UserError
from core.request import HistoryTurn, Request
from tests.support.fakes import CharTokenizer
from tests.support.talks import STYLE, ask, book, encoded, finished, make

SAID = tuple(
    HistoryTurn(f"Who came {at}?", "It was so. " * 4, tuple(encoded("It was so. " * 4))) for at in range(5)
)


def room_left(session, question: str | None, small, **options) -> dict:
    return session.room(Request(question, small, "c", history=SAID, params={"max_new_tokens": 64}, **options))


@pytest.mark.parametrize("instructions", ["", "Answer in German, briefly."])
@pytest.mark.parametrize("chapters, reading_mode", [(1, "auto"), (3, "chunked")])
def test_as_many_turns_are_dropped_as_were_said_to_be_too_many(chapters, reading_mode, instructions):
    """One token's difference, and the person is asked in vain, or not asked at all."""
    small, question = book(chapters), "And who left the copper magnet?"
    options = {"reading_mode": reading_mode, "instructions": instructions}
    wide, _engine = make(context_tokens=4000)
    room = room_left(wide, question, small, **options)
    text, said = room["text"] + room["question"] + room["answer"], sum(room["turns"])
    assert room["context"] == 4000 and len(room["turns"]) == 5 and too_many(room) == 0
    for missing in (0, 1, room["turns"][0], room["turns"][0] + 1, said):
        session, _engine = make(context_tokens=text + said - missing)
        least = too_many(room_left(session, question, small, **options))
        done = finished(ask(session, small, question, history=SAID, params={"max_new_tokens": 64}, **options))
        left = [note for note in done.notes if "left out" in note]
        assert bool(left) == bool(least) and (least < 2 or f"oldest {least} questions" in left[0])


def test_whoever_wants_all_kept_is_told_rather_than_answered():
    small = book(1)
    wide, _engine = make()
    room = room_left(wide, "Who?", small)
    full = room["text"] + sum(room["turns"]) + room["question"] + room["answer"] - 1
    session, engine = make(context_tokens=full)
    with pytest.raises(UserError, match="choose what is left out"):
        ask(session, small, "Who?", history=SAID, params={"max_new_tokens": 64}, forbid_truncation=True)
    assert not engine.prompts


def test_passages_take_no_turns_and_no_book_takes_no_text():
    session, _engine = make(style=dataclasses.replace(STYLE, passages=True))
    room = room_left(session, None, book(2))
    assert room["reading"] == "retrieval" and room["turns"] == []
    assert room_left(session, None, None)["turns"] and room_left(session, None, None)["text"] < 20


def test_looking_at_the_room_changes_no_answer():
    """An attempt that is counted would change the next seed."""
    small, looked, plain = book(1), make()[0], make()[0]
    room_left(looked, "Who?", small)
    first = finished(ask(looked, small, "Who?"))
    assert first == finished(ask(plain, small, "Who?"))


@pytest.mark.parametrize("change", ["edit", "again", "fork"])
def test_edit_regenerate_and_fork_reuse_what_was_read(change):
    """What the panel shows as reused: all up to the turn that is another."""
    session, engine = make()
    small = book(1)
    first = finished(ask(session, small, "Who came?", conversation="one"))
    said = (HistoryTurn("Who came?", first.text, first.token_ids),)
    ask(session, small, "And then?", conversation="one", history=said)
    asked, talk = {"edit": ("Then who?", "two"), "again": ("And then?", "one"), "fork": ("Why?", "two")}[
        change
    ]
    ask(session, small, asked, conversation=talk, history=said)
    common = len(engine.prompts[1]) - len("And then?") - 1
    assert engine.prompts[2][:common] == engine.prompts[1][:common]
    assert engine.fed[2] <= len(asked) + 2


def test_two_questions_with_one_answer_stay_apart():
    """By the answer alone the first would be repeated to the model as the second."""
    session, engine = make()
    small = book(1)
    first = finished(ask(session, small, "Was it he?"))
    said = (HistoryTurn("Was it he?", first.text, first.token_ids),)
    second = finished(ask(session, small, "Was it she?", history=said))
    assert second.token_ids == first.token_ids
    ask(session, small, "Who?", history=(*said, HistoryTurn("Was it she?", second.text, second.token_ids)))
    assert CharTokenizer().decode(engine.prompts[2]).count("Was it he?") == 1
