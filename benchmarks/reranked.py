"""What it is worth that the model puts passages in order, and which it doubts (core.conversation.reranking).

    python -m benchmarks.reranked --reading FOLDER [--split train] [--questions 150] [--minutes 20]

Questions about whole stories of FairytaleQA (FOLDER/fairytaleqa-SPLIT.jsonl), put to the shipped program: the
passage that holds the answer first and among three, by words and by what the model says beside them; and how
many questions it doubts at all passages, as they are and with the passages taken away that hold the answer.
The weights and the doubt of the catalogue entry were chosen on the training split.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.reading import cases, scores  # noqa: E402 (after the thread setting, read when torch loads)
from benchmarks.reading.run import Program  # noqa: E402
from benchmarks.store import Table, save  # noqa: E402
from core.ask import Ask  # noqa: E402
from core.conversation.reading import ReadingStyle  # noqa: E402
from core.conversation.reranking import Heard, doubted, reranked  # noqa: E402
from core.conversation.retrieval_answering import MOST_PASSAGES  # noqa: E402
from core.evidence.passages import passages  # noqa: E402

DOUBTS = (-1.0, -1.5, -2.0, -2.5, -3.0, -4.0, -5.0, -6.0)
MARGINS = (0.0, 0.2, 0.4, 0.8)
Row = tuple[list[Heard], list[bool]]  # what was heard of each passage, and whether it holds the answer


def rows(program: Program, questions: Sequence[cases.Question], until: float) -> Iterator[Row]:
    """One question after the other until the clock says `until`."""
    for number, one in enumerate(questions, 1):
        if time.monotonic() > until:
            return
        book = cases.document(one.story, one.text)
        heard = program.heard(Ask(one.question, book, conversation_id=one.question, fit="passages"))
        places = [(passage.start, passage.end) for passage in passages(book)]
        right = scores.holding(one.text, one.gold, one.answers, places)
        yield heard, [(each.passage.start, each.passage.end) in right for each in heard]
        print(number, len(questions), one.question, flush=True)


def found(kept: Sequence[Row], style: ReadingStyle) -> tuple[float, float]:
    """Share of questions whose right passage is first, and among three."""
    first = three = 0
    for heard, right in kept:
        known = {id(one.passage) for one, holds in zip(heard, right, strict=True) if holds}
        hits = [id(one.passage) in known for one in reranked(heard, style)]
        first, three = first + any(hits[:1]), three + any(hits[:3])
    return first / max(1, len(kept)), three / max(1, len(kept))


def refused(kept: Sequence[Row], style: ReadingStyle, *, without: bool) -> float:
    """Share of questions at which all passages are doubted; `without` those that hold the answer."""
    told = [[one for one, holds in zip(*row, strict=True) if not (without and holds)] for row in kept]
    told = [reranked(heard, style)[:MOST_PASSAGES] for heard in told if len(heard) > 1]
    all_doubted = [all(doubted(one, heard, style) for one in heard) for heard in told]
    return sum(all_doubted) / max(1, len(all_doubted))


def tables(kept: Sequence[Row], style: ReadingStyle) -> list[Table]:
    """Both, with the style's own weights and without each of them."""
    ways = {
        "words": replace(style, asked_weight=0.0, refused_weight=0.0),
        "words and the question's likelihood": replace(style, refused_weight=0.0),
        "words and the refusal's": replace(style, asked_weight=0.0),
        "all three": style,
    }
    orders = [(name, *(f"{share:.3f}" for share in found(kept, way))) for name, way in ways.items()]
    doubts = [
        (doubt, margin, *(f"{refused(kept, way, without=without):.2f}" for without in (False, True)))
        for margin in MARGINS
        for doubt in DOUBTS
        for way in [replace(style, doubt=doubt, margin_weight=margin)]
    ]
    note = f"{len(kept)} questions about whole stories of FairytaleQA."
    return [
        Table(
            "Passages in the model's order", ("by", "right one first", "among three"), tuple(orders), (note,)
        ),
        Table(
            "Questions at which every passage is doubted",
            ("doubt", "margin's weight", "as they are", "without the answer's passages"),
            tuple(doubts),
            (note,),
        ),
    ]


def _plain(row: Row) -> list[dict[str, Any]]:
    return [asdict(one) | {"holds": holds} for one, holds in zip(*row, strict=True)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reading", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--split", default="train")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--folder", type=Path, help="its weights, where they are not the installed ones")
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    tales = cases.read(given.reading, "fairytaleqa", given.split)
    questions = cases.of_stories(tales, given.questions, given.seed)
    program = Program(given.model, "autoregressive", folder=given.folder)
    kept = list(rows(program, questions, time.monotonic() + 60 * given.minutes))
    made = tables(kept, program.style)
    for one in made:
        print(f"\n{one.title}\n" + "\n".join("  ".join(map(str, row)) for row in (one.columns, *one.rows)))
    if given.save:
        details = {"model": program.name, "split": given.split, "heard": [_plain(row) for row in kept]}
        save(given.save, made, details=details)
    print(json.dumps({"questions": len(kept), "found": found(kept, program.style)}))


if __name__ == "__main__":
    main()
