"""What it costs that the embedded model was taught to read, and that it answers from passages as it does.

    python -m benchmarks.taught --book FILE --question TEXT [--question TEXT ...] [--save taught]

The taught model (8 bits) and the published one (4 bits) in turns in one process: reading, plain decoding, and
TriForce with the draft model, which was trained on the published one's text. Then questions about the book,
from passages as they are answered now (eight put in order, several answers) and as the first that says it:
seconds to the first word. Seconds are the processor's, of this process with one thread, so other work on the
machine is not counted, though it slows what is; ratios are of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.embedded import BOOK, DRAFT, SPARE_TOKENS, book_ids, numbers, plan_for  # noqa: E402 (see above)
from benchmarks.reading.run import Program  # noqa: E402
from benchmarks.store import Table, save  # noqa: E402
from core.ask import Ask, Params  # noqa: E402
from core.assembly.engines import build_engine  # noqa: E402
from core.conversation.session import Session  # noqa: E402
from core.decoding.context import Context  # noqa: E402
from core.decoding.decoder import Round  # noqa: E402
from core.documents import Document, read_document  # noqa: E402
from core.engine import Done, Engine  # noqa: E402
from core.events import Delta  # noqa: E402
from core.model.store import catalogue  # noqa: E402
from core.model.store.embedded import ensure_embedded  # noqa: E402

MODELS = {"published": False, "taught": True}
PLAIN, TRIFORCE = "autoregressive", "triforce"
TEMPERATURE = 0.6
WAYS = ("the first that says it", "as shipped")


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer behind a text. Seconds of the processor; `draft` and `retrieval`: accepted and evaluated."""

    model: str
    tokens_before: int
    mode: str
    read_s: float
    token_ms: float
    draft: tuple[int, int]
    retrieval: tuple[int, int]


class Model:
    """One of MODELS, with the draft model."""

    def __init__(self, name: str, context_tokens: int) -> None:
        folder = ensure_embedded(taught=MODELS[name])
        shape = catalogue.from_folder(DRAFT).shape
        plan, settings = plan_for(folder, context_tokens, draft=shape, snapshot_quota_gb=0)
        self.name, self._context_tokens = name, context_tokens
        self.engine: Engine = build_engine(plan, settings, folder, draft_dir=DRAFT)

    def context(self) -> Context:
        """A new one."""
        return self.engine.new_context(self._context_tokens)

    def turn(self, context: Context, ids: Sequence[int], mode: str, tokens: int, seed: int) -> Turn:
        """Reads what of `ids` is not in `context`, and writes so many tokens."""
        params = Params(max_new_tokens=tokens, temperature=TEMPERATURE, top_p=0.9, seed=seed, mode=mode)
        started = first = time.process_time()
        written = 0
        for event in self.engine.generate(context, ids, params):
            if isinstance(event, Round):
                first = time.process_time() if not written else first
                written += len(event.tokens)
            if isinstance(event, Done):
                stats = event.stats
        behind = 1e3 * (time.process_time() - first) / max(1, written - 1)
        accepted = [
            (one.accepted, one.evaluated) for one in (stats.acceptance_draft, stats.acceptance_retrieval)
        ]
        return Turn(self.name, len(ids), mode, first - started, behind, *accepted)


def turns(ids: Sequence[int], contexts: Sequence[int], tokens: int, seeds: int) -> Iterator[Turn]:
    """Both models behind every context in turns, so often."""
    models = [Model(name, max(contexts) + tokens + SPARE_TOKENS) for name in MODELS]
    for length in contexts:
        for seed in range(seeds):
            for model in models if seed % 2 else models[::-1]:
                context = model.context()
                for mode in (PLAIN, TRIFORCE):
                    yield model.turn(context, ids[:length], mode, tokens, seed)


