"""A disk without room: what cannot be kept says so, what can go is offered, and snapshots go first."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sqlite3

import pytest

from app.desk.disk_usage import SHORT_BYTES
from app.errors import full_disk, in_words
from app.store import library as library_module
from app.store.history import History
from app.web.page import Page
from core import paths
from core.text.words import in_language
from tests.support.desks import done, put
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.full_disks import FullAtCommit, full, roomy

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def region(desk, name: str, language: str = "en") -> str:
    return "".join(Page(desk, language).render()[name])


@pytest.fixture
def snapshot(home):
    """A block of a book that was read."""
    block = paths.subdir("snapshots") / "model" / "book" / "a-b.kv"
    block.parent.mkdir(parents=True)
    block.write_bytes(b"x" * 1000)
    return block


@pytest.fixture
def disk(monkeypatch):
    """The bytes that are free where the app keeps its data, to be set."""
    free = [100 * SHORT_BYTES]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 1, free[0]))
    return free


@pytest.fixture
def crowded(desk):
    """A desk whose last answer the disk had no room for."""
    desk.engine.answer = "It is told. " * 3000
    desk.engine.pace = 1e-6
    commits = FullAtCommit(desk.history._db)
    desk.questions.ask("Who?")
    desk.history._db, commits.is_full = commits, True
    done(desk)
    return desk


def test_what_a_full_disk_refused_at_the_end_is_not_told_as_written(tmp_path):
    """The commit failed and stayed open: every later answer was written into it, and none was on disk."""
    with contextlib.closing(History(tmp_path / "chats.db")) as history:
        talk = history.create("").id
        number = history.add(talk, "assistant", "", state="writing")
        history._db = FullAtCommit(history._db)
        history._db.is_full = True
        for text in ("It", "It is told."):
            with pytest.raises(sqlite3.OperationalError, match="full"):
                history.update(talk, number, text, state="finished")
        assert not history._db.in_transaction
        assert [turn.unstored != "" for turn in history.turns(talk)] == [True]
        history._db.is_full = False
        history.store_again()
        with contextlib.closing(sqlite3.connect(tmp_path / "chats.db")) as other:
            assert other.execute("SELECT text FROM turns").fetchall() == [("It is told.",)]
        assert [turn.unstored for turn in history.turns(talk)] == [""]


def test_an_answer_that_is_not_stored_says_so_where_it_stands_until_it_is(crowded):
    """A message above the page was gone with the next question."""
    crowded.store.update(notice=None)
    turn = Page(crowded).render()["turns"][-1]
    words = re.sub(r"\s+", " ", turn)
    assert 'class="unstored"' in words and in_words(FULL) in words and "data-copy" in words
    with pytest.raises(sqlite3.OperationalError):
        crowded.actions.dispatch({"act": "check-disk"})
    crowded.history._db.is_full = False
    crowded.actions.dispatch({"act": "check-disk"})
    assert "unstored" not in region(crowded, "turns") and crowded.books.turns[-1].unstored == ""


def test_a_question_is_asked_though_nothing_can_be_stored(desk):
    """Every question was refused at 0 bytes, and the guide says that answers are shown."""
    desk.questions.ask("Who?")
    done(desk)
    talk = desk.state.conversation_id
    desk.history._db = FullAtCommit(desk.history._db)
    desk.history._db.is_full = True
    assert desk.questions.ask("And where?")
    done(desk)
    assert desk.questions.ask("And when?")
    done(desk)
    desk.books.begin_conversation()
    assert desk.questions.ask("Who else?")
    done(desk)
    begun = desk.state.conversation_id
    for one, count in ((talk, 2), (begun, 1)):
        desk.books.open_conversation(one)
        assert region(desk, "turns").count('class="unstored"') == count
    assert {one.id for one in desk.history.conversations(desk.state.book_id)} == {talk, begun}
    desk.history._db.is_full = False
    desk.actions.dispatch({"act": "check-disk"})
    with contextlib.closing(History(desk.history.path)) as stored:
        assert [len(stored.turns(one)) for one in (talk, begun)] == [6, 2]
        assert [turn.number for turn in stored.turns(talk)] == list(range(1, 7))
        assert all(turn.text and not turn.unstored for turn in stored.turns(talk))
        assert stored.title(begun) == "Who else?"


def test_what_cannot_be_stored_is_not_changed_in_vain(desk):
    """A fork of it, or a limit, would go to a row that there is not."""
    desk.history._db = FullAtCommit(desk.history._db)
    desk.history._db.is_full = True
    assert desk.questions.ask("Who?")
    done(desk)
    talk = desk.state.conversation_id
    for change in (
        lambda: desk.history.fork(talk, 2),
        lambda: desk.history.limit(talk, 1),
        lambda: desk.conversations.rename(talk, "Mine"),
        lambda: desk.conversations.pin(talk),
    ):
        with pytest.raises(sqlite3.OperationalError):
            change()


def test_one_made_anew_that_is_not_stored_stands_beside_the_earlier_one(desk):
    """It was gone from the page the moment it was complete."""
    desk.questions.ask("Who?")
    done(desk)
    desk.history._db = FullAtCommit(desk.history._db)
    desk.history._db.is_full = True
    desk.engine.answer = "Anew."
    desk.questions.regenerate()
    done(desk)
    turn = desk.books.turns[-1]
    assert turn.text == "Anew." and turn.versions == ((1, ANSWER),) and turn.unstored
    desk.history._db.is_full = False
    desk.history.store_again()
    turn = desk.books.turns[-1]
    assert turn.text == "Anew." and turn.versions == ((1, ANSWER),) and not turn.unstored


def test_snapshots_give_way_before_an_answer_is_lost(opened, snapshot, monkeypatch):
    desk, engine = opened(pace=1e-6, answer="It is told. " * 3000)
    desk.questions.ask("Who?")
    done(desk)
    engine.answer, engine.context_tokens = "It is told again. " * 3000, 1_000_000
    unlink = type(snapshot).unlink

    def freed(path, **how) -> None:
        unlink(path, **how)
        roomy(desk.history)

    monkeypatch.setattr(type(snapshot), "unlink", freed)
    full(desk.history)
    assert desk.questions.ask("And then? " * 1000)
    done(desk)
    assert not snapshot.exists() and desk.state.notice is None
    assert [turn.unstored for turn in desk.books.turns] == [""] * 4
    assert desk.books.turns[-1].text == engine.answer


def test_snapshots_give_way_before_a_book_is_lost(desk, book, snapshot, monkeypatch):
    write = library_module.write_whole

    def crowded(path, data) -> None:
        if snapshot.exists():
            raise FULL
        write(path, data)

    monkeypatch.setattr(library_module, "write_whole", crowded)
    assert desk.shelf.keep(book, cover=b"") == "" and not snapshot.exists()


def test_snapshots_stay_where_the_disk_is_not_what_is_wrong(desk, book, snapshot, monkeypatch):
    def away(*_given) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(library_module, "write_whole", away)
    assert desk.shelf.keep(book, cover=b"") and snapshot.exists()


def test_a_start_without_room_says_what_can_go_and_takes_it_away(desk, disk, snapshot):
    disk[0] = 1000
    desk.resume()
    shown = region(desk, "shortage")
    assert 'data-act="move-data"' in shown and f'data-text="{paths.data_dir()}"' in shown
    assert 'class="shortage"' in shown and 'data-act="empty-kept"' in shown and "1\u00a0KB" in shown
    desk.actions.dispatch({"act": "empty-kept"})
    assert not snapshot.exists() and 'data-act="empty-kept"' not in region(desk, "shortage")
    disk[0] = 100 * SHORT_BYTES
    desk.actions.dispatch({"act": "check-disk"})
    assert region(desk, "shortage") == ""


def test_room_that_is_made_stores_what_waited(crowded, disk):
    disk[0] = 1000
    crowded.disk_usage.warn()
    assert region(crowded, "shortage")
    crowded.history._db.is_full, disk[0] = False, 100 * SHORT_BYTES
    crowded.actions.dispatch({"act": "check-disk"})
    assert region(crowded, "shortage") == "" and crowded.state.notice is None
    assert crowded.books.turns[-1].unstored == ""


def test_instructions_hold_while_they_cannot_be_stored_and_are_stored_with_room(crowded, disk, monkeypatch):
    """The words stood in their field, went to no question, and were gone with the next drawing."""
    monkeypatch.setattr(library_module, "write_whole", _no_room)
    with pytest.raises(OSError):
        crowded.actions.dispatch({"act": "instruct-book", "value": "Be brief."})
    assert "Be brief." in region(crowded, "instructions")
    monkeypatch.undo()
    crowded.history._db.is_full = False
    crowded.actions.dispatch({"act": "check-disk"})
    assert crowded.library.notebook(crowded.state.book_id).instructions == "Be brief."


def _no_room(*_given) -> None:
    raise FULL


def test_a_file_that_did_not_fit_is_told_why(desk, disk):
    """The browser knows only that it did not arrive."""
    disk[0] = 1000
    desk.actions.dispatch({"act": "refused", "name": "emma.epub"})
    (said,) = desk.state.failures
    assert "emma.epub" in said and "disk" in said
    desk.actions.dispatch({"act": "dismiss-failures"})
    disk[0] = 100 * SHORT_BYTES
    desk.actions.dispatch({"act": "refused", "name": "emma.epub"})
    (said,) = desk.state.failures
    assert "emma.epub" in said and "disk" not in said


def test_a_book_whose_reading_found_no_room_is_told_why(desk, tmp_path):
    """“Another format of the same book may work.”"""

    def read(*_given, **_more):
        raise FULL

    desk.imports._readers = desk.imports._readers.__class__(read, lambda *_a, **_k: b"", lambda: True)
    desk.imports.upload(str(put(tmp_path)), "emma.txt")
    wait_until(lambda: desk.state.opening is None)
    (said,) = desk.state.failures
    assert in_words(FULL) in said and "format" not in said


def test_a_drive_that_is_gone_takes_no_message_away(crowded, home):
    """The look at its room failed, and its words took the place of why an answer is not stored."""
    shutil.rmtree(home)
    before = crowded.state.notice
    crowded._after_answer()
    assert before and crowded.state.notice == before


def test_a_refusal_for_want_of_room_shows_the_ways_to_make_some(desk, disk, snapshot):
    """It said "make room on it", and the ways to do so stood there at the next start alone."""
    assert desk.state.shortage is None
    disk[0] = SHORT_BYTES // 2
    desk.store.say(in_words(FULL))
    wait_until(lambda: desk.state.shortage is not None)
    assert "empty-kept" in region(desk, "shortage")


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_a_full_disk_is_said_once_with_what_it_refused(desk, disk, language):
    """Three messages said that the disk is full: of a file, of an answer, and what could be deleted."""
    disk[0] = 1000
    desk.actions.dispatch({"act": "refused", "name": "emma.epub"})
    desk.store.say(in_words(FULL))
    wait_until(lambda: desk.state.shortage is not None)
    said = region(desk, "shortage", language)
    assert region(desk, "notice", language) == "" and "emma.epub" in said and 'class="refused"' in said
    with in_language(language):
        assert full_disk() not in said
    desk.store.say("Another thing.")
    assert "Another thing." in region(desk, "notice", language)
    assert "Another thing." not in region(desk, "shortage", language)
    disk[0] = 100 * SHORT_BYTES
    desk.actions.dispatch({"act": "check-disk"})
    assert "emma.epub" in region(desk, "notice", language) and region(desk, "shortage", language) == ""
