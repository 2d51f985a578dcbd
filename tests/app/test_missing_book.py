"""A book whose files vanished stays on the shelf, says so, and is whole again with its conversations when its
file is dropped once more.
"""

from __future__ import annotations

import shutil

import pytest

from app.store.library import Library
from app.web.page import Page
from tests.support.desks import done, put
from tests.support.fake_runtime import ANSWER, FakeRuntime, wait_until


@pytest.fixture
def talked(desk):
    """A desk on which something was said about its book."""
    desk.questions.ask("Who?")
    done(desk)
    return desk


def again(make_desk, desk):
    """The app after its next start."""
    desk.close()
    return make_desk(FakeRuntime(pace=0.001))


@pytest.mark.parametrize("gone", ["book.json", "", "all books"])
def test_it_stays_on_the_shelf_and_its_file_brings_it_back(make_desk, talked, book, tmp_path, gone):
    """It was silently off the shelf, and what was said about it could not be reached any more."""
    folder = tmp_path / "books" / book.sha256
    if gone == "book.json":
        (folder / gone).unlink()
    else:
        shutil.rmtree(folder if not gone else folder.parent)
    desk = again(make_desk, talked)
    desk.resume()
    (entry,) = desk.library.entries()
    assert entry.missing and entry.title == book.title and desk.state.notice is None
    shelf = Page(desk).render()["library"][0]
    assert "data-drop" in shelf
    desk.books.select(book.sha256)
    assert "conversations" in desk.state.notice.text
    desk.imports.upload(str(put(tmp_path)), "lamp.txt")
    wait_until(lambda: desk.state.opening is None and desk.books.current == book)
    assert not desk.library.entries()[0].missing
    assert [turn.text for turn in desk.books.turns] == ["Who?", ANSWER]
    assert "data-drop" not in Page(desk).render()["library"][0]


def test_one_that_vanishes_while_the_app_runs_says_so_when_it_is_opened(make_desk, talked, book, tmp_path):
    shutil.rmtree(tmp_path / "books" / book.sha256)
    talked.library._open.clear()
    page = Page(talked)
    page.render()
    talked.books.select(book.sha256)
    assert "data-drop" in page.render()["library"][0]


def test_its_conversations_can_be_read_while_its_text_is_away(make_desk, talked, book, tmp_path):
    """A press on them gave the notice alone, which did not say which book it was about."""
    shutil.rmtree(tmp_path / "books" / book.sha256)
    desk = again(make_desk, talked)
    (talk,) = desk.history.conversations(book.sha256)
    desk.actions.dispatch({"act": "said", "id": talk.id, "book": book.sha256})
    assert desk.state.conversation_id == talk.id and book.title in desk.state.notice.text
    shown = Page(desk).render()
    assert f'data-turn="{talk.id}:1"' in "".join(shown["turns"])
    assert f'data-id="{talk.id}"' in shown["library"][0]
    desk.store.update(notice=None)
    assert not desk.questions.ask("And where?") and book.title in desk.state.notice.text
    desk.questions.summarize()
    desk.questions.regenerate()
    assert len(desk.books.turns) == 2 and not desk.state.busy


def test_the_shelf_says_at_once_that_a_folder_is_gone(talked, book, tmp_path):
    """It looked as before until somebody pressed it."""
    before = talked.library.shelf_version
    shutil.rmtree(tmp_path / "books" / book.sha256)
    assert talked.library.shelf_version != before
    assert "data-drop" in Page(talked).render()["library"][0]


def test_an_open_book_whose_folder_is_gone_is_written_again(talked, book, tmp_path):
    """What is kept beside it made a folder without the book, which was called gone at the next start."""
    shutil.rmtree(tmp_path / "books" / book.sha256)
    talked.actions.dispatch({"act": "stand", "value": "10"})
    assert Library(tmp_path / "books").get(book.sha256) == book


def test_a_missing_book_can_be_deleted_for_good(make_desk, talked, book, tmp_path):
    shutil.rmtree(tmp_path / "books" / book.sha256)
    desk = again(make_desk, talked)
    desk.trash.throw_book(book.sha256)
    assert desk.library.entries() == []
    desk.trash.purge(all_of_them=True)
    assert Library(tmp_path / "books").entries() == [] and desk.history.conversations(book.sha256) == []


def test_a_damaged_index_costs_no_book(tmp_path, book):
    Library(tmp_path / "books").add(book)
    (tmp_path / "books.json").write_text("{")
    (entry,) = Library(tmp_path / "books").entries()
    assert entry.title == book.title and not entry.missing


def test_a_shelf_from_before_the_index_has_it_after_the_next_start(tmp_path, book):
    Library(tmp_path / "books").add(book)
    (tmp_path / "books.json").unlink()
    Library(tmp_path / "books")
    shutil.rmtree(tmp_path / "books")
    assert [entry.missing for entry in Library(tmp_path / "books").entries()] == [True]
