"""A file that a person drops: read, with its cover, a scan by text recognition."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from app.desk.import_queue import ImportQueue, uploaded
from app.web.messages import offer_html
from app.web.page import Page
from core.documents import read_document
from core.documents.document import READER_VERSION, Section
from core.errors import DocumentError, PasswordNeeded, ScannedPages
from tests.support.desks import card, put
from tests.support.fake_runtime import wait_until
from tests.support.said import worded_by
from tests.support.saved_pages import news


def test_a_dropped_file_becomes_a_book_and_the_upload_is_deleted(make_desk, engine, book, tmp_path):
    """Uploads that stay behind would fill the disk with private books."""
    desk, path = make_desk(engine), put(tmp_path)
    desk.imports.upload(str(path), "book.txt")
    wait_until(lambda: desk.state.book_id)
    wait_until(lambda: desk.state.opening is None)
    assert desk.books.current == book and not path.exists()
    wait_until(lambda: card(desk))
    assert card(desk)["tokens"] == round(book.words * 1.3)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "{tmp}/uploads/../secret.txt", "{tmp}/uploads/missing.txt", "{tmp}/uploads", ""]
)
def test_a_path_outside_the_uploads_is_refused(make_desk, engine, tmp_path, path):
    """The path comes from the browser: it must not open, or delete, any other file."""
    (tmp_path / "secret.txt").write_text("secret")
    read = []
    desk = make_desk(engine, read=lambda *args, **kwargs: read.append(args))
    desk.imports.upload(path.format(tmp=tmp_path), "x.txt")
    assert worded_by(uploaded, desk.state.failures[0])
    assert desk.state.opening is None and read == []
    assert (tmp_path / "secret.txt").exists()


def test_a_file_that_is_no_book_says_why_and_the_desk_stays_usable(make_desk, engine, tmp_path):
    def refuse(*_args, **_kwargs):
        raise DocumentError("This is a picture (PNG). Choose a PDF, EPUB or TXT.")

    desk, path = make_desk(engine, read=refuse), put(tmp_path)
    desk.imports.upload(str(path), "book.epub")
    wait_until(lambda: desk.state.opening is None)
    assert desk.state.failures[0].startswith("book.epub: This is a picture") and not path.exists()


def test_a_readers_bug_does_not_take_the_desk_down(make_desk, engine, tmp_path):
    desk, path = make_desk(engine, read=lambda *_args, **_kwargs: 1 / 0), put(tmp_path)
    desk.imports.upload(str(path), "odd.pdf")
    wait_until(lambda: desk.state.failures)
    assert "odd.pdf" in desk.state.failures[0] and "ZeroDivision" not in desk.state.failures[0]


def test_a_protected_file_waits_for_its_password(make_desk, engine, book, tmp_path):
    def read(_path, *, password=None, **_kwargs):
        if password != "open":
            raise PasswordNeeded("The password does not open this file.")
        return book

    desk, path = make_desk(engine, read=read), put(tmp_path)
    desk.imports.upload(str(path), "locked.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.locked)
    assert desk.state.notice is None and path.exists(), (
        "asking for a password is not an error, and the file is still needed"
    )
    desk.imports.give_password("wrong")
    wait_until(lambda: desk.state.opening and desk.state.opening.refusal)
    assert 'class="wrong"' in "".join(Page(desk).render()["locked"]) and desk.state.notice is None
    desk.imports.give_password("open")
    wait_until(lambda: desk.state.book_id and desk.state.opening is None)
    assert not path.exists()


def test_a_protected_file_can_be_given_up(make_desk, engine, tmp_path):
    """Its box covered the conversation until another book was added."""

    def read(_path, **_kwargs):
        raise PasswordNeeded("It needs a password.")

    desk, path = make_desk(engine, read=read), put(tmp_path)
    desk.imports.upload(str(path), "locked.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.locked)
    assert 'data-act="cancel-opening"' in "".join(Page(desk).render()["locked"])
    desk.actions.dispatch({"act": "cancel-opening"})
    assert desk.state.opening is None and not path.exists()


def test_reading_a_file_can_be_cancelled(make_desk, engine, tmp_path):
    def read(_path, *, should_stop, progress, **_kwargs):
        progress("Page 1", 0.1)
        wait_until(should_stop)
        raise DocumentError("Stopped.")

    desk, path = make_desk(engine, read=read), put(tmp_path)
    desk.imports.upload(str(path), "long.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.fraction == 0.1)
    desk.imports.cancel()
    wait_until(lambda: desk.state.opening is None)
    assert not path.exists() and desk.books.current is None


def test_a_book_is_shown_with_its_own_cover(make_desk, engine, book, tmp_path):
    """On the shelf and on its card; a file without one gets a drawn one."""
    desk, path = make_desk(engine, cover=b"a picture"), put(tmp_path)
    before = Page(desk).render()
    assert "/covers/" not in "".join(before["library"] + before["stage"])
    desk.imports.upload(str(path), "book.epub")
    wait_until(lambda: desk.state.book_id and desk.state.opening is None)
    after = Page(desk).render()
    for region in ("library", "stage"):
        assert f'src="/covers/{book.sha256}"' in "".join(after[region])


def test_a_cover_that_takes_long_is_given_up_with_its_book(make_desk, engine, tmp_path):
    given_up = threading.Event()

    def cover(_path, *, should_stop, **_kwargs):
        wait_until(should_stop)
        given_up.set()
        return b""

    def read(_path, **_kwargs):
        raise DocumentError("This is no book.")

    desk, path = make_desk(engine, read=read, cover=cover), put(tmp_path)
    desk.imports.upload(str(path), "no-book.epub")
    wait_until(lambda: desk.state.failures)
    wait_until(given_up.is_set)


# --- scanned pages


def scan_reader(book, *, pictures: int = 0):
    """Reads a scan only by OCR; with `pictures`, a book of which so many pages are pictures."""

    def read(_path, *, ocr, progress, should_stop, **_kwargs):
        if not ocr and pictures:
            return replace(book, pictures=pictures, page_starts=(0,) * 10)
        if not ocr:
            raise ScannedPages("8 of 8 pages of old.pdf are pictures.")
        progress("Reading scanned pages", 0.5)
        return replace(book, text=book.text.replace("lamp", "lens"))

    return read


def test_a_scan_is_read_by_ocr_when_the_person_says_so(make_desk, engine, book, tmp_path):
    """The upload must wait for the answer, and be gone after it."""
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.imports.upload(str(path), "old.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.offer)
    assert (
        "8 of 8 pages" in desk.state.opening.offer
        and path.exists()
        and desk.state.notice is None
        and desk.books.current is None
    )
    assert 'data-act="read-pictures"' in offer_html(desk.state.opening)
    desk.imports.read_pictures()
    wait_until(lambda: desk.state.book_id and desk.state.opening is None)
    assert "lens" in desk.books.current.text and not path.exists()


def test_ocr_of_some_pages_replaces_the_book_that_was_opened_without_them(make_desk, engine, book, tmp_path):
    """The engine and the card must not go on with the text that lacked the pictures."""
    desk, path = make_desk(engine, read=scan_reader(book, pictures=4)), put(tmp_path, "old.pdf")
    desk.imports.upload(str(path), "old.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.offer)
    assert "4 of 10 pages" in desk.state.opening.offer and "lamp" in desk.books.current.text
    wait_until(lambda: card(desk))
    desk.imports.read_pictures()
    wait_until(lambda: desk.state.opening is None)
    assert "lens" in desk.books.current.text and engine.forgotten_books == [book.sha256] and not path.exists()


def test_all_of_a_web_page_takes_the_place_of_its_article_and_goes_again(make_desk, engine, tmp_path):
    """The engine must not answer from the other text; the upload is gone by then."""
    desk, path = make_desk(engine, read=lambda path, **_options: read_document(path)), tmp_path / "page.html"
    path.write_text(news()[0], encoding="utf-8")
    desk.imports.files([str(path)])
    wait_until(lambda: desk.state.book_id and desk.state.opening is None)
    path.unlink()
    article = desk.books.current
    for words, shown in (("Show everything on the page", True), ("Show the article alone", False)):
        assert words in Page(desk).render()["stage"][0]
        desk.actions.dispatch({"act": "read-otherwise"})
        assert ("Great read." in desk.books.current.text) is shown
    assert desk.books.current.text == article.text and engine.forgotten_books == [article.sha256] * 2


def test_a_book_read_anew_by_better_rules_replaces_the_one_on_the_shelf(make_desk, engine, book, tmp_path):
    """The file is the same, its chapters are not: the engine must not answer from what the old rules made."""
    older = replace(book, sections=(Section("Section 1", 0, len(book.text)),), reader_version=0)
    read = iter(
        [older, replace(book, reader_version=READER_VERSION), replace(book, reader_version=READER_VERSION)]
    )
    desk = make_desk(engine, read=lambda *_args, **_kwargs: next(read))
    for forgotten in ([], [book.sha256], [book.sha256]):
        desk.imports.upload(str(put(tmp_path, "lamp.txt")), "lamp.txt")
        wait_until(lambda: desk.state.opening is None)
        assert engine.forgotten_books == forgotten
    assert [section.title for section in desk.books.current.chapters] == ["One", "Two"]


def test_an_offer_declined_or_overtaken_leaves_no_file_behind(make_desk, engine, book, tmp_path):
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.imports.upload(str(path), "old.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.offer)
    other = put(tmp_path, "other.pdf")
    desk.imports.upload(str(other), "other.pdf")
    wait_until(
        lambda: desk.state.opening and desk.state.opening.offer and desk.state.opening.name == "other.pdf"
    )
    assert not path.exists() and other.exists()
    desk.imports.cancel()
    assert desk.state.opening is None and not other.exists()


def test_a_file_that_waited_too_long_asks_to_be_dropped_again(make_desk, engine, book, tmp_path):
    """Uploads are swept after a while: the choice must not end in a message about a path."""
    desk, path = make_desk(engine, read=scan_reader(book)), put(tmp_path, "old.pdf")
    desk.imports.upload(str(path), "old.pdf")
    wait_until(lambda: desk.state.opening and desk.state.opening.offer)
    path.unlink()
    desk.imports.read_pictures()
    assert desk.state.opening is None and worded_by(ImportQueue._open_again, desk.state.failures[0])
