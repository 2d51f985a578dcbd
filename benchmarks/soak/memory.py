"""The memory of the engine's process while questions are asked: it must not grow without end.

    python -m benchmarks.memory [--questions 100] [--turns 5] [--book FILE] [--before FILE.json] [--save NAME]

Asks the embedded model short questions about a book that is read in parts, five to a conversation, through
the process that the app starts, and reads its resident memory after each. What may grow is what the plan
allows for: a context of each part that was read, and its rows as a conversation goes on. `--before` takes the
figures of an earlier run into the table. Also says how long a lookup takes in a text of 128K tokens.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

REPO = Path(__file__).resolve().parents[2]
from app.engine.client import Runtime
from benchmarks.lib.results import Table, save_result
from core.config import load_settings
from core.decoding.drafters import NgramDrafter
from core.decoding.ngrams import NgramIndex
from core.documents import read_document
from core.events import Failed
from core.request import HistoryTurn, Request

SAMPLE = REPO / "assets" / "samples" / "the-thursday-clock.epub"
NEW_TOKENS = 40
EVERY = 10
LONG, LOOKUPS, CONVERSATIONS = 131_072, 100, 9
WORDS = ("Who", "What", "Where", "When", "Why", "How")


def resident_mb(book: Path, questions: int, turns: int) -> list[float]:
    """Resident memory of the engine's process after each question, in MB."""
    document, settings = read_document(book), load_settings(None, {"snapshot_quota_gb": 0, "device": "cpu"})
    runtime = Runtime(settings)
    found: list[float] = []
    history: tuple[HistoryTurn, ...] = ()
    for number in range(questions):
        if number % turns == 0:
            history = ()
        question = f"{WORDS[number % len(WORDS)]} about the clock number {number}?"
        conversation, params = f"conversation {number // turns}", {"max_new_tokens": NEW_TOKENS}
        *_, last = runtime.ask(Request(question, document, conversation, params=params, history=history))
        if isinstance(last, Failed):
            raise SystemExit(last.message)
        history = (*history, HistoryTurn(question, last.text, last.token_ids))
        found.append(round(psutil.Process(runtime.pid).memory_info().rss / 1e6, 1))
        print(f"{number + 1:4}  {found[-1]:8.1f} MB", flush=True)
    runtime.close()
    return found


def lookup() -> dict[str, float]:
    """Milliseconds of a conversation's first lookup and of a later one, and MB held, at 128K tokens. Medians:
    another program costs a lookup more than it takes.
    """
    dice = random.Random(1)
    # few words make most of a text
    ids = [int(49_152 ** dice.random()) for _ in range(LONG)]
    reading, first, later = [], [], []
    for _ in range(CONVERSATIONS):
        index, said = NgramIndex(LONG + LOOKUPS), list(ids)
        reading.append(timed_ms(lambda index=index: index.follow(ids)))
        for number in range(LOOKUPS):
            said.append(ids[number])
            drafter = NgramDrafter(index)
            (later if number else first).append(timed_ms(lambda d=drafter, said=said: d.propose(said, 8)))
    return {
        "while_reading_ms": round(median(reading), 2),
        "first_ms": round(median(first), 2),
        "later_ms": round(median(later), 3),
        "held_mb": round(index.nbytes / 1e6, 2),
    }


def timed_ms(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - started)


def memory_tables(
    found: list[float], before: list[float] | None, looked: dict[str, float]
) -> tuple[Table, ...]:
    """Every tenth question, beside an earlier run where there is one."""
    columns = (
        ("After question", "Resident MB") if before is None else ("After question", "Before, MB", "Now, MB")
    )
    runs = [found] if before is None else [before, found]
    shown = [0, *range(EVERY - 1, len(found), EVERY)]
    rows = tuple((number + 1, *(run[number] for run in runs)) for number in shown)
    told = (
        "What grows is the KV cache: a context for each part that questions went to, as far as the allowance "
        "goes, and its rows as a conversation goes on.",
    )
    resident = Table("Resident memory of the engine's process", columns, rows, told)
    parts = ("While reading, ms", "First lookup, ms", "Later lookup, ms", "Held, MB")
    return resident, Table("Lookup in a text of 131,072 tokens", parts, (tuple(looked.values()),))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--turns", type=int, default=5, help="questions to a conversation")
    parser.add_argument("--book", type=Path, default=SAMPLE)
    parser.add_argument("--before", type=Path, help="the JSON of an earlier run")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    given = parser.parse_args()
    earlier = json.loads(given.before.read_text(encoding="utf-8")) if given.before else {}
    before = earlier.get("details", {}).get("resident_mb")
    looked, found = lookup(), resident_mb(given.book, given.questions, given.turns)
    made = memory_tables(found, before, looked)
    details = {"resident_mb": found, "lookup": looked}
    if earlier:
        details["before"] = {"commit": earlier.get("commit"), "resident_mb": before}
    print(json.dumps({"tables": [table.rows for table in made], **details}))
    if given.save:
        print(save_result(given.save, made, details))


if __name__ == "__main__":
    main()
