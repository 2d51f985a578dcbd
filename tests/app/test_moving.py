"""The data folder in another place: whole in the one or in the other, whatever breaks off in between."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from app.errors import in_words
from app.store import relocation
from app.store.history import History
from app.web.page import Page
from core import paths
from core.errors import UserError
from tests.support.fake_runtime import wait_until

POSIX = pytest.mark.skipif(os.name == "nt", reason="rights as POSIX has them")


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """A data folder in the system's place, with something of everything."""
    monkeypatch.delenv("TRIFORCE_HOME")
    monkeypatch.setattr(paths, "default_dir", lambda: tmp_path / "system")
    root = paths.data_dir()
    for name, text in (
        ("books/a/book.json", "{}"),
        ("models/m/weights.bin", "w" * 9000),
        ("settings.json", "{}"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "models" / "link").symlink_to(root.parent)
    (root / "run").mkdir()
    (root / "run" / "app.lock").write_text("")
    (root / "run" / "secret.json").write_text("s")
    (root / "tmp").mkdir()
    (root / "tmp" / "upload.pdf").write_text("x")
    history = History(root / relocation.DATABASE)
    history.add(history.create("a").id, "user", "Who keeps the light?")
    history.close()
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def copied(move: relocation.Relocation, should_stop=lambda: False) -> bool:
    def database(path: Path) -> None:
        shutil.copyfile(move.old / relocation.DATABASE, path)

    return relocation.copied(
        move, copy_database=database, progress=lambda _done: None, should_stop=should_stop
    )


def asked(root: Path) -> list[str]:
    db = sqlite3.connect(root / relocation.DATABASE)
    try:
        return [text for (text,) in db.execute("SELECT text FROM turns")]
    finally:
        db.close()


def test_everything_arrives_and_nothing_is_left(old, tmp_path):
    before, new = contents(old), tmp_path / "drive" / "TriForce"
    move = relocation.planned_move(str(new))
    assert copied(move) and paths.data_dir() == old, "until the switch the old one is in use"
    relocation.switch(move)
    assert paths.data_dir() == new
    relocation.finish_move()
    got = contents(new)
    lost = {name for name in before if name not in got and not name.startswith((relocation.DATABASE, "tmp/"))}
    assert lost == {"run/app.lock"}
    assert all(got[name] == before[name] for name in got if not name.startswith(relocation.DATABASE))
    assert asked(new) == ["Who keeps the light?"] and (new / "models" / "link").is_symlink()
    assert [path.name for path in old.iterdir()] == ["moved.json"]
    assert paths.data_dir() == new


def test_and_back_again_leaves_no_pointer(old, tmp_path):
    first = relocation.planned_move(str(tmp_path / "drive"))
    assert copied(first)
    relocation.switch(first)
    relocation.finish_move()
    back = relocation.planned_move(str(old))
    assert copied(back)
    relocation.switch(back)
    assert paths.data_dir() == old
    relocation.finish_move()
    assert not paths.pointer().exists() and not (tmp_path / "drive").exists()
    assert asked(paths.data_dir()) == ["Who keeps the light?"]


def test_a_move_that_is_stopped_leaves_the_old_folder_and_an_empty_new_one(old, tmp_path):
    before = contents(old)
    move = relocation.planned_move(str(tmp_path / "drive"))
    assert not copied(move, should_stop=lambda: True)
    assert contents(old) == before and list(move.new.iterdir()) == [] and paths.data_dir() == old


@pytest.mark.parametrize("after", range(5))
def test_a_disk_that_is_full_on_the_way_leaves_the_old_folder(old, tmp_path, monkeypatch, after):
    before, seen = contents(old), []
    move = relocation.planned_move(str(tmp_path / "drive"))
    whole = relocation._copy

    def until_full(path, target):
        seen.append(path)
        if len(seen) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield from whole(path, target)

    monkeypatch.setattr(relocation, "_copy", until_full)
    with pytest.raises(OSError):
        copied(move)
    assert contents(old) == before and list(move.new.iterdir()) == [] and paths.data_dir() == old


def test_a_file_that_was_written_wrongly_ends_the_move(old, tmp_path, monkeypatch):
    """A drive that loses bits must not become the only place of anything."""
    move = relocation.planned_move(str(tmp_path / "drive"))

    def flip(_source, target):
        path = Path(target)
        if path.name == "weights.bin":
            path.write_bytes(b"v" + path.read_bytes()[1:])

    monkeypatch.setattr(relocation.shutil, "copystat", flip)
    with pytest.raises(OSError, match="not what was read"):
        copied(move)
    assert list(move.new.iterdir()) == [] and paths.data_dir() == old


def test_an_app_that_is_killed_on_the_way_goes_on_in_the_old_folder_and_may_try_again(old, tmp_path):
    move = relocation.planned_move(str(tmp_path / "drive"))
    (move.new / relocation.MARK).touch()
    (move.new / "books").mkdir()
    (move.new / "books" / "half").write_text("half")
    assert paths.data_dir() == old
    again = relocation.planned_move(str(move.new))
    assert copied(again) and not (again.new / "books" / "half").exists()


def test_an_old_folder_that_cannot_be_removed_yet_is_removed_later(old, tmp_path, monkeypatch, caplog):
    move = relocation.planned_move(str(tmp_path / "drive"))
    assert copied(move)
    relocation.switch(move)
    rmtree = shutil.rmtree

    def held(path, *more, **options):
        raise PermissionError(errno.EACCES, "held by another program", str(path))

    monkeypatch.setattr(relocation.shutil, "rmtree", held)
    relocation.finish_move()
    assert (old / "books").exists() and "again" in caplog.text and paths.data_dir() == move.new
    monkeypatch.setattr(relocation.shutil, "rmtree", rmtree)
    relocation.finish_move()
    assert [path.name for path in old.iterdir()] == ["moved.json"]


def test_a_folder_that_a_variable_names_is_moved_and_leads_to_the_new_one(old, tmp_path, monkeypatch):
    """It was "fixed": where its disk was full, the page had no way out."""
    named = tmp_path / "named"
    old.rename(named)
    monkeypatch.setenv("TRIFORCE_HOME", str(named))
    move = relocation.planned_move(str(tmp_path / "drive"))
    assert copied(move)
    relocation.switch(move)
    relocation.finish_move()
    assert paths.data_dir() == move.new and [one.name for one in named.iterdir()] == ["moved.json"]
    assert asked(paths.data_dir()) == ["Who keeps the light?"]
    back = relocation.planned_move(str(named))
    assert copied(back)
    relocation.switch(back)
    relocation.finish_move()
    assert paths.data_dir() == named and not paths.pointer().exists() and not move.new.exists()


@pytest.mark.parametrize("gives_way", ["snapshots/model/book/a-b.kv", "logs/app.log"])
def test_a_full_disk_is_left_though_nothing_can_be_written_there(old, tmp_path, monkeypatch, gives_way):
    """The word of where the data went had no room, and what was copied made the new folder one in use."""
    written, file = relocation.write_whole, old / gives_way
    of_bytes = [0]

    def full(path, data):
        if path == paths.pointer() and of_bytes[0] == (file.stat().st_size if file.exists() else 0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(path, data)

    monkeypatch.setattr(relocation, "write_whole", full)
    move = relocation.planned_move(str(tmp_path / "drive"))
    assert copied(move)
    with pytest.raises(OSError, match="space"):
        relocation.switch(move)
    assert paths.data_dir() == old and not any(move.new.iterdir())
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 1000)
    of_bytes[0] = 1000
    move = relocation.planned_move(str(move.new))
    assert copied(move)
    relocation.switch(move)
    assert paths.data_dir() == move.new and (move.new / gives_way).stat().st_size == 1000


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("", "whole path"),
        ("relative/folder", "whole path"),
        ("{old}", "in each other"),
        ("{old}/inside", "in each other"),
        ("{parent}", "in each other"),
        ("{full}", "not empty"),
        ("{file}/x", "cannot be used"),
    ],
)
def test_places_that_will_not_do_are_refused_in_words(old, tmp_path, place, words):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.odt").touch()
    (tmp_path / "file").touch()
    names = {"old": old, "parent": old.parent, "full": tmp_path / "full", "file": tmp_path / "file"}
    with pytest.raises(UserError, match=words):
        relocation.planned_move(place.format(**names))
    assert (tmp_path / "full" / "thesis.odt").exists()


