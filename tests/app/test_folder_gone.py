"""The data folder is gone while the app runs, as where its drive was pulled out: what cannot be kept says so,
and nothing is begun anew in its place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from functools import partial

import pytest

from app.desk import disk_usage
from app.desk.import_queue import Readers
from app.engine.client import Runtime
from app.errors import guarded, in_words
from app.models.catalogue import Models
from app.server.main import make_services
from app.store.history import History
from app.web.page import Page
from core import paths
from core.cache.disk import SnapshotFolder
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from tests.support.desks import done
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.said import values, worded_by


@pytest.fixture
def app(engine, book, home):
    """The whole desk on the test's data folder, with a book open."""
    readers = Readers(lambda *_args, **_more: book, lambda *_args, **_more: b"cover", lambda: True)
    made = make_services(engine, models=Models(Settings(), look=imagined_hardware), readers=readers)
    made.library.add(book)
    made.books.select(book.sha256)
    yield made
    made.close()


@pytest.fixture
def away(home):
    """Where the folder is meanwhile."""
    return home.with_name(f"{home.name}-away")


def stored(folder) -> list[str]:
    with contextlib.closing(sqlite3.connect(folder / "conversations.db")) as db:
        return [text for (text,) in db.execute("SELECT text FROM turns ORDER BY number")]


def test_a_book_is_not_put_on_a_shelf_that_is_gone(app, book, home, away):
    """It stood there as always, in a folder begun anew: with the drive back it was lost."""
    home.rename(away)
    app.shelf.put(replace(book, sha256="b" * 64, title="Another"), cover=b"cover", again=False)
    assert worded_by(in_words, *app.state.failures) and app.books.current.title == "Another"
    assert "b" * 64 not in {entry.id for entry in app.library.entries()} and not home.exists()
    app.actions.dispatch({"act": "refused", "name": "emma.epub"})
    assert len(worded_by(in_words, *app.state.failures)) == 2


@pytest.mark.parametrize("asked", [True, False])
def test_an_answer_that_cannot_be_kept_says_so_and_is_kept_with_the_folder_back(
    app, home, away, asked, monkeypatch
):
    """It was written to where the folder had gone, and nothing below it said so; with the folder back it
    waited for the next question, or for a press, and was lost with a crash.
    """
    monkeypatch.setattr(disk_usage, "RETRY_S", 3600.0 if asked else 0.01)
    app.questions.ask("Who?")
    done(app)
    home.rename(away)
    app.questions.ask("And why?")
    done(app)
    assert [bool(turn.unstored) for turn in app.books.turns] == [False, False, False, True]
    assert worded_by(in_words, app.state.notice.text) and "Errno" not in app.state.notice.text
    assert "unstored" in "".join(Page(app).render()["turns"]) and stored(away) == ["Who?", ANSWER]
    away.rename(home)
    if asked:
        app.actions.dispatch({"act": "check-disk"})
    wait_until(lambda: not app.history.waits)
    assert stored(home) == ["Who?", ANSWER, "And why?", ANSWER]
    assert not any(turn.unstored for turn in app.books.turns)


def test_its_books_are_not_to_be_dropped_again_and_are_there_with_it(app, book, home, away, monkeypatch):
    """They were called gone, and their files asked for, where the folder that they are in was away."""
    monkeypatch.setattr(disk_usage, "RETRY_S", 0.01)
    page = Page(app)
    page.render()
    app.library._open.clear()
    home.rename(away)
    app.books.select(book.sha256)
    assert values(app.state.notice.text) == {"folder": str(home), "title": book.title}
    shown = page.render()["library"][0]
    assert 'class="missing"' in shown and "data-drop" not in shown
    away.rename(home)
    wait_until(lambda: app.state.notice is None)
    assert 'class="missing"' not in page.render()["library"][0] and app.books.current == book


def test_other_books_that_were_to_be_asked_say_that_the_folder_is_away(app, engine, book, home, away):
    """Their texts were called gone or damaged."""
    other = replace(book, sha256="c" * 64)
    app.library.add(other)
    app.actions.dispatch({"act": "ask-too", "id": other.sha256})
    engine.pace = 0.05
    app.questions.ask("Who?")
    wait_until(lambda: app.state.working)
    app.library._open.clear()
    home.rename(away)
    wait_until(lambda: app.state.book_answers[0].state == "failed")
    ((why, _level),) = app.state.book_answers[0].pieces
    assert "folder" in why
    away.rename(home)


def test_a_note_that_could_not_be_kept_is_kept_with_the_folder_back(app, book, home, away, monkeypatch):
    """It stood beside the book, and the old one was on the disk until the next note."""
    monkeypatch.setattr(disk_usage, "RETRY_S", 0.01)
    app.reader.mark(0, " ".join(book.text.split()[:3]))
    (bookmark,) = app.state.notebook.bookmarks
    home.rename(away)
    with pytest.raises(OSError) as refused:
        app.reader.note(bookmark.offset, "my own note")
    app.store.say(in_words(refused.value))  # as whoever asked for it does
    away.rename(home)
    wait_until(lambda: [one.note for one in app.library.notebook(book.sha256).bookmarks] == ["my own note"])


def test_an_error_about_something_else_stays_where_all_is_stored(app, monkeypatch):
    """What was visited of a book is written with it; the message has nothing to do with that."""
    monkeypatch.setattr(disk_usage, "RETRY_S", 0.01)
    app.store.update(notebook=replace(app.state.notebook, position=1))
    app.store.say("Another matter.")
    wait_until(lambda: not app.disk_usage._waits() and not app.disk_usage._retries.locked())
    assert app.state.notice.text == "Another matter."


def test_nothing_is_begun_in_its_place(app, book, home, away):
    """Neither files nor folders: they would be in the way of the drive, or hide what is on it."""
    home.rename(away)
    for fields in (
        {"act": "mark", "offset": "20", "text": ""},
        {"act": "instruct", "value": "Be brief."},
        {"act": "check-disk"},
        {"act": "look-kept"},
    ):
        guarded(partial(app.actions.dispatch, fields), app.store.say, None)
    app.questions.ask("Who?")
    app.questions.ask("And why?")
    with contextlib.suppress(OSError):
        app.library.series.rename([], book.sha256, "Lamps")
    SnapshotFolder(paths.subdir("snapshots")).usage()
    Page(app).render()
    wait_until(lambda: not app.state.working)
    assert not home.exists()


def test_conversations_that_lie_there_anew_are_found(tmp_path):
    """As a copy that was put back: the open file is another one."""
    path, away = tmp_path / "chats.db", tmp_path / "away.db"
    history = History(path)
    talk = history.create("book").id
    number = history.add(talk, "assistant", "", state="writing")
    history._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.rename(away)
    with pytest.raises(sqlite3.OperationalError):
        history.update(talk, number, "The keeper.", state="finished")
    assert [bool(turn.unstored) for turn in history.turns(talk)] == [True] and not path.exists()
    path.write_bytes(away.read_bytes())
    history.store_again()
    history.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT text FROM turns").fetchall() == [("The keeper.",)]


def test_no_engine_begins_one(home, away):
    """Its log is in the folder, and so would be the model that it makes."""
    paths.data_dir()
    home.rename(away)
    runtime = Runtime(Settings())
    runtime.start()
    assert runtime.state == "failed" and worded_by(in_words, runtime.error) and not home.exists()
    away.rename(home)
    runtime.close()
