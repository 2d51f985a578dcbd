"""From the command to something to look at: seconds to extract a book, to a page, to a finished summary, and
to a book opened again.

    python -m benchmarks.startup [--runs 3] [--book FILE] [--save NAME]

Runs `launcher.py` as a user does, so the environment must be there (run `python3 launcher.py doctor` once
before). Each figure is the median of the runs. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import http.cookiejar
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parents[2]
from benchmarks.lib.results import Table, save_result

LAUNCHER = [sys.executable, str(REPO / "launcher.py")]
SAMPLE = REPO / "assets" / "samples" / "the-thursday-clock.epub"
OPEN_AT = re.compile(r"open at (http://127\.0\.0\.1:\S+)")
NEW_TOKENS = 200


@dataclass(frozen=True, slots=True)
class SummaryRun:
    """One run of summarize: wall time of the whole command, and what it said of itself."""

    seconds: float
    figures: dict


def timed_extract(book: Path) -> float:
    """Seconds of `launcher.py extract`: interpreter, imports and the reader, no model."""
    started = time.perf_counter()
    subprocess.run([*LAUNCHER, "extract", str(book)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def timed_page() -> float:
    """Seconds until `launcher.py serve` has answered with the whole page; the app is ended afterwards."""
    started = time.perf_counter()
    app = subprocess.Popen([*LAUNCHER, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None
        address = next(match[1] for match in map(OPEN_AT.search, app.stdout) if match)
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        page = (
            urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
            .open(address, timeout=60)
            .read()
        )
        seconds = time.perf_counter() - started
        assert b"TriForce Chat" in page, f"not our page: {page[:80]!r}"
        return seconds
    finally:
        app.terminate()
        app.wait(timeout=30)


def timed_summary(book: Path) -> SummaryRun:
    """`launcher.py summarize` of the whole book, model loading included."""
    started = time.perf_counter()
    command = [
        *LAUNCHER,
        "summarize",
        str(book),
        "--max-new-tokens",
        str(NEW_TOKENS),
        "--seed",
        "1",
        "--json",
    ]
    said = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    return SummaryRun(time.perf_counter() - started, json.loads(said.stdout.splitlines()[-1]))


@dataclass(frozen=True, slots=True)
class QuestionRun:
    """One run of a question about the whole book: seconds from the command to the first letter, and what it
    said of itself.
    """

    first_letter_s: float
    figures: dict


def timed_openings(book: Path, runs: int) -> tuple[list[QuestionRun], list[QuestionRun]]:
    """A question in a new process, `runs` times without a snapshot of the book and `runs` times with it. The
    user's own are not touched.
    """
    models = subprocess.run(
        [*LAUNCHER, "models", "path"], check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "models").symlink_to(models, target_is_directory=True)
        fresh = []
        for _ in range(runs):
            shutil.rmtree(Path(home) / "snapshots", ignore_errors=True)
            fresh.append(_timed_opening(book, home))
        again = [_timed_opening(book, home) for _ in range(runs)]
    assert all(one.figures["snapshot_tokens"] == 0 for one in fresh), (
        "a snapshot was used where there was none"
    )
    assert all(one.figures["snapshot_tokens"] > 0 for one in again), "the book was not stored"
    return fresh, again


def _timed_opening(book: Path, home: str) -> QuestionRun:
    command = [
        *LAUNCHER,
        "summarize",
        str(book),
        "--reading-mode",
        "full",
        "--question",
        "Who is the main character?",
        "--max-new-tokens",
        "32",
        "--seed",
        "1",
        "--json",
    ]
    started = time.perf_counter()
    said = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TRIFORCE_HOME": home})
    assert said.stdout is not None
    first = said.stdout.read(1)
    seconds = time.perf_counter() - started
    rest = said.stdout.read()
    assert said.wait() == 0, f"the command failed after {first + rest!r}"
    return QuestionRun(seconds, json.loads(rest.splitlines()[-1]))


def openings_table(book: str, fresh: list[QuestionRun], again: list[QuestionRun]) -> Table:
    """The medians side by side."""

    def medians(read: Callable[[QuestionRun], float]) -> tuple[float, float]:
        return float(median(map(read, fresh))), float(median(map(read, again)))

    tokens = again[0].figures["prompt_tokens"]
    rows = (
        ("from the command to the first letter of the answer", *medians(lambda one: one.first_letter_s)),
        (
            "of which with the model loaded: first token after the question (TTFT)",
            *medians(lambda one: one.figures["ttft_s"]),
        ),
    )
    note = (
        f"Seconds, each run a new process. {again[0].figures['snapshot_tokens']:,} of {tokens:,} prompt "
        "tokens came from the snapshot."
    )
    return Table(f"A question about {book}", ("What", "read anew", "opened again"), rows, (note,))


def startup_table(book: str, extracts: list[float], pages: list[float], summaries: list[SummaryRun]) -> Table:
    """The medians, as a reader wants them."""
    figures = [summary.figures for summary in summaries]
    rows = (
        ("`launcher.py extract`: the book as chapters", median(extracts)),
        ("`launcher.py`: the page answers", median(pages)),
        (
            f"`launcher.py summarize`: the whole command, up to {NEW_TOKENS} new tokens",
            median(s.seconds for s in summaries),
        ),
        (
            "of which until the first token of the answer (TTFT)",
            float(median(one["ttft_s"] for one in figures)),
        ),
    )
    lasting = (
        f"{figures[0]['prompt_tokens']:,} prompt tokens, {figures[0]['new_tokens']} new ones, mode "
        f"{figures[0]['mode']}"
    )
    return Table(
        f"From the command to the result, {book}", ("What", "Seconds"), rows, (f"Summary: {lasting}.",)
    )


def main() -> None:
    """Measure, print, and save where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--book", type=Path, default=SAMPLE)
    parser.add_argument("--save", metavar="NAME")
    given = parser.parse_args()
    book = given.book.resolve()
    runs = range(given.runs)
    extracts, pages = [timed_extract(book) for _ in runs], [timed_page() for _ in runs]
    summaries = [timed_summary(book) for _ in runs]
    fresh, again = timed_openings(book, given.runs)
    made = [startup_table(book.name, extracts, pages, summaries), openings_table(book.name, fresh, again)]
    details = {
        "extract_s": extracts,
        "page_s": pages,
        "summaries": [{"s": one.seconds, **one.figures} for one in summaries],
        "fresh": [asdict(one) for one in fresh],
        "again": [asdict(one) for one in again],
    }
    print(json.dumps({"tables": [one.rows for one in made], **details}, indent=1, default=str))
    if given.save:
        print(save_result(given.save, made, details))


if __name__ == "__main__":
    main()
