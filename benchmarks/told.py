"""Writes a page with a book's summary at all lengths, by the shipped path, every sentence with its chapter.

The chapters' summaries stand last; the number behind every sentence leads to that of its chapter.

python -m benchmarks.told BOOK --out docs/examples/NAME.md [--model NAME] [--summaries own]
"""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path

from core.ask import Ask
from core.build import open_session
from core.config import LENGTHS, SUMMARIES, load_settings
from core.conversation.reading import book_chapters
from core.documents import Document, read_document
from core.events import Finished
from core.model.store.catalogue import EMBEDDED

_WIDTH = 120
_TITLES = {"paragraph": "In a paragraph", "page": "On a page", "chapters": "By chapters"}


def page(book: Document, told: dict[str, Finished], model: str) -> str:
    """The Markdown of it. Every sentence links to its chapter under the last heading."""
    notes = [note for note in told["page"].notes if "tokens" not in note and "Not read" not in note]
    lines = [
        f"# {book.title} by {book.author}, summarised",
        f"Written by `python -m benchmarks.told` with {model}. The number behind a sentence is the chapter\n"
        "it stands in, and leads to that chapter's summary further down, under "
        f"*{_TITLES['chapters']}*; the book itself is not here.",
        " ".join(notes),
    ]
    for length, done in told.items():
        lines.append(f"## {_TITLES[length]}")
        lines += _blocks(book, done)
    return "\n\n".join(lines) + "\n"


def _blocks(book: Document, done: Finished) -> list[str]:
    """The paragraphs and headings of one summary."""
    text, chapters = done.text, book_chapters(book)
    for one in sorted(done.stands, key=lambda one: -one.end):
        number = sum(chapter.start <= one.book_start for chapter in chapters)
        text = f"{text[: one.end]} [{number}](#ch-{number}){text[one.end :]}"
    blocks, number = [], 0
    for block in text.split("\n\n"):
        if block.startswith("## "):
            number += 1
            blocks += [f'<a id="ch-{number}"></a>', f"### {number}. {block[3:]}"]
        else:
            said = re.sub(r"([*_<])", r"\\\1", block)
            wrapped = textwrap.wrap(said, _WIDTH, break_long_words=False, break_on_hyphens=False)
            blocks.append("\n".join(wrapped))
    return blocks


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("book", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--summaries", default="auto", choices=SUMMARIES)
    given = parser.parse_args()
    book = read_document(given.book)
    session = open_session(load_settings(None, {"model": given.model}))
    told = {}
    for length in LENGTHS:
        *_events, told[length] = session.ask(
            Ask(None, book, length, summary_length=length, summaries=given.summaries)
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(page(book, told, given.model), encoding="utf-8")


if __name__ == "__main__":
    main()
