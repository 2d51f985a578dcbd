"""Other programs beside the person, over the real engine: whatever they read, the open book stays read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.conversation.contexts import ContextShelf
from core.conversation.reading import ReadingStyle
from core.conversation.session import Session
from core.documents.document import Document, Section
from core.events import Finished
from core.request import Request
from tests.support.fakes import FakeContext
from tests.support.tiny import engine, oracle, ours
from tests.support.tiny_tokenizer import BOOK, TinyTokenizer, fed

OTHERS = [
    replace(BOOK, sha256=letter, text=text, sections=(Section("One", 0, len(text)),))
    for letter, text in (
        ("c", "A miller sold his mill and walked to the sea. " * 4),
        ("d", "Rain fell. " * 15),
    )
]
PARAMS = {"max_new_tokens": 8, "temperature": 0.0}
FEW = 20  # of the question and the frame around it: the book itself has some 190 tokens


@pytest.fixture(params=[0, 1 << 30], ids=["room for one", "room for all"])
def session(request: pytest.FixtureRequest) -> Session:
    return Session(
        engine(ours(oracle()), draft=ours(oracle(tied=True))),
        TinyTokenizer(),
        ReadingStyle(system="S", part_prompts=("?",), whole_prompt="?"),
        allowance_bytes=request.param,
    )


def ask(
    session: Session, book: Document, *, low_priority: bool, question: str = "Who?", **params
) -> Finished:
    asked = Request(
        question, book, "api" if low_priority else "mine", low_priority=low_priority, params=PARAMS | params
    )
    *_, last = session.ask(asked)
    assert isinstance(last, Finished)
    return last


def test_the_open_book_stays_whatever_other_programs_read(session: Session):
    assert fed(ask(session, BOOK, low_priority=False)) > 150
    for other in (*OTHERS, *OTHERS):
        ask(session, other, low_priority=True)
    assert fed(ask(session, BOOK, low_priority=False)) <= FEW


def test_an_answer_longer_than_the_open_books_cache_takes_another():
    """Its cache was closed, and the person's next question read the book anew."""
    shelf = ContextShelf(FakeContext, allowance_bytes=0)
    mine = shelf.take(("b", 0, 190), 200)
    assert shelf.take(("b", 0, 190), 200, passing=True) is mine
    longer = shelf.take(("b", 0, 190), 300, passing=True)
    assert longer is not mine and not mine.closed
    assert shelf.take(("b", 0, 190), 300, passing=True) is longer
    assert shelf.take(("b", 0, 190), 200) is mine
    shelf.drop_book("b")
    assert mine.closed and longer.closed


def test_what_is_read_beside_a_book_leaves_it_the_device():
    """Where a book is kept it has a place of its own, which is no book's, and goes when the book is asked."""
    shelf = ContextShelf(FakeContext, allowance_bytes=0)
    alone = shelf.take(("p", 1), 100, passing=True)
    book = shelf.take(("b", 0), 200)
    beside = shelf.take(("p", 2), 100, passing=True)
    assert [one.beside for one in (alone, book, beside)] == [False, False, True]
    assert alone.closed and not beside.closed
    assert shelf.take(("b", 0), 200) is book and beside.closed
    taken = shelf.take(("p", 2), 300, passing=True)
    shelf.drop_book("b")
    mine = shelf.take(("p", 2), 200)
    assert taken.closed and not mine.beside, "a person's book has what the plan has for it"


def test_a_book_that_a_program_had_read_becomes_the_persons_when_they_open_it(session: Session):
    """It went with the next one that a program read, though the person had it open."""
    ask(session, BOOK, low_priority=True)
    assert fed(ask(session, BOOK, low_priority=False)) <= FEW, "what was read is shared"
    for other in OTHERS:
        ask(session, other, low_priority=True)
    assert fed(ask(session, BOOK, low_priority=False)) <= FEW


def test_two_programs_share_what_was_read_of_one_book(session: Session):
    ask(session, BOOK, low_priority=True)
    assert fed(ask(session, BOOK, low_priority=True, question="Why?")) <= FEW
