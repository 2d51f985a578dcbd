"""Questions about a book as a whole, which no passage answers: how it ends, what it is about, who is in it,
who tells it.

The end is the summary of its last pages, what it is about the summary of it all, both made as any summary is
(core.conversation.summarization); behind an end stand the book's last words as they are. Its people are
counted by name (core.evidence.people), and who tells it is found where it says so (core.evidence.narrator),
without the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from core.conversation.answer_language import english_only
from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun
from core.conversation.characters import COUNTED, introduced_person, occurring
from core.conversation.chunking import units
from core.conversation.reading import ReadingPart, ReadingPlan, place_name
from core.conversation.retrieval_answering import RetrievalAnswering
from core.conversation.retrieval_result import blockquote, place_in_words, quotation
from core.conversation.services import Responder, Services
from core.conversation.source_names import source_names
from core.conversation.summarization import Summaries
from core.documents.document import Document, Section
from core.events import Delta, Event, Piece, ReadingStep, Stats
from core.evidence.last_words import last_words
from core.evidence.narrator import narrator
from core.evidence.people import Person, introduction
from core.text.language_detection import foreign, partly_foreign
from core.text.words import listed_texts
from core.text.words import translated as _

_END_TOKENS = 2400  # that are told of an end, about,
_END_SHARE = 1 / 4  # or so much of what may be read, where that is less
_INTRODUCED, _NAMED = 8, 32  # people with a sentence, and by name alone
_TELLERS = 6  # that are shown


class Overview(Responder):
    """What a session does with such a question. `plan_for(run)`: how the book is read for a summary;
    `sections(run)`: the same in parts, none of more than one chapter.
    """

    def __init__(
        self,
        services: Services,
        *,
        summaries: Summaries,
        from_passages: RetrievalAnswering,
        plan_for: Callable[[AnswerRun], ReadingPlan],
        sections: Callable[[AnswerRun], ReadingPlan],
    ) -> None:
        super().__init__(services)
        self._summaries, self._from_passages = summaries, from_passages
        self._plan_for, self._sections = plan_for, sections

    def answer(self, run: AnswerRun, kind: str, whole: Document) -> Iterator[Event]:
        """The events of an answer of this kind (core.text.questions). `whole`: the book without its limit.
        In which language the model answers is said where it does.
        """
        if kind in ("people", "narrator"):
            yield from (self._people if kind == "people" else self._narrator)(run)
            return
        length = "page" if kind == "end" else "paragraph"  # in one, last pages have no room
        told = replace(run, ask=replace(run.ask, question=None, reading_mode="auto", summary_length=length))
        if kind == "about":
            plan = self._plan_for(told)
        else:
            plan = self._end(told, whole)
        if not self._summaries.in_own_words(told.ask):
            plan = replace(plan, notes=(*plan.notes, *english_only(self._style, run.ask.question, whole)))
        closing = _last_lines(run.ask.book, plan.parts) if kind == "end" else ()
        yield from self._summaries.summarize(told, plan, every_part=kind == "end", closing=closing)

    def _end(self, run: AnswerRun, whole: Document) -> ReadingPlan:
        """The last parts of what may be read, as many as come nearest to what an end needs."""
        plan, last, tokens = self._sections(run), [], 0
        enough = round(min(_END_TOKENS, _END_SHARE * plan.tokens))
        parts = reversed(plan.parts)
        for piece in (piece for part in parts for piece in reversed(self._pieces(run, part, enough))):
            if last and tokens + piece.tokens / 2 > enough:
                break
            last.insert(0, piece)
            tokens += piece.tokens
        where = place_name(run.ask.book, last)
        words = _("This is how the book ends: told from {place}.")
        if len(run.ask.book.text) < len(whole.text) or run.ask.chapters or run.ask.selected_chapters:
            words = _("The end of what may be read, not of the book: told from {place}.")
        return ReadingPlan("chunked", tuple(last), tokens, (), (words.format(place=where),))

    def _pieces(self, run: AnswerRun, part: ReadingPart, limit: int) -> list[ReadingPart]:
        """A part cut where a reader would, into pieces of about `limit` tokens or fewer."""
        found = units(run.ask.book.text, self._tokenizer, 0, Section("", part.start, part.end), limit)
        return [replace(part, start=one.start, end=one.end, tokens=one.tokens) for one in found]

    def _people(self, run: AnswerRun) -> Iterator[Event]:
        """The persons that are named most, each with the sentence that introduces whoever it is."""
        book, plan = run.ask.book, self._sections(run)
        yield ReadingStep(1, 1, place_name(book, plan.parts))
        found = occurring(book, plan.parts)
        plan = ReadingPlan("retrieval", plan.parts, 0, plan.left_out, _unlooked(book, plan.parts))
        if not found:
            words = _("No people were found by name in it.")
            if foreign(book.text):
                words = _("People are found by name in English books only.")
            yield from self._from_passages.unsaid(run, plan, words)
            return
        said = [_(COUNTED)]
        if others := found[_INTRODUCED:]:
            said.append(_less_often(others))
        shown = [introduced_person(book, plan.parts, person) for person in found[:_INTRODUCED]]
        yield from self._found(run, plan, shown, said)

    def _narrator(self, run: AnswerRun) -> Iterator[Event]:
        """Who says "I", with the sentences that name whoever it is."""
        book, plan = run.ask.book, self._sections(run)
        plan = ReadingPlan("retrieval", plan.parts, 0, plan.left_out, _unlooked(book, plan.parts))
        start, end = plan.parts[0].start, plan.parts[-1].end
        found = narrator(book.text[start:end])
        if not found.named:
            words = _("Outside of what its people say the book hardly says “I”.")
            if found.first_person:
                words = _("The book is told by “I”; no sentence was found in which “I” gives a name.")
            if foreign(book.text):
                words = _("People are found by name in English books only.")
            yield from self._from_passages.unsaid(run, plan, words)
            return
        shown = []
        for name, (left, right) in found.named[:_TELLERS]:
            place = introduction(book.text, [(left + start, right + start)])
            words = _("“I” is named here: {name}.").format(name=name)
            shown.append((Piece(words, ""), Piece(" ", ""), *quotation(book, place)))
        said = [_("Found by the words of the text, without the model: elsewhere another may say “I”.")]
        yield from self._found(run, plan, shown, said)

    def _found(
        self, run: AnswerRun, plan: ReadingPlan, shown: Sequence[tuple[Piece, ...]], said: Sequence[str]
    ) -> Iterator[Event]:
        """What was found without the model, one after the other, and what is `said` below."""
        told: list[Piece] = []
        for one in shown:
            pieces = (*((Piece("\n\n", ""),) if told else ()), *one)
            yield Delta(pieces)
            told += pieces
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in told)))
        self._conversations.memory(run.ask).asked(run.ask, self._tokenizer.encode(run.ask.question), ids)
        done = Answer("stop", tuple(told), ids, Stats())
        sources = source_names(run.ask.book, plan.parts)
        yield self._turns.finished(done, plan=plan, sources=sources, notes=said)


def _last_lines(book: Document, parts: Sequence[ReadingPart]) -> tuple[Piece, ...]:
    """The last words of these parts under their place, as a quotation; nothing where they have none."""
    chapter = book.section_at(parts[-1].start)
    place = last_words(book.text, max(chapter.start, parts[0].start), parts[-1].end)
    if place is None:
        return ()
    words = _("Last lines, {place}:").format(place=place_in_words(book, place))
    quoted = blockquote(book.text[slice(*place)])
    return Piece("\n\n", ""), Piece(words, ""), Piece(f"\n{quoted}", "")


def _unlooked(book: Document, parts: Sequence[ReadingPart]) -> tuple[str, ...]:
    """That some of these parts are not in English, where the others are: there nobody is found by name."""
    text = "\n\n".join(book.text[part.start : part.end] for part in parts)
    if foreign(book.text) or not partly_foreign(text):
        return ()
    return (_("Parts of the book are not in English: who or what is named there alone was not found."),)


def _less_often(people: Sequence[Person]) -> str:
    """The first of them by name, and how many more there are."""
    names = listed_texts(f"{one.name} ({len(one.mentions)})" for one in people[:_NAMED])
    if more := len(people[_NAMED:]):
        return _("Named less often: {names}, and {count} more.").format(names=names, count=more)
    return _("Named less often: {names}.").format(names=names)
