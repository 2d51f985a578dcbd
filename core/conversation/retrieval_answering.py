"""A question answered from the passages of a book that its words point at: each is read alone, and the first
answer that its passage bears out, and the model does not doubt, is given, with the sentences it rests on.
Where a verifier was learned for the model, every passage gives several answers, and it says which, if any.

What no passage bears out is not said: then the book does not seem to say, and the nearest passages are shown.
The person's own instructions come after that: what was found without them is said once more with them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.conversation import verifier
from core.conversation.answer_validation import is_answer, is_refusal
from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, asked_of_passage, not_followed, with_instructions
from core.conversation.books import passage as text_of
from core.conversation.consensus import agreed, drawn
from core.conversation.followups import looked_up, restated
from core.conversation.reading import HEARD_PASSAGES, ReadingPart, ReadingPlan, place_name
from core.conversation.reranking import ScoredPassage, doubted, reranked
from core.conversation.services import Responder, Services
from core.conversation.verifier import PassageAnswers, Verifier
from core.documents.document import Document
from core.events import Delta, Event, Piece, ReadingStep, SourceSpan, Stats, VerificationResult
from core.evidence.passages import Passage
from core.evidence.support import UNSAID, Evidence, Support
from core.request import Params, Request
from core.stats import combined_stats
from core.text.levelled import stripped
from core.text.words import joined_sentences
from core.text.words import translated as _
from core.text.words import translated_count as _n

MOST_PASSAGES = 6  # that are asked
_SHOWN_PASSAGES = 3  # where none answers
_QUOTE_CHARS = 500
_FEW_WORDS_TOKENS = 48  # of an answer that is one of a batch: it takes as long as its longest one


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was answered from one passage. `drawn`: see Finished; `sure`: what a verifier says of it."""

    answer: Answer
    support: Support
    drawn: dict[str, Any]
    sure: bool | None = None


@dataclass(slots=True)
class RetrievalState:
    """How far the search for an answer is. `count` passages were found; `order` are those, best first, of
    which so many were `reached`, and `asked` those that are worth asking. `best`: the answer that is given;
    `tried`: one of each passage that was asked; `more`: those beside them. `said`: what else is to be told.
    """

    evidence: Evidence
    count: int
    order: list[Passage]
    asked: list[Passage]
    reached: int = 0
    stopped: bool = False
    best: Candidate | None = None
    tried: list[Candidate] = field(default_factory=list)
    more: list[Candidate] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def notes(self) -> tuple[str, ...]:
        """What is told below the answer, nothing twice."""
        given = [] if self.best is None else [self.best]
        said = (one.answer for one in (*self.tried, *self.more, *given))
        notes = [*self.said, *(note for one in said for note in one.notes)]
        if self.stopped:
            words = _("Stopped in passage {number} of {count}.")
            notes.append(words.format(number=min(self.reached + 1, self.count), count=self.count))
        return tuple(dict.fromkeys(notes))