def first_words(program: Program, book: Document, questions: Sequence[str]) -> list[dict[str, Any]]:
    """Seconds of the processor to the first word of each question, each way in turns, nothing read before."""
    plain = replace(program.style, doubt=None, consensus=0)
    sessions = [Session(program.engine, program.tokenizer, style) for style in (plain, program.style)]
    rows = []
    for number, question in enumerate(questions):
        row: dict[str, Any] = {"question": question}
        ways = list(zip(WAYS, sessions, strict=True))
        for way, session in ways if number % 2 else ways[::-1]:
            params = {"temperature": 0.0, "seed": 1, "mode": PLAIN, "max_new_tokens": 64}
            ask = Ask(question, book, conversation_id=question, fit="passages", params=params)
            started, events = time.process_time(), session.ask(ask)
            row[way] = next(time.process_time() - started for event in events if isinstance(event, Delta))
            row[f"said, {way}"] = "".join(getattr(event, "text", "") for event in events)
            session.forget(question)
            session.forget_book(ask.book_id)
        print(row, flush=True)
        rows.append(row)
    return rows


def table_turns(found: Sequence[Turn]) -> Table:
    """One row a context, mode and model; "against" is the published model's time over it."""
    rows = []
    for length, mode in sorted({(one.tokens_before, one.mode) for one in found}):
        own = {
            name: [one for one in found if (one.tokens_before, one.mode, one.model) == (length, mode, name)]
            for name in MODELS
        }
        read, token = (
            {name: median(getattr(one, what) for one in some) for name, some in own.items()}
            for what in ("read_s", "token_ms")
        )
        for name, some in own.items():
            rows.append(
                (
                    f"{length:,}",
                    mode,
                    name,
                    f"{read[name]:.2f}" if mode == PLAIN else None,
                    f"{read[name] / read['published']:.2f}" if mode == PLAIN else None,
                    f"{token[name]:.1f}",
                    f"{token[name] / token['published']:.2f}",
                    _rate(one.draft for one in some),
                    _rate(one.retrieval for one in some),
                )
            )
    columns = (
        "Tokens before",
        "Mode",
        "Model",
        "reading, s",
        "times the published",
        "a token, ms",
        "times the published one's",
        "draft accepted",
        "retrieval accepted",
    )
    note = (
        f"Temperature {TEMPERATURE}, top-p 0.9; medians over turns in one process, one thread; seconds of "
        "the processor. Accepted: of all evaluated proposals."
    )
    return Table("The embedded model taught to read, beside the published one", columns, tuple(rows), (note,))


def _rate(pairs: Iterable[tuple[int, int]]) -> str | None:
    accepted, evaluated = map(sum, zip(*pairs, strict=True))
    return f"{accepted / evaluated:.2f}" if evaluated else None


def table_first(rows: Sequence[dict[str, Any]]) -> Table:
    """Both ways, and their ratio."""
    before, after = ([row[way] for row in rows] for way in WAYS)
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    cells = (len(rows), *(f"{median(some):.1f}" for some in (before, after, ratios)))
    note = (
        "Seconds of the processor, one thread, medians; nothing of the book was read before a question. The "
        "first word is shown when the whole answer is found."
    )
    columns = ("questions", f"{WAYS[0]}, s", f"{WAYS[1]}, s", "ratio")
    return Table("From passages: time to the first word", columns, (cells,), (note,))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument("--contexts", type=numbers(int), default=[1024, 4096])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--question", action="append", default=[])
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    ids = book_ids(given.book, ensure_embedded(), least=max(given.contexts))
    found = []
    for one in turns(ids, given.contexts, given.tokens, given.turns):
        print(one, flush=True)
        found.append(one)
    tables = [table_turns(found)]
    rows = []
    if given.question:
        rows = first_words(Program(catalogue.EMBEDDED, PLAIN), read_document(given.book), given.question)
        tables.append(table_first(rows))
    for table in tables:
        print(
            f"\n{table.title}\n" + "\n".join("  ".join(map(str, row)) for row in (table.columns, *table.rows))
        )
    if given.save:
        details = {"book": given.book.name, "turns": [asdict(one) for one in found], "first_words": rows}
        save(given.save, tables, details=details)


if __name__ == "__main__":
    main()
