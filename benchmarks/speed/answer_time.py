"""How long a person waits for an answer about a book: to the first words, and to the last.

    python -m benchmarks.answer_time --data FOLDER [--book NAME] [--words 90000] [--questions 8]
    [--isa avx2] [--threads 2] [--save answer-time]

FOLDER holds facts.json and the books it names; of the book its first chapters are taken, until they have so
many words, 300 to a page. The embedded model answers from passages, as the program does, and each question is
the first about the book: nothing of it is in memory but its text. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

from benchmarks.lib.results import Table, save_result
from benchmarks.quality.reading.run import Program
from core.conversation.reading import book_chapters
from core.conversation.session import Session
from core.documents import read_document
from core.documents.document import Document
from core.documents.word_count import count_words
from core.events import Delta, Finished, ReadingStep
from core.evidence.support import UNFOUND
from core.request import Request

PAGE_WORDS = 300
COLUMNS = ("question", "passages", "first words, s", "whole, s", "given")


def first_chapters(book: Document, words: int) -> Document:
    """The book's first chapters, so many that they have this many words; all of it where it has fewer."""
    held = 0
    for number, chapter in enumerate(book_chapters(book), 1):
        held += count_words(book.text[chapter.start : chapter.end])
        if held >= words:
            return book.up_to(number)
    return book


def answer_time(session: Session, book: Document, question: str) -> dict[str, Any]:
    """One question and its seconds, with nothing of the book in memory but its words."""
    ask = Request(question, book, conversation_id=question, params={"temperature": 0.0, "seed": 1})
    first, passages, done = None, 0, None
    start = time.perf_counter()
    for event in session.ask(ask):
        if isinstance(event, Delta) and first is None:
            first = time.perf_counter() - start
        if isinstance(event, ReadingStep):
            passages = event.total
        if isinstance(event, Finished):
            done = event
    whole = time.perf_counter() - start
    session.forget_book(book.sha256)
    session.forget(question)
    return {
        "question": question,
        "passages": passages,
        "first_s": round(first or whole, 2),
        "whole_s": round(whole, 2),
        "given": not done.text.startswith(UNFOUND),
    }


def answer_table(rows: list[dict[str, Any]], *, pages: int, threads: int) -> Table:
    """Each question, the median, and the longest wait."""
    cells = [
        (one["question"], one["passages"], one["first_s"], one["whole_s"], "yes" if one["given"] else "no")
        for one in rows
    ]
    for name, of in (("median", statistics.median), ("longest", max)):
        waits = (round(of([one[key] for one in rows]), 2) for key in ("first_s", "whole_s"))
        cells.append((name, None, *waits, None))
    note = (
        f"{pages} pages of {PAGE_WORDS} words, {threads} threads. An answer from passages comes as one text: "
        "its first words and its last together. Passages and names of the book are made in that time, too."
    )
    return Table("Waiting for an answer about a book", COLUMNS, tuple(cells), (note,))


def main(arguments: list[str] | None = None) -> None:
    """Asks and shows."""
    options = _arguments(arguments)
    facts = json.loads((options.data / "facts.json").read_text(encoding="utf-8"))["books"]
    (held,) = [one for one in facts if one["file"] == options.book]
    book = first_chapters(read_document(options.data / options.book), options.words)
    program = Program("SmolLM2-135M-Instruct", "triforce", threads=options.threads)
    rows = []
    for fact in held["facts"][: options.questions]:
        rows.append(answer_time(program.session, book, fact["question"]))
        print(rows[-1], flush=True)
    pages = round(count_words(book.text) / PAGE_WORDS)
    table = answer_table(rows, pages=pages, threads=options.threads)
    if options.save:
        save_result(options.save, (table,), {"book": options.book, "isa": isa.cap(), "rows": rows})
    print(json.dumps({"rows": table.rows}))


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--book", default="moby-dick.epub")
    parser.add_argument("--words", type=int, default=300 * PAGE_WORDS)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=tuple(isa.LIMITS))
    parser.add_argument("--save", metavar="NAME")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
