"""An answer that is made anew and breaks off: what was told is kept, and the better of the two stands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict

import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.store import Store
from app.store.history import History
from app.store.turns import StoredTurn
from core.events import (
    Delta,
    Event,
    Failed,
    Finished,
    Piece,
    ReadingStep,
    RoundStats,
    SourceSpan,
    Stats,
    SummaryDraft,
)
from core.request import Request
from tests.support.fake_runtime import ANSWER, wait_until

OWN = (SourceSpan(0, 9, 0, 18, True),)
TOLD = (SourceSpan(0, 9, 0, 18), SourceSpan(10, 19, 30, 40))


@pytest.fixture
def history(tmp_path) -> History:
    return History(tmp_path / "talks.db")


def draft(text: str, stands: tuple[SourceSpan, ...]) -> SummaryDraft:
    return SummaryDraft((Piece(text, ""),), stands=stands)


def said(text: str) -> Delta:
    return Delta((Piece(text, "target"),), (RoundStats(3, 0.1),))


def answered(history: History, state: str, text: str, stands: tuple[SourceSpan, ...] = ()) -> StoredTurn:
    """An answer of that state, in a conversation of its own named "talk"."""
    history.create("book", name="talk")
    history.add("talk", "user", "Tell it.")
    extra = {"stands": [asdict(one) for one in stands]}
    history.add("talk", "assistant", text, state=state, extra=extra)
    return history.turns("talk")[-1]


def anew(
    history: History, earlier: StoredTurn, *events: Event, seen: Callable[[], None] = lambda: None
) -> Store:
    """The store after the events of an answer in place of `earlier`; each is stored as it comes. `seen` is
    called behind every change.
    """
    store, hours = Store(), itertools.count()
    store.watch(seen)
    job = AnswerJob(
        iter(events),
        history,
        Request("Tell it.", conversation_id="talk"),
        store,
        Callbacks(),
        instead_of=earlier,
        clock=lambda: 3600.0 * next(hours),
    )
    job.start()
    assert job.join(10)
    return store


def stopped(text: str, stands: tuple[SourceSpan, ...] = ()) -> Finished:
    return Finished("user", text, Stats(), stands=stands)


TELLING = (ReadingStep(1, 3, "One", "telling"), draft("He rowed. He sang.", TOLD), said("It"))


def test_stopped_beside_a_complete_answer_what_was_told_anew_is_a_version(history):
    """Five of eleven parts were told anew, and thrown away with Esc."""
    earlier = answered(history, "finished", "The earlier.")
    store = anew(history, earlier, *TELLING, stopped("He rowed. He sang.", TOLD))
    (turn,) = history.turns("talk")[1:]
    assert (turn.text, turn.state) == ("The earlier.", "finished") and store.state.notice.kind == "info"
    assert [text for _number, text in turn.versions] == ["He rowed. He sang."]
    history.use_version("talk", 2, turn.versions[0][0])
    (turn,) = history.turns("talk")[1:]
    assert turn.state == "stopped" and len(turn.extra["stands"]) == 2


def test_what_tells_more_takes_the_place_of_an_answer_that_broke_off(history):
    earlier = answered(history, "failed", "“He rowed.”", OWN)
    store = anew(history, earlier, *TELLING, stopped("He rowed. He sang.", TOLD))
    (turn,) = history.turns("talk")[1:]
    assert (turn.text, turn.state) == ("He rowed. He sang.", "stopped") and store.state.notice is None
    assert [text for _number, text in turn.versions] == ["“He rowed.”"]


def test_what_tells_less_than_one_that_broke_off_stands_beside_it(history):
    earlier = answered(history, "stopped", "He rowed. He sang.", TOLD)
    anew(history, earlier, TELLING[0], draft("He rowed.", TOLD[:1]), said("It"), Failed("The engine ended."))
    (turn,) = history.turns("talk")[1:]
    assert turn.text == "He rowed. He sang."
    assert [text for _number, text in turn.versions] == ["He rowed."]


def test_the_books_own_sentences_alone_are_nothing_told_anew(history):
    """They stand there from the first moment: stopped then, a told summary would have given way to them."""
    earlier = answered(history, "stopped", "He rowed.", TOLD[:1])
    before = history.turns("talk")
    anew(history, earlier, TELLING[0], draft("“He rowed.”", OWN), said("It"), stopped("“He rowed.”", OWN))
    assert history.turns("talk") == before


@pytest.mark.parametrize(
    ("state", "stands"), [("finished", "The earlier."), ("failed", "He rowed. He sang.")]
)
def test_killed_it_is_as_if_it_were_stopped(history, state: str, stands: str):
    """A minute of telling was gone without a trace when the program died."""
    earlier = answered(history, state, "The earlier.", OWN)
    left = []

    def killed() -> None:  # what another process would find at this moment
        other = History(history.path.with_name(f"{len(left)}.db"))
        history.copy_to(other.path)
        other.settle()
        left.append(other.turns("talk")[-1])
        other.close()

    anew(history, earlier, *TELLING, said(" was"), Finished("stop", "It was told.", Stats()), seen=killed)
    found = left[-2]
    others = {text for _number, text in found.versions}
    assert found.text == stands and {found.text, *others} == {"The earlier.", "He rowed. He sang."}
    assert found.state in ("finished", "stopped") and bool(found.extra.get("notes")) == (state == "failed")
    assert (left[-1].text, len(left[-1].versions)) == ("It was told.", 1)


def test_a_question_that_is_answered_again_and_stopped_keeps_its_words_too(opened):
    desk, _engine = opened(pace=0.01, prefill_steps=1)
    desk.questions.ask("One?")
    wait_until(lambda: not desk.state.busy)
    desk.questions.regenerate()
    wait_until(lambda: desk.state.answer.text)
    desk.stop()
    wait_until(lambda: not desk.state.busy)
    turn = desk.books.turns[1]
    assert turn.text == ANSWER and ANSWER.startswith(turn.versions[0][1].strip()) and turn.versions[0][1]


def test_only_a_complete_answer_is_asked_for_in_other_words(opened):
    """Each Regenerate of a summary that broke off began at its first part."""
    desk, engine = opened(pace=0.01, prefill_steps=1)
    desk.questions.summarize()
    wait_until(lambda: desk.state.answer and desk.state.answer.text)
    desk.stop()
    for again in (False, True):
        wait_until(lambda: not desk.state.busy)
        desk.questions.regenerate()
        assert engine.asked[-1].again == again or wait_until(lambda a=again: engine.asked[-1].again == a)
    desk.stop()
