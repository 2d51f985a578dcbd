"""How far passes of different shapes round apart on real text, and how many tokens of real answers are
near-ties because of it.

    python benchmarks/precision.py [--data FOLDER] [--windows 16] [--kinds "float32;bfloat16"] [--save
    precision]

The same 64 tokens of a book follow the same 384 in passes of 1, 5 and 32 rows: plain decoding, a verification
of four drafted tokens and the re-check. What one pass may say and another forbids has a gap
(core.conversation.verification.gap); the margins there are set from the largest gaps found. Then TriForce
writes answers and Engine.verify re-checks them. Texts: the samples in assets/, and the books in FOLDER/books
where one is given.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# started as a file: the repository is on the path, and not this folder
if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.backend.cpu.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

bound_spinning()

import torch  # noqa: E402 (after the thread setting, which is read when torch loads)

from benchmarks.store import REPO, Table, save  # noqa: E402
from core.ask import Params  # noqa: E402
from core.assembly.engines import build_engine  # noqa: E402
from core.backend.cpu.backend import CpuBackend  # noqa: E402
from core.backend.shared.kv_rows import CODES  # noqa: E402
from core.cache.full import FullKVCache  # noqa: E402
from core.config import load_settings  # noqa: E402
from core.conversation.verification import gap, verify_answer  # noqa: E402
from core.decoding.decoder import Round  # noqa: E402
from core.decoding.sampling import Sampling  # noqa: E402
from core.documents import read_document  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.hardware.probe import probe  # noqa: E402
from core.model.llama import LlamaModel  # noqa: E402
from core.model.loader import load_model  # noqa: E402
from core.model.store import catalogue  # noqa: E402
from core.model.store.embedded import ensure_embedded  # noqa: E402
from core.paths import data_dir  # noqa: E402
from core.planning.planner import plan as make_plan  # noqa: E402
from core.text.tokenizer import Tokenizer  # noqa: E402

PROMPT, JUDGED = 384, 64  # tokens
ROWS = (1, 5, 32)  # plain decoding, a verification pass, the re-check


@dataclass(frozen=True, slots=True)
class Kind:
    """What weights and rows of the KV cache are held in and computed in. `weights`: "float" | "codes";
    `kv_bits`: 16, those of `held`, or 8, codes.
    """

    held: str
    computes: str
    weights: str = "float"
    kv_bits: int = 16


# the product computes in all but float16
KINDS = {
    "float32": Kind("float32", "float32"),
    "float32 from bfloat16": Kind("bfloat16", "float32"),
    "bfloat16": Kind("bfloat16", "bfloat16"),
    "bfloat16, in codes": Kind("bfloat16", "bfloat16", "codes"),
    "float32, 8-bit KV": Kind("float32", "float32", kv_bits=8),
    "float32 from bfloat16, 8-bit KV": Kind("bfloat16", "float32", kv_bits=8),
    "float32 from bfloat16, in codes, 8-bit KV": Kind("bfloat16", "float32", "codes", kv_bits=8),
    "bfloat16, in codes, 8-bit KV": Kind("bfloat16", "bfloat16", "codes", kv_bits=8),
    "float16": Kind("float16", "float16"),
}
SAMPLINGS = {"greedy": Sampling(), "T 0.6, top-p 0.9": Sampling(0.6, 0.9)}
NOTES = (
    'One position is one token of a book, judged by two passes of different shapes. "Argmax differs" is the '
    "rate of near-ties that "
    "plain greedy decoding itself would have between these shapes. A gap is by how much log-probabilities "
    "would have to be off for a token "
    "of one pass to be possible in the other.",
    "8-bit KV: rows of codes, where a rounding of a key can flip a code "
    "(core.backend.shared.kv_rows); the others are of what is held.",
    "float16 is not offered on the CPU; it is measured there for the margin that a GPU will use.",
)
ANSWER_NOTES = (
    "TriForce's answers, re-checked token by token in a plain pass (`--verify`); a mismatch would be a "
    "broken promise.",
)


@dataclass(slots=True)
class Apart:
    """What was seen of one kind between passes of two shapes."""

    # per position: the largest difference among the 64 likeliest tokens
    differences: list[float]
    flips: int
    gaps: dict[str, list[float]]  # per sampling: the gaps above 0

    @classmethod
    def nothing(cls) -> Apart:
        return cls([], 0, {name: [] for name in SAMPLINGS})

    def add(self, one: torch.Tensor, other: torch.Tensor) -> None:
        """Logits [n, vocab] of the same positions."""
        a, b = torch.log_softmax(one, -1), torch.log_softmax(other, -1)
        likely = a.topk(64, dim=-1).indices
        self.differences += (a - b).gather(-1, likely).abs().amax(-1).tolist()
        self.flips += int((a.argmax(-1) != b.argmax(-1)).sum())
        for name, sampling in SAMPLINGS.items():
            self.gaps[name] += [*gaps(sampling, one, other), *gaps(sampling, other, one)]


def gaps(sampling: Sampling, said: torch.Tensor, judged: torch.Tensor) -> Iterator[float]:
    """The gap of the worst token that the law of logits `said` [n, vocab] allows and that of `judged` does
    not; where there is one.
    """
    foreign = (sampling.probs(said, ()) > 0) & (sampling.probs(judged, ()) == 0)
    log_probs = torch.log_softmax(judged, -1)
    for row in foreign.any(-1).nonzero().flatten().tolist():
        yield max(gap(log_probs[row], token, sampling) for token in foreign[row].nonzero().flatten().tolist())


def rounding(model: LlamaModel, windows: Sequence[list[int]], kv_bits: int) -> dict[str, Apart]:
    """By pair of shapes."""
    found: dict[str, Apart] = defaultdict(Apart.nothing)
    rows = CODES if kv_bits == 8 else model.backend.storage
    for ids in windows:
        cache = FullKVCache(model.config.kv_shape, PROMPT + JUDGED, model.backend, dtype=rows)
        for _ in model.prefill(
            ids[:PROMPT], cache, segment_tokens=PROMPT, chunk_tokens=PROMPT, should_stop=lambda: False
        ):
            pass
        logits = {rows: _judged(model, cache, ids, rows) for rows in ROWS}
        for first, second in ((1, 32), (5, 32), (1, 5)):
            found[f"{first} and {second} rows"].add(logits[first], logits[second])
    return found


def _judged(model: LlamaModel, cache: FullKVCache, ids: list[int], rows: int) -> torch.Tensor:
    """Logits [JUDGED, vocab] of the tokens behind the prompt, fed `rows` at a time."""
    cache.rollback(PROMPT)
    pieces = [
        ids[start : min(start + rows, PROMPT + JUDGED)] for start in range(PROMPT, PROMPT + JUDGED, rows)
    ]
    return torch.cat([model.forward(piece, cache) for piece in pieces])


def answers(engine: Engine, windows: Sequence[list[int]]) -> Iterator[tuple[str, int, int, int, float]]:
    """(sampling, tokens, near-ties, mismatches, largest gap) over TriForce's answers to all windows."""
    for name, sampling in SAMPLINGS.items():
        said = []
        for number, ids in enumerate(windows):
            params = Params(
                max_new_tokens=JUDGED, temperature=sampling.temperature, top_p=sampling.top_p, seed=number
            )
            context = engine.new_context(engine.context_tokens)
            events = engine.generate(context, ids[:PROMPT], params)
            written = [token for event in events if isinstance(event, Round) for token in event.tokens]
            said.append(verify_answer(engine.model, context, [*ids[:PROMPT], *written], PROMPT, params))
        counts = (sum(getattr(one, key) for one in said) for key in ("tokens", "near_ties", "mismatches"))
        yield (name, *counts, max(one.largest_gap for one in said))


