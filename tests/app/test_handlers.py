"""The end of a desk, and what cannot be taken from it in the middle of an answer."""

from __future__ import annotations

import threading

from app.desk.store import Store
from tests.support.said import worded_by


def test_what_was_read_is_stored_before_the_engine_ends(make_desk, engine):
    """A book of an hour's prefill must not be lost because the person quits while its last blocks are being
    written.
    """
    desk = make_desk(engine)
    engine.save_s = 0.2
    desk.close()
    assert engine.saved and engine.closed


def test_whoever_has_no_time_does_not_wait_for_it(make_desk, engine):
    desk = make_desk(engine)
    engine.save_s = 3600.0
    threading.Timer(0.2, desk.hurry).start()
    desk.close()
    assert engine.closed and not engine.saved


def test_books_and_conversations_cannot_change_under_a_running_answer(opened, book):
    desk, engine = opened(pace=0.02)
    desk.questions.summarize()
    talk = desk.state.conversation_id
    desk.trash.throw_book(book.sha256)
    assert worded_by(Store.refuse_while_answered, desk.state.notice.text)
    desk.books.select(book.sha256)
    assert desk.state.busy and desk.state.conversation_id == talk and desk.books.current == book
