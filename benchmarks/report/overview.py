"""Writes a page with what is answered to the three questions about a book as a whole, by the shipped path.

python -m benchmarks.overview BOOK [BOOK ...] --out docs/examples/NAME.md [--model NAME]
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from pathlib import Path

from core.build import open_session
from core.config import load_settings
from core.documents import Document, read_document
from core.events import Finished
from core.model.store.catalogue import EMBEDDED
from core.request import Request

ASKED = ("Who are the main characters?", "What is it about?", "How does it end?")
_WIDTH = 120


def overview_page(answers: Mapping[str, Mapping[str, Finished]], model: str) -> str:
    """The Markdown of the answers, by title and question."""
    blocks = [
        "# Three questions about a book as a whole",
        f"Written by `python -m benchmarks.overview` with {model}. Sentences in quotation marks, and those\n"
        "set apart, are the books' own.",
    ]
    for title, asked in answers.items():
        blocks.append(f"## {title}")
        for question, done in asked.items():
            blocks += [f"### {question}", *map(_wrapped, done.text.split("\n\n")), _below(done)]
    return "\n\n".join(blocks) + "\n"


def _wrapped(block: str) -> str:
    lines = []
    for line in block.split("\n"):
        indent = "> " if line.startswith("> ") else ""
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def _below(done: Finished) -> str:
    """What is told below an answer, and how it was written."""
    notes = [note for note in done.notes if "Not read" not in note]
    stats, how = done.stats, "Told before, and kept." if done.stands else ""
    if stats.new_tokens:
        rate = stats.acceptance_retrieval.rate
        accepted = "" if rate is None else f", {rate:.0%} of the retrieval level's proposals accepted"
        how = f"{stats.new_tokens} tokens by {stats.mode}{accepted}."
    return _wrapped("*" + " ".join([*notes, how]).strip() + "*")


def answer_ends(book: Document, model: str) -> dict[str, Finished]:
    """The ends of the answers, by question."""
    session = open_session(load_settings(None, {"model": model}))
    answers = {}
    for question in ASKED:
        *_events, answers[question] = session.ask(Request(question, book, question))
    session.close()
    return answers


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("books", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=EMBEDDED)
    given = parser.parse_args()
    books = [read_document(path) for path in given.books]
    answers = {f"{one.title} by {one.author}": answer_ends(one, given.model) for one in books}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(overview_page(answers, given.model), encoding="utf-8")


if __name__ == "__main__":
    main()