class RetrievalAnswering(Responder):
    """What a session does with a question that is answered from passages."""

    def __init__(self, services: Services, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(services)
        self._clock = clock

    def found(self, ask: Request, plan: ReadingPlan) -> list[tuple[Passage, float]]:
        """The passages of what may be read that the question's words point at, best first, with their scores;
        those of the question before with them, where this one leans on it.
        """
        near = self._books.evidence(ask.book).pointed_at(looked_up(ask))
        inside = [
            (one, score)
            for one, score in near
            if any(place.start <= one.start and one.end <= place.end for place in plan.parts)
        ]
        return inside[: MOST_PASSAGES if self._style.doubt is None else HEARD_PASSAGES]

    def ranked(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]]
    ) -> Generator[Event, None, list[ScoredPassage]]:
        """What is `found`, read and put in order by the model; fewer where somebody stopped it."""
        heard: list[ScoredPassage] = []
        question, own = self._put(run.ask), restated(run.ask)
        params = self._conversations.passage_params(run.ask, run.params)
        for number, (passage, score) in enumerate(found, 1):
            yield ReadingStep(
                number, len(found), _where(run.ask.book, (passage.start, passage.end)), "passage"
            )
            text = self._text(run.ask, passage, params)
            said = yield from self._turns.likelihoods(
                run, _key(run.ask, passage), text, question, own, params
            )
            if said is None:
                break
            heard.append(ScoredPassage(passage, score, *said))
        return reranked(heard, self._style)

    def answer(
        self, run: AnswerRun, plan: ReadingPlan, found: Sequence[tuple[Passage, float]]
    ) -> Iterator[Event]:
        """The events of the answer: of what is `found` one passage after the other is asked until one says
        it, then it comes as one text.
        """
        started, alone = self._clock(), replace(run, ask=replace(run.ask, compare=()))
        if self._style.verifier and found:
            search = yield from self._asked_at_once(
                alone, found, verifier.load_verifier(self._style.verifier)
            )
        else:
            search = yield from self._begun(alone, found)
            yield from self._asked_in_turn(alone, search)
        if search.best and run.ask.instructions:
            yield from self._as_wished(alone, search)
        yield from self._told(run, plan, search, started)

    def unsaid(self, run: AnswerRun, plan: ReadingPlan, why: str) -> Iterator[Event]:
        """That the book does not seem to say, and `why`, with the passages nearest to the question."""
        order = [passage for passage, _score in self.found(run.ask, plan)]
        search = RetrievalState(self._books.evidence(run.ask.book), len(order), order, [], said=[why])
        yield from self._told(run, plan, search, self._clock())

    def _begun(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]]
    ) -> Generator[Event, None, RetrievalState]:
        """A search that has asked none yet: the passages, in the order of the model where it has one."""
        evidence, order = self._books.evidence(run.ask.book), [passage for passage, _score in found]
        if self._style.doubt is None:
            return RetrievalState(evidence, len(order), order, order)
        heard = yield from self.ranked(run, found)
        order = [one.passage for one in heard]
        question = looked_up(run.ask)
        asked = [
            one.passage
            for one in heard
            if not doubted(one, heard, self._style) and evidence.near_names(question, one.passage)
        ]
        stopped = len(heard) < len(found)
        return RetrievalState(evidence, len(found), order, asked, reached=len(heard), stopped=stopped)

    def witnesses(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]]
    ) -> Generator[Event, None, list[tuple[PassageAnswers, list[Candidate]]]]:
        """What is said from each passage of what is `found`; of fewer where somebody stopped it."""
        heard: list[tuple[PassageAnswers, list[Candidate]]] = []
        for number, (passage, score) in enumerate(found, 1):
            left_s = self._expectation.passages_s(self._style, len(found) - number + 1)
            place = _where(run.ask.book, (passage.start, passage.end))
            yield ReadingStep(number, len(found), place, "passage", left_s=left_s)
            began = self._clock()
            one = yield from self._said(run, passage, score)
            if one is None:
                break
            self._expectation.passage_took(self._clock() - began)
            heard.append(one)
        return heard

    def _asked_at_once(
        self, run: AnswerRun, found: Sequence[tuple[Passage, float]], judge: Verifier
    ) -> Generator[Event, None, RetrievalState]:
        """All passages are asked; of all that is said the likeliest to be right is given, if it may be."""
        heard = yield from self.witnesses(run, found)
        evidence = self._books.evidence(run.ask.book)
        order = [one.passage for one in reranked([one.heard for one, _tried in heard], self._style)]
        search = RetrievalState(
            evidence, len(found), order, order, len(heard), stopped=len(heard) < len(found)
        )
        search.tried = [tried[0] for _one, tried in heard]
        search.more = [more for _one, tried in heard for more in tried[1:]]
        best = judge.best(verifier.scored_answers(run.ask.question, [one for one, _tried in heard], evidence))
        if best is not None and not search.stopped and best[1] >= judge.given:
            one, odds = best
            search.best = self._rechecked(run, heard[one.witness][1][one.at], sure=odds >= judge.marked)
        return search

    def _said(
        self, run: AnswerRun, passage: Passage, score: float
    ) -> Generator[Event, None, tuple[PassageAnswers, list[Candidate]] | None]:
        """What a passage is worth and what is said from it, the likeliest first; None where somebody stopped
        it.
        """
        params = self._conversations.passage_params(run.ask, run.params)
        key, text, question = _key(run.ask, passage), self._text(run.ask, passage, params), self._put(run.ask)
        likely = yield from self._turns.likelihoods(run, key, text, question, restated(run.ask), params)
        first = replace(params, max_new_tokens=min(params.max_new_tokens, _FEW_WORDS_TOKENS))
        each = [first, *drawn(self._style, first)]
        several = self._turns.several(run, key, text, question, each) if likely is not None else None
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
        return PassageAnswers(ScoredPassage(passage, score, *likely), said), tried

    def _rechecked(self, run: AnswerRun, best: Candidate, *, sure: bool) -> Candidate:
        """The answer that is given, checked where every answer is."""
        passage = best.support.passage
        distribution = replace(run.params, temperature=best.drawn["temperature"], top_p=best.drawn["top_p"])
        params = self._conversations.passage_params(run.ask, distribution)
        text = self._text(run.ask, passage, params)
        done = self._turns.rechecked(
            run, _key(run.ask, passage), text, self._put(run.ask), params, best.answer
        )
        return replace(best, answer=done, sure=sure)

    def _asked_in_turn(self, run: AnswerRun, search: RetrievalState) -> Iterator[Event]:
        """One passage after the other is asked until one says it."""
        for rank, passage in enumerate([] if search.stopped else search.asked[:MOST_PASSAGES]):
            if self._style.doubt is None:  # else all were told of when they were put in order
                search.reached = rank
                where = _where(run.ask.book, (passage.start, passage.end))
                yield ReadingStep(rank + 1, search.count, where, "passage")
            one = yield from self._read(run, passage, search.evidence, run.params)
            search.stopped = one.answer.reason == "user"
            if search.stopped:
                return
            search.tried.append(one)
            search.best = yield from self._chosen(run, passage, search, one)
            if search.best:
                return

    def _told(
        self, run: AnswerRun, plan: ReadingPlan, search: RetrievalState, started: float
    ) -> Iterator[Event]:
        """What was found, as one text, and the end."""
        ask, best = run.ask, search.best
        pieces: tuple[Piece, ...] = ()
        if best:
            pieces = _answered(ask.book, best)
        elif not search.stopped:  # what was not looked for is not called missing
            pieces = _not_said(ask, search.evidence, search.order)
        stats = _figures(best, [*search.tried, *search.more], ttft_s=self._clock() - started)
        if ask.compare and ask.drawn and not search.stopped:
            stats = replace(stats, verified=self._judged(run, ask.compare))
        if pieces:
            yield Delta(pieces)
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in pieces)))
        reason = "user" if search.stopped else best.answer.reason if best else "stop"
        done = Answer(reason, pieces, ids, stats, search.notes())
        sources = _sources(ask.book, search.asked[: len(search.tried)] or search.order)
        whole = self._turns.finished(done, plan=plan, sources=sources)
        decoded = best.answer.token_ids if best else ()
        stands = (_stand(best),) if best and best.sure is not None else ()
        yield replace(whole, decoded=decoded, drawn=best.drawn if best else {}, stands=stands)

    def _judged(self, run: AnswerRun, ids: Sequence[int]) -> VerificationResult | None:
        """What plain decoding says of an answer, from the passage and under the distribution that it was
        drawn by.
        """
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

    def _as_wished(self, run: AnswerRun, search: RetrievalState) -> Iterator[Event]:
        """The best answer, which its passage bears out, said anew with the person's own instructions; but not
        where the refusals of a model are known for one wording alone.
        """
        if not self._style.follows_wishes:
            search.said.append(not_followed())
            return
        passage, wish = search.best.support.passage, run.ask.instructions
        anew = yield from self._read(run, passage, search.evidence, run.params, instructions=wish)
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
            one = yield from self._read(run, passage, search.evidence, params)
            if one.answer.reason == "user":
                break
            more.append(one)
        search.more += more
        counting = [one for one in (first, *more) if self._counts(one, run.ask)]
        if not counting:
            return None
        best, share = agreed([one.answer.text for one in counting], len(more) + 1 - len(counting))
        return replace(counting[best], drawn={**counting[best].drawn, "agreed": round(share, 3)})

    def _read(
        self, run: AnswerRun, passage: Passage, evidence: Evidence, params: Params, *, instructions: str = ""
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
                support = evidence.support(done.text, passage, run.ask.question)
                return Candidate(done, support, _drawn(passage, params, instructed=bool(instructions)))
            if not isinstance(event, Delta):
                yield event

    def _put(self, ask: Request) -> str:
        return asked_of_passage(self._style, restated(ask))

    def _text(self, ask: Request, passage: Passage, params: Params, instructions: str = "") -> list[int]:
        """The passage as ids: all of it, unless one sentence is longer than the context."""
        ids = self._tokenizer.encode(text_of(ask.book, passage) + "\n\n")
        return ids[: self._room_tokens(params.max_new_tokens) - self._tokenizer.count(instructions)]

    def _counts(self, one: Candidate, ask: Request) -> bool:
        """Whether it is an answer that its passage bears out."""
        passage = one.support.passage
        return one.support.bears_out and is_answer(
            one.answer.text, ask.question, ask.book.text[passage.start : passage.end]
        )


def _drawn(passage: Passage, params: Params, *, instructed: bool = False) -> dict[str, Any]:
    """From where and by which distribution; see Finished."""
    return {
        "passage": [passage.start, passage.end],
        "temperature": params.temperature,
        "top_p": params.top_p,
        "instructed": instructed,
    }


def _stand(best: Candidate) -> SourceSpan:
    """What the answer stands on, all of it."""
    said = len("".join(piece.text for piece in stripped(best.answer.pieces)))
    return SourceSpan(0, said, *best.support.place, borne_out=bool(best.sure))


def _key(ask: Request, passage: Passage) -> tuple:
    """What the context of a passage is kept under."""
    return ask.book_id, "passage", passage.start, passage.end


def _figures(best: Candidate | None, tried: Sequence[Candidate], *, ttft_s: float) -> Stats:
    """Those of the answer that is given; what was read and written for it in all stands beside them."""
    every = [one.answer.stats for one in tried]
    work = combined_stats(every)
    shown = best.answer.stats if best else replace(work, new_tokens=0)
    return replace(
        shown,
        ttft_s=ttft_s,
        prompt_tokens=work.prompt_tokens,
        reused_tokens=work.reused_tokens,
        prefill_s=work.prefill_s,
        peak_memory_bytes=work.peak_memory_bytes,
        bytes_moved=work.bytes_moved,
        answers=len(every),
        all_tokens=sum(one.new_tokens for one in every),
    )


def _answered(book: Document, best: Candidate) -> tuple[Piece, ...]:
    """The answer with the sentences it rests on; where they lack its words, they are called the nearest."""
    quoted = quotation(book, best.support.place)
    nearest = () if best.support.shown else (Piece(_("Nearest passages:"), ""), Piece("\n\n", ""))
    return (*stripped(best.answer.pieces), Piece("\n\n", ""), *nearest, *quoted)


def _not_said(ask: Request, evidence: Evidence, found: Sequence[Passage]) -> tuple[Piece, ...]:
    """That no answer was found, and the sentences that come nearest to the question."""
    if not found:
        hint = _(
            "No passage shares a word with the question: ask with names or words that stand in the book."
        )
        return (Piece(joined_sentences(_(UNSAID), hint), ""),)
    places = [evidence.support("", one, ask.question).place for one in found[:_SHOWN_PASSAGES]]
    shown = [Piece(joined_sentences(_(UNSAID), _("Nearest passages:")), "")]
    for place in places:
        shown += [Piece("\n\n", ""), *quotation(ask.book, place)]
    return tuple(shown)


def quotation(book: Document, place: tuple[int, int]) -> tuple[Piece, Piece]:
    """The book's own words under the place they stand at, as a quotation in Markdown."""
    words = " ".join(book.text[slice(*place)].split())
    if len(words) > _QUOTE_CHARS:
        words = words[:_QUOTE_CHARS].rsplit(" ", 1)[0] + " …"
    return Piece(_("{place}:").format(place=_where(book, place)), ""), Piece(f"\n> {words}", "")


def _where(book: Document, place: tuple[int, int]) -> str:
    """Chapter and page of a place."""
    chapter = place_name(book, (ReadingPart(_("The text"), *place, 0),))
    page = book.page_at(place[0])
    return _("{chapter}, p. {page}").format(chapter=chapter, page=page) if page else chapter


def _sources(book: Document, found: Sequence[Passage]) -> list[str]:
    """What was read, in the order of the book."""
    ordered = sorted(found, key=lambda one: one.start)
    places = Counter(_where(book, (one.start, one.end)) for one in ordered)
    return [
        _n("a passage of {place}", "{count} passages of {place}", count).format(place=place, count=count)
        for place, count in places.items()
    ]
