"""A reading that was paused goes on where it was, also after a restart: nothing is prefilled twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.conversation.session import Session
from core.documents.document import Document, Section
from core.events import Event, Finished, Prefill, ReadingStep
from core.request import Request
from tests.support.paused_sessions import STYLE, TEXT, opened

BOOK = Document("B", "", "txt", TEXT, (Section("One", 0, len(TEXT)),), sha256="b")
SEGMENT = 256  # tokens of the engine's prefill segments


def answer(
    session: Session,
    question: str | None,
    *,
    reading_mode: str = "full",
    until: Callable[[list], bool] | None = None,
) -> list[Event]:
    """The events; stopped when `until` says so of those before."""
    events: list[Event] = []
    params = {"max_new_tokens": 8, "temperature": 0.8, "seed": 5}
    ask = Request(question, BOOK, "c", reading_mode=reading_mode, params=params)
    for event in session.ask(ask, should_stop=lambda: until is not None and until(events)):
        events.append(event)
    return events


def prefilled(events: list[Event]) -> int:
    return max((event.done_tokens for event in events if isinstance(event, Prefill)), default=0)


def half_read(events: list[Event]) -> bool:
    return prefilled(events) >= 3 * SEGMENT


def test_a_paused_book_goes_on_in_the_next_process(tmp_path):
    first = opened(tmp_path, STYLE)
    paused = answer(first, "Who writes?", until=half_read)
    read = prefilled(paused)
    assert paused[-1].reason == "user" and 0 < read < len(TEXT) and read % SEGMENT == 0
    assert any("kept" in note for note in paused[-1].notes), "the person is told that nothing is lost"
    whole = len(TEXT) - 2
    left = first._expectation.reading_s(whole - read)
    assert first.card(BOOK)["prefill_s_estimate"] == pytest.approx(left, rel=0.02), "what is left of it"
    first.save(should_stop=lambda: False)  # what the worker does in idle time
    first.close()

    second = opened(tmp_path, STYLE)
    card = second.card(BOOK)
    assert card["snapshot_tokens"] == read
    gone_on = answer(second, "Who writes?")
    done = gone_on[-1]
    assert isinstance(done, Finished) and done.reason != "user"
    assert done.stats.snapshot_tokens == read
    assert done.stats.prompt_tokens - done.stats.reused_tokens < len(TEXT) - read + 40
    (tmp_path / "none").mkdir()
    plain = answer(opened(tmp_path / "none", STYLE), "Who writes?")[-1]
    assert done.token_ids == plain.token_ids, "as if it had been read in one go"


def test_a_paused_book_goes_on_in_the_same_process_behind_questions_from_passages(tmp_path):
    """While a book is paused its passages can be asked: that must not cost what was read."""
    session = opened(tmp_path, STYLE)
    read = prefilled(answer(session, "Who writes?", until=half_read))
    assert answer(session, "What did Mara write on the door?", reading_mode="retrieval")[-1].reason != "user"
    done = answer(session, "Who writes?")[-1]
    assert done.stats.reused_tokens >= read and done.stats.snapshot_tokens == 0


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "restarted"])
def test_a_paused_summary_goes_on_inside_the_part_it_was_in(tmp_path, restart: bool):
    """A part of a large model takes minutes to read; only whole parts used to be kept."""
    style = replace(STYLE, part_tokens=700, whole_tokens=700)
    session = opened(tmp_path, style)
    paused = answer(
        session, None, reading_mode="chunked", until=lambda events: prefilled(events) >= 2 * SEGMENT
    )
    read = prefilled(paused)
    assert paused[-1].reason == "user" and read == 2 * SEGMENT
    session.save(should_stop=lambda: False)
    if restart:
        session.close()
        session = opened(tmp_path, style)
    first_part = []
    for event in answer(session, None, reading_mode="chunked"):
        if isinstance(event, ReadingStep) and first_part:
            break
        first_part.append(event)
    fed = [event for event in first_part if isinstance(event, Prefill)]
    assert max(event.reused_tokens for event in fed) == read
    assert fed[-1].total_tokens < len(TEXT) // 2 - read + 40


@pytest.mark.parametrize("reading_mode", ["full", "chunked"])
def test_what_was_stopped_before_its_first_word_was_answered_from_nothing(tmp_path, reading_mode):
    """It said "Read for this answer: the whole book", of a book that was half read."""
    session = opened(tmp_path, STYLE)
    stopped = answer(
        session, "Who?", reading_mode=reading_mode, until=lambda events: prefilled(events) >= SEGMENT
    )[-1]
    assert (stopped.reason, stopped.sources, stopped.token_ids) == ("user", (), ())
    assert answer(session, "Who?", reading_mode=reading_mode)[-1].sources
