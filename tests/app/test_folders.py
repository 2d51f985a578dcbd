"""Folders of books: what is new in them is offered, nothing is read or copied before it is asked for, and
what was taken off does not come back.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from app.desk import book_folders
from app.store.folder_scan import LEAST_BYTES, MOST_DEPTH, SETTLED_S, FoundFile, look_through
from app.store.known_files import KnownFiles
from app.web.page import Page
from core.documents import read_document
from core.errors import UserError
from tests.support.fake_runtime import wait_until

NOVEL = "The keeper lit the lamp. " * 1000


def lay(path: Path, text: str = NOVEL, *, age_s: float = 3600.0) -> Path:
    """A file that was written so long ago. ctime cannot be set: tests that need an age look from later on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def titles(*folders: Path, later_s: float = 60.0) -> list[str]:
    found = look_through([str(one) for one in folders], now=time.time() + later_s)
    return sorted(one.title for one in found.files)


def test_calibres_library_is_one_offer_a_book_with_title_and_author(tmp_path):
    book = tmp_path / "Jane Austen" / "Emma (12)"
    for name in ("Emma - Jane Austen.pdf", "Emma - Jane Austen.epub", "metadata.opf", "cover.jpg"):
        lay(book / name)
    lay(tmp_path / "metadata.db")
    lay(tmp_path / ".caltrash" / "b" / "12" / "Old.epub")
    (one,) = look_through([str(tmp_path)], now=time.time() + 60).files
    assert (one.title, one.author, one.format) == ("Emma", "Jane Austen", "EPUB")
    assert one.path == str(book / "Emma - Jane Austen.epub")


def test_zoteros_storage_gives_its_papers_and_none_of_its_own_files(tmp_path):
    lay(tmp_path / "ABCD2345" / "Sun - 2024 - TriForce.pdf")
    lay(tmp_path / "ABCD2345" / ".zotero-ft-cache")
    lay(tmp_path / "WXYZ6789" / "page_files" / "frame.html")
    assert titles(tmp_path) == ["Sun - 2024 - TriForce"]


def test_hidden_partial_small_and_other_files_are_no_books(tmp_path):
    for name in (
        ".hidden.epub",
        "~$thesis.docx",
        "a.epub.part",
        "b.crdownload",
        "c.epub.tmp",
        ".epub",
        "d.jpg",
    ):
        lay(tmp_path / name)
    lay(tmp_path / "note.md", "x" * (LEAST_BYTES - 1))
    lay(tmp_path / "empty.epub", "")
    lay(tmp_path / "long.txt", "x" * LEAST_BYTES)
    lay(tmp_path / "$RECYCLE.BIN" / "gone.epub")
    lay(tmp_path / "@eaDir" / "thumb.pdf")
    lay(tmp_path / "book.fb2.zip")
    assert titles(tmp_path) == ["book", "long"]


def test_a_file_that_is_being_written_is_not_offered_yet(tmp_path):
    lay(tmp_path / "copied with its old date.epub", age_s=10**7)
    assert titles(tmp_path, later_s=0) == [], "its time is the old one, but it has just come here"
    assert titles(tmp_path, later_s=SETTLED_S + 1) == ["copied with its old date"]


@pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")
def test_links_to_folders_are_not_followed_and_a_link_to_nowhere_is_passed_over(tmp_path):
    lay(tmp_path / "in" / "one.epub")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "nowhere.epub").symlink_to(tmp_path / "gone.epub")
    linked = lay(tmp_path / "elsewhere" / "two.epub", NOVEL + "2")
    (tmp_path / "in" / "two.epub").symlink_to(linked)
    assert titles(tmp_path / "in") == ["one", "two"]


def test_the_same_file_twice_is_offered_once(tmp_path):
    lay(tmp_path / "a" / "one.epub")
    lay(tmp_path / "b" / "one.epub")
    lay(tmp_path / "b" / "c" / "one.epub", NOVEL + "another of this name")
    assert titles(tmp_path, tmp_path / "a") == ["one", "one"]


