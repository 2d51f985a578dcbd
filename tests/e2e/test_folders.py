"""Folders of books in a browser: chosen, listed, opened by a press, put away, and found by the search."""

from __future__ import annotations

import json
import os
import time

import pytest

from app.store.folder_scan import look_through
from tests.support.accessibility import problems
from tests.support.browsing import FOCUSED, tab_to
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import SETTLED, in_both_schemes, look, picture

pytestmark = pytest.mark.e2e
NOVEL = "The keeper lit the lamp. " * 1000
CHOSEN = ".folders-chosen > summary"


@pytest.fixture
def shown(serve, open_page, tmp_path, monkeypatch):
    """A page whose person has calibre's library of nine books: (page, folder)."""
    monkeypatch.setattr("app.desk.book_folders.EVERY_S", 0.2)
    monkeypatch.setattr("app.desk.book_folders.SHARE", 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "Calibre Library"
    for number, title in enumerate(
        ["Emma", "Persuasion", "The Watsons and Other Unfinished Pieces, Annotated"] * 3
    ):
        book = folder / "Jane Austen" / f"{title} {'again ' * (number // 3)}({number})"
        book.mkdir(parents=True)
        (book / f"{number}.txt").write_text(NOVEL + title * number)
        (book / "metadata.opf").write_text("<package/>")
        os.utime(book / f"{number}.txt", (time.time() - 100 * number - 1000,) * 2)
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    serve.desk.folders._look = lambda folders: look_through(folders, now=time.time() + 60)
    return page, folder


def test_a_folder_is_ticked_and_its_books_are_opened_put_away_and_found(shown, home, serve):
    page, folder = shown
    assert page.locator(".found-file").count() == 0
    page.click(CHOSEN)
    page.check(f"input[data-act=watch-folder][value='{folder}']")
    page.wait_for_selector(".found-file >> nth=5")
    assert json.loads((home / "settings.json").read_text()) == {"book_folders": [str(folder)]}
    assert serve.desk.library.entries() == []
    first = page.locator(".found-file").first.inner_text()
    page.locator(".found-files li").first.hover()
    page.locator("[data-act=put-away]").first.click()
    page.wait_for_function("(was) => document.querySelector('.found-file').innerText !== was", arg=first)
    page.fill("[data-search]", "persuasion again again")
    page.wait_for_selector(".hits [data-act=open-found]")
    page.click(".hits [data-act=open-found]")
    page.wait_for_selector(".card h2")
    page.fill("[data-search]", "")
    page.wait_for_selector(".shelf .book")
    page.wait_for_selector(".folders-chosen :text('1 file is not offered')")
    page.click("[data-act=offer-again]")
    page.wait_for_function("(was) => document.querySelector('.found-file').innerText === was", arg=first)


def test_the_keyboard_alone_chooses_a_folder_by_its_path_and_opens_a_book(shown):
    page, folder = shown
    tab_to(page, CHOSEN)
    page.keyboard.press("Enter")
    tab_to(page, "[data-act=add-folder]")
    page.once("dialog", lambda dialog: dialog.accept(str(folder / "none")))
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice:has-text('There is no folder')")
    page.once("dialog", lambda dialog: dialog.accept(str(folder)))
    page.keyboard.press("Enter")
    page.wait_for_selector(".found-file")
    assert page.evaluate(FOCUSED % "[data-act=add-folder]")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, ".found-file")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card h2")


def test_it_looks_right_at_every_size_in_the_dark_and_for_a_screen_reader(shown):
    page, folder = shown
    page.click(CHOSEN)
    page.check(f"input[data-act=watch-folder][value='{folder}']")
    page.wait_for_selector(".found-file >> nth=5")
    for scheme in in_both_schemes(page):
        assert problems(page) == []
        picture(page, f"folders-{scheme}")

    def side() -> None:
        if not page.is_visible(".found-file"):
            page.click(".topbar-tools [data-toggle=shelf]")
            page.wait_for_selector(".found-file", state="visible")
            page.wait_for_function(SETTLED)

    assert look(page, "folders", before=side) == []
