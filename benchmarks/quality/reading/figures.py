"""Figures of rows that were made by benchmarks.quality.reading.run, by name and in words. Values in, values
out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.lib.results import Table
from benchmarks.quality.reading import scores

_WORDS = {
    "f1_gold": "F1 of answers, the right passage given",
    "contains_gold": "answers that contain a person's answer word for word",
    "refused_own": "questions refused that the passage answers",
    "answered_foreign": "questions about another story answered all the same",
    "answered_elsewhere": "questions about another place of the story answered all the same",
    "f1_story": "F1 of answers, the whole story given",
    "passage_at_1": "right passage first",
    "passage_at_3": "right passage among three",
    "words_at_1": "right passage first, by words alone",
    "words_at_3": "right passage among three, by words alone",
    "books_right": "questions about four books answered with the right words",
    "books_answered_unsaid": "questions that the books do not answer, answered all the same",
    "books_wrong": "questions about books answered wrongly, of all",
    "marked_right": "right answers about books that bear a mark",
    "marked_wrong": "wrong answers about books that bear a mark",
    "books_in_three": "right words among three passages of a book",
    "books_shown": "of refused questions that the books answer, the right words among what is quoted",
    "f1_squad2": "F1 of answers about a passage of an encyclopedia (SQuAD 2.0)",
    "refused_squad2": "questions refused that such a passage answers",
    "answered_squad2": "questions that look as if it answered them, answered all the same",
    "quotes_exact": "quotations below answers that stand in the text word for word",
    "rouge1": "ROUGE-1 of whole stories' summaries, to the nearest of a story's references",
    "rouge2": "ROUGE-2 of whole stories' summaries, to the nearest of a story's references",
    "unknown_names": "names in summaries that the story does not know",
    "own_rouge1": "ROUGE-1 of the sentences that are chosen from the same stories",
    "own_rouge2": "ROUGE-2 of the sentences that are chosen from the same stories",
    "told_share": "sentences of summaries that are told, not taken (eight words in a row of the story)",
    "pointing_nowhere": "sentences of summaries that begin with a pronoun behind nobody's name",
    "draft_accepted": "of what the draft level proposed for summaries, accepted",
    "retrieval_accepted": "of what the retrieval level proposed for summaries, accepted",
    "tokens_per_round": "tokens of summaries in a round",
    "summary_circling": "summaries that go round in circles",
    "summary_mid_sentence": "summaries that stop in the middle of a sentence",
}
_CASES = {
    "gold": "questions with a passage",
    "story": "questions about whole stories",
    "books": "questions about books",
    "squad2": "questions about passages of an encyclopedia",
    "summaries": "stories summarised",
}
_SUMMARISED = (
    "ROUGE is that of the nearest reference, where `benchmarks.summaries` has the mean over all. Where a "
    "model's catalogue entry says `summaries: own`, the summaries are sentences of the story itself, chosen."
)


def reading_figures(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures by name; None where nothing was run."""
    gold, story = rows.get("gold", []), rows.get("story", [])
    own = [row for row in gold if row["kind"] == "own"]
    books = rows.get("books", [])
    asked, unsaid = [r for r in books if r["keywords"]], [r for r in books if not r["keywords"]]
    wrong = [row for row in books if not row["refused"] and not row.get("right")]
    judged = [row for row in books if "marked" in row]  # earlier rows do not say it
    summaries, squad2 = rows.get("summaries", []), rows.get("squad2", [])
    names = sum(row["names"] for row in summaries)
    quoting = [row for row in (*story, *books) if row.get("quotes")]
    quotes = sum(row["quotes"] for row in quoting)
    # rows that were kept before hold less
    heard = [row["heard"] for row in story if "heard" in row]
    told = [row["said"] for row in summaries]
    return {
        "f1_gold": _mean(own, "f1"),
        "contains_gold": _mean(own, "contains"),
        "f1_story": _mean(story, "f1"),
        "answered_foreign": _share([r for r in gold if r["kind"] == "foreign"], "refused", without=True),
        "answered_elsewhere": _share([r for r in gold if r["kind"] == "elsewhere"], "refused", without=True),
        "refused_own": _mean(own, "refused"),
        "passage_at_1": _mean(story, "passage_at_1"),
        "passage_at_3": _mean(story, "passage_at_3"),
        "words_at_1": _of([scores.first_by_words(one, 1) for one in heard]),
        "words_at_3": _of([scores.first_by_words(one, 3) for one in heard]),
        "quotes_exact": round(sum(row["exact"] for row in quoting) / quotes, 4) if quotes else None,
        "rouge1": _mean(summaries, "rouge1"),
        "rouge2": _mean(summaries, "rouge2"),
        "unknown_names": round(sum(r["unknown_names"] for r in summaries) / max(1, names), 4)
        if summaries
        else None,
        "own_rouge1": _mean([row for row in summaries if "own_rouge1" in row], "own_rouge1"),
        "own_rouge2": _mean([row for row in summaries if "own_rouge2" in row], "own_rouge2"),
        **_telling([row for row in summaries if row.get("tokens")]),
        "summary_circling": _of([scores.circling(said) for said in told]),
        "summary_mid_sentence": _of([scores.mid_sentence(said) for said in told]),
        "books_right": _mean(asked, "right"),
        "books_answered_unsaid": _share(unsaid, "refused", without=True),
        "books_wrong": round(len(wrong) / len(books), 4) if books else None,
        "marked_right": _mean([row for row in judged if row.get("right")], "marked"),
        "marked_wrong": _mean([row for row in judged if row in wrong], "marked"),
        "books_in_three": _mean(asked, "in_three"),
        "books_shown": _mean([row for row in asked if row["refused"] and "shown" in row], "shown"),
        "f1_squad2": _mean([row for row in squad2 if row["answers"]], "f1"),
        "refused_squad2": _mean([row for row in squad2 if row["answers"]], "refused"),
        "answered_squad2": _share([row for row in squad2 if not row["answers"]], "refused", without=True),
        "cases": {name: len(held) for name, held in rows.items()},
    }


