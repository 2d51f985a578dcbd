"""The cases put to the program as it is shipped: its engine and weights, its prompts, its way through a whole
story. Every case keeps its text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.quality.reading import scores
from benchmarks.quality.reading.cases import Question, Story, document
from core.assembly.composition import Composer
from core.config import load_settings
from core.conversation.answering import generate_answer
from core.conversation.asking import AnswerRun, asked_of_passage
from core.conversation.consensus import agreed, drawn
from core.conversation.reading import ReadingStyle
from core.conversation.reranking import ScoredPassage, reranked
from core.conversation.session import Session
from core.documents import read_document
from core.events import Finished
from core.evidence.passages import Passage, book_passages
from core.evidence.support import HEDGE, UNFOUND
from core.hardware.probe import probe
from core.planning.offers import choose_model
from core.request import Params, Request
from core.text.prompt import build_prompt

_ANSWER_TOKENS = 64


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
        that more of them agree on. What the reader itself can, without the verifier.
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
        return _last(events).text.strip()

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
        first = _first(done)
        quotes, exact = scores.quotes(said, one.text)
        return {
            "story": one.story,
            "question": one.question,
            "answers": list(one.answers),
            "said": said,
            "f1": 0.0 if first.startswith(UNFOUND) else round(scores.f1(first, one.answers), 3),
            "refused": first.startswith(UNFOUND),
            "passage_at_1": any(hits[:1]),
            "passage_at_3": any(hits[:3]),
            "quotes": quotes,
            "exact": exact,
            "agreed": done.drawn.get("agreed"),
            "marked": self._marked(done, ask),
            "heard": [(*one, hit) for one, hit in zip(heard, hits, strict=True)],
            "seconds": seconds,
        }

    def of_squad2(self, one: Question) -> dict[str, Any]:
        """The answer to a question about one passage of an encyclopedia, as to one about a pasted text."""
        ask = Request(
            one.question,
            document(one.story, one.text),
            conversation_id=one.question,
            reading_mode="retrieval",
            params=self._greedy(_ANSWER_TOKENS),
        )
        done, seconds = self._done(ask)
        first = _first(done)
        refused = first.startswith(UNFOUND)
        row = {"kind": one.kind, "question": one.question, "answers": list(one.answers), "said": first}
        row |= {"refused": refused, "marked": self._marked(done, ask), "seconds": seconds}
        if one.answers:
            row["f1"] = 0.0 if refused else round(scores.f1(first, one.answers), 3)
        return row

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
        first = _first(done)
        found, heard = self._found(ask)
        held = [ask.book.text[p.start : p.end] for p in found[:3]]
        kept = {name: one[name] for name in ("book", "question", "keywords")}
        row = {**kept, "said": said, "refused": first.startswith(UNFOUND), "seconds": seconds}
        quotes, exact = scores.quotes(said, ask.book.text)
        row |= {"quotes": quotes, "exact": exact, "heard": heard}
        row |= {"agreed": done.drawn.get("agreed"), "marked": self._marked(done, ask)}
        if one["keywords"]:
            row["right"] = not row["refused"] and scores.right(first, one["keywords"])
            row["in_three"] = any(scores.right(text, one["keywords"]) for text in held)
            row["shown"] = scores.right(said.partition("\n\n")[2], one["keywords"])
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
        if not self.style.verifier:
            found = self._by_words(ask)
            return [passage for passage, _score in found], [(round(score, 3),) for _passage, score in found]
        found = self.heard(ask)
        said = [tuple(round(value, 3) for value in (one.words, one.asked, one.refused)) for one in found]
        return [one.passage for one in found], said

    def heard(self, ask: Request) -> list[ScoredPassage]:
        """What the model says of the passages nearest by words, in its order."""
        self._turn_to(ask)
        run = AnswerRun(ask, Params(**self._greedy(_ANSWER_TOKENS)), lambda: False)
        reader, heard = self.session._from_passages.reader, []
        for passage, score in self._by_words(ask):
            heard.append(_last(reader.likelihoods(run, passage, score)))
        return reranked(heard, self.style)

    def _by_words(self, ask: Request) -> list[tuple[Passage, float]]:
        plan = self.session.reading_plan(ask.book, reading_mode="retrieval")
        return self.session._from_passages.found(ask, plan)

    def _turn_to(self, ask: Request) -> None:
        """Another book's contexts are let go."""
        if self._book not in (None, ask.book_id):
            self.session.forget_book(self._book)
        self._book = ask.book_id


def _first(done: Finished) -> str:
    """The answer itself, without the hedge before it and the quotations below it."""
    return done.text.strip().split("\n\n")[0].removeprefix(HEDGE).strip()


def _last(events: Generator[Any, None, Any]) -> Any:
    """What comes of events that nobody looks at."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


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
