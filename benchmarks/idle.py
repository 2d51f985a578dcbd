"""What the app's own process costs while it waits and while it shows an answer, in percent of one core.

    python benchmarks/idle.py [--seconds 30] [--before FOLDER] [--save NAME]

The engine is a script that writes 20 tokens a second, so that no model's work is counted; the page is open in
Chromium (Playwright must be installed). Only the app's process is measured, without the engine's and the
browser's. `--before` is another checkout, measured the same way for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parent.parent
# started as a file: the repository measured is on the path, and not this folder
if not __package__:
    sys.path[0] = os.environ.get("IDLE_TREE", str(REPO))

from core.events import Acceptance, Delta, Event, Finished, Piece, Stats  # noqa: E402 (the path above)
from core.wire import from_line, pack, to_line  # noqa: E402

TOKENS_PER_S = 20
ROUND_TOKENS = 4
AHEAD = 2000  # words that are there already when the long answer is measured
SETTLE_S = 5.0
APP = """
import sys
sys.path[0] = {tree!r}
from app.main import Server, make_desk
from app.models import Models
from app.runtime import Runtime
from core.config import Settings
from core.documents import cover_safely, read_safely
settings = Settings(port=0)
models, runtime = Models(settings), Runtime(settings, worker={worker!r})
desk = make_desk(
    runtime, models=models, read=read_safely, cover=cover_safely, can_ocr=lambda: False
)
server = Server(desk, settings)
print(server.start().url, flush=True)
runtime.start()
server.wait()
server.stop()
"""


def main() -> None:
    """Measure, print the table, and store it when asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--save", metavar="NAME")
    given = parser.parse_args()
    trees = {"now": REPO, **({"before": given.before.resolve()} if given.before else {})}
    shares = {name: measure(tree, given.seconds) for name, tree in trees.items()}
    for what in shares["now"]:
        print(f"{what:<40}" + "".join(f"  {name} {found[what]:5.2f} %" for name, found in shares.items()))
    print(json.dumps(shares))
    if given.save:
        store(given.save, shares, given.seconds)


def measure(tree: Path, seconds: float) -> dict[str, float]:
    """Percent of one core, by what is going on."""
    shares: dict[str, float] = {}
    with app_of(tree) as (process, url):
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
def app_of(tree: Path) -> Iterator[tuple[psutil.Process, str]]:
    """The app of a checkout on a data folder of its own, and the address of its page."""
    worker = (sys.executable, str(Path(__file__).resolve()))
    with tempfile.TemporaryDirectory() as home:
        app = subprocess.Popen(
            [sys.executable, "-c", APP.format(tree=str(tree), worker=worker)],
            cwd=tree,
            env={**os.environ, "TRIFORCE_HOME": home, "IDLE_TREE": str(tree)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert app.stdout is not None
            yield psutil.Process(app.pid), app.stdout.readline().strip()
        finally:
            app.terminate()
            app.wait(30)


@contextmanager
def page_of(url: str) -> Iterator:
    """The page in a browser, its engine ready."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(url)
        page.wait_for_selector(".engine-ready")
        yield page
        browser.close()


def store(name: str, shares: dict[str, dict[str, float]], seconds: float) -> None:
    """Write benchmarks/results/<name>.json."""
    from benchmarks.store import Table, save

    titles = {"before": "% of one core, before", "now": "% of one core"}
    kinds = [kind for kind in titles if kind in shares]
    rows = tuple((what, *(round(shares[kind][what], 2) for kind in kinds)) for what in shares["now"])
    notes = (
        f"Processor time of the app's process over {seconds:g} s, engine and browser not counted; the engine "
        f"is a script that writes {TOKENS_PER_S} tokens a second.",
        "Before: page updates in Gradio's queue (commit c77d095).",
    )
    columns = ("While", *(titles[kind] for kind in kinds))
    save(name, [Table("What the app itself costs", columns, rows, notes[: len(kinds)])])


# ---- the scripted engine: speaks the worker's side of the pipe ---------------------------------------------


def work() -> None:
    """Answer the app's commands from stdin until it closes."""
    stopped = threading.Event()
    for line in sys.stdin.buffer:
        message = from_line(line)
        number = message.get("id")
        if message["do"] == "load":
            plan = {"model": "script", "device": "cpu", "notes": [], "budget": []}
            say(id=number, ready={"plan": plan, "model_name": "script", "context_tokens": 32768})
        elif message["do"] == "card":
            say(id=number, card={"tokens": 20000, "share_of_context": 0.6, "fits": True, "parts": ["Book"]})
        elif message["do"] == "save":
            say(id=number, saved=True)
        elif message["do"] == "stop":
            stopped.set()
        elif message["do"] == "ask":
            stopped.clear()
            # the older wire has the question beside the command
            question = (message.get("ask") or message)["question"]
            words = int(question.split()[-1])
            threading.Thread(target=answer, args=(number, words, stopped), daemon=True).start()


def answer(number: int, ahead: int, stopped: threading.Event) -> None:
    """Write `ahead` words at once, then one round after the other until stopped."""
    told: list[str] = []
    series: tuple[float, ...] = ()
    due = time.monotonic()
    while not stopped.is_set():
        words = [word(len(told) + at) for at in range(ROUND_TOKENS if told or not ahead else ahead)]
        told += words
        series = (*series, 50 + len(told) % 7 / 3)[-300:]
        levels = ("draft", "draft", "retrieval", "target")
        pieces = tuple(Piece(text, levels[at % len(levels)]) for at, text in enumerate(words))
        event(number, Delta(pieces, stats(len(told), series)))
        due += ROUND_TOKENS / TOKENS_PER_S
        stopped.wait(max(0.0, due - time.monotonic()))
    event(number, Finished("user", "".join(told), stats(len(told), series)))


def stats(tokens: int, series: tuple[float, ...]) -> Stats:
    """As many figures as a real answer has."""
    accepted = Acceptance(tokens * 3 // 4, tokens)
    return Stats(
        mode="triforce",
        model="script",
        prompt_tokens=20000,
        new_tokens=tokens,
        rounds=tokens // ROUND_TOKENS,
        tokens_per_round=ROUND_TOKENS,
        tokens_per_s=TOKENS_PER_S,
        tbt_last_ms=series[-1],
        tbt_p50_ms=50.0,
        tbt_p95_ms=52.0,
        tbt_mean_ms=51.0,
        acceptance_draft=accepted,
        acceptance_retrieval=accepted,
        context_used=20000 + tokens,
        context_total=32768,
        tbt_series_ms=series,
        acceptance_series=tuple(0.7 + value % 3 / 10 for value in series),
    )


def word(index: int) -> str:
    """One word of an endless text with paragraphs of forty words."""
    return f"word{index}" + ("\n\n" if index % 40 == 39 else " ")


def event(number: int, event: Event) -> None:
    """One event to the app."""
    say(id=number, event=pack(event))


def say(**message: object) -> None:
    """One line to the app, in one go: the answer is told by a thread of its own."""
    os.write(1, to_line(message))


if __name__ == "__main__":
    work() if "--parent" in sys.argv else main()
