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
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).resolve().parent
REPO = FOLDER.parents[1]
START = (
    "import sys; from app.main import run; from core.config import load_settings\n"
    "sys.exit(run(load_settings(None, {'port': 0, 'fit': 'sections', 'seed': 7}), False))"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 540_000


def take(page: Page, name: str) -> None:
    """One picture."""
    page.wait_for_timeout(400)
    page.screenshot(path=FOLDER / f"{name}.png")


def sit_through(page: Page) -> None:
    """The main job, with a picture of each of its moments."""
    page.wait_for_selector(".engine-ready")
    page.click('.sample:has-text("Thursday")')
    page.wait_for_selector(".card-facts:has-text('tokens')")
    take(page, "card")
    page.click("#summarize")
    page.wait_for_selector("#prefill-box [role=progressbar]")
    page.wait_for_function(
        "Number(document.querySelector('#prefill-box [aria-valuenow]')?.ariaValueNow ?? 100) > 15"
    )
    take(page, "prefilling")
    page.check("[data-levels]", force=True)
    page.wait_for_function("(document.querySelector('#live-text')?.innerText.length ?? 0) > 450")
    take(page, "streaming")
    page.wait_for_selector("#turns .answer footer")
    take(page, "finished")
    page.click('[data-theme-choice="dark"]')
    take(page, "dark")


def main() -> None:
    """Start the app on a data folder of its own (or --home, which may hold the model already), take the
    pictures, end it.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
            page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
            page.set_default_timeout(PATIENCE_MS)
            page.goto(found.group())
            sit_through(page)
            browser.close()
    finally:
        app.terminate()
        app.wait(timeout=30)


if __name__ == "__main__":
    main()
