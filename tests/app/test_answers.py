"""Questions and summaries at the desk: asked, stopped, answered anew."""

from __future__ import annotations

import threading
import time

import pytest

from app.desk.questions import Questions
from app.store.history import History
from app.store.turns import wording
from core import events
from tests.support.desks import done
from tests.support.fake_runtime import ANSWER, SUMMARY, FakeRuntime, wait_until
from tests.support.said import figures, worded_by


def test_summary_then_follow_up_with_the_first_turn_as_history(desk, engine):
    desk.preferences.choose("temperature", "0")
    desk.questions.summarize()
    done(desk)
    assert desk.books.turns[-1].text == SUMMARY and desk.books.turns[-1].state == "finished"
    desk.books.choose_chapters(1, 2)
    assert desk.questions.ask("What does he hide?")
    done(desk)
    assert [turn.text for turn in desk.books.turns[2:]] == ["What does he hide?", ANSWER]
    first, second = engine.asked
    assert first.question is None and first.params["temperature"] == 0.0 and first.history == ()
    assert second.chapters == (1, 2) and second.conversation_id == first.conversation_id
    (said,) = second.history
    assert (said.question, said.answer) == (wording(first), SUMMARY)
    assert said.ids, "turns go back as token ids, never as text to encode again"
    assert engine.prefilled_tokens[1] < engine.prefilled_tokens[0]


def test_chapters_chosen_the_wrong_way_round_are_exchanged(desk):
    """IX to II was read as II to IX, and the fields went on saying the other."""
    desk.books.choose_chapters(first=2)
    desk.books.choose_chapters(last=1)
    assert desk.state.chapters == (1, 2)
    desk.books.choose_chapters(last=0)
    assert desk.state.chapters == (1, 0)


def test_stop_keeps_what_was_written(opened):
    desk, engine = opened(pace=0.02, prefill_steps=1)
    desk.questions.summarize()
    wait_until(lambda: desk.state.answer.pieces)
    desk.stop()
    done(desk)
    assert desk.books.turns[-1].state == "stopped" and 0 < len(desk.books.turns[-1].text) < len(SUMMARY)
    assert SUMMARY.startswith(desk.books.turns[-1].text)


def test_regenerate_replaces_the_last_answer_and_repeats_its_choices(desk, engine):
    desk.books.choose_chapters(2, 2)
    desk.preferences.choose("reading_mode", "chunked")
    desk.questions.summarize()
    done(desk)
    desk.books.choose_chapters(1, 1)
    desk.preferences.reset("reading_mode")
    desk.preferences.choose("seed", "7")
    desk.questions.regenerate()
    done(desk)
    again = engine.asked[-1]
    assert again.question is None and again.chapters == (2, 2) and again.reading_mode == "chunked"
    assert again.params["seed"] == 7 and again.history == ()
    assert [turn.role for turn in desk.books.turns] == ["user", "assistant"]
    assert figures(desk.books.turns[0].text) == ["2"]


def test_a_refused_regenerate_keeps_the_exchange(desk, engine):
    """The engine is down: the question and its answer were cut before that was noticed."""
    desk.questions.summarize()
    done(desk)
    kept = desk.books.turns
    assert [turn.role for turn in kept] == ["user", "assistant"] and kept[1].text == SUMMARY
    engine.state = "failed"
    desk.questions.regenerate()
    assert desk.books.turns == kept
    assert worded_by(Questions._is_down, desk.state.notice.text)


@pytest.mark.parametrize("how", ["fails", "is stopped", "is killed"])
def test_the_old_answer_stands_until_the_new_one_is_complete(opened, how, tmp_path):
    """Nobody who asks for another answer wants to lose the one there is."""
    desk, engine = opened(pace=0.001)
    desk.questions.ask("Who?")
    done(desk)
    engine.fail, engine.pace = ("Out of memory." if how == "fails" else ""), 0.01
    desk.questions.regenerate()
    if how != "fails":
        wait_until(lambda: desk.state.answer.pieces)
    if how == "is killed":  # another app on the same folder sees what a killed one left behind
        left = History(tmp_path / "chats.db")
        left.settle()
        assert [(turn.text, turn.state) for turn in left.turns(desk.state.conversation_id)][1] == (
            ANSWER,
            "finished",
        )
        left.close()
    if how != "fails":
        desk.stop()
    done(desk)
    assert [turn.text for turn in desk.books.turns] == ["Who?", ANSWER] and desk.books.turns[
        1
    ].state == "finished"
    assert "earlier" in desk.state.notice.text and ("Out of memory." in desk.state.notice.text) == (
        how == "fails"
    )
    engine.fail, engine.answer, engine.pace = "", "Quite another.", 0.001
    desk.questions.regenerate()
    done(desk)
    assert [turn.text for turn in desk.books.turns] == [
        "Who?",
        "Quite another.",
    ] and desk.state.notice is None


