"""What stays of a conversation and a book, in memory and on the disk, and what the card tells of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.conversation.part_summaries import PartSummaryStore
from tests.support.fakes import CharTokenizer
from tests.support.talks import STYLE, ask, book, finished, make, reply_by_prompt, turns


def test_the_text_that_was_read_is_kept_not_the_conversation():
    session, engine = make()
    small = book(1)
    ask(session, small, "Who came?")
    session.save(should_stop=lambda: True)
    assert engine.saved == []
    session.save(should_stop=lambda: False)
    ((owner, tokens),) = engine.saved
    assert owner == small.sha256
    assert CharTokenizer().decode(engine.prompts[0][:tokens]) == "S" + small.text.strip() + "\n\n"
    session.save(should_stop=lambda: False)
    assert len(engine.saved) == 1


def test_of_a_book_in_parts_only_the_part_asked_about_is_kept():
    """The summaries of the others are on disk already and take a thousandth of the room."""
    session, engine = make(reply_by_prompt)
    long = book()
    first = finished(ask(session, long, None))
    session.save(should_stop=lambda: False)
    assert engine.saved == []
    ask(session, long, "What about the wedding?", history=turns("Summarize", first))
    session.save(should_stop=lambda: False)
    assert [owner for owner, _ in engine.saved] == [long.sha256]
    assert engine.saved[0][1] < len(long.text) // 2


def test_what_the_other_parts_tell_is_not_stored_with_a_part():
    """It stands between the part and the question, and changes with every part that is summarised."""
    session, engine = make(reply_by_prompt, style=replace(STYLE, part_tokens=1200), context_tokens=4000)
    long = book(4, sentences=70)
    first = finished(ask(session, long, None))
    ask(session, long, "What about the wedding?", history=turns("Summarize", first))
    session.save(should_stop=lambda: False)
    kept = engine.saved[0][1]
    before, behind = (
        CharTokenizer().decode(ids) for ids in (engine.prompts[-1][:kept], engine.prompts[-1][kept:])
    )
    assert before.endswith("came again.\n\n") and behind.startswith("What the other parts tell, in short:")


def test_a_book_is_stored_while_it_is_read_and_the_parts_of_one_are_not():
    """Parts that are read for their summaries alone would take the room of the whole book."""
    for whole, text in ((True, book(1)), (False, book())):
        session, engine = make(reply_by_prompt)
        ask(session, text, "Who came?" if whole else None)
        stored = [one for context in engine.contexts for one in context.stored_while_read]
        assert stored and set(stored) == {whole}


def test_the_card_says_what_is_known_from_before():
    session, engine = make()
    small = book(1)
    fresh = session.card(small)
    assert fresh["snapshot_tokens"] == 0
    ask(session, small, "Who came?")
    session.save(should_stop=lambda: False)
    known = session.card(small)
    assert known["snapshot_tokens"] == pytest.approx(known["tokens"], abs=5)
    assert known["prefill_s_estimate"] < fresh["prefill_s_estimate"] / 10


def test_a_forgotten_book_takes_its_part_summaries_along(tmp_path):
    """They tell the book, and would outlive the promise that its text is deleted."""
    session, engine = make(reply_by_prompt, notes=PartSummaryStore(tmp_path))
    for title in ("B", "C"):
        ask(session, book(title=title), None)
    session.forget_book("B")
    assert len(list(tmp_path.glob("*/*.json"))) == 4
    asked = len(engine.prompts)
    ask(session, book(title="C"), None)
    assert len(engine.prompts) == asked + 1  # the whole only
    ask(session, book(title="B"), None)
    assert len(engine.prompts) == asked + 1 + 5


def test_a_forgotten_book_leaves_memory_and_disk():
    session, engine = make()
    small, other = book(1), book(1, title="C")
    ask(session, small, "Who came?")
    ask(session, other, "Who came?")
    session.forget_book(small.sha256)
    assert engine.forgotten == [small.sha256]
    assert [context.closed for context in engine.contexts] == [True, False]
    session.save(should_stop=lambda: False)
    assert [owner for owner, _ in engine.saved] == [other.sha256]


@pytest.mark.parametrize("chapters", [1, 4])
def test_the_card_says_the_tokens_of_each_chapter_and_which_were_read(chapters: int):
    """Of a book that is read whole, and of one in parts."""
    text = book(chapters=chapters)
    session, _ = make(reply_by_prompt)
    card = session.card(text)
    assert len(card["chapter_tokens"]) == chapters and min(card["chapter_tokens"]) > 0
    assert sum(card["chapter_tokens"]) == pytest.approx(card["tokens"], rel=0.1)
    assert card["chapters_read"] == [False] * chapters and card["fits"] == (chapters == 1)
    ask(session, text, None)
    assert session.card(text)["chapters_read"] == [True] * chapters
