"""How books come in, in a real browser: dropped and chosen, several at once, refused, read by OCR; and their
covers.
"""

from __future__ import annotations

import base64
import time

import pytest

from core.documents import read_document
from core.errors import PasswordNeeded, ScannedPages
from tests.support.browsing import admission, engine

DROP_ALL = """(files) => {
  const transfer = new DataTransfer();
  for (const [data, name] of files)
    transfer.items.add(new File([Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))], name));
  const drop = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer });
  document.querySelector(".drop-hero").dispatchEvent(drop);
}"""
pytestmark = pytest.mark.e2e


def test_a_book_stands_on_the_shelf_with_its_own_cover(serve, open_page, drop, shared_data):
    """The sample books have none; an EPUB of a publisher does."""
    page = open_page(serve(engine()))
    drop(page, shared_data / "books" / "moby-dick.epub")
    page.wait_for_selector("img.cover-large")
    loaded = (
        "[...document.querySelectorAll('img.cover')].every(one => one.complete && one.naturalWidth > 100)"
    )
    page.wait_for_function(loaded)
    assert page.locator("img.cover").count() == 2


def test_the_first_page_of_a_pdf_is_its_cover_and_a_text_gets_a_drawn_one(
    serve, open_page, drop, sample, tmp_path
):
    page = open_page(serve(engine()))
    drop(page, sample.with_suffix(".pdf"))
    page.wait_for_selector("img.cover-large")
    page.wait_for_function("document.querySelector('.book img.cover').naturalWidth > 100")
    (tmp_path / "plain.txt").write_text("Chapter 1\n\n" + "A plain text has no picture. " * 60)
    drop(page, tmp_path / "plain.txt", "#middle")
    page.wait_for_selector("span.cover-large")
    assert page.locator(".book span.cover").count() == 1 and page.locator(".book img.cover").count() == 1


def test_a_file_that_is_no_book_is_refused_in_one_sentence(serve, open_page, drop, tmp_path):
    wrong = tmp_path / "cover.pdf"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    page = open_page(serve(engine()))
    drop(page, wrong)
    page.wait_for_selector(".notice-error")
    assert "Traceback" not in page.inner_text(".notice-error")
    page.wait_for_selector(".drop-hero", state="visible")
    page.click(".notice [data-act=dismiss-failures]")
    page.wait_for_selector(".notice", state="detached")


def test_a_file_over_the_limit_is_refused_before_and_by_the_server(serve, open_page, drop, tmp_path):
    big = tmp_path / "big.txt"
    big.write_text("x" * (1024 * 1024 + 10))
    url = serve(engine(), max_upload_mb=1)
    page = open_page(url)
    drop(page, big)
    page.wait_for_selector(".notice-error:has-text('limit of 1 MB')")
    answer = page.request.post(
        f"http://127.0.0.1:{serve.address.port}/gradio_api/upload",
        headers=admission(page),
        multipart={"files": {"name": "a.txt", "mimeType": "text/plain", "buffer": big.read_bytes()}},
    )
    assert answer.status == 413


def test_files_chosen_together_all_come_to_the_shelf(serve, open_page, sample):
    page = open_page(serve(engine()))
    with page.expect_file_chooser() as chooser:
        page.click(".drop-hero")
    other = sample.with_name("the-light-on-the-holm.epub")
    chooser.value.set_files([sample, other])
    page.wait_for_selector(".shelf .book >> nth=1")
    page.wait_for_selector(".card h2:has-text('The Light on the Holm')")


def test_files_dropped_together_are_read_one_after_another(serve, open_page, sample):
    page = open_page(serve(engine()))
    files = [sample, sample.with_name("the-light-on-the-holm.epub")]
    page.evaluate(DROP_ALL, [[base64.b64encode(one.read_bytes()).decode(), one.name] for one in files])
    page.wait_for_selector(".shelf .book >> nth=1")
    page.wait_for_selector(".card h2:has-text('The Light on the Holm')")
    assert page.locator(".shelf .book").count() == 2


def test_a_protected_file_is_given_up_by_a_button_or_escape(serve, open_page, drop, sample):
    """Its box covered a third of the conversation, also after a reload, until another book was added."""

    def read(_path, *, password=None, **_how):
        raise PasswordNeeded("That password does not open it." if password else "It needs a password.")

    page = open_page(serve(engine(), read=read))
    for give_up in (lambda: page.click(".locked button"), lambda: page.press("#password input", "Escape")):
        drop(page, sample, name="old.pdf")
        page.wait_for_selector("#password input")
        page.fill("#password input", "wrong")
        page.press("#password input", "Enter")
        page.wait_for_selector(".locked .wrong")
        give_up()
        page.wait_for_selector("#password input", state="hidden")
    page.reload()
    page.wait_for_selector("body[data-connected] .drop-hero")
    assert not page.is_visible("#password-box")


def test_a_scan_is_read_by_ocr_with_progress_and_can_be_cancelled(serve, open_page, drop, sample):
    """The offer, the bar while pages are read, Cancel, and the book in the end; the reader is a script."""
    slow = [True]

    def read(path, *, ocr, progress, should_stop, password=None):
        if not ocr:
            raise ScannedPages("12 of 12 pages of old.pdf are pictures without a text layer.")
        while slow[0] and not should_stop():
            progress("Looking hard", 0.25)
            time.sleep(0.05)
        return read_document(sample)

    page = open_page(serve(engine(), read=read))
    drop(page, sample, name="old.pdf")
    page.click("text=Read them with OCR")
    page.wait_for_selector(".opening [aria-valuenow='25']")
    assert "Looking hard" in page.inner_text(".opening")
    page.click(".opening >> text=Cancel")
    page.wait_for_selector(".drop-hero")
    assert not page.is_visible(".card")

    slow[0] = False
    drop(page, sample, name="old.pdf")
    page.wait_for_selector(".notice:has-text('12 of 12 pages')")
    page.click("text=Not now")
    page.wait_for_selector(".notice", state="detached")
    drop(page, sample, name="old.pdf")
    page.click("text=Read them with OCR")
    page.wait_for_selector(".card h2:has-text('The Thursday Clock')")
