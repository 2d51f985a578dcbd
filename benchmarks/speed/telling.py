"""How a summary is told: the same telling by TriForce and by plain decoding in one run, part by part and,
where the window holds the book, in one go.

python -m benchmarks.telling BOOK... [--modes triforce autoregressive] [--temperatures 0 0.6]
                             [--clock cpu] [--save telling]

At temperature 0.6 each part is drawn, as *Regenerate* does it. --clock cpu: times are those of the processor,
which other programs do not lengthen; for one thread (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.lib.results import Table, save_result
from benchmarks.quality.reading.run import Program
from benchmarks.quality.reading.scores import taken
from benchmarks.speed.peer_processes import CLOCKS
from core.assembly.composition import Composer
from core.conversation.session import Session
from core.documents import Document, read_document
from core.errors import UserError
from core.events import Acceptance, Delta, Finished, SummaryDraft
from core.model.store.catalogue import EMBEDDED
from core.request import Request

_READING_MODES = ("auto", "full")
_NOTES = {
    "wall": "Times are by the clock.",
    "cpu": "Times are those of the processor, one thread: other programs ran beside.",
}
_COLUMNS = (
    "book",
    "temperature",
    "tokens read in one go",
    "draft accepted",
    "retrieval accepted",
    "tokens a round",
    "TriForce, tokens/s",
    "plain, tokens/s",
    "first words, s",
    "first told, s",
    "all, s",
    "told",
)


def telling_run(
    session: Session,
    book: Document,
    reading_mode: str,
    mode: str,
    temperature: float,
    clock: Callable[[], float],
) -> dict[str, Any] | None:
    """One telling, with its times and figures; None where the book does not fit."""
    params = {"temperature": temperature, "seed": 1, "mode": mode}
    ask = Request(
        None,
        book,
        f"{reading_mode}/{mode}",
        reading_mode=reading_mode,
        params=params,
        ignore_cache=True,
        again=temperature > 0,
    )
    start, first_s, told_s, done = clock(), None, None, None
    try:
        for event in session.ask(ask):
            now = clock() - start
            if isinstance(event, SummaryDraft) and first_s is None:
                first_s = now
            elif isinstance(event, Delta) and event.text and told_s is None:
                told_s = now
            elif isinstance(event, Finished):
                done = event
    except UserError:
        return None
    session.forget_book(book.sha256)
    stats, sentences = done.stats, [done.text[one.start : one.end] for one in done.stands]
    own = sum(taken(sentence, book.text) for sentence in sentences)
    return {
        "book": book.title,
        "reading_mode": reading_mode,
        "mode": mode,
        "temperature": temperature,
        "context": max(part["tokens"] for part in done.plan["reading"]["parts"]),
        "budget": done.plan["retrieval_budget"],
        "draft": asdict(stats.acceptance_draft),
        "retrieval": asdict(stats.acceptance_retrieval),
        "tokens": stats.new_tokens,
        "tokens_per_round": stats.tokens_per_round,
        "tokens_per_s": stats.tokens_per_s,
        "first_s": first_s,
        "told_s": told_s,
        "whole_s": clock() - start,
        "sentences": len(sentences),
        "taken": own,
        "text": done.text,
    }


def telling_row(fast: dict[str, Any], plain: dict[str, Any] | None) -> tuple[str | float | int | None, ...]:
    """The table's line of one book, read in one way."""
    rates = (Acceptance(**fast[level]).rate for level in ("draft", "retrieval"))
    return (
        fast["book"],
        f"{fast['temperature']:g}",
        fast["context"],
        *(None if rate is None else round(rate, 2) for rate in rates),
        round(fast["tokens_per_round"], 2),
        round(fast["tokens_per_s"], 1),
        plain and round(plain["tokens_per_s"], 1),
        round(fast["first_s"], 1),
        round(fast["told_s"], 1),
        round(fast["whole_s"], 1),
        f"{fast['sentences'] - fast['taken']} of {fast['sentences']}",
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("books", nargs="+", type=Path)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--modes", nargs="+", default=["triforce", "autoregressive"])
    parser.add_argument("--reading-modes", nargs="+", default=_READING_MODES, choices=_READING_MODES)
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0])
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    given = parser.parse_args()
    clock = CLOCKS[given.clock]
    session = Program(given.model, "triforce", composer=partial(Composer, clock=clock)).session
    rows, lines = [], []
    for path in given.books:
        book = read_document(path)
        for reading_mode, warm in itertools.product(given.reading_modes, given.temperatures):
            made = [telling_run(session, book, reading_mode, mode, warm, clock) for mode in given.modes]
            made = [one for one in made if one]
            rows += made
            for one in made:
                print({name: value for name, value in one.items() if name != "text"}, flush=True)
            if made:
                plain = made[1] if len(made) > 1 else None
                lines.append(telling_row(made[0], plain))
                print("same text:", plain and plain["text"] == made[0]["text"], flush=True)
    session.close()
    if given.save:
        notes = (
            "Told once by TriForce and once by plain decoding in one run: at temperature 0 the same text. "
            "Told: sentences that do not share eight words in a row with the book. " + _NOTES[given.clock],
        )
        save_result(given.save, (Table("Summaries told", _COLUMNS, tuple(lines), notes),), {"rows": rows})


if __name__ == "__main__":
    main()
