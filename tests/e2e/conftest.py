"""The app in a real browser. A page that logs an error or asks another machine for a thing fails its test."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.browsing import DROP
from tests.support.whole_app import launched

# Gradio's words when a page is left while its channel is open
LEAVING = ("signal is aborted", "BodyStreamBuffer was aborted", "Connection errored out")
# this machine alone: its address, and the name that the page lives under
HERE = re.compile(r"(data|blob):|http://(127\.0\.0\.1|triforce-[0-9a-f]{16}\.localhost):\d+/")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",  # as in a window: without it chromium-headless-shell writes other widths
)


@pytest.fixture(scope="session")
def browser():
    """Chromium: the system's (TRIFORCE_CHROMIUM names another), else the one that Playwright installed.

    Without windows (chromium-headless-shell) it loads a page at half the cost.
    """
    api = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install -r requirements-test.txt"
    )
    found = (shutil.which(name) for name in ("chromium-headless-shell", "chromium", "google-chrome"))
    named = os.environ.get("TRIFORCE_CHROMIUM") or next(filter(None, found), None)
    with api.sync_playwright() as playwright:
        if not named and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no browser: install chromium, or run `playwright install chromium`")
        made = playwright.chromium.launch(executable_path=named, args=list(FLAGS))
        yield made
        made.close()


@pytest.fixture
def serve(home, monkeypatch) -> Callable:
    """A function that serves a desk with the given engine and returns the page's address. At the test's end
    its server looks often whether it is to end.
    """
    monkeypatch.setattr("app.server.gradio_internals.TICK_S", 0.05)
    from app.desk.import_queue import Readers
    from app.host.secrets import kept_keys
    from app.models.catalogue import Models
    from app.server.main import Server, fresh_url, make_services
    from core import paths
    from core.config import Settings
    from core.documents import cover_safely, read_document
    from core.hardware.gpus import imagined_hardware

    servers = []

    def plainly(path, *, password=None, ocr=False, progress=None, should_stop=None):
        return read_document(path, password=password)

    def start(engine, *, read=plainly, models=None, preferences=None, **changes) -> str:
        models = models or Models(Settings(), look=imagined_hardware)
        readers = Readers(read, cover_safely, lambda: True)
        desk = make_services(engine, models=models, readers=readers, preferences=preferences)
        server = Server(desk, Settings(port=0, **changes), keys=kept_keys(paths.subdir("run")))
        servers.append(server)
        address = server.start()
        engine.start()
        start.desk, start.server, start.address = desk, server, address
        return fresh_url(address)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def launch(home_with_model) -> Iterator[Callable]:
    """A function that starts the app as its own process: see tests.support.whole_app."""
    yield from launched()


@pytest.fixture
def open_page(browser) -> Callable:
    """A function that opens an address in a fresh browser profile. Errors and foreign requests fail the test
    at its end.
    """
    contexts, wrong = [], []

    def watch(page) -> None:
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text)
                if message.type == "error" and not any(words in message.text for words in LEAVING)
                else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "requestfailed",
            lambda request: (
                None
                if "ERR_ABORTED" in (request.failure or "")
                else wrong.append(f"{request.url} failed: {request.failure}")
            ),
        )
        page.on(
            "request",
            lambda request: (
                None if HERE.match(request.url) else wrong.append(f"foreign request {request.url}")
            ),
        )

    def start(url: str, *, width: int = 1280, height: int = 800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(40_000)
        watch(page)
        page.goto(url)
        page.wait_for_selector("body[data-connected] .engine-ready, body[data-connected] .engine-loading")
        return page

    yield start
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def drop() -> Callable:
    """A function that drops a file on an element the way a person does: dragenter, dragover, drop with a
    DataTransfer.
    """

    def do(page, path: Path, selector: str = ".drop-hero", name: str | None = None) -> None:
        page.evaluate(DROP, [base64.b64encode(path.read_bytes()).decode(), name or path.name, selector])

    return do


@pytest.fixture
def sample() -> Path:
    """The project's own book."""
    return Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-thursday-clock.epub"