def main() -> int:
    """Measures the kinds that the arguments ask for, one after the other."""
    options = _arguments()
    folder = ensure_embedded()
    windows = list(_windows(Tokenizer.load(folder), options.data, options.windows))
    rows, answered, details = [], [], {}
    for kind in options.kinds:
        model, engine = _build(kind, folder)
        with torch.inference_mode():
            found = rounding(model, windows, KINDS[kind].kv_bits)
        details[kind] = {pair: _figures(apart) for pair, apart in found.items()}
        rows += [(kind, pair, *_row(apart)) for pair, apart in found.items()]
        if engine is not None:
            answered += [(kind, *figures) for figures in answers(engine, windows[: options.answers])]
        print(json.dumps({"kind": kind, "rounding": details[kind], "answers": answered}), flush=True)
    tables = [
        Table("Rounding: the same tokens in passes of different shapes", COLUMNS, tuple(rows), NOTES),
        Table("Near-ties in TriForce's answers", ANSWER_COLUMNS, tuple(answered), ANSWER_NOTES),
    ]
    if options.save:
        save(
            options.save,
            tables,
            {"rounding": details, "windows": len(windows), "prompt_tokens": PROMPT, "judged_tokens": JUDGED},
        )
    return 0


COLUMNS = (
    "Computed in",
    "Passes",
    "positions",
    "argmax differs",
    "log-prob. difference p50",
    "p99",
    "max",
    "largest gap, greedy",
    "largest gap, T 0.6 top-p 0.9",
)
ANSWER_COLUMNS = ("Computed in", "Sampling", "tokens", "near-ties", "mismatches", "largest gap")


