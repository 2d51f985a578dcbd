"""A question answered from the passages of a book that its words point at: each is read alone, and the first
answer that its passage bears out is given, with the sentences it rests on. Where a verifier was learned for
the model, every passage gives several answers, and it says which, if any.

What no passage bears out is not said: then no answer was found, and the nearest passages are shown.
The person's own instructions come after that: what was found without them is said once more with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from core.conversation import verifier
from core.conversation.answer_language import english_only, no_english
from core.conversation.answer_validation import is_answer, is_refusal
from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, not_followed
from core.conversation.characters import COUNTED, asked_for, introduced_person
from core.conversation.consensus import agreed, drawn
from core.conversation.followups import looked_up
from core.conversation.passage_reading import Candidate, PassageReader
from core.conversation.reading import HEARD_PASSAGES, ReadingPlan
from core.conversation.reranking import reranked
from core.conversation.retrieval_result import RetrievalState, place_in_words
from core.conversation.services import Responder, Services
from core.conversation.time_estimates import Pace
from core.conversation.unjudged import moved
from core.conversation.verifier import PassageAnswers, Verifier
from core.events import Delta, Event, ReadingStep
from core.evidence.answer_kinds import is_verdict
from core.evidence.passages import Passage
from core.evidence.stated import counts_other, states
from core.request import Request
from core.text.words import listed_texts
from core.text.words import translated as _

MOST_PASSAGES = 6  # that are asked one after the other
SHORT_PASSAGES = 16  # of a text, 8,192 tokens, of which many are asked where a verifier chooses


class RetrievalAnswering(Responder):
    """What a session does with a question that is answered from passages."""

    def __init__(self, services: Services, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(services)
        self.reader, self._clock = PassageReader(services), clock

    def found(self, ask: Request, plan: ReadingPlan) -> list[tuple[Passage, float]]:
        """The passages of what may be read that the question's words point at, best first, with their scores;
        those of the question before with them, where this one leans on it, and a name as the book writes it.
        """
        evidence = self._books.evidence(ask.book)
        meant = evidence.names_meant(ask.question)
        near = evidence.pointed_at(" ".join((looked_up(ask), *meant)))
        inside = [(one, score) for one, score in near if _may_be_read(one, plan)]
        return inside[: HEARD_PASSAGES if self._style.verifier else MOST_PASSAGES]

    def answer(
        self, run: AnswerRun, plan: ReadingPlan, found: Sequence[tuple[Passage, float]]
    ) -> Iterator[Event]:
        """The events of the answer, which comes as one text, from what is `found`. A model that does not read
        the book's language is not asked: what it says then is a guess.
        """
        if unread := no_english(self._style, run.ask.book):
            yield from self.unsaid(run, plan, *unread)
            return
        started, alone = self._clock(), replace(run, ask=replace(run.ask, compare=()))
        if self._style.verifier and found:
            judge = verifier.load_verifier(self._style.verifier)
            least = judge.given_short if self._is_short(run.ask, plan) else judge.given
            search = yield from self._asked_at_once(alone, found, judge, least)
        else:
            search = yield from self._asked_in_turn(alone, found)
        if not search.stopped and not (search.best and search.best.sure is not False):
            self._introduce(run.ask, plan, search)
        if search.best and run.ask.instructions:
            yield from self._as_wished(alone, search)
        self._note_names(run.ask, search)
        if search.best is None:  # why stands in the answer then, and not below it too
            plan = replace(plan, notes=tuple(one for one in plan.notes if one not in search.why))
        yield from self._told(run, plan, search, started)

    def _introduce(self, ask: Request, plan: ReadingPlan, search: RetrievalState) -> None:
        """Who somebody is says the book, where no answer is sure."""
        if person := asked_for(ask.book, plan.parts, ask.question):
            search.best, search.introduced = None, introduced_person(ask.book, plan.parts, person)
            search.said.append(_(COUNTED))

    def unsaid(self, run: AnswerRun, plan: ReadingPlan, why: str) -> Iterator[Event]:
        """That no answer was found, and `why`, with the passages nearest to the question."""
        order = [passage for passage, _score in self.found(run.ask, plan)]
        search = RetrievalState(self._books.evidence(run.ask.book), len(order), order, why=(why,))
        plan = replace(plan, notes=tuple(one for one in plan.notes if one != why))
        yield from self._told(run, plan, search, self._clock())

    def _note_names(self, ask: Request, search: RetrievalState) -> None:
        """Notes the names that the book has not, those of it which are written much like them, and, where
        nothing was found, why.
        """
        strange = search.evidence.unknown_names(ask.question)
        meant = search.evidence.names_meant(ask.question)
        asks_back = (_("Did you mean {names}?").format(names=listed_texts(meant)),) if meant else ()
        if search.best is None:
            search.why = english_only(self._style, ask.question, ask.book) or asks_back
        else:
            search.said += asks_back
        if strange:
            words = _("Not in this book: {names}. One book is read at a time.")
            if ask.spoiler_limit is not None or ask.end is not None:
                words = _("Not in what may be read of this book: {names}.")
            search.said.append(words.format(names=listed_texts(strange)))

    def witnesses(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]]
    ) -> Generator[Event, None, list[tuple[PassageAnswers, list[Candidate]]]]:
        """What is said from each passage of what is `found`; of fewer where somebody stopped it."""
        heard: list[tuple[PassageAnswers, list[Candidate]]] = []
        pace = Pace({passage: 1.0 for passage, _score in found}, self._clock)
        asked = self._tokenizer.count(run.ask.question)
        for number, (passage, score) in enumerate(found, 1):
            left = len(found) - number + 1
            left_s = pace.left_s or self._expectation.passages_s(self._style, left, question_tokens=asked)
            yield replace(_step(run, number, len(found), passage), left_s=left_s)
            began = self._clock()
            one = yield from self.reader.several(run, passage, score)
            if one is None:
                break
            stats = one[1][0].answer.stats
            read = stats.prompt_tokens - stats.reused_tokens
            self._expectation.passage_took(self._clock() - began, self._style, read)
            pace.done(passage)
            heard.append(one)
        return heard

    def _asked_at_once(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]], judge: Verifier, least: float
    ) -> Generator[Event, None, RetrievalState]:
        """All passages are asked; of all that is said the likeliest to be right is given, from a score of
        `least` on.
        """
        heard = yield from self.witnesses(run, found)
        evidence = self._books.evidence(run.ask.book)
        order = [one.passage for one in reranked([one.heard for one, _tried in heard], self._style)]
        stopped = len(heard) < len(found)
        search = RetrievalState(evidence, len(found), order, reached=len(heard), stopped=stopped)
        search.tried = [tried[0] for _one, tried in heard]
        search.more = [more for _one, tried in heard for more in tried[1:]]
        scored = verifier.scored_answers(run.ask.question, [one for one, _tried in heard], evidence)
        for one in sorted(scored, key=judge.score):  # of each passage the likeliest, which comes last
            search.likeliest[one.support.passage] = heard[one.witness][1][one.at]
        best = judge.best(scored)
        if best is not None and not search.stopped and best[1] >= least:
            one, _odds = best
            checked = self.reader.rechecked(run, heard[one.witness][1][one.at])
            said, asked, text = checked.answer.text, run.ask.question, evidence.text_of(one.support.passage)
            borne_out = one.support.bears_out and not is_verdict(said) and not counts_other(said, asked, text)
            sure = borne_out and (judge.is_sure(one, scored) or states(said, asked, text))
            search.best = replace(checked, sure=sure)
        return search

    def _is_short(self, ask: Request, plan: ReadingPlan) -> bool:
        """Whether what may be read is no more than a small model's window holds."""
        passages = self._books.evidence(ask.book).passages
        return sum(_may_be_read(one, plan) for one in passages) <= SHORT_PASSAGES

    def _asked_in_turn(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]]
    ) -> Generator[Event, None, RetrievalState]:
        """One passage after the other is asked until one says it."""
        order = [passage for passage, _score in found]
        search = RetrievalState(self._books.evidence(run.ask.book), len(order), order)
        for rank, passage in enumerate(order):
            search.reached = rank
            yield _step(run, rank + 1, search.count, passage)
            one = yield from self.reader.read(run, passage, run.params)
            search.stopped = one.answer.reason == "user"
            if search.stopped:
                break
            search.tried.append(one)
            search.best = yield from self._chosen(run, passage, search, one)
            if search.best:
                break
        return search

    def _told(
        self, run: AnswerRun, plan: ReadingPlan, search: RetrievalState, started: float
    ) -> Iterator[Event]:
        """What was found, as one text, and the end."""
        ask, best, pieces = run.ask, search.best, search.pieces(run.ask)
        stats = search.figures(ttft_s=self._clock() - started)
        if ask.compare and ask.drawn and not search.stopped:
            stats = replace(stats, verified=self.reader.judged(run, ask.compare))
        if pieces:
            yield Delta(pieces)
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in pieces)))
        reason = "user" if search.stopped else best.answer.reason if best else "stop"
        done = Answer(reason, pieces, ids, moved(stats, search.begins), search.notes())
        read = plan if search.order and not best else plan.of_one_part()  # nothing was read: nothing was left
        whole = self._turns.finished(done, plan=read, sources=search.sources(ask.book))
        decoded = best.answer.token_ids if best else ()
        yield replace(whole, decoded=decoded, drawn=best.drawn if best else {}, stands=search.stands())

    def _as_wished(self, run: AnswerRun, search: RetrievalState) -> Iterator[Event]:
        """The best answer, which its passage bears out, said anew with the person's own instructions; but not
        where a verifier has judged it: that knows answers to one wording alone.
        """
        if not self._style.follows_wishes:
            search.said.append(not_followed())
            return
        passage, wish = search.best.support.passage, run.ask.instructions
        anew = yield from self.reader.read(run, passage, run.params, instructions=wish)
        search.more.append(anew)
        said = anew.answer.text.strip()
        if said and anew.answer.reason != "user" and not is_refusal(said):
            search.best = replace(anew, support=search.best.support)

    def _chosen(
        self, run: AnswerRun, passage: Passage, search: RetrievalState, first: Candidate
    ) -> Generator[Event, None, Candidate | None]:
        """Of `first` and more answers from its passage, as many as there are when somebody stops it, the one
        that those which count agree on; None where none counts.
        """
        more: list[Candidate] = []
        for params in drawn(self._style, run.params):
            one = yield from self.reader.read(run, passage, params)
            if one.answer.reason == "user":
                break
            more.append(one)
        search.more += more
        counting = [one for one in (first, *more) if _counts(one, run.ask)]
        if not counting:
            return None
        best, share = agreed([one.answer.text for one in counting], len(more) + 1 - len(counting))
        return replace(counting[best], drawn={**counting[best].drawn, "agreed": round(share, 3)})


def _counts(one: Candidate, ask: Request) -> bool:
    """Whether it is an answer that its passage bears out."""
    passage = one.support.passage
    return one.support.bears_out and is_answer(
        one.answer.text, ask.question, ask.book.text[passage.start : passage.end]
    )


def _may_be_read(passage: Passage, plan: ReadingPlan) -> bool:
    return any(part.start <= passage.start and passage.end <= part.end for part in plan.parts)


def _step(run: AnswerRun, number: int, count: int, passage: Passage) -> ReadingStep:
    """That this passage is read, one of so many."""
    where = place_in_words(run.ask.book, (passage.start, passage.end))
    return ReadingStep(number, count, where, "passage")
