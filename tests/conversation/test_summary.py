"""Summaries of long books: parts, tries, stretches, what is kept of them, on an engine that only counts."""

from __future__ import annotations

import dataclasses

from core.conversation.part_summaries import PartSummaryStore
from core.events import Delta, ReadingStep
from core.request import Request
from tests.support.fakes import CharTokenizer
from tests.support.said import figures
from tests.support.talks import STYLE, TOPICS, WHOLE, ask, book, encoded, finished, make, reply_by_prompt


def test_long_book_is_summarised_in_parts_and_then_whole():
    session, engine = make(reply_by_prompt)
    events = ask(session, book(), None)
    readings = [e for e in events if isinstance(e, ReadingStep)]
    assert [(r.index, r.total, r.purpose) for r in readings] == [
        (i, 4, "part summary") for i in (1, 2, 3, 4)
    ] + [(1, 1, "whole summary")]
    assert readings[1].label == "Chapter 2"
    done = finished(events)
    assert done.text == WHOLE
    assert [figures(one) for one in done.sources] == [["4"]]
    last = CharTokenizer().decode(engine.prompts[-1])
    assert all(f"{topic} alone" in last for topic in TOPICS)
    assert done.plan["reading"]["mode"] == "chunked"
    assert [params.max_new_tokens for params in engine.params] == [60] * 4 + [512]
    assert engine.params[0].temperature == 0.1


def test_summaries_that_do_not_fit_together_are_told_in_levels():
    """Many parts: the notes alone exceed what the model reads at once."""
    session, engine = make(reply_by_prompt, context_tokens=1500)
    events = ask(session, book(30), None)
    parts = [e for e in events if isinstance(e, ReadingStep) and e.purpose == "part summary"]
    levels = list(dict.fromkeys(e.label for e in parts if e.total == 3))
    assert levels == ["Chapters 1–10", "Chapters 11–20", "Chapters 21–30"]
    assert finished(events).text == WHOLE
    assert finished(events).token_ids == tuple(encoded(WHOLE))
    assert max(len(prompt) for prompt in engine.prompts) < 1200


def test_stopped_reading_goes_on_where_it_stopped(tmp_path):
    """A reading of an hour must survive a stop, and even a new process."""
    session, engine = make(reply_by_prompt, notes=PartSummaryStore(tmp_path))
    stopped = []
    for event in session.ask(Request(None, book(), "c"), should_stop=lambda: len(stopped) > 0):
        if isinstance(event, ReadingStep) and event.index == 3:
            stopped.append(event)
    assert event.reason == "user"
    assert event.sources == ("Chapters 1–2",)
    assert "## Chapter 1\n\n" in event.text and "## Chapter 2\n\n" in event.text, "what was told stays"
    assert len(event.stands) == len([line for line in event.text.split("\n\n") if not line.startswith("#")])
    fresh, engine = make(reply_by_prompt, notes=PartSummaryStore(tmp_path))
    events = ask(fresh, book(), None)
    assert finished(events).text == WHOLE
    assert len(engine.prompts) == 3  # parts 3 and 4, then the whole
    assert "about the lighthouse keeper alone." in "".join(e.text for e in events if isinstance(e, Delta))


def test_part_summary_that_says_nothing_is_written_once_more():
    """One bad draw of a small model must not stand for a chapter."""

    def reply(ids, params):
        return (
            encoded("The keeper came back to the lighthouse.")
            if params.temperature >= 0.4
            else encoded("Keeper. " * 40)
        )

    session, engine = make(reply)
    events = ask(session, book(), None)
    tries = [(e.label, e.attempt) for e in events if isinstance(e, ReadingStep)]
    assert tries[:3] == [("Chapter 1", 1), ("Chapter 1", 2), ("Chapter 2", 1)]
    assert "came back" in CharTokenizer().decode(engine.prompts[-1])


STRICT = dataclasses.replace(STYLE, grounded=0.9, part_prompts=("first?", "second?", "third?"))


def strict_reply(ids, params):
    """The second prompt's summary keeps to the text best, but not well enough; all others invent."""
    prompt = CharTokenizer().decode(ids)
    if prompt.rstrip().endswith("second?") or "second?" in prompt[-20:]:
        return encoded("The keeper of the lighthouse came again, and quietly.")
    return encoded("A pirate named Alex sailed to distant islands with his friend Sarah.")


def test_part_that_strays_from_its_text_is_asked_for_in_other_words_and_the_best_is_kept():
    store = PartSummaryStore()
    session, engine = make(strict_reply, style=STRICT, notes=store)
    events = ask(session, book(2), None, reading_mode="chunked")
    readings = [
        e for e in events if isinstance(e, ReadingStep) and e.purpose == "part summary" and e.index == 1
    ]
    # three prompts, then the best once more for the eye
    assert [e.attempt for e in readings] == [1, 2, 3, 4]
    kept = [e.text for e in events[events.index(readings[-1]) :] if isinstance(e, Delta)][0]
    assert kept.startswith("The keeper of the lighthouse")
    assert "The keeper of the lighthouse came again" in CharTokenizer().decode(engine.prompts[-1])
    assert "Alex" not in CharTokenizer().decode(engine.prompts[-1])


def test_part_that_keeps_to_its_text_is_asked_for_once():
    faithful = dataclasses.replace(STRICT, grounded=0.3)
    session, engine = make(
        lambda ids, params: encoded("The lighthouse keeper came again and again."), style=faithful
    )
    events = ask(session, book(2), None, reading_mode="chunked")
    assert [
        (e.index, e.attempt) for e in events if isinstance(e, ReadingStep) and e.purpose == "part summary"
    ][0] == (1, 1)
    assert not [e for e in events if isinstance(e, ReadingStep) and e.index == 1 and e.attempt > 1]


def test_echo_of_the_instruction_does_not_reach_the_whole_summary():
    """Small models go on with the instruction after their answer."""
    style = dataclasses.replace(
        STYLE, part_prompts=("Summarize what happens in this passage.",), note_tokens=400
    )
    session, engine = make(
        lambda ids, params: encoded("The keeper came back. Summarize what happens in this way too"),
        style=style,
    )
    ask(session, book(), None)
    assert CharTokenizer().decode(engine.prompts[-1]).count("Summarize what happens") == 0


def test_fresh_reads_every_part_again(tmp_path):
    session, engine = make(reply_by_prompt)
    ask(session, book(), None)
    ask(session, book(), None, ignore_cache=True)
    assert len(engine.prompts) == 10


def test_torn_note_on_disk_is_made_again(tmp_path):
    session, _ = make(reply_by_prompt, notes=PartSummaryStore(tmp_path))
    ask(session, book(), None)
    torn = list(tmp_path.glob("*/*.json"))
    assert len(torn) == 4
    for path in torn:
        path.write_text('{"no')
    again, engine = make(reply_by_prompt, notes=PartSummaryStore(tmp_path))
    assert finished(ask(again, book(), None)).text == WHOLE
    assert len(engine.prompts) == 5
