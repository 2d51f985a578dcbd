"""Takes the pictures of the page in each of its languages, into a folder for each, and of a Hebrew book, from
the real app. Run: python docs/screenshots/languages.py [--home FOLDER]

Needs what take.py needs, and a font that has Chinese. Settings shows the folder of --home.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]

import take  # noqa: E402

from tests.support.scripts import BOOKS, as_text  # noqa: E402

LOCALES = {"en": "en-GB", "de": "de-DE", "zh": "zh-CN"}
QUESTION = "How many clocks did the Wend and Coast Railway own?"


def in_all(browser: Browser, address: str) -> None:
    """Before the first book, and with it, in each language: the one that its browser asks for."""
    first = browser.new_page()
    first.set_default_timeout(take.PATIENCE_MS)
    first.goto(address)
    first.wait_for_selector(".engine-ready")
    entered = first.context.storage_state()  # the address lets one browser in, once
    for show in (at_the_start, with_a_book):
        for code in LOCALES:
            context = browser.new_context(
                locale=LOCALES[code],
                viewport={"width": 1280, "height": 800},
                color_scheme="light",
                storage_state=entered,
            )
            show(opened(context, first.url, code), code)
            context.close()
    context = browser.new_context(
        locale="en-GB", viewport={"width": 1280, "height": 540}, color_scheme="light", storage_state=entered
    )
    in_hebrew(opened(context, first.url, "en"))


def opened(context: BrowserContext, address: str, code: str) -> Page:
    """The page as a reader of this language gets it."""
    page = context.new_page()
    page.set_default_timeout(take.PATIENCE_MS)
    page.goto(address)
    page.wait_for_selector(".engine-ready")
    page.wait_for_function(f"document.documentElement.lang.startsWith('{code}')")
    return page


def at_the_start(page: Page, code: str) -> None:
    """Before the first book, with the models of this computer."""
    page.wait_for_selector(".models .model")
    take.take(page, f"{code}/start")


def with_a_book(page: Page, code: str) -> None:
    """An answer with its place in the book, the library, the models, Settings."""
    if page.query_selector(".book-open"):
        page.click(".book-open")
        page.click("[data-act=new]")
        page.wait_for_selector("#turns .answer", state="detached")
    else:
        page.click('.sample:has-text("Thursday")')
    page.wait_for_selector(".card-facts")
    page.fill("#question textarea", QUESTION)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer")
    page.click("#turns .answer:last-child .cite >> nth=0")
    page.wait_for_selector("#reader mark")
    page.evaluate("document.getElementById('scroller').scrollTop = 1e6")
    take.take(page, f"{code}/answer")
    page.click("#tab-live")
    page.evaluate("document.querySelector('.shelf').scrollIntoView()")
    page.locator("#left").screenshot(path=FOLDER / code / "library.png")
    page.evaluate("document.querySelector('.models').scrollIntoView()")
    page.click(".models details:last-of-type summary")
    page.locator("#left").screenshot(path=FOLDER / code / "models.png")
    page.click("[data-toggle=settings]")
    page.wait_for_selector("#settings details")
    take.take(page, f"{code}/settings")


def in_hebrew(page: Page) -> None:
    """A book that runs from right to left, with a place that was found though it is written with points."""
    book = next(one for one in BOOKS if one.code == "he")
    with page.expect_file_chooser() as chooser:
        page.click(".drop-small")
    chooser.value.set_files(
        {"name": f"{book.title}.txt", "mimeType": "text/plain", "buffer": as_text(book).encode()}
    )
    page.wait_for_selector(f".book-current:has-text('{book.title}')")
    page.click("#tab-reader")
    page.wait_for_selector("#reader p[data-offset]")
    page.fill("[data-find]", book.sought)
    page.wait_for_selector(".found")
    page.press("[data-find]", "Enter")
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)
    page.locator("#right").screenshot(path=FOLDER / "book-he.png")


if __name__ == "__main__":
    take.with_app(in_all)