def test_a_drive_that_is_gone_is_said_and_the_others_are_looked_through(tmp_path):
    lay(tmp_path / "there" / "one.epub")
    gone = str(tmp_path / "gone")
    found = look_through([gone, str(tmp_path / "there")], now=time.time() + 60)
    assert [one.title for one in found.files] == ["one"] and found.unreachable[0][0] == gone


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may all")
def test_a_folder_that_may_not_be_opened_is_passed_over(tmp_path):
    lay(tmp_path / "one.epub")
    (tmp_path / "closed").mkdir(mode=0)
    assert titles(tmp_path) == ["one"]


def test_depth_and_number_are_limited_and_said(tmp_path, monkeypatch):
    deep = tmp_path.joinpath(*["d"] * (MOST_DEPTH + 1))
    lay(deep / "deep.epub")
    for number in range(5):
        lay(tmp_path / f"{number}.epub")
    assert titles(tmp_path) == list("01234")
    monkeypatch.setattr("app.store.folder_scan.MOST_FILES", 5)
    found = look_through([str(tmp_path)], now=time.time() + 60)
    assert found.cut and len(found.files) == 5


def test_the_apps_own_data_and_names_that_cannot_be_written_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "own"))
    lay(tmp_path / "own" / "tmp" / "upload.epub")
    lay(tmp_path / "one.epub")
    if os.name == "posix":
        (tmp_path / os.fsdecode(b"caf\xe9.epub")).write_text(NOVEL)
    assert titles(tmp_path) == ["one"]


def test_thousands_of_files_are_looked_through_in_a_blink(tmp_path):
    """A second is ten times what it takes on two slow cores."""
    for number in range(1500):
        folder = tmp_path / f"Author {number % 50}" / f"Title {number} ({number})"
        folder.mkdir(parents=True)
        (folder / f"{number}.epub").write_bytes(b"x")
    began = time.perf_counter()
    assert len(titles(tmp_path)) == 1500 and time.perf_counter() - began < 1.0


# ---- on the page


@pytest.fixture
def watched(make_desk, engine, tmp_path, monkeypatch):
    """A desk that looks into a folder with two books, all the time: (desk, folder)."""
    monkeypatch.setattr(book_folders, "EVERY_S", 0.02)
    monkeypatch.setattr(book_folders, "SHARE", 0)
    desk = make_desk(engine, read=lambda path, **_how: read_document(path))
    desk.folders._look = lambda folders: look_through(folders, now=time.time() + 60)
    folder = tmp_path / "own books"
    lay(folder / "Lamp.txt")
    lay(folder / "Boat.txt", NOVEL.replace("lamp", "boat"))
    desk.folders.add(str(folder))
    wait_until(lambda: len(offered(desk)) == 2)
    return desk, folder


def offered(desk) -> list[str]:
    return sorted(one.title for one in desk.state.folder_books.files)


def open_found(desk, path: Path) -> None:
    desk.actions.dispatch({"act": "open-found", "id": str(path)})
    wait_until(lambda: desk.state.opening is None)


def test_nothing_is_read_before_it_is_asked_for_and_nothing_is_moved_or_copied(watched, home):
    desk, folder = watched
    assert desk.library.entries() == []
    html = "".join(Page(desk).render()["folders"])
    assert "Lamp" in html and "TXT" in html and str(folder) in html
    before = (folder / "Lamp.txt").read_bytes()
    open_found(desk, folder / "Lamp.txt")
    assert [one.title for one in desk.library.entries()] == ["Lamp"] and desk.state.book_id
    wait_until(lambda: offered(desk) == ["Boat"])
    assert (folder / "Lamp.txt").read_bytes() == before
    assert not list(home.rglob("*.txt")) and not list(desk.library._root.rglob("*.txt"))


