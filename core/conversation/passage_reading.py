"""One passage of a book, and what a model says to a question behind it. Which passages, and which of what is
said, others decide.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, asked_of_passage, with_instructions
from core.conversation.books import passage as text_of
from core.conversation.consensus import drawn
from core.conversation.followups import restated
from core.conversation.reranking import ScoredPassage
from core.conversation.services import Responder
from core.conversation.verifier import PassageAnswers
from core.events import Delta, Event, VerificationResult
from core.evidence.passages import Passage
from core.evidence.support import Support
from core.request import Params, Request

_FEW_WORDS_TOKENS = 48  # of an answer that is one of a batch: it takes as long as its longest one


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was answered from one passage. `drawn`: see Finished; `sure`: what a verifier says of it."""

    answer: Answer
    support: Support
    drawn: dict[str, Any]
    sure: bool | None = None


class PassageReader(Responder):
    """Puts questions to passages, each of which is a prompt of its own."""

    def likelihoods(
        self, run: AnswerRun, passage: Passage, score: float
    ) -> Generator[Event, None, ScoredPassage | None]:
        """What a passage of this score by words is worth to the model; None where somebody stopped it."""
        params = self._conversations.passage_params(run.ask, run.params)
        text, question = self._text(run.ask, passage, params), self._put(run.ask)
        key, own = _key(run.ask, passage), restated(run.ask)
        found = yield from self._turns.likelihoods(run, key, text, question, own, params)
        return None if found is None else ScoredPassage(passage, score, *found)

    def several(
        self, run: AnswerRun, passage: Passage, score: float
    ) -> Generator[Event, None, tuple[PassageAnswers, list[Candidate]] | None]:
        """What a passage is worth and what is said from it in one batch, the likeliest first; None where
        somebody stopped it.
        """
        heard = yield from self.likelihoods(run, passage, score)
        if heard is None:
            return None
        params = self._conversations.passage_params(run.ask, run.params)
        first = replace(params, max_new_tokens=min(params.max_new_tokens, _FEW_WORDS_TOKENS))
        each = [first, *drawn(self._style, first)]
        text = self._text(run.ask, passage, params)
        several = self._turns.several(
            run, _key(run.ask, passage), text, self._put(run.ask), each, known_tokens=heard.known_tokens
        )
        if several is None:
            return None
        evidence = self._books.evidence(run.ask.book)
        tried = [
            Candidate(
                one, evidence.support(one.text, passage, run.ask.question), _drawn(passage, distribution)
            )
            for (one, _level), distribution in zip(several, each, strict=True)
        ]
        said = tuple((one.text.strip(), level) for one, level in several)
        return PassageAnswers(heard, said), tried

    def read(
        self, run: AnswerRun, passage: Passage, params: Params, *, instructions: str = ""
    ) -> Generator[Event, None, Candidate]:
        """The answer from one passage, which nobody sees yet."""
        params = self._conversations.passage_params(run.ask, params)
        text = self._text(run.ask, passage, params, instructions)
        question = with_instructions(self._put(run.ask), instructions)
        events = self._turns.passing(run, _key(run.ask, passage), text, question, params)
        while True:
            try:
                event = next(events)
            except StopIteration as finished:
                done: Answer = finished.value
                evidence = self._books.evidence(run.ask.book)
                support = evidence.support(done.text, passage, run.ask.question)
                return Candidate(done, support, _drawn(passage, params, instructed=bool(instructions)))
            if not isinstance(event, Delta):
                yield event

    def rechecked(self, run: AnswerRun, best: Candidate) -> Candidate:
        """An answer of `several`, checked where every answer is."""
        passage = best.support.passage
        distribution = replace(run.params, temperature=best.drawn["temperature"], top_p=best.drawn["top_p"])
        params = self._conversations.passage_params(run.ask, distribution)
        text, question = self._text(run.ask, passage, params), self._put(run.ask)
        done = self._turns.rechecked(run, _key(run.ask, passage), text, question, params, best.answer)
        return replace(best, answer=done)

    def judged(self, run: AnswerRun, ids: Sequence[int]) -> VerificationResult | None:
        """What plain decoding says of an answer behind its passage, by the distribution it was drawn from."""
        how, ask = run.ask.drawn, run.ask
        passages = self._books.evidence(ask.book).passages
        passage = next((one for one in passages if [one.start, one.end] == list(how["passage"])), None)
        if passage is None:  # the book was read anew since
            return None
        distribution = replace(run.params, temperature=how["temperature"], top_p=how["top_p"])
        params = self._conversations.passage_params(ask, distribution)
        instructions = ask.instructions if how["instructed"] else ""
        text = self._text(ask, passage, params, instructions)
        question = with_instructions(self._put(ask), instructions)
        return self._turns.judged(run, _key(ask, passage), text, question, params, ids)

    def _put(self, ask: Request) -> str:
        return asked_of_passage(self._style, restated(ask))

    def _text(self, ask: Request, passage: Passage, params: Params, instructions: str = "") -> list[int]:
        """The passage as ids: all of it, unless one sentence is longer than the context."""
        ids = self._tokenizer.encode(text_of(ask.book, passage) + "\n\n")
        return ids[: self._room_tokens(params.max_new_tokens) - self._tokenizer.count(instructions)]


def _drawn(passage: Passage, params: Params, *, instructed: bool = False) -> dict[str, Any]:
    """From where and by which distribution; see Finished."""
    return {
        "passage": [passage.start, passage.end],
        "temperature": params.temperature,
        "top_p": params.top_p,
        "instructed": instructed,
    }


def _key(ask: Request, passage: Passage) -> tuple:
    """What the context of a passage is kept under."""
    return ask.book_id, "passage", passage.start, passage.end
