"""Files that come together: one after another, and what is said of each until the person goes on."""

from __future__ import annotations

import errno
import re
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest

from app.desk.shelf import Shelf
from app.web.page import Page
from core.errors import DocumentError, PasswordNeeded
from core.text.words import translated as _
from tests.support.desks import put
from tests.support.fake_runtime import wait_until
from tests.support.said import figures, text_in, worded_by


def several(tmp_path, book, *, locked: str = ""):
    """Three files, and a reader that makes a book of each; the one named "bad" is none."""
    go = threading.Event()

    def read(path, *, password=None, **_kwargs):
        go.wait(10)
        if path.name == "bad.txt":
            raise DocumentError("This is no book.")
        if path.name == locked and password != "open":
            raise PasswordNeeded("The password does not open this file.")
        return replace(book, title=path.stem, sha256=path.stem[0] * 64)

    return go, read


def test_files_dropped_together_are_read_one_after_another(make_desk, engine, book, tmp_path):
    """All but the first were left lying without a word."""
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "bad", "c")]
    for path in paths:
        desk.imports.upload(str(path), path.name)
    assert desk.state.opening.behind == 2
    assert "2" in figures(text_in(Page(desk).render()["stage"][0], 'class="opening"'))
    go.set()
    wait_until(lambda: len(desk.library.entries()) == 2 and desk.state.opening is None)
    assert desk.books.current.title == "c" and not any(path.exists() for path in paths)
    assert desk.state.failures == ("bad.txt: This is no book.",)


def test_what_failed_stays_until_it_is_closed_each_file_named_once(make_desk, engine, book, tmp_path):
    """Of eight files that failed nothing stood there any more once a ninth was read."""

    def read(path, **_kwargs):
        if path.name == "bad.txt":
            raise DocumentError(_("{name} holds no readable text.").format(name=path.name))
        if path.name == "odd.txt":
            raise DocumentError("This is no book.")
        return replace(book, title=path.stem, sha256=path.stem[0] * 64)

    desk = make_desk(engine, read=read)
    for name, shown in (("bad.txt", "b & <a>d.txt"), ("odd.txt", "odd.txt"), ("c.txt", "c.txt")):
        desk.imports.upload(str(put(tmp_path, name)), shown)
        wait_until(lambda: desk.state.opening is None)
    desk.actions.dispatch({"act": "bring-in", "path": str(put(tmp_path, "talk.json")), "name": "talk.json"})
    desk.actions.dispatch({"act": "refused", "name": "long.pdf", "limit": "5"})
    desk.actions.dispatch({"act": "dismiss"})
    assert desk.books.current.title == "c"
    names = ("b & <a>d.txt", "odd.txt", "talk.json", "long.pdf")
    assert len(desk.state.failures) == len(names)
    for name, said in zip(names, desk.state.failures, strict=True):
        assert len(said.split(name)) == 2 and "bad.txt" not in said
    html = "".join(Page(desk).render()["notice"])
    assert html.count("<li>") == len(names) and 'data-act="dismiss-failures"' in html
    desk.actions.dispatch({"act": "dismiss-failures"})
    assert desk.state.failures == () and "failures" not in "".join(Page(desk).render()["notice"])


def test_a_locked_file_lets_those_behind_it_wait_for_its_end(make_desk, engine, book, tmp_path):
    go, read = several(tmp_path, book, locked="a.txt")
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "c")]
    for path in paths:
        desk.imports.upload(str(path), path.name)
    go.set()
    wait_until(lambda: desk.state.opening and desk.state.opening.locked)
    desk.imports.give_password("open")
    wait_until(lambda: len(desk.library.entries()) == 2 and desk.state.opening is None)
    assert not any(path.exists() for path in paths)


def test_a_file_dropped_later_waits_behind_the_password_of_another(make_desk, engine, book, tmp_path):
    """The question for the password went without a word, and the protected file with it."""
    go, read = several(tmp_path, book, locked="a.txt")
    go.set()
    desk = make_desk(engine, read=read)
    desk.imports.upload(str(put(tmp_path, "a.txt")), "a.txt")
    wait_until(lambda: desk.state.opening and desk.state.opening.locked)
    desk.imports.upload(str(put(tmp_path, "c.txt")), "c.txt")
    assert desk.state.opening.locked and desk.state.opening.behind == 1
    assert "1" in figures(text_in(Page(desk).render()["locked"][0], 'class="locked"'))
    desk.imports.give_password("open")
    wait_until(lambda: len(desk.library.entries()) == 2 and desk.state.opening is None)


def test_cancel_gives_up_one_file_and_stop_all_of_them(make_desk, engine, book, tmp_path):
    go, read = several(tmp_path, book, locked="a.txt")
    desk = make_desk(engine, read=read)
    paths = [put(tmp_path, f"{name}.txt") for name in ("a", "c")]
    for path in paths:
        desk.imports.upload(str(path), path.name)
    go.set()
    wait_until(lambda: desk.state.opening and desk.state.opening.locked)
    desk.imports.cancel()
    wait_until(lambda: [entry.title for entry in desk.library.entries()] == ["c"])
    wait_until(lambda: desk.state.opening is None)
    go.clear()
    again = [put(tmp_path, f"{name}.txt") for name in ("d", "e", "f")]
    for path in again:
        desk.imports.upload(str(path), path.name)
    desk.imports.stop()
    go.set()
    wait_until(lambda: desk.state.opening is None)
    assert not any(path.exists() for path in again) and len(desk.library.entries()) == 1


