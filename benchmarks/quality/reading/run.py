"""The cases put to the program as it is shipped: its engine and weights, its prompts, its way through a whole
story. Every case keeps its text.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.lib.results import Table
from benchmarks.quality.reading import scores
from benchmarks.quality.reading.cases import Question, Story, document
from core.assembly.composition import Composer
from core.config import load_settings
from core.conversation.answering import generate_answer
from core.conversation.asking import AnswerRun, asked_of_passage
from core.conversation.consensus import agreed, drawn
from core.conversation.reading import ReadingStyle
from core.conversation.reranking import ScoredPassage
from core.conversation.session import Session
from core.documents import read_document
from core.events import Finished
from core.evidence.passages import Passage, book_passages
from core.hardware.probe import probe
from core.planning.offers import choose_model
from core.request import Params, Request
from core.text.prompt import build_prompt

_ANSWER_TOKENS = 64
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
    "summaries": "stories summarised",
}
_SUMMARISED = (
    "ROUGE is that of the nearest reference, where `benchmarks.summaries` has the mean over all. Where a "
    "model's catalogue entry says `summaries: own`, the summaries are sentences of the story itself, chosen."
)
_UNSAID = "The book does not seem to say"


class Program:
    """The engine with a session around it, as core.build makes them."""

    def __init__(
        self,
        model: str,
        mode: str,
        *,
        folder: Path | None = None,
        composer: Callable[..., Composer] = Composer,
        **given: Any,
    ) -> None:
        """`folder`: its weights, where they are not those that the catalogue names; `given`: settings."""
        from core.assembly.engines import build_engine
        from core.model.store.fetch import is_downloaded, model_folder
        from core.text.tokenizer import Tokenizer

        settings = load_settings(None, {"model": model, **given})
        choice = choose_model(probe(measure=False), settings, is_downloaded=is_downloaded)
        folder = folder or model_folder(choice.entry, lambda stage, share: None)
        self.name, self.mode = choice.entry.name, mode
        self.style = ReadingStyle.from_record(choice.entry.reading)
        self.tokenizer = Tokenizer.load(folder, frame=choice.entry.frame)
        self.engine = build_engine(choice.plan, settings, folder, composer=composer)
        self.session = Session(self.engine, self.tokenizer, self.style)
        self._read, self._book = lru_cache(maxsize=1)(read_document), None
        self._context = self.engine.new_context(min(4096, self.engine.context_tokens))

    def of_gold(self, one: Question) -> dict[str, Any]:
        """The answer to a question put with its passage: the likeliest, and where that is no refusal the one
        that more of them agree on, as the program does with a passage that it does not doubt.
        """
        encode = self.tokenizer.encode
        ids = build_prompt(
            self.tokenizer.frame(self.style.system),
            encode(one.text + "\n\n"),
            (),
            encode(asked_of_passage(self.style, one.question)),
            room=self._context.capacity - _ANSWER_TOKENS,
        ).ids
        params = Params(
            max_new_tokens=_ANSWER_TOKENS,
            temperature=0.0,
            repetition_penalty=1.0,  # as core.conversation.asking has it for passages
            seed=1,
            mode=self.mode,
        )
        said = self._said(ids, params)
        if not scores.said_refusal(said, self.style.refusal):
            more = [self._said(ids, each) for each in drawn(self.style, params)]
            answers = [said, *(one for one in more if not scores.said_refusal(one, self.style.refusal))]
            said = answers[agreed(answers)[0]]
        row = {"kind": one.kind, "story": one.story, "question": one.question, "said": said}
        row["refused"] = scores.said_refusal(said, self.style.refusal)
        if one.answers:
            row |= {"answers": list(one.answers), "f1": round(scores.f1(said, one.answers), 3)}
            row["contains"] = scores.contains(said, one.answers)
        return row

    def _said(self, ids: list[int], params: Params) -> str:
        events = generate_answer(
            self.engine, self._context, ids, params, decode=self.tokenizer.decode, should_stop=lambda: False
        )
        while True:
            try:
                next(events)
            except StopIteration as end:
                return end.value.text.strip()

    def of_story(self, one: Question) -> dict[str, Any]:
        """The answer to a question put with a whole story, from passages found by the program."""
        book = document(one.story, one.text)
        ask = Request(
            one.question,
            book,
            conversation_id=one.question,
            reading_mode="retrieval",
            params=self._greedy(_ANSWER_TOKENS),
        )
        done, seconds = self._done(ask)
        said = done.text.strip()
        found, heard = self._found(ask)
        right = scores.holding(
            one.text, one.gold, one.answers, [(p.start, p.end) for p in book_passages(book)]
        )
        hits = [(p.start, p.end) in right for p in found]
        first = said.split("\n\n")[0].strip()
        quotes, exact = scores.quotes(said, one.text)
        return {
            "story": one.story,
            "question": one.question,
            "answers": list(one.answers),
            "said": said,
            "f1": 0.0 if first.startswith(_UNSAID) else round(scores.f1(first, one.answers), 3),
            "refused": first.startswith(_UNSAID),
            "passage_at_1": any(hits[:1]),
            "passage_at_3": any(hits[:3]),
            "quotes": quotes,
            "exact": exact,
            "agreed": done.drawn.get("agreed"),
            "marked": self._marked(done, ask),
            "heard": [(*one, hit) for one, hit in zip(heard, hits, strict=True)],
            "seconds": seconds,
        }

    def of_books(self, one: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question about a real book."""
        ask = Request(
            one["question"],
            self._read(one["path"]),
            conversation_id=one["question"],
            reading_mode="retrieval",
            params=self._greedy(_ANSWER_TOKENS),
        )
        done, seconds = self._done(ask)
        said = done.text.strip()
        first = said.split("\n\n")[0].strip()
        found, heard = self._found(ask)
        held = [ask.book.text[p.start : p.end] for p in found[:3]]
        kept = {name: one[name] for name in ("book", "question", "keywords")}
        row = {**kept, "said": said, "refused": first.startswith(_UNSAID), "seconds": seconds}
        quotes, exact = scores.quotes(said, ask.book.text)
        row |= {"quotes": quotes, "exact": exact, "heard": heard}
        row |= {"agreed": done.drawn.get("agreed"), "marked": self._marked(done, ask)}
        if one["keywords"]:
            row["right"] = not row["refused"] and scores.right(first, one["keywords"])
            row["in_three"] = any(scores.right(text, one["keywords"]) for text in held)
        return row

    def of_summaries(self, one: Story) -> dict[str, Any]:
        """The summary of a whole story, through the program's own pipeline; beside it, what the sentences
        that the program chooses of the story itself would have scored.
        """
        book, params = document(one.name, one.text), self._greedy(512)
        del params["temperature"]  # the program's own: what says too little is told again
        ask = Request(None, book, conversation_id=one.name, params=params)
        done, seconds = self._done(ask)
        own, _seconds = self._done(replace(ask, summaries="own", conversation_id=f"{one.name}/own"))
        said = done.text.strip()
        strange, names = scores.unknown_names(said, one.text)
        sentences = [said[stand.start : stand.end] for stand in done.stands]
        return {
            "story": one.name,
            "said": said,
            "rouge1": round(scores.rouge(said, one.summaries, 1), 4),
            "rouge2": round(scores.rouge(said, one.summaries, 2), 4),
            "own_rouge1": round(scores.rouge(own.text, one.summaries, 1), 4),
            "own_rouge2": round(scores.rouge(own.text, one.summaries, 2), 4),
            "unknown_names": strange,
            "names": names,
            "sentences": len(sentences),
            "taken": sum(scores.taken(sentence, one.text) for sentence in sentences),
            "pointing": scores.pointing(sentences),
            "seconds": seconds,
            "tokens": done.stats.new_tokens,
            "rounds": done.stats.rounds,
            "tokens_per_s": round(done.stats.tokens_per_s, 2),
            "plain_ms": [done.stats.plain_rounds, round(done.stats.plain_tbt_ms, 2)],
            "draft": asdict(done.stats.acceptance_draft),
            "retrieval": asdict(done.stats.acceptance_retrieval),
            "context": max((part["tokens"] for part in done.plan["reading"]["parts"]), default=0),
            "budget": done.plan.get("retrieval_budget", 0),
        }

    def _greedy(self, tokens: int) -> dict[str, Any]:
        return {"max_new_tokens": tokens, "temperature": 0.0, "seed": 1, "mode": self.mode}

    def _marked(self, done: Finished, ask: Request) -> bool:
        """Whether an answer bears the mark of one that stands in the book."""
        if done.stands:
            return all(one.borne_out for one in done.stands)
        marks = self.session._books.evidence(ask.book).marks(done.text.strip(), ask.question)
        return bool(marks) and all(one.place is not None for one in marks)

    def _done(self, ask: Request) -> tuple[Finished, float]:
        """The end of an answer, and the seconds it took."""
        self._turn_to(ask)
        start = time.perf_counter()
        *_events, done = self.session.ask(ask)
        self.session.forget(ask.conversation_id)
        return done, round(time.perf_counter() - start, 1)

    def _found(self, ask: Request) -> tuple[Sequence[Passage], list[tuple[float, ...]]]:
        """The passages the program reads for a question, best first, in the order it asks them in; and of
        each its score by words, and what the model says of it (core.conversation.reranking.ScoredPassage).
        """
        if self.style.doubt is None:
            found = self._by_words(ask)
            return [passage for passage, _score in found], [(round(score, 3),) for _passage, score in found]
        found = self.heard(ask)
        said = [tuple(round(value, 3) for value in (one.words, one.asked, one.refused)) for one in found]
        return [one.passage for one in found], said

    def heard(self, ask: Request) -> list[ScoredPassage]:
        """What the model says of the passages nearest by words, in its order."""
        self._turn_to(ask)
        run = AnswerRun(ask, Params(**self._greedy(_ANSWER_TOKENS)), lambda: False)
        events = self.session._from_passages.ranked(run, self._by_words(ask))
        while True:
            try:
                next(events)
            except StopIteration as end:
                return end.value

    def _by_words(self, ask: Request) -> list[tuple[Passage, float]]:
        plan = self.session.reading_plan(ask.book, reading_mode="retrieval")
        return self.session._from_passages.found(ask, plan)

    def _turn_to(self, ask: Request) -> None:
        """Another book's contexts are let go."""
        if self._book not in (None, ask.book_id):
            self.session.forget_book(self._book)
        self._book = ask.book_id


def run_cases(
    what: Callable[[Any], dict[str, Any]], cases: Sequence[Any], until: float, kept: Path | None = None
) -> Iterator[dict[str, Any]]:
    """A row a case, until the clock says `until`; one in any case. Rows are added to the file `kept`, and
    those that stand there are not made again.
    """
    known = kept.read_text(encoding="utf-8").splitlines() if kept and kept.is_file() else []
    yield from map(json.loads, known)
    for number, case in enumerate(cases[len(known) :], len(known) + 1):
        if number > len(known) + 1 and time.monotonic() > until:
            return
        row = what(case)
        if kept:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(number, len(cases), row.get("question", row.get("story")), "=>", row["said"][:90], flush=True)
        yield row


def reading_figures(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures by name; None where nothing was run."""
    gold, story = rows.get("gold", []), rows.get("story", [])
    own = [row for row in gold if row["kind"] == "own"]
    books = rows.get("books", [])
    asked, unsaid = [r for r in books if r["keywords"]], [r for r in books if not r["keywords"]]
    wrong = [row for row in books if not row["refused"] and not row.get("right")]
    judged = [row for row in books if "marked" in row]  # earlier rows do not say it
    summaries = rows.get("summaries", [])
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