def test_a_drive_without_room_is_refused_before_anything_is_copied(old, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(relocation.shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(UserError, match="Make room"):
        relocation.planned_move(str(tmp_path / "drive"))


@POSIX
def test_a_place_that_others_can_read_is_said(old, tmp_path, monkeypatch):
    assert not relocation.planned_move(str(tmp_path / "own")).open_to_others
    monkeypatch.setattr(Path, "chmod", lambda *_args: None)  # as on a drive without rights
    (tmp_path / "stick").mkdir()
    os.chmod(tmp_path / "stick", 0o777)
    assert relocation.planned_move(str(tmp_path / "stick")).open_to_others


def test_a_drive_that_is_not_there_is_said_and_no_empty_folder_takes_its_place(old, tmp_path):
    """The shelf would look as if everything were lost."""
    move = relocation.planned_move(str(tmp_path / "drive"))
    assert copied(move)
    relocation.switch(move)
    move.new.rename(tmp_path / "away")
    with pytest.raises(UserError, match="Connect the drive"):
        paths.data_dir()
    (tmp_path / "away").rename(move.new)
    assert asked(paths.data_dir()) == ["Who keeps the light?"]
    move.new.rename(tmp_path / "away")
    assert paths.data_dir() == move.new and not paths.subdir("books").exists(), "gone while the app runs"
    paths.pointer().write_text("{")
    with pytest.raises(UserError, match=r"moved\.json"):
        paths.data_dir()


# --- from the page


def test_the_page_asks_first_then_moves_and_lets_nothing_else_happen_meanwhile(
    old, tmp_path, desk, monkeypatch
):

    began: list[bool] = []
    desk.data_folder.when_moved(lambda: began.append(True))
    desk.actions.dispatch({"act": "move-data", "text": str(tmp_path / "drive")})
    page = Page(desk)
    shown = page.render()["moving"][0]
    assert 'data-act="begin-move"' in shown and str(tmp_path / "drive") in shown
    desk.actions.dispatch({"act": "decline-move"})
    assert page.render()["moving"] == ("",)
    desk.actions.dispatch({"act": "move-data", "text": str(tmp_path / "drive")})
    whole, refused = relocation._copy, []

    def slowly(path, target):
        if not refused:
            desk.actions.dispatch({"act": "new"})
            assert not desk.questions.ask("Who?")
            refused.append(desk.state.notice.text)
        yield from whole(path, target)

    monkeypatch.setattr(relocation, "_copy", slowly)
    desk.actions.dispatch({"act": "begin-move"})
    wait_until(lambda: began)
    assert "moved" in refused[0] and paths.data_dir() == (tmp_path / "drive").resolve()


def test_a_move_that_fails_says_so_and_the_engine_runs_again(old, tmp_path, desk, engine, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_args, **_options):
        raise full

    monkeypatch.setattr(relocation, "_copy", fail)
    desk.data_folder.propose(str(tmp_path / "drive"))
    desk.data_folder.begin()
    wait_until(lambda: desk.state.moving is None and engine.state == "ready")
    assert "moved" in desk.state.notice.text and in_words(full) in desk.state.notice.text
    assert paths.data_dir() == old


def test_what_is_kept_of_books_is_shown_by_book_and_emptied(desk, book):
    from core.cache.disk import SnapshotFolder

    folder = SnapshotFolder(paths.subdir("snapshots"))
    for model, count in (("m1", 2), ("m2", 1)):
        place = folder.of(model, book.sha256)
        place.mkdir(parents=True)
        for number in range(count):
            (place / f"{number}.kv").write_bytes(bytes(1000))
    stranger = folder.of("m1", "gone from the shelf")
    stranger.mkdir(parents=True)
    (stranger / "1.kv").write_bytes(bytes(500))
    desk.disk_usage.look()
    assert desk.state.kept.bytes == 3500 and desk.state.kept.books == ((book.title, 3000),)
    shown = Page(desk).render()["preferences"][0]
    assert book.title in shown and 'data-act="empty-kept"' in shown
    desk.disk_usage.empty()
    assert desk.state.kept.bytes == 0 and 'data-act="empty-kept"' not in Page(desk).render()["preferences"][0]
    assert desk.books.current == book
