"""What the app's own process costs while it waits and while it shows an answer, in percent of one core.

    python -m benchmarks.idle [--seconds 30] [--save NAME]

The engine is a script that writes 20 tokens a second, so that no model's work is counted; the page is open in
Chromium (Playwright must be installed; TRIFORCE_CHROMIUM names another one). Only the app's process is
measured, without the engine's and the browser's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parents[2]
from core.events import Acceptance, DecodingStarted, Delta, Event, Finished, Piece, RoundStats
from core.stats import StatsRecorder
from core.wire import messages, pack, to_line

PROGRAM = (sys.executable, "-m", "benchmarks.speed.idle")
TOKENS_PER_S = 20
ROUND_TOKENS = 4
AHEAD = 2000  # words that are there already when the long answer is measured
SETTLE_S = 5.0
AIMS = {"idle": 0.5, "streaming": 5.0}  # percent of one core with a page open; without one, nothing


def main() -> None:
    """Measure, print the table, and store it when asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve_app()
        return
    shares = measure_idle(given.seconds)
    for what, percent in shares.items():
        print(f"{what:<40}  {percent:5.2f} %")
    print(json.dumps(shares))
    if given.save:
        save_idle(given.save, shares, given.seconds)


def measure_idle(seconds: float) -> dict[str, float]:
    """Percent of one core, by what is going on."""
    shares: dict[str, float] = {}
    with app_process() as (process, url):
        time.sleep(SETTLE_S)
        shares["nothing to do, no page"] = share(process, seconds)
        with page_of(url) as page:
            page.click("[data-act=sample]")
            page.wait_for_selector(".card-facts:has-text('tokens')")
            time.sleep(SETTLE_S)
            shares["nothing to do, page open"] = share(process, seconds)
            for words in (0, AHEAD):
                page.fill("#question textarea", f"Go on from word {words}")
                page.press("#question textarea", "Enter")
                page.wait_for_selector("#live-text p")
                time.sleep(SETTLE_S)
                shares[f"an answer streams, from word {words:,} on"] = share(process, seconds)
                page.click("#stop button")
                page.wait_for_selector("#live-text p", state="detached")
        time.sleep(SETTLE_S)
        shares["nothing to do, page closed again"] = share(process, seconds)
    return shares


def share(process: psutil.Process, seconds: float) -> float:
    """Percent of one core that the process takes over so many seconds, its children not counted."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    taken_s = after.user + after.system - before.user - before.system
    return 100 * max(0.0, taken_s) / (time.monotonic() - began)


@contextmanager
def app_process() -> Iterator[tuple[psutil.Process, str]]:
    """The app on a data folder of its own, and an address that opens its page once."""
    with tempfile.TemporaryDirectory() as home:
        started = subprocess.Popen(
            [*PROGRAM, "--serve"],
            cwd=REPO,
            env={**os.environ, "TRIFORCE_HOME": home},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert started.stdout is not None
            yield psutil.Process(started.pid), started.stdout.readline().strip()
        finally:
            started.terminate()
            started.wait(30)


def serve_app() -> None:
    """The app itself, until it is ended."""
    from app.desk.import_queue import Readers
    from app.engine.client import Runtime
    from app.host.secrets import kept_keys
    from app.models.catalogue import Models
    from app.server.main import Server, fresh_url, make_services
    from core.config import Settings
    from core.documents import cover_safely, read_safely
    from core.paths import subdir

    settings = Settings(port=0)
    runtime = Runtime(settings, worker=PROGRAM)
    readers = Readers(read_safely, cover_safely, lambda: False)
    desk = make_services(runtime, models=Models(settings), readers=readers)
    server = Server(desk, settings, keys=kept_keys(subdir("run")))
    signal.signal(signal.SIGTERM, lambda *_: server.ask_to_end())
    print(fresh_url(server.start()), flush=True)
    runtime.start()
    server.wait()
    server.stop()


@contextmanager
def page_of(url: str) -> Iterator:
    """The page in a browser, its engine ready."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        named = os.environ.get("TRIFORCE_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=named, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(url)
        page.wait_for_selector(".engine-ready")
        yield page
        browser.close()


def save_idle(name: str, shares: dict[str, float], seconds: float) -> None:
    """Write benchmarks/results/<name>.json."""
    from benchmarks.lib.results import Table, save_result

    rows = tuple((what, round(percent, 2)) for what, percent in shares.items())
    notes = (
        f"Processor time of the app's process over {seconds:g} s, engine and browser not counted; the engine "
        f"is a script that writes {TOKENS_PER_S} tokens a second.",
        f"Aims: nothing without a page, under {AIMS['idle']:g} % with one, under {AIMS['streaming']:g} % "
        "while an answer streams.",
    )
    save_result(name, [Table("What the app itself costs", ("While", "% of one core"), rows, notes)])


# ---- the scripted engine: speaks the worker's side of the pipe ---------------------------------------------


def work() -> None:
    """Answer the app's commands from stdin until it closes."""
    stopped = threading.Event()
    for message in messages(sys.stdin.buffer):
        number = message.get("id")
        if message["do"] == "load":
            plan = {"model": "script", "device": "cpu", "notes": [], "budget": []}
            facts = {"plan": plan, "model_name": "script", "context_tokens": 32768, "mapped_files": {}}
            say_line(id=number, ready=facts)
        elif message["do"] == "card":
            say_line(
                id=number, card={"tokens": 20000, "share_of_context": 0.6, "fits": True, "parts": ["Book"]}
            )
        elif message["do"] == "room":
            room = {"text": 20000, "turns": [], "question": 20, "answer": 512, "context": 32768}
            say_line(id=number, room={**room, "reading": "full"})
        elif message["do"] == "save":
            say_line(id=number, saved=True)
        elif message["do"] == "stop":
            stopped.set()
        elif message["do"] == "ask":
            stopped.clear()
            words = int(message["ask"]["question"].split()[-1])
            threading.Thread(target=scripted_answer, args=(number, words, stopped), daemon=True).start()


def scripted_answer(number: int, ahead: int, stopped: threading.Event) -> None:
    """Write `ahead` words at once, then one round after the other until stopped."""
    told, counted = [], StatsRecorder(DecodingStarted("triforce", "script", 32768, 20000, 0))
    event(number, counted.started)
    due = time.monotonic()
    while not stopped.is_set():
        words = [word(len(told) + at) for at in range(ROUND_TOKENS if told or not ahead else ahead)]
        told += words
        levels = ("draft", "draft", "retrieval", "target")
        pieces = tuple(Piece(text, levels[at % len(levels)]) for at, text in enumerate(words))
        accepted = Acceptance(len(words) * 3 // 4, len(words))
        one = RoundStats(len(words), len(words) / TOKENS_PER_S, accepted, accepted)
        counted.round(one)
        event(number, Delta(pieces, (one,)))
        due += ROUND_TOKENS / TOKENS_PER_S
        stopped.wait(max(0.0, due - time.monotonic()))
    event(number, Finished("user", "".join(told), counted.stats()))


def word(index: int) -> str:
    """One word of an endless text with paragraphs of forty words."""
    return f"word{index}" + ("\n\n" if index % 40 == 39 else " ")


def event(number: int, event: Event) -> None:
    """One event to the app."""
    say_line(id=number, event=pack(event))


def say_line(**message: object) -> None:
    """One line to the app, in one go: the answer is told by a thread of its own."""
    os.write(1, to_line(message))


if __name__ == "__main__":
    work() if "--parent" in sys.argv else main()