def test_an_answer_that_never_began_is_replaced_as_the_next_one_grows(opened):
    """There is nothing to keep, and what is stopped in the middle is worth more than nothing."""
    desk, engine = opened(pace=0.001, fail="Out of memory.")
    desk.questions.ask("Who?")
    done(desk)
    engine.fail, engine.pace = "", 0.01
    desk.questions.regenerate()
    wait_until(lambda: desk.state.answer.pieces)
    desk.stop()
    done(desk)
    assert (
        desk.books.turns[-1].state == "stopped"
        and ANSWER.startswith(desk.books.turns[-1].text)
        and desk.books.turns[-1].text
    )


def test_one_answer_at_a_time(desk, engine):
    """Two questions at once would mix their tokens in one conversation."""
    results = []
    threads = [threading.Thread(target=lambda: results.append(desk.questions.ask("Why?"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(desk)
    assert results.count(True) == len(engine.asked) == len(desk.books.turns) // 2


def test_a_question_asked_as_the_answer_ends_is_taken(make_desk, book):
    """Its last word is on the page a moment before its end is: the next question was swallowed in silence."""

    class SlowToEnd(FakeRuntime):
        def _rounds(self, *args):
            for event in super()._rounds(*args):
                if isinstance(event, events.Finished):
                    time.sleep(0.3)
                yield event

    engine = SlowToEnd(pace=0.001)
    engine.start()
    wait_until(lambda: engine.state == "ready")
    desk = make_desk(engine)
    desk.library.add(book)
    desk.books.select(book.sha256)
    desk.questions.ask("Who?")
    wait_until(lambda: desk.state.answer.text == ANSWER)
    assert desk.state.busy and desk.questions.ask("And then?")
    done(desk)
    assert [turn.text for turn in desk.books.turns] == ["Who?", ANSWER, "And then?", ANSWER]


def test_a_failed_answer_is_told_kept_and_not_sent_to_the_engine_again(opened):
    desk, engine = opened(pace=0.001, fail="The engine ran out of memory and was restarted. Ask again.")
    desk.questions.ask("Who?")
    done(desk)
    assert desk.books.turns[-1].state == "failed" and "out of memory" in desk.books.turns[-1].extra["error"]
    engine.fail = ""
    desk.questions.ask("Who, again?")
    done(desk)
    assert engine.asked[-1].history == () and desk.books.turns[-1].text == ANSWER


def test_an_engine_that_breaks_off_leaves_no_endless_progress(make_desk, book):
    class Breaking(FakeRuntime):
        def _answer(self, *args):
            yield from ()
            raise RuntimeError("pipe closed")

    engine = Breaking()
    engine.state = "ready"
    desk = make_desk(engine)
    desk.library.add(book)
    desk.books.select(book.sha256)
    desk.questions.ask("Who?")
    done(desk)
    assert desk.state.answer.phase == "failed" and "pipe closed" not in desk.state.answer.error


def test_reading_in_parts_keeps_each_parts_text_beside_the_answer(opened):
    desk, engine = opened(pace=0.001, parts=3, prefill_steps=2)
    desk.preferences.choose("reading_mode", "chunked")
    desk.questions.summarize()
    done(desk)
    assert desk.books.turns[-1].text == SUMMARY
    assert desk.books.turns[-1].extra["parts"] == [
        ["Part 1", "What part 1 tells."],
        ["Part 2", "What part 2 tells."],
    ]


def test_cancel_while_the_engine_still_loads(make_desk, book):
    """The engine cannot be stopped before it has heard of the question; the page must not wait for it."""

    class Loading(FakeRuntime):
        def _answer(self, *_args):
            for step in range(10_000):
                yield events.Loading("Loading the weights", step / 10_000)
                self._stop.wait(0.001)
            raise AssertionError("never cancelled")

    engine = Loading()
    engine.state = "loading"
    desk = make_desk(engine)
    desk.library.add(book)
    desk.books.select(book.sha256)
    desk.questions.ask("Who?")
    wait_until(lambda: desk.state.answer.phase == "loading")
    desk.stop()
    done(desk)
    assert desk.books.turns[-1].state == "stopped"