def test_what_was_taken_off_the_shelf_or_put_away_does_not_come_back_but_on_a_word(watched):
    desk, folder = watched
    open_found(desk, folder / "Lamp.txt")
    desk.trash.throw_book(desk.state.book_id)
    desk.trash.purge(all_of_them=True)
    desk.actions.dispatch({"act": "put-away", "file": str(folder / "Boat.txt")})
    wait_until(lambda: offered(desk) == [] and desk.state.folder_books.put_away == 2)
    desk.folders.tick(str(folder))
    wait_until(lambda: desk.state.folder_books.put_away == 0)
    desk.folders.tick(str(folder))
    (folder / "Lamp.txt").rename(folder / "sub.tmp")
    (folder / "sub.tmp").rename(folder / "Lamp.txt")
    wait_until(lambda: desk.state.folder_books.put_away == 2)
    assert offered(desk) == [], "neither the folder chosen anew nor the file put back offers it"
    assert set(KnownFiles().books.values()) >= {""}, "and a new start knows it, too"
    desk.actions.dispatch({"act": "offer-again"})
    wait_until(lambda: offered(desk) == ["Boat", "Lamp"])


def test_a_file_that_was_dropped_before_is_not_offered(watched, tmp_path):
    desk, folder = watched
    upload = tmp_path / "uploads" / "x" / "Boat.txt"
    upload.parent.mkdir(parents=True)
    upload.write_bytes((folder / "Boat.txt").read_bytes())
    desk.actions.dispatch({"act": "upload", "path": str(upload), "name": "Boat.txt"})
    wait_until(lambda: offered(desk) == ["Lamp"])
    assert len(desk.library.entries()) == 1


def test_only_what_was_found_can_be_opened_by_its_path(watched, tmp_path):
    desk, _folder = watched
    other = lay(tmp_path / "secret.txt")
    desk.actions.dispatch({"act": "open-found", "id": str(other)})
    assert desk.state.opening is None and desk.library.entries() == []


def test_a_new_file_comes_and_one_that_goes_leaves(watched):
    desk, folder = watched
    lay(folder / "deep" / "New.epub")
    wait_until(lambda: offered(desk) == ["Boat", "Lamp", "New"])
    (folder / "Boat.txt").unlink()
    wait_until(lambda: offered(desk) == ["Lamp", "New"])


def test_the_search_finds_them_by_title(watched):
    desk, folder = watched
    desk.actions.dispatch({"act": "search", "text": "boat"})
    html = "".join(Page(desk).render()["hits"])
    assert 'data-act="open-found"' in html and str(folder / "Boat.txt") in html and "Lamp" not in html


def test_nobody_looks_while_no_page_is_open(watched):
    desk, folder = watched
    desk.folders.while_shown(lambda: False)
    time.sleep(0.1)
    looks = []
    before, desk.folders._look = desk.folders._look, lambda folders: looks.append(folders) or before(folders)
    time.sleep(0.15)
    assert looks == []
    desk.folders.while_shown(lambda: True)
    wait_until(lambda: bool(looks))


def test_a_drive_that_does_not_answer_holds_up_neither_the_page_nor_the_end(make_desk, engine, tmp_path):
    desk, never = make_desk(engine), threading.Event()
    desk.folders._look = lambda folders: never.wait(5.0) and look_through(folders)
    began = time.perf_counter()
    desk.folders.add(str(tmp_path))
    assert Page(desk).render()["folders"]
    desk.folders.close()
    assert time.perf_counter() - began < 2.0
    never.set()


def test_what_is_no_folder_is_refused_with_an_example(desk, tmp_path):
    for wrong in ("", "books", str(tmp_path / "none"), str(lay(tmp_path / "file.txt"))):
        with pytest.raises(UserError, match="There is no folder"):
            desk.folders.add(wrong)
    desk.folders.add(f'"{tmp_path}/"')
    assert desk.preferences.settings.book_folders == (str(tmp_path),)


def test_a_damaged_memory_offers_everything_again(home):
    (home / "known-files.json").write_text("[1")
    assert KnownFiles().books == {}


def test_the_format_is_named_as_people_write_it():
    assert FoundFile("/a/b.fb2.zip", "b", "", 1, 0.0).format == "FB2"
    assert FoundFile("/a/b.EPUB", "b", "", 1, 0.0).format == "EPUB"
