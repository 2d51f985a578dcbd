"""Takes the pictures in this folder from the real app: a browser, the embedded model, a sample. Run: python
docs/screenshots/take.py

Needs Playwright and a Chromium (TRIFORCE_CHROMIUM names one). The figures in the pictures are those of the
machine it runs on.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).resolve().parent
REPO = FOLDER.parents[1]
START = (
    "import sys; from app.server.main import run_app; from core.config import load_settings\n"
    "sys.exit(run_app(load_settings(None, {'port': 0, 'seed': 7, 'read_whole_s': 5}), False))"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 600_000
COMMONEST = 96  # of 256 colours
# (width, height, zoom): a telephone's window, one of 1280 x 800 at 200 %, half a screen, and a large screen
WINDOWS = {"narrow": (390, 844, 1), "zoomed": (640, 400, 2), "middle": (900, 800, 1), "wide": (1920, 1080, 1)}
READ_SO_FAR = "Number(document.querySelector('#prefill-box [aria-valuenow]')?.ariaValueNow ?? 0) > 25"
TOLD_SO_FAR = (
    "[...document.querySelectorAll('#live-text ins')].map((one) => one.textContent).join('').length > 40"
    " && Number(document.querySelector('#prefill-box [aria-valuenow]')?.ariaValueNow ?? 0) > 30"
    " && /\\d/.test(document.querySelector('.level-draft small')?.textContent ?? '')"
)


def take(page: Page, name: str, *, after_ms: int = 1500) -> None:
    """One picture, once colours have changed and bars have grown."""
    page.wait_for_timeout(after_ms)
    path = FOLDER / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    page.screenshot(path=path)
    with_few_colours(Image.open(path).convert("RGB")).save(path, optimize=True)


def with_few_colours(picture: Image.Image) -> Image.Image:
    """A third of the bytes: the commonest colours as they are, so that no ground changes its tint, and those
    that cover the rest, so that a small spot keeps its own.
    """
    found = sorted(picture.getcolors(1 << 24), reverse=True)[:COMMONEST]
    few = 256 - len(found)
    rest = picture.quantize(few, method=Image.Quantize.MAXCOVERAGE).getpalette()[: 3 * few]
    palette = np.array([*(colour for _count, colour in found), *np.reshape(rest, (-1, 3))])
    colours, where = np.unique(np.asarray(picture).reshape(-1, 3), axis=0, return_inverse=True)
    nearest = [np.square(palette - one).sum(1).argmin() for one in colours.astype(int)]
    few_only = Image.fromarray(np.array(nearest, np.uint8)[where].reshape(picture.height, picture.width), "P")
    few_only.putpalette(palette.astype(np.uint8).tobytes())
    return few_only


def ask(page: Page, question: str, *, answers: int) -> None:
    """Asks, and waits for the answer of that number and its figures."""
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f"#turns .answer footer >> nth={answers - 1}")
    page.wait_for_selector("#panel .tag:has-text('Last answer')")


def sit_through(page: Page) -> None:
    """The five minutes of docs/user-guide.md, with a picture of each of its moments."""
    page.wait_for_selector(".engine-ready")
    page.click('.sample:has-text("Thursday")')
    page.wait_for_selector(".card-facts:has-text('tokens')")
    page.wait_for_selector(".two-ways")
    take(page, "card")

    page.click("[data-act=later-model]")
    ask(page, "How many clocks did the Wend and Coast Railway own?", answers=1)
    page.check("[data-levels]", force=True)
    ask(page, "Which bird is cut into the seal ring?", answers=2)
    page.evaluate("document.getElementById('scroller').scrollTop = 1e6")
    take(page, "answer")
    page.uncheck("[data-levels]", force=True)
    page.click("#turns .answer:last-child .cite >> nth=0")
    page.wait_for_selector("#reader mark")
    take(page, "place")
    names(page)
    recap(page)
    page.click("#tab-live")
    page.click(".own summary")
    page.fill("[data-act=instruct-book]", "Answer in German, briefly.")
    take(page, "instructions")
    page.fill("[data-act=instruct-book]", "")
    page.keyboard.press("Tab")
    page.click(".own summary")

    page.click("[data-act=new]")
    page.select_option("#ways select[data-act=reading-mode]", "chunked")
    page.fill("#question textarea", "Who moved the hands of the clock?")
    page.press("#question textarea", "Enter")
    page.wait_for_function(READ_SO_FAR)
    take(page, "reading", after_ms=200)
    page.evaluate("document.querySelector('#stop button')?.click()")  # a fast computer may be done by now
    page.wait_for_selector("#turns .answer footer")

    page.click("[data-act=new]")
    summary(page)
    page.click('[data-theme-choice="dark"]')
    take(page, "summary-dark")


def names(page: Page) -> None:
    """Who occurs up to the place that stands open, and one of them with every mention."""
    page.click("[data-act=names]")
    page.click('.name-row[data-id="Mr. Tull"]')
    page.wait_for_selector(".name-card")
    take(page, "names")
    page.click("[data-act=names]")
    page.wait_for_selector(".name-row", state="detached")


def recap(page: Page) -> None:
    """The ways back into a book, unfolded over the place that stands open."""
    page.click(".recap summary")
    take(page, "recap")
    page.click(".recap summary")


def series(page: Page) -> None:
    """The two samples in an order, and a name of the second that the first has."""
    page.click('.sample:has-text("Holm")')
    page.wait_for_selector(".card h2:has-text('Holm')")
    page.wait_for_selector(".opening", state="detached")
    page.click('.shelf .book:has-text("Thursday")')
    page.wait_for_selector(".card h2:has-text('Thursday')")
    page.click("#tab-reader")
    page.click(".series > summary")
    page.select_option(
        "[data-act=follow]", label=page.locator("[data-act=follow] option").nth(1).inner_text()
    )
    page.wait_for_selector(".volumes li >> nth=1")
    page.click("[data-act=names]")
    page.once("dialog", lambda asked: asked.accept())
    page.click("[data-act=names-up-to][data-value=all]")
    page.click(".name-row:has(.name-known) >> nth=0")
    page.wait_for_selector(".name-earlier blockquote")
    page.locator(".name-earlier").scroll_into_view_if_needed()
    take(page, "series")


def summary(page: Page) -> None:
    """A summary of the sample that is open, in its middle and at its end."""
    page.click("#summarize")
    page.wait_for_function(TOLD_SO_FAR)
    page.evaluate("document.querySelector('#live-text ins')?.scrollIntoView({ block: 'center' })")
    take(page, "telling", after_ms=0)
    page.wait_for_selector("#turns .answer footer")
    page.evaluate("document.getElementById('scroller').scrollTop = 0")


def in_other_windows(browser: Browser, page: Page) -> None:
    """What `page` shows, and the place of its first mark, in windows of other sizes."""
    page.click('[data-theme-choice="light"]')
    entered, address = page.context.storage_state(), page.url
    page.close()
    for name, (width, height, zoom) in WINDOWS.items():
        context = browser.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=zoom,
            color_scheme="light",
            storage_state=entered,
        )
        other = context.new_page()
        other.set_default_timeout(PATIENCE_MS)
        other.goto(address)
        other.wait_for_selector("#turns .answer footer")
        other.evaluate("[...document.querySelectorAll('.bubble')].at(-1).scrollIntoView({ block: 'center' })")
        take(other, name)
        other.click("#turns .answer:last-child .text [data-act=cite] >> nth=0")
        other.wait_for_selector("#reader mark")
        take(other, f"{name}-place")
        context.close()


def with_app(tell: Callable[[Browser, str], None]) -> None:
    """Start the app on a data folder of its own (or --home, which may hold the model already), give a browser
    and the app's address to `tell`, end both.
    """
    parser = argparse.ArgumentParser(description="Takes pictures of the app.")
    parser.add_argument("--home", type=Path, default=None)
    home = parser.parse_args().home or Path(tempfile.mkdtemp())
    environ = {**os.environ, "TRIFORCE_HOME": str(home), "PYTHONPATH": str(REPO)}
    app = subprocess.Popen(
        [sys.executable, "-c", START], cwd=REPO, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert app.stdout is not None
        found = re.search(r"http://\S+", app.stdout.readline())
        assert found, "the app did not start"
        with sync_playwright() as playwright:
            named = os.environ.get("TRIFORCE_CHROMIUM") or shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=named, args=list(FLAGS))
            tell(browser, found.group())
            browser.close()
    finally:
        app.terminate()
        app.wait(timeout=120)


def in_english(browser: Browser, address: str) -> None:
    """The pictures of docs/user-guide.md and of the README."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    sit_through(page)
    entered, place = page.context.storage_state(), page.url
    in_other_windows(browser, page)
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", storage_state=entered
    )
    last = context.new_page()
    last.set_default_timeout(PATIENCE_MS)
    last.goto(place)
    series(last)


if __name__ == "__main__":
    with_app(in_english)
