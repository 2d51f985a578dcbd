"""A book that is taken away can be brought back; then nothing of it is left anywhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.desk import trash
from app.desk.trash import Trash
from app.desk.values import FolderMove
from app.store import fulltext
from app.store.relocation import Relocation
from app.web.page import Page
from core import paths
from core.cache.disk import SnapshotFolder
from core.conversation.part_summaries import PartSummaryStore
from tests.support.desks import put
from tests.support.fake_runtime import wait_until
from tests.support.said import values, worded_by

MARKER, OTHER = "Zyxomma", "Quillfeather"


@pytest.fixture
def taken(desk, book, monkeypatch):
    """The book with a conversation, a note and a summary of a part, just taken away."""
    monkeypatch.setattr(trash, "UNDO_S", 30.0)
    desk.engine.answer = f"{MARKER} did."
    desk.questions.ask(f"Where does {MARKER} go?")
    wait_until(lambda: not desk.state.busy)
    desk.reader.mark(7, "The keeper lit the lamp.")
    desk.reader.note(7, f"A note on {MARKER}.")
    desk.actions.dispatch({"act": "forget", "id": book.sha256})
    return desk


def stored(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).lower()


def test_it_is_off_the_page_and_can_be_brought_back(taken, book):
    assert taken.books.current is None and taken.books.turns == [] and taken.library.entries() == []
    page = Page(taken).render()
    assert book.title not in page["library"][0]
    assert f'data-act="undo" data-id="{book.sha256}"' in page["notice"][0]
    taken.books.select(book.sha256)
    assert taken.books.current is None, "a page that is older than the removal"
    taken.actions.dispatch({"act": "undo", "id": book.sha256})
    assert taken.books.current == book and taken.state.notice is None and taken.engine.forgotten_books == []
    assert taken.books.turns[0].text == f"Where does {MARKER} go?"
    assert taken.reader.bookmarks[0].note == f"A note on {MARKER}."
    taken.trash.purge(all_of_them=True)
    assert taken.books.current == book


def test_what_goes_with_a_book_is_named(taken, desk, other):
    """Its notes went with a sentence that was the same for a book without any."""
    assert (
        values(taken.state.deleted[-1].words)["count"],
        len(worded_by(Trash._deleted, taken.state.deleted[-1].words)),
    ) == (1, 3)
    desk.trash.purge(all_of_them=True)
    desk.actions.dispatch({"act": "forget", "id": other.sha256})
    assert "count" not in values(desk.state.deleted[-1].words)


@pytest.fixture
def other(desk, book):
    """Another book on the shelf."""
    made = replace(book, title="The Sea", sha256="c" * 64)
    desk.library.add(made)
    return made


def undo(desk) -> None:
    """Presses the button of the page."""
    (names,) = re.findall(r'data-act="undo" data-id="([^"]*)"', Page(desk).render()["notice"][0])
    desk.actions.dispatch({"act": "undo", "id": names})


@pytest.mark.parametrize("act", ["book", "new", "ask", "upload"])
def test_it_can_be_brought_back_whatever_is_done_meanwhile(taken, book, other, tmp_path, act):
    """The button went with the next click, long before the time was over."""
    taken.books.select(other.sha256)
    if act == "new":
        taken.actions.dispatch({"act": "new"})
    if act == "ask":
        taken.engine.pace = 0.05
        taken.questions.ask("Where?")
    if act == "upload":
        taken.imports._readers = replace(taken.imports._readers, read=lambda *_args, **_more: other)
        taken.imports.upload(str(put(tmp_path)), "sea.txt")
        wait_until(lambda: taken.state.opening is None)
    undo(taken)
    assert taken.books.current == book and taken.state.notice is None and taken.books.turns


def test_two_come_back_together(taken, book, other):
    """The second one's button took the place of the first one's."""
    taken.books.select(other.sha256)
    taken.actions.dispatch({"act": "forget", "id": other.sha256})
    assert [one.id for one in taken.state.deleted] == [book.sha256, other.sha256]
    undo(taken)
    assert {one.id for one in taken.library.entries()} == {book.sha256, other.sha256}
    assert taken.books.current == other and taken.state.deleted == ()


@pytest.mark.parametrize("said", ["an error", "room on the disk", "what the page cannot read"])
def test_it_can_be_brought_back_beside_a_message(taken, book, monkeypatch, said):
    """An error took the place of the button, for good."""
    if said == "what the page cannot read":
        monkeypatch.setattr(taken.library, "entries", lambda: (_ for _ in ()).throw(OSError("unplugged")))
        assert "undo" in Page(taken).render()["notice"][0]
        monkeypatch.undo()
    else:
        taken.store.say("Nothing was found.")
        page = Page(taken).render()["notice"][0]
        assert "Nothing was found." in page and "undo" in page
    if said == "room on the disk":
        taken.actions.dispatch({"act": "check-disk"})
    undo(taken)
    assert taken.books.current == book and taken.state.deleted == ()


def test_a_refused_undo_stays_for_later(taken, book, tmp_path):
    taken.store.update(moving=FolderMove(Relocation(tmp_path, tmp_path / "new", 9, True), done=0))
    undo(taken)
    assert taken.books.current is None and taken.state.notice is not None
    taken.store.update(moving=None)
    undo(taken)
    assert taken.books.current == book


def test_a_conversation_comes_back_to_its_book(desk, other, monkeypatch):
    monkeypatch.setattr(trash, "UNDO_S", 30.0)
    desk.questions.ask(f"Where does {MARKER} go?")
    wait_until(lambda: not desk.state.busy)
    book, talk = desk.books.current, desk.state.conversation_id
    desk.actions.dispatch({"act": "clear"})
    desk.books.select(other.sha256)
    undo(desk)
    assert (desk.books.current, desk.state.conversation_id) == (book, talk)


def test_nothing_of_it_is_left_when_the_time_is_over(taken, book, tmp_path):
    (talk,) = [row[0] for row in taken.history._db.execute("SELECT id FROM conversations")]
    assert MARKER.lower().encode() in stored(tmp_path)
    taken.trash._clock = lambda: 1e12
    taken.trash.purge()
    assert taken.engine.forgotten == [talk] and taken.engine.forgotten_books == [book.sha256]
    left = stored(tmp_path)
    for words in (MARKER, "keeper lit", book.title, book.sha256):
        assert words.lower().encode() not in left, words
    assert list((tmp_path / "books").iterdir()) == [] and taken.state.notice is None
    taken.actions.dispatch({"act": "undo", "id": book.sha256})
    assert worded_by(Trash.restore, taken.state.notice.text)


def test_the_index_would_keep_its_words_without_its_own_deletion(taken, tmp_path, monkeypatch):
    """An index of words is a copy that a DELETE of the turns does not reach."""
    if fulltext.sqlite3.sqlite_version_info >= fulltext._SECURE:
        pytest.skip("this SQLite takes the words out itself")
    monkeypatch.setattr(fulltext, "purge", lambda _db: None)
    taken.trash.purge(all_of_them=True)
    assert MARKER.lower().encode() in stored(tmp_path)


def test_others_stay(taken, make_desk, engine, tmp_path):
    kept = taken.history.create("b" * 64)
    taken.history.add(kept.id, "user", f"Where is {OTHER}?")
    taken.trash.purge(all_of_them=True)
    assert taken.history.turns(kept.id) and taken.history.search(OTHER)
    assert taken.history.search(MARKER) == []


def test_what_was_deleted_before_a_crash_has_its_minute_after_it(taken, book, make_desk, engine, tmp_path):
    """A slip, then a power cut in the minute of the undo: the start had deleted it, with all its notes."""
    said = taken.state.deleted
    for _crash in range(2):
        again = make_desk(engine)
        again.resume()
        assert again.state.deleted == said and again.library.entries() == []
    undo(again)
    assert again.books.current == book and again.books.turns and again.reader.bookmarks[0].note
    again.actions.dispatch({"act": "clear"})
    third = make_desk(engine)
    assert third.books.turns == [] and len(third.state.deleted) == 1
    third.trash._clock = lambda: 1e12
    third.trash.purge()
    assert third.history.conversations(book.sha256) == [] and third.state.deleted == ()
    assert [one.id for one in third.library.entries()] == [book.sha256]


def test_a_minute_after_a_crash_nothing_of_it_is_left(taken, book, make_desk, engine, tmp_path):
    again = make_desk(engine)
    again.trash._clock = lambda: 1e12
    again.trash.purge()
    assert list((tmp_path / "books").iterdir()) == [] and engine.forgotten_books == [book.sha256]
    assert again.history.conversations(book.sha256) == []


def test_a_deletion_that_was_interrupted_is_done_again(taken, book, make_desk, engine, monkeypatch):
    """The mark goes last: a folder that could not be deleted must not come back as a book."""
    monkeypatch.setattr(taken.library, "forget", lambda _id: (_ for _ in ()).throw(PermissionError("in use")))
    taken.trash.close()
    assert taken.history.conversations(book.sha256) == [] and taken.library.entries() == []
    assert make_desk(engine).library.forgotten(float("inf")) == []


def test_its_file_dropped_again_brings_it_back(taken, book):
    taken.shelf.put(book, cover=b"", again=False)
    taken.trash.purge(all_of_them=True)
    assert taken.books.current == book and taken.books.turns and taken.state.notice is None


def test_the_runtime_leaves_neither_snapshot_nor_note_of_a_part(home):
    """What the engine keeps on disk goes also while no engine runs."""
    from app.engine.client import Runtime
    from core.config import Settings

    snapshots = SnapshotFolder(paths.subdir("snapshots"))
    block = snapshots.of("model", "b" * 64) / "a-b.kv"
    block.parent.mkdir(parents=True)
    block.write_bytes(b"rows")
    PartSummaryStore(paths.subdir("notes")).put([], "b" * 64, "model", "text")
    Runtime(Settings()).forget_book("b" * 64)
    assert not block.parent.exists() and list(paths.subdir("notes").iterdir()) == []
