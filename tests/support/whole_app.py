"""The whole product for a browser test: the app as its own process, with the embedded model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil

from core.paths import ROOT

FAILED = "#turns .failed, .engine-failed, .notice-error"
START = (
    "import json, sys; from app.server.main import run_app; from core.config import load_settings\n"
    "sys.exit(run_app(load_settings(None, json.loads(sys.argv[1])), False))"
)
# the engine's process rests once while it reads, until it is stopped
RESTING = (
    "import sys; from app.engine.client import Runtime\n"
    "Runtime.__init__.__kwdefaults__['worker'] = (sys.executable, 'tests/support/resting_worker.py')\n"
) + START
GIVEN = {"port": 0, "threads": 2, "max_new_tokens": 48, "reading_mode": "full"}


def launched() -> Iterator[Callable]:
    """Gives a function that starts the app on the test's data folder: its process, with its address. Kills at
    the end what the test has not ended.
    """
    started = []

    def start(code=START, **given):
        command = [sys.executable, "-c", code, json.dumps({**GIVEN, **given})]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"the app did not start: {line!r}"
        process.url = found.group()
        return process

    yield start
    for process in started:
        running = process.poll() is None
        for left in [*psutil.Process(process.pid).children(recursive=True), process] if running else []:
            left.kill()
        process.wait()


def ask(page, question: str, *, answer: int) -> None:
    """Asks, and waits for the answer of that number."""
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    answered(page, answer)


def answered(page, answer: int = 0) -> None:
    """Waits for the end of the answer of that number; fails at once where the page says that it failed."""
    failed = page.locator(FAILED)
    page.locator(f"#turns .answer footer >> nth={answer}").or_(failed).first.wait_for()
    assert not failed.count(), failed.all_inner_texts()


def visited(open_page, url: str):
    """A page of the app, which may be slow."""
    page = open_page(url)
    page.set_default_timeout(120_000)
    return page
