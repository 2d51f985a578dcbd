"""What the reader says to questions about books that it was not taught on, for the verifier to learn from:

    python -m tools.embedded_reader.candidates --books FOLDER [--stretches] [--shard I/N] --out FILE

The questions stand in questions.json, each with words that a right answer has (none: the book does not say),
by the names of books in FOLDER. A line a question: the passages that it points at, with what the program
itself says from each. With --stretches they are put to short stretches of the books
(tools.embedded_reader.stretches). What is there is not done again. --shard 0/4 is the first quarter of the
questions, for one process of four, each with a file of its own; in this order they are what one would write.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.conversation.asking import AnswerRun
from core.conversation.session import Session
from core.documents import read_document
from core.documents.document import Document
from core.request import Params, Request
from tools.embedded_reader.stretches import book_stretches, stretch_text

QUESTIONS = Path(__file__).with_name("questions.json")
ANSWERS = 10  # of each passage of a book: the likeliest, and so many less one that are drawn
TOKENS = 32


def passage_candidates(session: Session, book: Document, question: str) -> Iterator[dict[str, Any]]:
    """What is said from every passage that the question points at."""
    ask = Request(question, book, conversation_id=question, reading_mode="retrieval")
    run = AnswerRun(ask, Params(max_new_tokens=TOKENS, temperature=0.0, seed=1), lambda: False)
    passages = session._from_passages
    plan = session.reading_plan(book, reading_mode="retrieval")
    events = passages.witnesses(run, passages.found(ask, plan))
    while True:
        try:
            next(events)
        except StopIteration as end:
            found = end.value
            break
    for one, _tried in found:
        passage = [one.heard.passage.start, one.heard.passage.end]
        kept = {name: getattr(one.heard, name) for name in ("words", "asked", "refused")}
        yield {"passage": passage, **kept, "said": one.said}


def main() -> None:
    """The command."""
    from benchmarks.quality.reading.run import Program

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--stretches", action="store_true")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    program = Program("SmolLM2-135M-Instruct", "autoregressive")
    style = program.style if given.stretches else replace(program.style, consensus=ANSWERS - 1)
    session = Session(program.engine, program.tokenizer, style)
    known = given.out.read_text(encoding="utf-8").splitlines() if given.out.exists() else []
    done = {(line["file"], line["question"]) for line in map(json.loads, known)}
    with given.out.open("a", encoding="utf-8") as out:
        for name, text, one in shard(list(_cases(given.books, given.stretches)), *given.shard):
            if (name, one["question"]) not in done:
                said = list(passage_candidates(session, text, one["question"]))
                out.write(json.dumps({"file": name, **one, "heard": said}, ensure_ascii=False) + "\n")
                out.flush()


def shard(cases: Sequence[Any], part: int, parts: int) -> Sequence[Any]:
    """One of so many parts of neighbouring cases, as equal as may be."""
    return cases[part * len(cases) // parts : (part + 1) * len(cases) // parts]


def _shard(said: str) -> tuple[int, int]:
    part, parts = map(int, said.split("/"))
    if not 0 <= part < parts:
        raise argparse.ArgumentTypeError(f"{said} is no part; the first of four is 0/4, the last 3/4")
    return part, parts


def _cases(books: Path, stretches: bool) -> Iterator[tuple[str, Document, dict[str, Any]]]:
    """Every question with the name of its book, and the text that it is put to."""
    for name, questions in json.loads(QUESTIONS.read_text(encoding="utf-8")).items():
        book = read_document(books / name)
        found = _of_stretches(name, book, questions) if stretches else ((book, one) for one in questions)
        yield from ((name, text, one) for text, one in found)


def _of_stretches(
    name: str, book: Document, questions: Sequence[dict[str, Any]]
) -> Iterator[tuple[Document, dict[str, Any]]]:
    """A stretch as a text, and what is written of it."""
    for one in book_stretches(name, book, questions):
        place = (one.start, one.end)
        said = {"question": one.question, "keywords": one.keywords, "stretch": place}
        yield stretch_text(book, place), said


if __name__ == "__main__":
    main()