def _telling(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """How summaries were told, over all of their sentences, tokens and proposals."""

    def ratio(above: float, below: float) -> float | None:
        return round(above / below, 4) if below else None

    def total(name: str, key: str = "") -> float:
        return sum(row[name][key] if key else row[name] for row in rows)

    return {
        "told_share": ratio(total("sentences") - total("taken"), total("sentences")),
        "pointing_nowhere": total("pointing") if rows else None,
        "draft_accepted": ratio(total("draft", "accepted"), total("draft", "evaluated")),
        "retrieval_accepted": ratio(total("retrieval", "accepted"), total("retrieval", "evaluated")),
        "tokens_per_round": ratio(total("tokens"), total("rounds")),
    }


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    return _of([row[name] for row in rows])


def _share(rows: Sequence[dict[str, Any]], name: str, *, without: bool) -> float | None:
    return _of([row[name] != without for row in rows])


def _of(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None


def kept_rows(rows: dict[str, list[dict[str, Any]]], model: str, split: str, seed: int) -> dict[str, Any]:
    """What the results file keeps beside its tables: all of it."""
    return {"model": model, "split": split, "seed": seed, "figures": reading_figures(rows), **rows}


def reading_tables(found: dict[str, Any]) -> tuple[Table, ...]:
    """What is shown: every figure that was taken, in words."""
    rows = [(words, found[name]) for name, words in _WORDS.items() if found[name] is not None]
    ran = ", ".join(f"{count} {_CASES[name]}" for name, count in found["cases"].items() if count)
    notes = [f"{ran}."]
    if found["cases"].get("summaries"):
        notes.append(_SUMMARISED)
    title = "Reading, judged by what people asked and wrote"
    return (Table(title, ("figure", "value"), tuple(rows), tuple(notes)),)