def test_a_book_read_while_an_answer_is_written_waits_on_the_shelf(make_desk, engine, book, tmp_path):
    """OCR of a whole book outlasts many answers; its end must not take the desk from under one."""
    go = threading.Event()

    def read(*_args, **_kwargs):
        go.wait(10)
        return replace(book, sha256="b" * 64, title="The Scan")

    desk, path = make_desk(engine, read=read), put(tmp_path, "old.pdf")
    desk.library.add(book)
    desk.books.select(book.sha256)
    desk.imports.upload(str(path), "old.pdf")
    engine.pace = 0.05
    desk.questions.summarize()
    go.set()
    wait_until(lambda: desk.state.opening is None)
    assert desk.state.busy and desk.state.book_id == book.sha256
    assert {entry.title for entry in desk.library.entries()} == {"The Lamp", "The Scan"}
    (said,) = desk.state.arrivals
    assert said.book_id == "b" * 64 and "The Scan" in said.words
    assert ways_to_books(desk) == ["b" * 64], "the message had no way to open it"
    desk.actions.dispatch({"act": "book", "id": "b" * 64})
    assert desk.state.arrivals == ()
    desk.stop()


def ways_to_books(desk) -> list[str]:
    """The books that a message of the page leads to."""
    return re.findall(r'data-act="book" data-id="([^"]*)"', "".join(Page(desk).render()["notice"]))


@pytest.mark.parametrize("working", [True, False])
def test_all_files_that_were_read_are_said(make_desk, engine, book, tmp_path, working):
    """Of three that were dropped together the last alone was."""
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    if working:
        desk.library.add(book)
        desk.books.select(book.sha256)
        engine.pace = 0.05
        desk.questions.ask("Who?")
        wait_until(lambda: desk.state.working)
    go.set()
    for name in ("c", "bad", "d", "e"):
        path = str(put(tmp_path, f"{name}.txt"))
        desk.actions.dispatch({"act": "upload", "path": path, "name": f"{name}.txt", "several": "1"})
        wait_until(lambda: desk.state.opening is None)
    read_ones = [one * 64 for one in "cde"]
    assert [one.book_id for one in desk.state.arrivals] == read_ones
    desk.store.say("Nothing was found.")
    assert ways_to_books(desk) == [one for one in read_ones if one != desk.state.book_id]
    assert len(ways_to_books(desk)) == (3 if working else 2)
    desk.actions.dispatch({"act": "forget", "id": "d" * 64})
    assert [one.book_id for one in desk.state.arrivals] == ["c" * 64, "e" * 64]
    desk.actions.dispatch({"act": "dismiss-arrivals"})
    assert desk.state.arrivals == () and len(desk.state.failures) == 1
    desk.stop()


GOES_ON = {
    "book": {"id": "c" * 64},
    "place": {"book": "c" * 64, "offset": "5", "length": "2"},
    "new": {},
    "suggest": {"text": "Who?"},
}


@pytest.mark.parametrize("act", GOES_ON)
def test_what_was_said_of_files_goes_when_the_person_goes_on(make_desk, engine, book, tmp_path, act):
    """It stood above every other book until it was closed, of files long known to be read or not there."""
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    for name in ("c", "bad", "d"):
        go.clear()
        path = str(put(tmp_path, f"{name}.txt"))
        desk.actions.dispatch({"act": "upload", "path": path, "name": f"{name}.txt", "several": "1"})
        desk.actions.dispatch({"act": "new"})
        go.set()
        wait_until(lambda: desk.state.opening is None)
    assert len(desk.state.arrivals) == 2 and len(desk.state.failures) == 1, "not before all are read"
    desk.actions.dispatch({"act": act, **GOES_ON[act]})
    assert desk.state.arrivals == () == desk.state.failures


def test_what_begins_by_itself_leaves_what_is_said_of_files(make_desk, engine, book, tmp_path):
    """Nobody may have been there to see it."""
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    desk.library.add(book)
    desk.books.select(book.sha256)
    go.set()
    engine.pace = 0.05
    assert desk.questions.ask("Who?") and desk.questions.ask("And then?")
    for name in ("bad.txt", "c.txt"):
        desk.actions.dispatch({"act": "upload", "path": str(put(tmp_path, name)), "name": name})
        wait_until(lambda: desk.state.opening is None)
    assert desk.state.queued
    engine.pace = 0.0
    wait_until(lambda: not desk.state.busy)
    assert len(engine.asked) == 2 and len(desk.state.arrivals) == len(desk.state.failures) == 1


def test_of_a_file_that_came_alone_its_book_says_enough(make_desk, engine, book, tmp_path):
    go, read = several(tmp_path, book)
    desk = make_desk(engine, read=read)
    go.set()
    desk.imports.upload(str(put(tmp_path, "a.txt")), "a.txt")
    wait_until(lambda: desk.state.opening is None)
    assert desk.state.book_id == "a" * 64 and desk.state.arrivals == ()


def test_a_book_that_cannot_be_stored_while_an_answer_is_written_is_not_called_open(desk, book, monkeypatch):
    """ "It is open, but it could not be put on the shelf" stood above another book's answer."""
    monkeypatch.setattr(desk.library, "add", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    desk.engine.pace = 0.05
    desk.questions.ask("Who?")
    wait_until(lambda: desk.state.working)
    desk.shelf.put(replace(book, sha256="b" * 64, title="The Scan"), cover=b"", again=False)
    assert desk.state.book_id == book.sha256 and len(desk.state.failures) == 1
    assert not worded_by(Shelf.put, desk.state.failures[0])
    desk.stop()
