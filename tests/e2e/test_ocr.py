"""A scan in a browser: OCR is installed after a yes to its size, then the file is read."""

from __future__ import annotations

import pytest

from app.desk.import_queue import Readers
from core.documents import cover_safely, read_document
from core.errors import ScannedPages, UserError
from tests.support.fake_runtime import FakeRuntime

pytestmark = pytest.mark.e2e


def test_ocr_is_installed_by_a_button_after_a_yes(serve, open_page, drop, sample):
    def read(path, *, password=None, ocr=False, **_how):
        if not ocr:
            raise ScannedPages("8 of 8 pages are pictures and need OCR.")
        return read_document(path)

    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2), read=read))
    imports, tries, asked = serve.desk.imports, [], []

    def install(progress, _should_stop) -> None:
        progress("Downloading rapidocr (27.3 MB)", 0.5)
        tries.append(True)
        if len(tries) == 1:
            raise UserError("OCR could not be installed: no network.")

    imports._readers = Readers(read, cover_safely, lambda: len(tries) > 1, install)
    page.on(
        "dialog", lambda one: (asked.append(one.message), one.dismiss() if len(asked) == 1 else one.accept())
    )
    drop(page, sample)
    page.click("[data-act=install-ocr]")
    assert "120\u00a0MB" in asked[0] and tries == []
    page.click("[data-act=install-ocr]")
    page.wait_for_selector(".notice:has-text('no network')")
    page.click("[data-act=install-ocr]")
    page.wait_for_selector(".card h2")
    assert len(tries) == 2
