"""What an answer stands on: its quotations and its sentences, looked up in the book. Values for the page."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.render.markdown import Citation
from core.documents.document import Document
from core.documents.locations import Locator
from core.documents.quotes import Quote, find_quotes
from core.events import AttentionEvidence, SourceSpan
from core.evidence.passages import Passage, sentence_spans
from core.evidence.support import Evidence, SentenceMark
from core.text.words import translated as _

EXCERPT_CHARS = 360


@dataclass(frozen=True, slots=True)
class CitedPlace:
    """A place in the book that a sentence of an answer points to, for the list below the answer; or, where
    none has one, that its question points to.
    """

    state: str  # "quoted" | "agrees" | "nearest"
    where: str
    excerpt: str
    offset: int
    length: int
    reasons: tuple[str, ...] = ()  # "words" | "looked"; see core.evidence.support.SentenceMark


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer's quotations, signs and the places they point to; `supported` of its sentences have one."""

    citations: tuple[Citation, ...] = ()
    found: tuple[CitedPlace, ...] = ()
    sentences: int = 0
    supported: int = 0

    @property
    def bare(self) -> bool:
        """Whether nothing of its sentences has a place: neither one as a whole, nor a quotation in it."""
        placed = any(one.offset is not None and not one.kind for one in self.citations)
        return self.sentences > 0 and not self.supported and not placed


