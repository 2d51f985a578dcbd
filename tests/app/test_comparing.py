"""An answer is compared with plain decoding: what is asked of the engine, what is kept and shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.desk.comparison import comparable
from app.web.page import Page
from core.errors import UserError
from core.request import Params
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.said import figures, text_in


def ask(desk, question: str | None, temperature: float | None = None) -> None:
    desk.preferences.keep("temperature", temperature)
    if question is None:
        desk.questions.summarize()
    else:
        desk.questions.ask(question)
    wait_until(lambda: not desk.state.busy)


def compare(desk) -> None:
    desk.actions.dispatch({"act": "compare"})
    wait_until(lambda: not desk.state.busy)


def test_the_same_question_is_asked_again_as_it_was(desk):
    ask(desk, "First?")
    desk.actions.dispatch({"act": "instruct-book", "value": "Briefly."})
    desk.questions.ask("Second?")
    wait_until(lambda: not desk.state.busy)
    desk.actions.dispatch({"act": "instruct-book", "value": ""})
    first = desk.engine.asked[-1]
    compare(desk)
    again = desk.engine.asked[-1]
    assert Params(**again.params) == Params(**{**first.params, "mode": "autoregressive"})
    assert (again.question, again.history, again.instructions) == ("Second?", first.history, "Briefly.")
    assert again.conversation_id == first.conversation_id
    assert again.compare == tuple(desk.books.turns[-1].extra["ids"])
    assert len(desk.books.turns) == 4 and len(desk.engine.asked) == 3, "nothing is added to the conversation"


def test_what_was_found_is_kept_and_shown_with_both_texts(desk):
    ask(desk, "First?", temperature=0.7)
    desk.engine.answer = ANSWER.replace("every word", "each word")
    compare(desk)
    kept = desk.books.turns[-1].extra["compared"]
    assert not kept["same"] and kept["temperature"] == 0.7 and kept["verified"]["mismatches"] == 0
    shown = Page(desk).render()
    assert "distribution" in text_in(shown["panel"][0], 'id="stat-compared"')
    assert figures(text_in(shown["panel"][0], 'id="stat-plain"'))[1] == "2.00"
    answer = shown["turns"][-1]
    assert "<mark>every word" in answer and "<mark>each word" in answer
    assert desk.books.turns[-1].text == ANSWER


def test_equal_texts_are_said_to_be_equal(desk):
    ask(desk, "First?", temperature=0.0)
    compare(desk)
    assert desk.books.turns[-1].extra["compared"]["same"]
    shown = Page(desk).render()
    assert "same" in text_in(shown["panel"][0], 'id="stat-compared"')
    assert (
        "<mark>" not in shown["turns"][-1]
        and shown["turns"][-1].count("and every word of it was invented") > 1
    )


def test_a_question_waits_for_its_end_and_stop_keeps_nothing(opened):
    desk, engine = opened(pace=0.02, prefill_steps=1)
    ask(desk, "First?")
    desk.actions.dispatch({"act": "compare"})
    wait_until(lambda: desk.state.comparing.tokens > 0)
    assert desk.questions.ask("Second?") and desk.state.queued and "Stop" in Page(desk).render()["panel"][0]
    desk.stop()
    wait_until(lambda: not desk.state.busy)
    assert "compared" not in desk.books.turns[1].extra
    assert [turn.text for turn in desk.books.turns[2:]] == ["Second?", ANSWER]


def test_what_is_not_decoded_in_one_go_is_not_compared(desk):
    assert comparable(desk.books.turns) == (None, "")
    desk.engine.parts = 3
    ask(desk, None)
    assert comparable(desk.books.turns)[0] is None
    assert text_in(Page(desk).render()["panel"][0], 'id="stat-why-not"') == comparable(desk.books.turns)[1]
    compare(desk)
    assert len(desk.engine.asked) == 1
    desk.engine.parts = 1
    ask(desk, "First?")
    assert comparable(desk.books.turns) == (desk.books.turns[-1], "")
    desk.engine.state = "loading"
    with pytest.raises(UserError, match="not ready"):
        desk.actions.dispatch({"act": "compare"})
    desk.engine.state = "ready"
    desk.engine.fail = "Out of memory."
    compare(desk)
    assert desk.state.notice.text == "Out of memory." and "compared" not in desk.books.turns[-1].extra


def test_a_summary_is_compared_where_it_was_decoded_in_one_go(desk):
    """Its sentences were held against the book: what the model wrote is kept beside what is shown."""
    ask(desk, "First?")
    turn = desk.books.turns[-1]
    held = {**turn.extra, "stands": [{"start": 0, "end": 3}]}
    told = [desk.books.turns[0], replace(turn, extra={**held, "decoded": [1, 2]})]
    assert comparable(told) == (told[-1], "")
    chosen = [desk.books.turns[0], replace(turn, extra={**held, "decoded": []})]
    assert comparable(chosen)[0] is None and comparable(chosen)[1]


@pytest.mark.parametrize("given", [None, 2])
def test_an_answer_from_behind_a_limit_set_since_is_not_compared(desk, given: int | None):
    """The whole book went to the model again, although the conversation was limited by then."""
    desk.actions.dispatch({"act": "limit", "value": str(given or 0)})
    ask(desk, "First?")
    desk.actions.dispatch({"act": "limit", "value": "1"})
    asked = len(desk.engine.asked)
    with pytest.raises(UserError, match="limit, chapter 1, lets be read now. Regenerate it"):
        desk.actions.dispatch({"act": "compare"})
    assert not desk.state.busy and len(desk.engine.asked) == asked
    desk.actions.dispatch({"act": "limit", "value": str(given or 0)})
    compare(desk)
    assert desk.engine.asked[-1].compare and desk.engine.asked[-1].spoiler_limit == given


def test_the_limit_that_only_the_question_holds_is_compared_under(desk):
    """The answer was asked again with the whole book."""
    desk.actions.dispatch({"act": "limit", "value": "1"})
    ask(desk, "First?")
    turn = desk.books.turns[-1]
    extra = {key: value for key, value in turn.extra.items() if key != "spoiler_limit"}
    desk.history.update(desk.state.conversation_id, turn.number, turn.text, state="finished", extra=extra)
    compare(desk)
    assert desk.engine.asked[-1].compare and desk.engine.asked[-1].spoiler_limit == 1


def test_near_ties_are_marked_in_equal_texts(desk):
    ask(desk, "First?", temperature=0.0)
    compare(desk)
    shown = Page(desk).render()
    assert '<mark class="tie"' in shown["turns"][-1] and f">{ANSWER[4:10]}</mark>" in shown["turns"][-1]
    assert "marked" in text_in(shown["panel"][0], 'id="stat-judged"')


def test_an_answer_that_is_one_of_several_says_its_own_tokens_and_all_that_were_written(desk):
    """55 tokens stood under an answer of five words."""
    ask(desk, "First?")
    turn = desk.books.turns[-1]
    stats = {**turn.extra["stats"], "new_tokens": 5, "answers": 11, "all_tokens": 55}
    desk.history.update(
        desk.state.conversation_id,
        turn.number,
        "The keeper.",
        state="finished",
        extra={**turn.extra, "stats": stats},
    )
    desk.store.update(answer=None)
    shown = Page(desk).render()
    tools = text_in(shown["turns"][-1], 'class="tools"')
    own, _rate, *all_of_them = figures(tools)
    assert (own, all_of_them) == ("5", ["11", "55"])
    assert figures(text_in(shown["panel"][0], 'id="stat-work"')) == ["55", "11"]


def test_how_it_was_drawn_goes_with_what_is_judged(desk):
    ask(desk, "First?", temperature=0.0)
    turn, how = (
        desk.books.turns[-1],
        {"passage": [0, 9], "temperature": 0.7, "top_p": 1.0, "instructed": False},
    )
    desk.history.update(
        desk.state.conversation_id,
        turn.number,
        turn.text,
        state="finished",
        extra={**turn.extra, "drawn": how},
    )
    compare(desk)
    assert desk.engine.asked[-1].drawn == how and desk.engine.asked[-1].compare