def _row(apart: Apart) -> tuple:
    figures = _figures(apart)
    return (
        figures["positions"],
        figures["flips"] / figures["positions"],
        *figures["difference"].values(),
        *figures["gap"].values(),
    )


def _figures(apart: Apart) -> dict:
    ordered = sorted(apart.differences)
    at = {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }
    return {
        "positions": len(ordered),
        "flips": apart.flips,
        "difference": at,
        "gap": {name: max(found, default=0.0) for name, found in apart.gaps.items()},
    }


def _build(kind: str, folder: Path) -> tuple[LlamaModel, Engine | None]:
    """The embedded model computed in `kind`, and an engine around it where the product offers that."""
    asked = KINDS[kind]
    if asked.held == "float16":
        return load_model(folder, CpuBackend(torch.float16), positions=PROMPT + JUDGED, in_codes=False), None
    settings = load_settings(None, {"context_tokens": 1024, "retrieval_budget": 128})
    plan = make_plan(probe(data_dir()), settings, target=catalogue.find(folder.name).shape, draft=None)
    formats = {"dtype": asked.held, "computes": asked.computes, "kv_bits": asked.kv_bits}
    engine = build_engine(replace(plan, weights_kernel=asked.weights, **formats), settings, folder)
    assert engine.plan.kv_rows == ("int8" if asked.kv_bits == 8 else asked.held), engine.plan.kv_rows
    return engine.model, engine


def _windows(tokenizer: Tokenizer, data: Path | None, number: int) -> Iterator[list[int]]:
    """Pieces of PROMPT + JUDGED tokens from all texts in turn, at places drawn with a fixed seed."""
    paths = sorted((REPO / "assets" / "samples").glob("*.epub"))
    if data is not None:
        paths += sorted(
            path for path in (data / "books").iterdir() if path.suffix in (".epub", ".pdf", ".txt")
        )
    texts = [tokenizer.encode(read_document(path).text) for path in paths]
    dice = random.Random(0)
    for index in range(number):
        ids = texts[index % len(texts)]
        start = dice.randrange(len(ids) - PROMPT - JUDGED)
        yield ids[start : start + PROMPT + JUDGED]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with books/")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--answers", type=int, default=8, help="windows that are continued and re-checked")
    parser.add_argument(
        "--kinds", type=lambda text: text.split(";"), default=list(KINDS), help="separated by ;"
    )
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