class Citations:
    """Looks answers up in the book. Keeps what was prepared of the last two texts, a book and what of it may
    be read: preparing one takes a second or two.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._books: list[_Book] = []
        self._growing = _Growing()
        self._so_far: tuple[tuple[object, ...], tuple[Citation, ...]] = ((), ())
        self._begun: str | None = None  # the text that is being prepared

    def prepare(self, book: Document) -> None:
        """Begin to prepare the book, so that its first answer need not wait; once, until it is prepared."""
        if self._begun != book.text and not self.ready(book):
            self._begun = book.text
            threading.Thread(target=self._prepare, args=(book,), name="evidence", daemon=True).start()

    def __call__(
        self,
        text: str,
        book: Document,
        question: str = "",
        looked: Sequence[AttentionEvidence] = (),
        stands: Sequence[SourceSpan] = (),
    ) -> CitedAnswer:
        """What the answer to `question` stands on in this book; `looked`: where the model looked for it;
        `stands`: what its sentences were held against when it was made, so that nothing is to be found.
        """
        return self._prepared(book).cited(text, question, looked, stands)

    def so_far(
        self, text: str, book: Document, question: str = "", looked: Sequence[AttentionEvidence] = ()
    ) -> tuple[Citation, ...]:
        """What can be said of an answer that is being written: of its complete sentences, looked up when one
        more is complete. Nothing while the book is being prepared.
        """
        end = self._growing.complete(text)
        if not end or not self.ready(book):
            return ()
        begins = len(text) - len(text.lstrip())
        asked = (text[begins:end], book.text, question, tuple(looked), begins)
        if self._so_far[0] != asked:
            found = self(text[begins:end], book, question, looked).citations
            moved = (replace(one, start=one.start + begins, end=one.end + begins) for one in found)
            self._so_far = (asked, tuple(moved))
        return self._so_far[1]

    def standing(self, text: str, book: Document, stands: Sequence[SourceSpan]) -> tuple[Citation, ...]:
        """The signs of a summary that is being told, whose sentences know their places. Nothing while the
        book is being prepared.
        """
        return self(text, book, stands=stands).citations if stands and self.ready(book) else ()

    def ready(self, book: Document) -> bool:
        """Whether the book is prepared."""
        return any(one.is_of(book) for one in self._books)

    def _prepare(self, book: Document) -> None:
        self._prepared(book)
        self._begun = None  # two others may take its place, and it is prepared again

    def _prepared(self, book: Document) -> _Book:
        with self._lock:
            found = next((one for one in self._books if one.is_of(book)), None) or _Book(book)
            self._books = [found, *(one for one in self._books if one is not found)][:2]
            return found


class _Growing:
    """Finds the complete sentences of a text that grows, at the cost of what is new."""

    def __init__(self) -> None:
        self._text, self._last, self._end = "", 0, 0

    def complete(self, text: str) -> int:
        """Where the last sentence but one ends: it is complete, as the last may not be. 0 before that."""
        if not text.startswith(self._text):
            self._last = self._end = 0
        spans = sentence_spans(text, self._last, len(text))
        if len(spans) > 1:
            self._last, self._end = spans[-1][0], spans[-2][1]
        self._text = text
        return self._end


class _Book:
    """One book with its evidence."""

    def __init__(self, document: Document) -> None:
        self._document, self._evidence = document, Evidence(document)
        self._locator = Locator(document)

    def is_of(self, document: Document) -> bool:
        """Whether it speaks of this text: one file may have been read again, and differently."""
        return self._document.text == document.text

    def cited(
        self, text: str, question: str, looked: Sequence[AttentionEvidence], stands: Sequence[SourceSpan]
    ) -> CitedAnswer:
        """See Citations."""
        marks = tuple(map(_mark, stands)) or self._evidence.marks(text, question, looked)
        found = find_quotes(text, self._evidence.quotes)
        quotes = [self._quotation(self._where_told(quote, marks, question)) for quote in found]
        placed = {mark.place: mark for mark in marks if mark.place is not None}
        cited = CitedAnswer(
            (*quotes, *(self._sign(mark) for mark in marks if not _quotes_the_book(mark, quotes))),
            tuple(self._found(mark.state, place, mark.reasons) for place, mark in placed.items()),
            len(marks),
            sum(mark.place is not None for mark in marks),
        )
        return replace(cited, found=self._nearest(question, looked)) if cited.bare else cited

    def _nearest(self, question: str, looked: Sequence[AttentionEvidence]) -> tuple[CitedPlace, ...]:
        """The passages that a question points at, and those the model looked at when it had read it."""
        look = next((one for one in looked if one.sentence is None), None)
        most = max(look.places, key=lambda one: one[1])[0] if look and look.places else None
        found = []
        for passage in self._evidence.nearest(question, looked=look):
            place = self._evidence.support("", passage, question).place
            found.append(self._found("nearest", place, ("looked",) if passage.start == most else ()))
        return tuple(found)

    def _where_told(self, quote: Quote, marks: Sequence[SentenceMark], question: str) -> Quote:
        """A quotation at the place that it was taken from: the same words may stand before that, too."""
        place = self._evidence.quotes.find(quote.text, self._told_at(quote, marks, question))
        return quote if place is None else replace(quote, found=place[0], found_end=place[1])

    def _told_at(
        self, quote: Quote, marks: Sequence[SentenceMark], question: str
    ) -> Iterator[tuple[int, int]]:
        """Where the sentences stand that have the quotation, then what other sentences stand on, then the
        passages that the question points at.
        """
        for mark in sorted(marks, key=lambda mark: not (quote.start < mark.end and mark.start < quote.end)):
            if place := mark.place or mark.nearest and (mark.nearest.start, mark.nearest.end):
                yield place
        yield from ((one.start, one.end) for one in self._evidence.nearest(question))

    def _quotation(self, quote: Quote) -> Citation:
        if quote.found is None or quote.found_end is None:
            return Citation(quote.start, quote.end, None)
        length = quote.found_end - quote.found
        where, short = self._where(quote.found), self._short(quote.found)
        return Citation(quote.start, quote.end, quote.found, length, where, short=short)

    def _sign(self, mark: SentenceMark) -> Citation:
        """A mark as what stands behind its sentence."""
        if mark.place is not None:
            start, end = mark.place
        elif mark.nearest is not None:
            start, end = mark.nearest.start, mark.nearest.end
        else:
            return Citation(mark.start, mark.end, None, kind=mark.state)
        return Citation(
            mark.start, mark.end, start, end - start, self._where(start), mark.state, self._short(start)
        )

    def _found(self, state: str, place: tuple[int, int], reasons: tuple[str, ...]) -> CitedPlace:
        start, end = place
        text = " ".join(self._document.text[start:end].split())
        excerpt = text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS].rsplit(" ", 1)[0] + "…"
        return CitedPlace(state, self._where(start), excerpt, start, end - start, reasons)

    def _where(self, offset: int) -> str:
        place = self._locator.at(offset)
        page = _("page {page}").format(page=place.page) if place.page else ""
        return ", ".join(part for part in (" ".join(place.chapter.split()), page) if part)

    def _short(self, offset: int) -> str:
        """The page, or the chapter's number in a book without pages."""
        if page := self._document.page_at(offset):
            return _("p. {page}").format(page=page)
        chapters = [number for number, one in enumerate(self._document.chapters, 1) if one.start <= offset]
        return _("ch. {number}").format(number=chapters[-1]) if chapters else _("text")


def _mark(stand: SourceSpan) -> SentenceMark:
    """What was found for a sentence when it was told."""
    if not stand.borne_out:
        nearest = Passage(stand.book_start, stand.book_end, "", None)
        return SentenceMark(stand.start, stand.end, nearest=nearest)
    state = "quoted" if stand.quoted else "agrees"
    return SentenceMark(
        stand.start, stand.end, state, (stand.book_start, stand.book_end), 1.0, reasons=("words",)
    )


def _quotes_the_book(mark: SentenceMark, quotes: list[Citation]) -> bool:
    """Whether a quotation that the sentence lies in, or has, shows the place already."""
    return any(one.start < mark.end and one.end > mark.start and one.offset is not None for one in quotes)
