"""A book is planned, counted and encoded once, not for every question; and only the newest ones are kept."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from core.conversation.books import BookCache, LruCache
from core.conversation.reading import ReadingPart, ReadingStyle
from core.conversation.session import Session
from core.documents.document import Document, Section
from core.request import HistoryTurn
from core.text.tokenizer import Frame
from tests.support.fakes import CharTokenizer, FakeEngine
from tests.support.talks import STYLE, ask, book, encoded, finished

LONG = 131_072  # tokens


class Listening(CharTokenizer):
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.given.append(text)
        return super().encode(text)

    def count(self, text: str) -> int:
        self.given.append(text)
        return super().count(text)

    def frame(self, system: str) -> Frame:
        return CharTokenizer().frame(system)


def long_book() -> Document:
    text = ("The keeper rowed out at dusk.\n\n" * (LONG // 31 + 1))[:LONG]
    return Document("B", "", "txt", text, (Section("One", 0, LONG),), sha256="long")


def test_a_second_question_encodes_its_own_words_only():
    """At 128K tokens each further pass of the tokenizer over the book cost half a second of waiting."""
    tokenizer, text = Listening(), long_book()
    engine = FakeEngine(lambda ids, params: encoded("It is so."), context_tokens=LONG + 4000)
    session = Session(engine, tokenizer, ReadingStyle(system="S"), allowance_bytes=10**9)
    session.card(text)
    first = finished(ask(session, text, "Who came?"))
    assert sum(map(len, tokenizer.given)) > LONG
    tokenizer.given.clear()
    ask(session, text, "And then?", history=(HistoryTurn("Who came?", first.text, first.token_ids),))
    session.card(text)
    assert tokenizer.given == ["And then?"]
    assert engine.fed[-1] == len("And then?") + 2


def test_what_another_thread_makes_is_waited_for():
    """A question that came while the book's card was worked out had the book counted a second time."""
    cache, begun, go_on, made = LruCache(4), threading.Event(), threading.Event(), []

    def count() -> int:
        made.append(1)
        begun.set()
        go_on.wait(60)
        return 7

    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(cache.get("book", count))) for _ in range(2)]
    threads[0].start()
    begun.wait(60)
    threads[1].start()
    threads[1].join(0.5)
    assert cache.get("other", lambda: 1) == 1, "another book waits for nobody"
    go_on.set()
    for one in threads:
        one.join(60)
    assert got == [7, 7] and made == [1]


def test_parts_are_encoded_once():
    """A try at a summary, and a question about the part, read what was encoded for the first one."""
    tokenizer = Listening()
    engine = FakeEngine(lambda ids, params: encoded("It is so."))
    session = Session(engine, tokenizer, STYLE, allowance_bytes=10**9)
    session.card(book())
    tokenizer.given.clear()
    ask(session, book(), None)
    ask(session, book(), "What about the wedding?")
    parts = [text for text in tokenizer.given if text.startswith("The ") and text.endswith("again.\n\n")]
    assert len(parts) == len(set(parts)) == 4


def test_parts_that_begin_alike_and_books_with_a_limit_have_ids_of_their_own():
    """Under a limit the front matter's list of chapters is another text, as long as it was."""
    books, whole = BookCache(CharTokenizer(), STYLE, 4096), book(1)
    limited = replace(whole, text=whole.text.upper()[:-1])
    for text in (whole, limited):
        for end in (20, 30):
            ids = books.ids(text, ReadingPart("", 0, end, 0))
            assert CharTokenizer().decode(ids) == text.text[:end].strip() + "\n\n"


def test_a_forgotten_book_leaves_no_ids():
    tokenizer = Listening()
    session = Session(FakeEngine(lambda ids, params: encoded("So.")), tokenizer, STYLE)
    ask(session, book(1), "Who?")
    session.forget_book("B")
    tokenizer.given.clear()
    ask(session, book(1), "Who?")
    assert any("lighthouse" in text for text in tokenizer.given)


@pytest.mark.parametrize(("most", "kept"), [(10, [4, 5]), (3, [5])])
def test_only_the_newest_are_kept(most: int, kept: list[int]):
    """As many as weigh `most` together, and the newest whatever it weighs."""
    recent: LruCache[int] = LruCache(most, weight=lambda value: value)
    for value in (1, 2, 5, 3, 4, 5):
        assert recent.get(value, lambda value=value: value) == value
    made: list[int] = []
    for value in kept:
        recent.get(value, lambda value=value: made.append(value) or value)
    assert made == [] and len(recent) == len(kept)


def test_no_stretch_of_a_long_book_is_counted_twice_whatever_is_asked_of_it():
    """Of a book just added a paragraph was counted for each way that it might be cut, then for how long an
    answer may be, and again for the book's card: a minute was waited for the first word.
    """
    tokenizer, text = Listening(), long_book()
    engine = FakeEngine(lambda ids, params: encoded("It is so."), context_tokens=4000)
    session = Session(engine, tokenizer, replace(STYLE, part_tokens=1000), allowance_bytes=10**9)
    for reserve in (100, 200):
        session.reading_plan(text, max_new_tokens=reserve)
    session.card(text)
    counted = [one for one in tokenizer.given if len(one) > 20]
    assert sum(map(len, set(counted))) > LONG and len(counted) == len(set(counted))
