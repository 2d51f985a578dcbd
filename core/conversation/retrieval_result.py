"""What a search in the passages of a book has found, as it is told: the answer above the sentences that it
rests on, or that there is none above the passages nearest to the question; sources, figures and notes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace

from core.conversation.passage_reading import Candidate
from core.conversation.reading import ReadingPart, place_name
from core.conversation.unjudged import HEDGE_CHARS, hedged
from core.documents.document import Document
from core.documents.word_count import count_words
from core.events import Piece, SourceSpan, Stats
from core.evidence.answer_kinds import own_words
from core.evidence.passages import Passage, sentence_spans, speech_start
from core.evidence.quotations import behind_source
from core.evidence.support import UNFOUND, Evidence
from core.request import Request
from core.stats import combined_stats
from core.text.levelled import stripped
from core.text.ranking import is_alike, terms
from core.text.words import joined_sentences
from core.text.words import translated as _
from core.text.words import translated_count as _n

_SHOWN_PASSAGES = 3  # where none answers
_QUOTE_CHARS = 500
# what closes a speech, by what opens it
_SPEECH = {"\u201e": "\u201c", "\u201c": "\u201d", "\u00ab": "\u00bb", "\u00bb": "\u00ab", '"': '"'}
_WRITTEN = re.compile(r"\S+")
_PARAGRAPH_END = re.compile(r"\n\s*\n")

# sentences, and the words that make them worth showing, stemmed
_Held = tuple[tuple[int, int], frozenset[str]]


@dataclass(slots=True)
class RetrievalState:
    """How far the search for an answer is. `count` passages were found; `order` are those, best first, of
    which so many were `reached`. `best`: the answer that is given; `tried`: one of each passage that was
    asked; `more`: those beside them; `likeliest`: of a passage, to be right. `introduced`: who the person is
    that is asked for, in the book's words; `said`: what else is to be told; `why`: what is told at once where
    nothing is found.
    """

    evidence: Evidence
    count: int
    order: list[Passage]
    reached: int = 0
    stopped: bool = False
    best: Candidate | None = None
    tried: list[Candidate] = field(default_factory=list)
    more: list[Candidate] = field(default_factory=list)
    likeliest: dict[Passage, Candidate] = field(default_factory=dict)
    introduced: tuple[Piece, ...] = ()
    said: list[str] = field(default_factory=list)
    why: tuple[str, ...] = ()

    def notes(self) -> tuple[str, ...]:
        """What is told below the answer, nothing twice."""
        given = [] if self.best is None else [self.best]
        said = (one.answer for one in (*self.tried, *self.more, *given))
        notes = [*self.said, *(note for one in said for note in one.notes)]
        if self.stopped:
            words = _("Stopped in passage {number} of {count}.")
            notes.append(words.format(number=min(self.reached + 1, self.count), count=self.count))
        return tuple(dict.fromkeys(notes))

    def pieces(self, ask: Request) -> tuple[Piece, ...]:
        """What is shown. What was not looked for is not called missing: nothing of a search that was
        stopped.
        """
        if self.best:
            return _answered(ask, self.best)
        return () if self.stopped else self.introduced or self._not_said(ask)

    def _not_said(self, ask: Request) -> tuple[Piece, ...]:
        """That no answer was found, and of the nearest passages the sentences where the likeliest answer
        stands that was not given, or those nearest to the question.
        """
        if not self.order:
            hint = _(
                "The question has no word to look for in the book: ask with names or words that stand in it."
            )
            return (Piece(joined_sentences(_(UNFOUND), *(self.why or (hint,))), ""),)
        said, nearest = [_(UNFOUND), *self.why], self._nearest(ask)
        if ask.chapters or ask.selected_chapters:
            said.insert(1, _("Only the chosen chapters were read."))
        if nearest:
            said.append(_("Nearest passages:"))
        shown = [Piece(joined_sentences(*said), "")]
        for place, words in nearest:
            shown += [Piece("\n\n", ""), *quotation(ask.book, place, words)]
        return tuple(shown)

    def _nearest(self, ask: Request) -> list[_Held]:
        """The sentences, chosen first from passages with the question's names, and first those with these and
        most of its words. Where a heading alone has the question's words, or the number of a chapter, what
        stands under it, if the others leave room.
        """
        names = set(terms(" ".join(self.evidence.names_in(ask.question))))
        order = sorted(self.order, key=lambda one: -len(names & set(terms(self.evidence.text_of(one)))))
        found = [self._held(one, ask.question) for one in order]
        told = [one for one in found if _is_told(ask.book, one[0])]
        under = [
            (behind_heading(ask.book, (place[0], passage.end)), words)
            for passage, (place, words) in zip(order, found, strict=True)
            if not _is_told(ask.book, place)
        ]
        shown: dict[_Held, set[str]] = {}
        for one in [*told, *(one for one in under if _is_told(ask.book, one[0]))]:
            said = set(terms(ask.book.text[slice(*one[0])]))
            if not any(is_alike(said, other) for other in shown.values()):
                shown[one] = said

        def asked(one: _Held) -> tuple[int, float]:
            there = names & set(terms(ask.book.text[slice(*one[0])]))
            return len(there), self.evidence.weight_at(one[0], ask.question)

        return sorted(list(shown)[:_SHOWN_PASSAGES], key=asked, reverse=True)

    def _held(self, passage: Passage, question: str) -> _Held:
        if likeliest := self.likeliest.get(passage):
            return likeliest.support.place, own_words(likeliest.answer.text, question)
        return self.evidence.support("", passage, question).place, frozenset(terms(question))

    @property
    def begins(self) -> int:
        """Where in the text the given answer begins."""
        return HEDGE_CHARS if self.best and self.best.sure is False else 0

    def stands(self) -> tuple[SourceSpan, ...]:
        """What an answer that a verifier has judged stands on, all of it."""
        if self.best is None or self.best.sure is None:
            return ()
        end = self.begins + len("".join(piece.text for piece in stripped(self.best.answer.pieces)))
        return (SourceSpan(self.begins, end, *self.best.support.place, borne_out=self.best.sure),)

    def figures(self, *, ttft_s: float) -> Stats:
        """Those of the answer that is given; what was read and written for it in all stands beside them."""
        every = [one.answer.stats for one in (*self.tried, *self.more)]
        work, read = combined_stats(every), combined_stats([one.answer.stats for one in self.tried])
        return replace(
            self.best.answer.stats if self.best else replace(work, new_tokens=0),
            ttft_s=ttft_s,
            prompt_tokens=read.prompt_tokens,  # each passage is read once, whatever is said from it
            reused_tokens=read.reused_tokens,
            prefill_s=work.prefill_s,
            peak_memory_bytes=work.peak_memory_bytes,
            bytes_moved=work.bytes_moved,
            answers=len(every),
            all_tokens=sum(one.new_tokens for one in every),
        )

    def sources(self, book: Document) -> list[str]:
        """What was read, in the order of the book; where no passage was asked, those that are shown."""
        found = self.order[: len(self.tried)]
        if not found and not self.stopped:
            found = self.order
        ordered = sorted(found, key=lambda one: one.start)
        places = Counter(place_in_words(book, (one.start, one.end)) for one in ordered)
        return [
            _n("a passage of {place}", "{count} passages of {place}", count).format(place=place, count=count)
            for place, count in places.items()
        ]


def _answered(ask: Request, best: Candidate) -> tuple[Piece, ...]:
    """The answer with the sentences it rests on; where they lack its words, they are called the nearest."""
    quoted = quotation(ask.book, best.support.place, own_words(best.answer.text, ask.question))
    nearest = () if best.support.shown else (Piece(_("Nearest passages:"), ""), Piece("\n\n", ""))
    said = stripped(best.answer.pieces)
    return (*(hedged(said) if best.sure is False else said), Piece("\n\n", ""), *nearest, *quoted)


def behind_heading(book: Document, place: tuple[int, int]) -> tuple[int, int]:
    """A place without the heading that it begins in, or the source of a motto; empty where it is no more."""
    start = min(max(place[0], book.heading_end(book.section_at(place[0]))), place[1])
    return behind_source(book.text, start, place[1]), place[1]


def _is_told(book: Document, place: tuple[int, int]) -> bool:
    return count_words(book.text[slice(*behind_heading(book, place))]) > 1


def quotation(book: Document, place: tuple[int, int], words: Set[str] = frozenset()) -> tuple[Piece, Piece]:
    """The book's own words under the place they stand at, as a quotation in Markdown; of a long place the
    part that has most of these words, stemmed. No heading with them where more is said; a paragraph, and what
    stands above it by itself, is one of its own.
    """
    place = behind_heading(book, place) if _is_told(book, place) else place
    start, end = _whole_speech(book.text, *_part(book.text, place, words))
    quoted = blockquote(book.text[start:end])
    if book.text[place[0] : start].strip():
        quoted = f"> … {quoted[2:]}"
    if book.text[end : place[1]].strip():
        quoted = f"{quoted} …"
    where = place_in_words(book, (start, place[1]))
    return Piece(_("{place}:").format(place=where), ""), Piece(f"\n{quoted}", "")


def blockquote(text: str) -> str:
    """The paragraphs of a text as a quotation in Markdown."""
    paragraphs = _PARAGRAPH_END.split(text.strip())
    return "> " + "\n>\n> ".join(" ".join(one.split()) for one in paragraphs)


def _part(text: str, place: tuple[int, int], words: Set[str]) -> tuple[int, int]:
    """The part of a place, of whole words and `_QUOTE_CHARS`, that has most of these: the first that begins
    with a sentence, or, where one from within a sentence has more, the middle one of those.
    """
    if len(" ".join(text[slice(*place)].split())) <= _QUOTE_CHARS:
        return place

    def held(part: tuple[int, int]) -> int:
        return len(words & set(terms(text[slice(*part)])))

    best = max((_from(text, start, place[1]) for start, _end in sentence_spans(text, *place)), key=held)
    if held(best) == held(place):
        return best
    inside = [_from(text, one.start(), place[1]) for one in _WRITTEN.finditer(text, *place)]
    last = next(number for number, part in enumerate(inside) if part[1] == inside[-1][1])
    most = max(map(held, inside[: last + 1]))
    fullest = [part for part in inside[: last + 1] if held(part) == most]
    return best if held(best) == most else fullest[len(fullest) // 2]


def _whole_speech(text: str, start: int, end: int) -> tuple[int, int]:
    """A place with the rest of the speech that it begins or ends in the middle of, where that is no more than
    may be quoted.
    """
    begins = speech_start(text, start)
    start = begins if end - begins <= _QUOTE_CHARS else start
    first = text.rfind("\n\n", 0, start) + 1
    last = min(at for at in (text.find("\n\n", end), len(text)) if at >= 0)
    opens = next((letter for letter in text[first:last] if letter in _SPEECH), '"')
    closes = _SPEECH[opens]
    if _is_within(text[first:start], opens, closes):
        begins = text.rfind(opens, first, start)
        start = begins if end - begins <= _QUOTE_CHARS else start
    if _is_within(text[first:end], opens, closes):
        ends = text.find(closes, end, last) + 1
        end = ends if 0 < ends - start <= _QUOTE_CHARS else end
    return start, end


def _is_within(text: str, opens: str, closes: str) -> bool:
    """Whether a paragraph that begins so is in the middle of a speech."""
    if opens == closes:
        return text.count(opens) % 2 == 1
    return text.rfind(opens) > text.rfind(closes)


def _from(text: str, start: int, end: int) -> tuple[int, int]:
    """So many words from here on as may be quoted, one in any case."""
    left, stop = _QUOTE_CHARS + 1, start
    for one in _WRITTEN.finditer(text, start, end):
        left -= len(one.group()) + 1
        if left < 0 and stop > start:
            break
        stop = one.end()
    return start, stop


def place_in_words(book: Document, place: tuple[int, int]) -> str:
    """Chapter and page of a place."""
    chapter = place_name(book, (ReadingPart(_("The text"), *place, 0),))
    page = book.page_at(place[0])
    return _("{chapter}, p. {page}").format(chapter=chapter, page=page) if page else chapter
