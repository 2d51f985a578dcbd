"""The shelf gives back what was put on it, forgets for good, and never lets a browser name a path."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.engine.client import Runtime
from app.store.library import Library
from app.store.notebook import Notebook
from core.config import Settings
from core.documents import read_safely
from core.documents.document import Document, Section
from core.paths import write_whole
from core.wire import messages, to_line


def book(letter: str, text: str = "Once. Twice.") -> Document:
    return Document(
        title=f"Book {letter}",
        author="A. Writer",
        format="txt",
        text=text,
        sections=(Section("One", 0, 6), Section("Two", 6, len(text))),
        page_starts=(0, 6),
        sha256=letter * 64,
    )


def test_a_book_comes_back_equal_after_a_restart(tmp_path):
    Library(tmp_path).add(book("a", "Straße “quoted” 漢字. More."))
    assert Library(tmp_path).get("a" * 64) == book("a", "Straße “quoted” 漢字. More.")


def test_what_is_kept_of_a_book_does_not_change_with_its_notes(tmp_path):
    """The shelf says it in kilobytes, and is not drawn again with every page that is turned."""
    library = Library(tmp_path)
    library.add(book("a"))
    before = library.kept()
    library.write_notebook("a" * 64, Notebook(spoiler_limit=1))
    assert library.kept() == before and before["a" * 64] > 0


def test_a_book_is_packed_by_the_process_that_reads_it_and_by_nobody_after(tmp_path, monkeypatch):
    """A long book was packed again for the shelf, and once more for the engine."""
    sample = Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-light-on-the-holm.md"
    book, sent = read_safely(sample), []
    monkeypatch.setattr(Document, "to_json", lambda self: pytest.fail("packed again"))
    Library(tmp_path).add(book)
    stored = (tmp_path / book.sha256 / "book.json").read_bytes()
    opened = Library(tmp_path).get(book.sha256)
    Runtime(Settings())._hand_over(SimpleNamespace(send=sent.append), opened)
    (message,) = messages(io.BytesIO(to_line(sent[0])))
    assert message["data"] == stored and Document.unpacked(stored) == opened == book


def test_another_text_of_a_file_goes_to_the_engine_without_anybody_saying_so():
    """The card of a web page's article was kept for all of the page: it was asked for before the engine was
    told to forget the book.
    """
    sent, article, page = [], book("a", "An article."), book("a", "An article. A menu.")
    runtime, engine = Runtime(Settings()), SimpleNamespace(send=sent.append)
    for one in (article, article, page, page, article):
        runtime._hand_over(engine, one)
    assert [Document.unpacked(message["data"]).text for message in sent] == [
        article.text,
        page.text,
        article.text,
    ]


def test_a_book_of_an_older_shelf_opens_and_a_torn_one_is_noticed(tmp_path):
    old = tmp_path / ("a" * 64) / "book.json"
    old.parent.mkdir()
    values = {name: value for name, value in asdict(book("a")).items() if name != "_packed"}
    old.write_text(json.dumps({**values, "language": "en"}, indent=1), encoding="utf-8")
    assert Library(tmp_path).get("a" * 64) == book("a")
    old.write_bytes(old.read_bytes()[:-9])
    with pytest.raises(KeyError):
        Library(tmp_path).get("a" * 64)


def test_the_book_opened_last_comes_first(tmp_path):
    ticks = iter(range(100))
    library = Library(tmp_path, clock=lambda: float(next(ticks)))
    library.add(book("a"))
    library.add(book("b"))
    assert [entry.title for entry in library.entries()] == ["Book b", "Book a"]
    library.touch("a" * 64)
    assert [entry.title for entry in library.entries()] == ["Book a", "Book b"]
    assert library.entries()[0].chapters == 2 and library.entries()[0].words == 2


def test_a_forgotten_book_is_gone_from_the_disk(tmp_path):
    library = Library(tmp_path)
    library.add(book("a", "private words"))
    library.forget("a" * 64)
    assert list(tmp_path.rglob("*")) == [] and library.entries() == []
    with pytest.raises(KeyError):
        library.get("a" * 64)
    library.forget("a" * 64)


def test_opening_a_book_forgets_no_mark_of_another(tmp_path):
    """A purge in between would take it before the time to undo it is over."""
    library = Library(tmp_path)
    library.add(book("a"))
    library.add(book("b"))
    library.mark_forgotten("a" * 64, now=100.0)
    library.touch("b" * 64)
    assert library.forgotten(before=99.0) == [] and library.forgotten(before=100.0) == ["a" * 64]


def test_a_cover_stays_with_its_book_and_goes_with_it(tmp_path):
    library = Library(tmp_path)
    library.add(book("a"), b"a picture")
    library.add(book("b"))
    assert library.covered() == {"a" * 64} and library.cover("b" * 64) is None
    library.add(book("a", "Read anew."))
    assert library.cover("a" * 64).read_bytes() == b"a picture", "a file without one takes none away"
    library.forget("a" * 64)
    assert library.cover("a" * 64) is None and library.covered() == frozenset()


@pytest.mark.parametrize("bad", ["", "..", "../" + "a" * 61, "A" * 64, "a" * 64 + "/..", "a" * 65])
def test_an_id_from_the_browser_cannot_name_a_path(tmp_path, bad):
    (tmp_path / "outside").mkdir()
    (tmp_path / "book.json").write_text("{}")
    library = Library(tmp_path / "books")
    for call in (library.get, library.forget, library.touch, library.cover):
        with pytest.raises(KeyError):
            call(bad)
    assert (tmp_path / "book.json").exists()


@pytest.mark.parametrize(
    "entry", ['{"id": ', "[]", '{"id": "x"}', '{"id": "x", "title": 1, "opened": "today"}', "null"]
)
def test_a_damaged_entry_is_made_anew_from_its_book(tmp_path, entry):
    """The book was gone from the shelf though all of its text was there."""
    library = Library(tmp_path)
    library.add(book("a"))
    before = library.add(book("b"))
    (tmp_path / ("b" * 64) / "entry.json").write_text(entry)
    made = {entry.title: entry for entry in Library(tmp_path).entries()}
    assert set(made) == {"Book a", "Book b"} and made["Book b"].words == before.words
    assert Library(tmp_path).entries()[0].id in ("a" * 64, "b" * 64)


def test_an_entry_of_a_newer_version_keeps_its_place(tmp_path):
    library = Library(tmp_path)
    before = library.add(book("a"))
    path = tmp_path / ("a" * 64) / "entry.json"
    path.write_text(path.read_text().replace("{", '{"shelf": "blue", ', 1))
    assert Library(tmp_path).entries() == [before]


def test_a_damaged_book_does_not_hide_the_others(tmp_path):
    """A disk that filled up in the middle of a write must not empty the shelf."""
    library = Library(tmp_path)
    library.add(book("a"))
    library.add(book("b"))
    for name in ("entry.json", "book.json"):
        (tmp_path / ("b" * 64) / name).write_text('{"id": ')
    shown = [(entry.title, entry.missing) for entry in Library(tmp_path).entries()]
    assert shown == [("Book b", True), ("Book a", False)]


def test_a_clock_that_was_set_back_does_not_shuffle_the_shelf(tmp_path):
    ticks = iter((1000.0, 1001.0, 5.0))
    library = Library(tmp_path, clock=lambda: next(ticks))
    for letter in "aba":
        library.add(book(letter))
    assert [entry.title for entry in library.entries()] == ["Book a", "Book b"]


def test_a_book_half_written_by_a_killed_app_is_forgotten_with_the_rest(tmp_path, book):
    """Its text must not stay on the disk, nor keep the book from being deleted."""
    library = Library(tmp_path)
    library.add(book)
    (tmp_path / book.sha256 / ".book.json.1.part").write_text("half of it")
    library.forget(book.sha256)
    assert list(tmp_path.iterdir()) == []


def test_a_book_is_opened_and_its_tokens_counted_at_the_same_moment(tmp_path, book):
    """Both write its entry: one took the other's half-written file away, and the book was "not stored"."""
    library = Library(tmp_path)
    library.add(book)
    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(library.count_tokens, book.sha256, tokens) for tokens in range(1, 60)]
        added = [pool.submit(library.add, book) for _ in range(60)]
        for done in (*counts, *added):
            done.result()
    library.count_tokens(book.sha256, 77)
    library.touch(book.sha256)
    assert [entry.tokens for entry in Library(tmp_path).entries()] == [77]


def test_two_threads_write_one_file_whole(tmp_path):
    texts = ["a" * 5000, "b" * 5000, "c" * 5000, "d" * 5000]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: write_whole(tmp_path / "one.json", text), texts * 50))
    assert (tmp_path / "one.json").read_text() in texts and len(list(tmp_path.iterdir())) == 1
