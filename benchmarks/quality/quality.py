"""How well a model reads: questions with known answers and summaries, at several part lengths, prompts and
samplings.

    python -m benchmarks.quality --data FOLDER [--minutes 10] [--save quality]
    python -m benchmarks.quality --reading FOLDER --split NAME [--data FOLDER] [--json] [--save reading]

The first: --data holds facts.json and the books it names; decides the `reading` record of a model's catalogue
entry. The second: --reading holds fairytaleqa-NAME.jsonl, squality-NAME.jsonl, books.jsonl and, where it is
asked about, too, squad2.jsonl; what people asked and wrote is put to the program as it is shipped
(benchmarks.quality.reading). Of a large split a sample is drawn, the same for the same seed. Cases run until
the time is over, in an order in which what was done by then is a sample too; the number of cases behind each
figure, and of how many, is in the result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.lib.results import Table, save_result
from core.config import load_settings
from core.conversation.answering import generate_answer
from core.conversation.reading import ReadingStyle
from core.documents import Document, read_document
from core.hardware.probe import probe
from core.planning.offers import choose_model
from core.request import Params
from core.text.circling import distinct_share
from core.text.grounding import grounding
from core.text.prompt import build_prompt

# tokens of the passage for questions; the last one fills the context of 8,192
LENGTHS = (1024, 2048, 4096, 7400)
SUMMARY_LENGTHS = (600, 1200, 2400)  # with every prompt; the lengths above with one
SUMMARY_PROMPTS = {
    "own words": "Write a short summary of this passage in your own words.",
    "who does what": "Summarize what happens in this passage in three or four sentences. Name who does what.",
    "what happens": "What happens in this passage? Answer in a few sentences.",
    "main events": "Tell the main events of this passage in order, in short sentences.",
    "three events": "List the three most important events of this passage in order, one short sentence each.",
    "events, who": "List the main events of this passage in order, in short sentences. Say who does what.",
}
QUESTION_PROMPTS = {
    "bare": "{question}",
    "from the passage": "{question} Answer in one sentence, using only the passage above.",
    "quote": "Question about the passage above: {question}\nAnswer briefly.",
}
USUAL = "greedy, 1.1"  # temperature, repetition penalty
SAMPLINGS = {USUAL: (0.0, 1.1), "greedy, 1.0": (0.0, 1.0), "T 0.3, 1.0": (0.3, 1.0), "T 0.3, 1.1": (0.3, 1.1)}
# of what people asked and wrote, with the share of the time that each may take
PARTS = {"gold": 0.26, "story": 0.34, "books": 0.26, "squad2": 0.06, "summaries": 0.08}
MINUTES, READING_MINUTES = 10, 80
# prompts that are tried with every sampling, at 1,200 tokens
SAMPLED = ("who does what", "three events", "events, who")


@dataclass(frozen=True, slots=True)
class QualityCase:
    """One thing to try."""

    kind: str  # "question" | "summary"
    book: str
    tokens: int
    prompt: str
    sampling: str
    where: int  # which fact or which place in the book


def cases(facts: dict[str, list[dict]]) -> Iterator[QualityCase]:
    """Book by book and length by length, so that a run cut short still compares lengths; the longest ones
    once per book.
    """
    for place in range(max(map(len, facts.values()))):
        lengths = LENGTHS if place == 1 else LENGTHS[:-1]
        for book, asked in facts.items():
            if place < len(asked):
                for tokens in lengths:
                    for prompt in QUESTION_PROMPTS if tokens <= 1024 else ("quote",):
                        yield QualityCase("question", book, tokens, prompt, USUAL, place)
            for tokens in SUMMARY_LENGTHS:
                for prompt in SUMMARY_PROMPTS:
                    yield QualityCase("summary", book, tokens, prompt, USUAL, place)
            for tokens in LENGTHS[2:] if place == 1 else ():
                yield QualityCase("summary", book, tokens, "who does what", USUAL, place)
            for sampling, prompt in itertools.product(list(SAMPLINGS)[1:], SAMPLED):
                yield QualityCase("summary", book, SUMMARY_LENGTHS[1], prompt, sampling, place)


class QualityBench:
    """The engine, the books and the scores."""

    def __init__(self, data: Path, mode: str) -> None:
        from core.assembly.engines import build_engine
        from core.model.store.embedded import ensure_embedded
        from core.text.tokenizer import Tokenizer

        settings = load_settings(None, {"model": "SmolLM2-135M-Instruct"})
        choice = choose_model(probe(measure=False), settings, is_downloaded=lambda entry: entry.embedded)
        folder = ensure_embedded()
        self.engine, self.tokenizer = build_engine(choice.plan, settings, folder), Tokenizer.load(folder)
        self.context = self.engine.new_context(self.engine.context_tokens)
        self.style, self.mode = ReadingStyle.from_record(choice.entry.reading), mode
        described = json.loads((data / "facts.json").read_text(encoding="utf-8"))["books"]
        self.books = {book["file"]: read_document(data / book["file"]) for book in described}
        self.facts = {book["file"]: book["facts"] for book in described}

    def run(self, case: QualityCase) -> dict[str, Any]:
        """The scores of one case."""
        document = self.books[case.book]
        passage = self._passage(document, case)
        temperature, penalty = SAMPLINGS[case.sampling]
        fact = self.facts[case.book][case.where] if case.kind == "question" else None
        asked = (
            QUESTION_PROMPTS[case.prompt].replace("{question}", fact["question"])
            if fact
            else SUMMARY_PROMPTS[case.prompt]
        )
        params = Params(
            max_new_tokens=48 if fact else 110,
            temperature=temperature,
            repetition_penalty=penalty,
            seed=1,
            mode=self.mode,
        )
        frame = self.tokenizer.frame(self.style.system)
        ids = build_prompt(
            frame, self.tokenizer.encode(passage + "\n\n"), (), self.tokenizer.encode(asked), room=8000
        ).ids
        done = self._answer(ids, params)
        scores = {
            "text": done.text,
            "reason": done.reason,
            "new_tokens": len(done.token_ids),
            "distinct_4grams": round(distinct_share(done.token_ids), 3),
        }
        if fact:
            found = [bool(re.search(word, done.text, re.IGNORECASE)) for word in fact["answer_keywords"]]
            return {**scores, "keywords": sum(found) / len(found)}
        found = grounding(done.text, passage)
        return {
            **scores,
            "supported": round(found.supported, 3),
            "strangers": len(found.strangers),
            "copied": round(found.copied, 3),
            "score": round(found.score, 3),
        }

    def _answer(self, ids: list[int], params: Params):
        events = generate_answer(
            self.engine, self.context, ids, params, decode=self.tokenizer.decode, should_stop=lambda: False
        )
        while True:
            try:
                next(events)
            except StopIteration as end:
                return end.value

    def _passage(self, document: Document, case: QualityCase) -> str:
        """So many tokens around the evidence of a fact, or around one, two or three quarters of the book."""
        chapters = document.chapters
        start, end = chapters[0].start, chapters[-1].end
        if case.kind == "question":
            middle = _find(document.text, self.facts[case.book][case.where]["evidence"])
        else:
            middle = start + (end - start) * (case.where + 1) // 4
        text = document.text[max(start, middle - 3 * case.tokens) : middle + 3 * case.tokens]
        ids = self.tokenizer.encode(text)
        spare = max(0, len(ids) - case.tokens)
        text = self.tokenizer.decode(ids[spare // 2 : len(ids) - (spare - spare // 2)])
        return text[text.find(". ") + 2 : text.rfind(". ") + 1].strip()


def _find(text: str, evidence: str) -> int:
    pattern = r"\s+".join(re.escape(word) for word in evidence.split())
    match = re.search(pattern, text)
    return match.start() if match else len(text) // 2


def best_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What several tries are worth: the mean score of the best summary of a passage, when prompts are tried
    one after the other.

    The order is the one in which each prompt adds most to those before it; only passages that were given
    every prompt count.
    """
    table = []
    for tokens in SUMMARY_LENGTHS:
        passages: dict[tuple, dict[str, float]] = {}
        for row in rows:
            if row["kind"] == "summary" and row["tokens"] == tokens and row["sampling"] == USUAL:
                passages.setdefault((row["book"], row["where"]), {})[row["prompt"]] = row["score"]
        whole = [scores for scores in passages.values() if set(scores) == set(SUMMARY_PROMPTS)]
        order: list[str] = []
        while whole and len(order) < len(SUMMARY_PROMPTS):
            gain = {
                prompt: statistics.fmean(max(scores[name] for name in (*order, prompt)) for scores in whole)
                for prompt in SUMMARY_PROMPTS
                if prompt not in order
            }
            order.append(max(gain, key=gain.get))
            table.append(
                {
                    "tokens": tokens,
                    "passages": len(whole),
                    "tries": list(order),
                    "mean_best_score": round(gain[order[-1]], 3),
                }
            )
    return table


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means per kind, length, prompt and sampling."""
    table = []
    key = ("kind", "tokens", "prompt", "sampling")
    rows = sorted(rows, key=lambda row: [str(row[name]).zfill(6) for name in key])
    for values, group in itertools.groupby(rows, key=lambda row: [row[name] for name in key]):
        group = list(group)
        line = {
            **dict(zip(key, values, strict=True)),
            "cases": len(group),
            "looping": sum(r["reason"] == "looping" for r in group),
        }
        for name in (
            "keywords",
            "score",
            "supported",
            "strangers",
            "copied",
            "distinct_4grams",
            "new_tokens",
        ):
            if name in group[0]:
                line[name] = round(statistics.fmean(r[name] for r in group), 2)
        table.append(line)
    return table


def quality_tables(rows: list[dict[str, Any]]) -> tuple[Table, ...]:
    """What is shown: prompts and tries by length of the text, and questions."""
    means, tries = summarise(rows), best_of(rows)

    def mean(kind: str, prompt: str, tokens: int, name: str) -> float | None:
        return next(
            (
                line[name]
                for line in means
                if (line["kind"], line["prompt"], line["tokens"], line["sampling"])
                == (kind, prompt, tokens, USUAL)
            ),
            None,
        )

    def best(count: int, tokens: int) -> float | None:
        return next(
            (
                line["mean_best_score"]
                for line in tries
                if line["tokens"] == tokens and len(line["tries"]) == count
            ),
            None,
        )

    lengths = tuple(f"{tokens:,} tokens" for tokens in SUMMARY_LENGTHS)
    score = [
        (prompt, *(mean("summary", prompt, tokens, "score") for tokens in SUMMARY_LENGTHS))
        for prompt in SUMMARY_PROMPTS
    ]
    score += [
        (f"best of {count} prompts", *(best(count, tokens) for tokens in SUMMARY_LENGTHS)) for count in (2, 3)
    ]
    asked = [(f"{tokens:,} tokens", mean("question", "quote", tokens, "keywords")) for tokens in LENGTHS]
    cases = (
        f"Means over {len(rows)} cases on {len({row['book'] for row in rows})} books, greedy, repetition "
        "penalty 1.1."
    )
    return (
        Table(
            "How far a summary keeps to its text, by length of the text",
            ("prompt", *lengths),
            tuple(score),
            (
                cases,
                "Score: content words that the text knows, less 0.15 an invented name, less what is copied "
                "beyond half of it.",
            ),
        ),
        Table(
            "Answers with the right keywords",
            ("text read", "share"),
            tuple(row for row in asked if row[1] is not None),
        ),
    )


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with facts.json and the books")
    parser.add_argument("--minutes", type=float, help=f"{MINUTES}, with --reading {READING_MINUTES}")
    parser.add_argument("--mode", default="autoregressive")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    whole = parser.add_argument_group("reading")
    whole.add_argument("--reading", type=Path, help="a folder with questions and summaries by people")
    whole.add_argument("--split", default="val")
    whole.add_argument("--model", default="SmolLM2-135M-Instruct")
    whole.add_argument("--folder", type=Path, help="its weights, where they are not the installed ones")
    whole.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    whole.add_argument("--cases", type=int, default=200, help="questions of each part, 0: all")
    whole.add_argument("--stories", type=int, default=0, help="stories to summarise, 0: all")
    whole.add_argument("--seed", type=int, default=0)
    whole.add_argument("--rows", type=Path, help="a folder: rows that stand there are not made again")
    whole.add_argument("--json", action="store_true", help="the last line is the figures as JSON")
    given = parser.parse_args()
    if given.reading:
        judge(given)
    elif given.data:
        compare_all(given)
    else:
        parser.error("name a folder: --data or --reading")


def judge(given: argparse.Namespace) -> None:
    """Questions and summaries by people, put to the program as it is shipped."""
    from benchmarks.quality.reading.figures import kept_rows, reading_figures, reading_tables
    from benchmarks.quality.reading.run import Program, run_cases

    there = {"books": bool(given.data), "squad2": (given.reading / "squad2.jsonl").is_file()}
    parts = [name for name in PARTS if name in given.parts and there.get(name, True)]
    cases = {name: _of_part(name, given) for name in parts}
    program = Program(given.model, given.mode, folder=given.folder)
    end = time.monotonic() + 60 * (given.minutes or READING_MINUTES)
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, name in enumerate(parts):
        # what one part leaves of its time goes to those behind it
        share = PARTS[name] / sum(PARTS[later] for later in parts[number:])
        until = time.monotonic() + share * (end - time.monotonic())
        print(f"{name}: {len(cases[name])} cases, {(until - time.monotonic()) / 60:.0f} minutes", flush=True)
        made = given.rows / f"{name}.jsonl" if given.rows else None
        rows[name] = list(run_cases(getattr(program, f"of_{name}"), cases[name], until, made))
    if given.save:
        details = kept_rows(rows, program.name, given.split, given.seed)
        save_result(given.save, reading_tables(details["figures"]), details)
    line = reading_figures(rows) | {"asked": {name: len(held) for name, held in cases.items()}}
    print(json.dumps(line) if given.json else "\n".join(f"{name}: {value}" for name, value in line.items()))


def _of_part(name: str, given: argparse.Namespace) -> list[Any]:
    """The cases of one part: as many as were asked for."""
    from benchmarks.quality.reading import cases as reading

    count = given.cases or None
    if name == "books":
        return reading.book_questions(given.data, given.reading)
    if name == "squad2":
        return reading.of_passages(given.reading, count, given.seed)
    if name == "summaries":
        stories = reading.read_stories(given.reading, "squality", given.split)
        return reading.summarised(stories, given.stories or None)
    tales = reading.read_stories(given.reading, "fairytaleqa", given.split)
    draw = reading.with_passage if name == "gold" else reading.of_stories
    return draw(tales, count, given.seed)


def compare_all(given: argparse.Namespace) -> None:
    """Prompts, lengths and samplings."""
    bench = QualityBench(given.data, given.mode)
    end = time.monotonic() + 60 * (given.minutes or MINUTES)
    rows = []
    for case in cases(bench.facts):
        if time.monotonic() > end:
            break
        rows.append({**asdict(case), **bench.run(case)})
        print({name: rows[-1][name] for name in ("kind", "tokens", "prompt", "text")}, flush=True)
    for line in (*summarise(rows), *best_of(rows)):
        print(json.dumps(line))
    if given.save:
        save_result(given.save, quality_tables(rows), details(bench.engine.model_name, rows))


def details(model: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything but the texts."""
    cases = [{name: value for name, value in row.items() if name != "text"} for row in rows]
    return {"model": model, "table": summarise(rows), "best_of": best_of(rows), "cases": cases}


if __name__ == "__main__":
    main()
