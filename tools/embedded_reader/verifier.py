"""Learns which of the reader's answers to trust (core.conversation.verifier).

    python -m tools.embedded_reader.verifier table --books FOLDER CANDIDATES ... --out TABLE
    python -m tools.embedded_reader.verifier table --books FOLDER CANDIDATES ... --out SHORT
    python -m tools.embedded_reader.verifier learn TABLE SHORT --out VERIFIER

The first turns what tools.embedded_reader.candidates has written into features and whether each answer is
right, about whole books or short stretches; the last is a logistic regression on those about books, by
Newton's method in float64, where each question weighs the same. Thresholds come from questions that were left
out of the learning, in folds of several orders: one order alone moves them by as much as a feature does. So
do two numbers that count for a mark alone: how many of all answers are likely right, and how much is refused.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from core.conversation.reranking import ScoredPassage
from core.conversation.verifier import NAMES, PassageAnswers, expected_right, refusals, scored_answers
from core.documents import read_document
from core.evidence.support import Evidence
from tools.embedded_reader.stretches import stretch_text

_RIDGE = 0.01  # on standardised features
_STEPS = 30
_WRONG_GIVEN, _WRONG_MARKED = 0.15, 0.05  # of all questions; of the wrong answers that are given
_WRONG_SHORT = 0.2  # of questions about short texts, a fifth of which do not answer them
_FOLDS, _ORDERS = 10, 5


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """One question: features and whether it is right, of each candidate."""

    book: str
    question: str
    rows: tuple[tuple[tuple[float, ...], bool], ...]


class JudgedAnswer(NamedTuple):
    """The score of the answer that would be given, how many right ones were expected, the share of refusals,
    and whether it is right.
    """

    score: float
    expected: float
    refusals: float
    hit: bool

    def surety(self, weights: tuple[float, float]) -> float:
        """What its mark hangs on, with these weights of what is expected and of refusals."""
        return self.score + weights[0] * self.expected + weights[1] * self.refusals


def question_table(lines: Sequence[dict[str, Any]], books: Path) -> Iterator[AskedQuestion]:
    """The candidates of questions about books in a folder, or stretches of these, with their features."""
    known: dict[str, Evidence] = {}
    for line in lines:
        name = line["file"]
        if "stretch" in line:
            evidence = Evidence(stretch_text(read_document(books / name), tuple(line["stretch"])))
        else:
            evidence = known.get(name) or Evidence(read_document(books / name))
            known[name] = evidence
        places = {(one.start, one.end): one for one in evidence.passages}
        heard = [
            PassageAnswers(
                ScoredPassage(places[tuple(one["passage"])], one["words"], one["asked"], one["refused"]),
                tuple((text, level) for text, level in one["said"]),
            )
            for one in line["heard"]
        ]
        found = scored_answers(line["question"], heard, evidence) if heard else []
        texts = [heard[one.witness].said[one.at][0] for one in found]
        rows = (
            (one.features, is_right(text, line["keywords"])) for one, text in zip(found, texts, strict=True)
        )
        yield AskedQuestion(name, line["question"], tuple(rows))


def is_right(said: str, keywords: Sequence[str] | None) -> bool:
    """Whether all keywords occur, `a|b` being alternatives; never where the book does not say."""
    return bool(keywords) and all(re.search(word, said, re.IGNORECASE) for word in keywords)


def learned(asked: Sequence[AskedQuestion]) -> tuple[float, tuple[float, ...]]:
    """The bias and weights that suit these questions best."""
    rows = [(features, hit, 1 / len(one.rows)) for one in asked for features, hit in one.rows]
    return _logistic(*zip(*rows, strict=True))


def _logistic(
    features: Sequence[Sequence[float]], hits: Sequence[bool], shares: Sequence[float]
) -> tuple[float, tuple[float, ...]]:
    x = torch.tensor(features, dtype=torch.float64)
    y = torch.tensor(hits, dtype=torch.float64)
    weight = torch.tensor(shares, dtype=torch.float64)
    mean, spread = x.mean(0), x.std(0).clamp(min=1e-9)
    z = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), (x - mean) / spread], 1)
    ridge = torch.full((z.shape[1],), 2 * _RIDGE * float(weight.sum()), dtype=torch.float64)
    ridge[0] = 1e-9
    b = torch.zeros(z.shape[1], dtype=torch.float64)
    for _step in range(_STEPS):
        p = torch.sigmoid(z @ b)
        slope = z.T @ (weight * (y - p)) - ridge * b
        curve = (z * (weight * p * (1 - p))[:, None]).T @ z + torch.diag(ridge)
        b = b + torch.linalg.solve(curve, slope)
    own = b[1:] / spread
    return float(b[0] - own @ mean), tuple(own.tolist())


def judged_by_folds(asked: Sequence[AskedQuestion], judged: Sequence[AskedQuestion]) -> list[JudgedAnswer]:
    """The answer that would be given to each question of `judged`, which are among those `asked`, by a
    verifier that was not taught on it: `_ORDERS` times, in folds of as many orders.
    """
    found = []
    for order in range(_ORDERS):
        shuffled = random.Random(order).sample(asked, len(asked))
        for fold in range(_FOLDS):
            bias, weights = learned([one for at, one in enumerate(shuffled) if at % _FOLDS != fold])
            left_out = {(one.book, one.question) for one in shuffled[fold::_FOLDS]}
            for one in judged:
                if (one.book, one.question) in left_out:
                    found.append(_judged(bias, weights, one))
    return found


def _judged(bias: float, weights: Sequence[float], one: AskedQuestion) -> JudgedAnswer:
    scored = [(_score(bias, weights, features), features, hit) for features, hit in one.rows]
    if not scored:
        return JudgedAnswer(float("-inf"), 0.0, 1.0, False)
    score, features, hit = max(scored)
    return JudgedAnswer(score, expected_right(odds for odds, *_row in scored), refusals(features), hit)


def mark_weights(found: Sequence[JudgedAnswer]) -> tuple[float, float]:
    """What a right answer that is expected, and all refusals, count beside the best one's score for whether
    that is right; nothing where too few questions say it.
    """
    rows = [one for one in found if one.score > float("-inf")]
    if not rows:
        return 0.0, 0.0
    features = [(one.score, one.expected, one.refusals) for one in rows]
    _bias, (score, *others) = _logistic(features, [one.hit for one in rows], [1.0] * len(rows))
    expected, refused = (one / score if score > 0 else 0.0 for one in others)
    return expected, refused


def thresholds(found: Sequence[JudgedAnswer], weights: tuple[float, float]) -> tuple[float, float]:
    """From which score on an answer is given, and from which surety on one that is given is marked: as low as
    the shares of wrong ones allow.
    """
    given = _lowest([(one.score, one.hit) for one in found], _WRONG_GIVEN * len(found))
    shown = [(one.surety(weights), one.hit) for one in found if one.score >= given]
    return given, _lowest(shown, _WRONG_MARKED * sum(not hit for _surety, hit in shown))


def _lowest(found: Sequence[tuple[float, bool]], most: float) -> float:
    """The score from which at most so many are wrong."""
    wrong, lowest = 0, float("inf")
    for score, hit in sorted(found, reverse=True):
        wrong += not hit
        if wrong > most:
            return lowest
        lowest = score
    return lowest


def _score(bias: float, weights: Sequence[float], features: Sequence[float]) -> float:
    return bias + sum(map(float.__mul__, weights, features))


def verifier(asked: Sequence[AskedQuestion], short: Sequence[AskedQuestion]) -> dict[str, Any]:
    """What assets/models keeps of it: learned on questions about books, and the threshold for short texts
    from `short`, the same questions about stretches.
    """
    bias, weights = learned(asked)
    found = judged_by_folds(asked, asked)
    expected, refused = (round(one, 3) for one in mark_weights(found))
    given, marked = thresholds(found, (expected, refused))
    brief = [(one.score, one.hit) for one in judged_by_folds(asked, short)]
    return {
        "given": round(given, 3),
        "marked": round(marked, 3),
        "given_short": round(_lowest(brief, _WRONG_SHORT * len(brief)), 3),
        "expected": expected,
        "refusals": refused,
        "bias": round(bias, 6),
        "weights": {name: round(value, 6) for name, value in zip(NAMES, weights, strict=True)},
    }


def load_table(path: Path) -> list[AskedQuestion]:
    """A table as `save` wrote it."""
    held = json.loads(gzip.decompress(path.read_bytes()))
    return [
        AskedQuestion(book, question, tuple((tuple(row), bool(hit)) for row, hit in rows))
        for book, question, rows in held
    ]


def save_table(path: Path, asked: Sequence[AskedQuestion]) -> None:
    """Writes a table, features to four places."""
    held = [
        (one.book, one.question, [([round(x, 4) for x in row], int(hit)) for row, hit in one.rows])
        for one in asked
    ]
    path.write_bytes(gzip.compress(json.dumps(held, separators=(",", ":")).encode(), mtime=0))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("table")
    first.add_argument("candidates", type=Path, nargs="+")
    first.add_argument("--books", type=Path, required=True)
    second = steps.add_parser("learn")
    second.add_argument("table", type=Path)
    second.add_argument("short", type=Path)
    for one in (first, second):
        one.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.step == "table":
        texts = [path.read_text(encoding="utf-8") for path in given.candidates]
        save_table(
            given.out,
            list(question_table([json.loads(x) for text in texts for x in text.splitlines()], given.books)),
        )
        return
    found = verifier(load_table(given.table), load_table(given.short))
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
