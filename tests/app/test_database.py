"""A file of conversations that cannot be used stands in nobody's way, and is not lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.store.database import STEPS, _check
from app.store.history import History
from core.errors import UserError
from tests.support.full_disks import Unreachable
from tests.support.said import worded_by

BEFORE_VERSIONS = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY, book_id TEXT NOT NULL, title TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL);
CREATE TABLE turns (
    conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    number INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, extra TEXT NOT NULL,
    PRIMARY KEY (conversation_id, number));
INSERT INTO conversations VALUES ('one', 'book', 'Who?', 1, 2);
INSERT INTO turns VALUES ('one', 1, 'user', 'Who?', 'finished', '{}');
"""


def written(path: Path) -> str:
    """A file with one conversation; returns its name."""
    history = History(path)
    talk = history.create("book")
    for number in range(40):
        history.add(talk.id, "user", f"Question {number}. " * 60)
    history.close()
    return talk.id


def asides(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.aside-*.db"))


def no_database(path: Path) -> None:
    path.write_bytes(b"what a disk that failed left behind " * 300)


def torn_page(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096 * 3 : 4096 * 5] = bytes(8192)
    path.write_bytes(whole)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 * 2 + 100])


def another_schema(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE conversations (name TEXT); PRAGMA user_version = 1;")
    db.close()


@pytest.mark.parametrize("damage", [no_database, torn_page, cut_short, another_schema])
def test_a_damaged_file_is_kept_aside_and_said(tmp_path, damage):
    """It ended the start with a traceback."""
    path = tmp_path / "chats.db"
    written(path)
    damage(path)
    broken = path.read_bytes()
    history = History(path)
    assert "damaged" in history.warning and asides(tmp_path)[0].name in history.warning
    (aside,) = asides(tmp_path)
    kept = aside.read_bytes()
    assert kept == broken or (damage is another_schema and b"CREATE TABLE conversations (name" in kept)
    talk = history.create("book")
    history.add(talk.id, "user", "And now?")
    history.close()
    again = History(path)
    assert again.warning == "" and [turn.text for turn in again.turns(talk.id)] == ["And now?"]
    again.close()


def test_a_file_of_a_newer_version_is_not_touched(tmp_path):
    """This version would write into tables whose meaning it does not know."""
    path = tmp_path / "chats.db"
    talk = written(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    db.close()
    history = History(path)
    assert worded_by(_check, history.warning) and history.turns(talk) == []
    history.close()
    kept = sqlite3.connect(asides(tmp_path)[0])
    assert kept.execute("SELECT COUNT(*) FROM turns").fetchone() == (40,)
    kept.close()


def test_a_file_without_a_version_is_brought_up_to_date(tmp_path):
    path = tmp_path / "chats.db"
    db = sqlite3.connect(path)
    db.executescript(BEFORE_VERSIONS)
    db.close()
    history = History(path)
    assert history.warning == "" and [turn.text for turn in history.turns("one")] == ["Who?"]
    history.limit("one", 3)
    assert history.conversations("book")[0].spoiler_limit == 3
    history.close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    db.close()


def test_a_folder_that_cannot_be_used_is_said_and_nothing_is_moved(tmp_path):
    (tmp_path / "chats.db").mkdir()
    with pytest.raises(UserError, match="cannot be opened"):
        History(tmp_path / "chats.db")
    assert [one.name for one in tmp_path.iterdir()] == ["chats.db"]


def test_a_drive_that_was_away_is_found_again(tmp_path):
    """What was opened before stays out of reach for good: every question failed until the next start."""
    path, away = tmp_path / "drive" / "chats.db", tmp_path / "away"
    path.parent.mkdir()
    history = History(path)
    talk = history.create("book").id
    history.add(talk, "user", "Who?")
    number = history.add(talk, "assistant", "", state="writing")
    assert history.turns(talk)
    seen = history.version
    history._db = Unreachable(history._db)
    path.parent.rename(away)
    with pytest.raises(sqlite3.OperationalError):
        history.update(talk, number, "The keeper.", state="finished")
    for refused in (lambda: history.create("book"), lambda: history.turns("another")):
        with pytest.raises(sqlite3.OperationalError):
            refused()
    assert [turn.text for turn in history.turns(talk)] == ["Who?", "The keeper."], "as it was read last"
    assert history.version > seen and not path.parent.exists()

    away.rename(path.parent)
    assert len(history.turns(talk)) == 2
    history.add(talk, "user", "Where?")
    assert [one.text for one in history.search("where")] == ["Where?"], "the index is kept up to date, too"
    history.close()
    again = History(path)
    assert [turn.text for turn in again.turns(talk)] == ["Who?", "The keeper.", "Where?"]
    again.close()


def test_a_file_that_is_not_there_is_not_made_anew_meanwhile(tmp_path):
    """An empty one in its place would stand in the way of the drive, or hide what is on it."""
    history = History(tmp_path / "chats.db")
    talk = history.create("book").id
    history._db = Unreachable(history._db)
    for one in tmp_path.iterdir():
        one.unlink()
    with pytest.raises(sqlite3.OperationalError):
        history.turns(talk)
    assert list(tmp_path.iterdir()) == []
    history.close()
