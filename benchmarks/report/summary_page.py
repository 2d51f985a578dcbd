"""Writes a page with a book's summary at all lengths, by the shipped path, every sentence with its chapter.

The chapters' summaries stand last; the number behind every sentence leads to that of its chapter. Where the
model told it, there is also what it wrote, with what the book did not bear out.

python -m benchmarks.summary_page BOOK --out docs/examples/NAME.md [--model NAME] [--summaries own]
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.build import open_session
from core.config import LENGTHS, SUMMARIES, load_settings
from core.conversation.reading import book_chapters
from core.documents import Document, read_document
from core.events import Delta, Event, Finished, ReadingStep, SummaryDraft
from core.evidence.passages import sentence_spans
from core.model.store.catalogue import EMBEDDED
from core.request import Request

_WIDTH = 120
_END = 30  # characters that a sentence is known by
_AS_WRITTEN = """## As it was written

Sentence by sentence, for the page below. What is ~~struck out~~ the book does not say in nearly these words,
or it was said before: the book's own sentence, in quotation marks there, stays in its place."""
_TITLES = {"paragraph": "In a paragraph", "page": "On a page", "chapters": "By chapters"}


def heard(events: Iterable[Event]) -> tuple[list[tuple[ReadingStep, str]], Finished]:
    """What is written of each part while a summary is told, and its end."""
    written: list[tuple[ReadingStep, str]] = []
    for event in events:
        if isinstance(event, ReadingStep) and event.purpose == "telling":  # said again behind every sentence
            if not written or written[-1][0].index != event.index:
                written.append((event, ""))
        elif isinstance(event, (Delta, SummaryDraft)) and written:  # a draft: the next sentence begins
            text = event.text if isinstance(event, Delta) else "\n\n"
            written[-1] = written[-1][0], written[-1][1] + text
        elif isinstance(event, Finished):
            return written, event
    raise AssertionError("a summary ends")


def _written(parts: Sequence[tuple[ReadingStep, str]], done: Finished) -> list[str]:
    """The parts as they were written, what did not stay struck out. One that gets a name for its pronoun
    stays, so sentences are known by their ends.
    """
    blocks = []
    for place, text in parts:
        said = [" ".join(text[start:end].split()) for start, end in sentence_spans(text, 0, len(text))]
        shown = [one if one[-_END:] in done.text else f"~~{one}~~" for one in said]
        head = f"**{place.index} of {place.total}, {place.label}.**"
        blocks.append("\n".join(textwrap.wrap(" ".join([head, *shown]), _WIDTH, break_on_hyphens=False)))
    return blocks


def summary_page(
    book: Document, told: dict[str, Finished], model: str, parts: Sequence[tuple[ReadingStep, str]] = ()
) -> str:
    """The Markdown of it. Every sentence links to its chapter under the last heading."""
    notes = [note for note in told["page"].notes if "tokens" not in note and "Not read" not in note]
    lines = [
        f"# {book.title} by {book.author}, summarised",
        f"Written by `python -m benchmarks.summary_page` with {model}. The number behind a sentence is the\n"
        "chapter it stands in, and leads to that chapter's summary further down, under\n"
        f"*{_TITLES['chapters']}*; the book itself is not here.",
        " ".join(notes),
    ]
    if parts:
        lines += [_AS_WRITTEN, *_written(parts, told["page"])]
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
    told, written = {}, []
    for length in LENGTHS:
        anew = length == "page"
        ask = Request(None, book, length, summary_length=length, summaries=given.summaries, ignore_cache=anew)
        parts, told[length] = heard(session.ask(ask))
        written = parts if anew else written
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(summary_page(book, told, given.model, written), encoding="utf-8")


if __name__ == "__main__":
    main()
