"""Sessions over the real engine: what a second question, an answer made anew and a fork of it feed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.events import Delta, Finished
from core.request import HistoryTurn, Request
from core.stats import AnswerStats
from tests.support.modes import GRID_MODES
from tests.support.tiny import engine, oracle, ours
from tests.support.tiny_tokenizer import BOOK, TEXT, TinyTokenizer, fed

FRAME_TOKENS = 4  # the newest token of an answer, the bridge behind it, and the ask behind a question


@pytest.fixture(params=GRID_MODES)
def answer(request: pytest.FixtureRequest) -> Callable[..., Finished]:
    """A function that asks one session: (question, *history, conversation) to the end of its answer."""
    made = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    session = Session(made, TinyTokenizer(), ReadingStyle(system="S", part_prompts=("?",), whole_prompt="?"))
    params = {"mode": request.param, "max_new_tokens": 8, "temperature": 0.8}

    def asked(question: str, *history: HistoryTurn, conversation: str = "c") -> Finished:
        *_, last = session.ask(Request(question, BOOK, conversation, history=history, params=params))
        assert isinstance(last, Finished)
        return last

    return asked


def said(question: str, done: Finished) -> HistoryTurn:
    return HistoryTurn(question, done.text, done.token_ids)


def test_only_new_tokens_are_fed(answer: Callable[..., Finished]):
    """Whatever the mode leaves in the caches: the book is read once, and so is what was said about it."""
    first = answer("Who?")
    assert fed(first) == first.stats.prompt_tokens > len(TEXT.strip())
    one = said("Who?", first)

    second = answer("And then?", one)
    assert fed(second) <= len("And then?") + FRAME_TOKENS
    two = said("And then?", second)

    again = answer("And then?", one)
    assert fed(again) == 1, "an answer made anew reads its question's last token only"

    third = answer("Why?", one, two)
    assert fed(third) <= len(second.token_ids) + FRAME_TOKENS + len("Why?") + FRAME_TOKENS

    fork = answer("Where?", one)
    assert fed(fork) <= len("Where?") + FRAME_TOKENS

    other = answer("Who?", conversation="another")
    assert fed(other) <= len("Who?") + 1


def test_at_temperature_0_a_summary_is_told_alike_by_every_mode():
    """Told part by part over the real engine: token for token what plain decoding tells."""
    told = {}
    for mode in ("triforce", "autoregressive"):
        session = Session(
            engine(ours(oracle()), draft=ours(oracle(tied=True))),
            TinyTokenizer(),
            ReadingStyle(
                system="S",
                sentence_prompt="?",
                summaries="supported",
                tellings=3,
                part_tokens=80,
                temperature=0.0,
            ),
        )
        params = {"mode": mode, "max_new_tokens": 24, "temperature": 0.0}
        events = list(session.ask(Request(None, BOOK, "c", ignore_cache=True, params=params)))
        told[mode] = [event.text for event in events if isinstance(event, Delta)]
        assert events[-1].stats.mode == mode and events[-1].stats.new_tokens > 24
        told[mode] = "".join(told[mode])
    assert told["triforce"] == told["autoregressive"] != ""


def test_what_the_events_bring_adds_up_to_the_figures_of_the_end():
    """Who shows an answer counts for himself: a round that came twice would be seen nowhere else."""
    made = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    session = Session(made, TinyTokenizer(), ReadingStyle(system="S", part_prompts=("?",), whole_prompt="?"))
    figures = AnswerStats()
    for event in session.ask(Request("Who?", BOOK, "c", params={"max_new_tokens": 24, "temperature": 0.8})):
        figures.take(event)
    counted, end = figures.stats(), event.stats
    assert end.rounds > 3 and counted == replace(end, peak_memory_bytes=counted.peak_memory_bytes)
