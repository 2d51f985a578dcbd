"""Decides how a book is read: whole when it fits, else in parts along chapter borders. Names what is read and
what is not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

from core.config import READING_MODES
from core.conversation.chapter_names import ChapterName, chapter_names, range_name, section_title
from core.conversation.chunking import ChunkingUnit, TokenCounter, units
from core.documents.document import Document, Section
from core.errors import UserError
from core.model.store.catalogue import load_catalogue
from core.text.words import translated as _

HEARD_PASSAGES = 6  # that are asked, all of them, where a verifier chooses among what they say


@dataclass(frozen=True, slots=True)
class ReadingStyle:
    """How one model reads best; part of its catalogue entry, chosen by measurement. Lengths in tokens."""

    part_tokens: int = 6000
    # longest text read in one go by default; None: whatever the context holds
    whole_tokens: int | None = None
    note_tokens: int = 160  # longest summary of a part
    system: str = "You read books and answer from them."
    # so many tokens of part summaries are told in one go; of more, runs of them first
    join_tokens: int = 8192
    # "told": the whole from the parts, by the model; "supported": the parts by the model, each in the place
    # of the book's own sentences that were chosen from it; "own": in these alone
    summaries: str = "told"
    # "supported": what is asked for one of these sentences, how often at most, and how much of what is told
    # one sentence of the book must hold (core.evidence.nearness) where it is to stand
    sentence_prompt: str = "Tell in one sentence, in the third person, what this says: “{sentence}”"
    tellings: int = 3
    nearness: float = 0.8
    # a summary's sentence of which the book holds less (core.evidence.support) is not said
    supported: float = 0.2
    # a part's summary that keeps less to its text (core.text.grounding) is tried again
    grounded: float = 0.0
    # tried in turn
    part_prompts: tuple[str, ...] = ("Write a short summary of this passage in your own words.",)
    join_prompts: tuple[str, ...] = (
        "Write a short summary of the whole book from these notes, in your own words.",
    )
    whole_prompt: str = "Write a short summary of this book in your own words."
    # behind the two prompts above, for the length that was asked for
    paragraph_wish: str = "Use one paragraph of about 120 words."
    page_wish: str = "Use about 400 words, and tell the events in their order."
    answer_prompt: str = "{question}"
    # follows a question about text that is before the model; "" where it cannot quote
    quote_prompt: str = ""
    # a question about one passage of the book, behind it; `refusal` is the answer where it does not say
    passage_prompt: str = (
        "Answer this question from the passage above, in few words. If the passage does not say, answer "
        "exactly: The passage does not say.\n\n{question}"
    )
    refusal: str = "The passage does not say."
    # beside a passage's score by words, where a verifier has all passages read (core.conversation.reranking)
    asked_weight: float = 0.0
    refused_weight: float = 0.0
    # so many more short answers are drawn, and the one that all agree with most is given; 0: a model that was
    # not measured to gain by it (core.conversation.consensus)
    consensus: int = 0
    consensus_temperature: float = 0.7
    # what says which of these answers is given, of all passages, and whether one is: a file in assets/models
    # (core.conversation.verifier). "": a model for which none was learned
    verifier: str = ""
    english: bool = False  # it answers in no other language
    # follows a question in another language than English, which the prompts around it are in
    language_wish: str = "Answer in the language of this question."
    summary_language_wish: str = "Write in the language of the text."
    passages: bool = False  # it reads short texts best: questions are answered from passages by default
    temperature: float = 0.3
    top_p: float = 0.9
    repetition_penalty: float = 1.0

    @property
    def follows_wishes(self) -> bool:
        """Whether the person's own instructions go to it also for passages and summaries: not where a
        verifier knows its answers to one wording alone.
        """
        return not self.verifier

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> ReadingStyle:
        """The style a catalogue entry describes; keys that are missing keep their defaults."""
        known = {field.name for field in fields(cls)}
        unknown = set(record or {}) - known
        assert not unknown, f"unknown keys in the catalogue's reading record: {sorted(unknown)}"
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in (record or {}).items()
            }
        )


def follows_wishes(model: str) -> bool:
    """ReadingStyle.follows_wishes of the catalogue's model of this name; a model of one's own does."""
    known = load_catalogue().get(model)
    return known is None or ReadingStyle.from_record(known.reading).follows_wishes


@dataclass(frozen=True, slots=True)
class ReadingPart:
    """One stretch of the book that is read in one go: `document.text[start:end]`."""

    label: str
    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """What is read, in which pieces, and what is not."""

    mode: str  # "full" | "chunked" | "retrieval"
    parts: tuple[ReadingPart, ...]  # passages: where they may be looked for
    tokens: int  # of everything that is read; 0 for passages, which are found by the question
    left_out: tuple[str, ...] = ()  # in the reader's words
    notes: tuple[str, ...] = ()
    unchosen: tuple[str, ...] = ()  # chapters

    def of_one_part(self) -> ReadingPlan:
        """Of an answer that one of the parts or a passage gives: what is read says more than what is not."""
        return replace(self, left_out=self.unchosen)


def book_chapters(document: Document) -> tuple[Section, ...]:
    """The chapters a reader would count, in order; a heading that opens a part of the book belongs to the
    chapter after it.

    A document without chapters is taken as it is.
    """
    chapters = document.chapters or tuple(
        s for s in document.sections if document.text[s.start : s.end].strip()
    )
    openings = {section.end: section.start for section in document.sections if section.kind == "part"}
    return tuple(replace(section, start=openings.get(section.start, section.start)) for section in chapters)


def by_chapter(document: Document, parts: Sequence[ReadingPart]) -> list[tuple[ReadingPart, ...]]:
    """Consecutive parts that lie in the same chapter, together."""
    starts = [section.start for section in book_chapters(document)]
    grouped = groupby(parts, key=lambda part: bisect_right(starts, part.start))
    return [tuple(inside) for _chapter, inside in grouped]


def of_length(style: ReadingStyle, prompt: str, length: str) -> str:
    """`prompt` with the wish for a length: a page, or a paragraph, also for each chapter."""
    return f"{prompt} {style.page_wish if length == 'page' else style.paragraph_wish}"


def plan_reading(
    document: Document,
    counter: TokenCounter,
    *,
    context_tokens: int,
    style: ReadingStyle,
    reading_mode: str = "auto",
    chapters: tuple[int, int] | None = None,
    selected_chapters: tuple[int, ...] = (),
    reserve: int = 768,
    apart: bool = False,
) -> ReadingPlan:
    """How to read `document` (or its chapters first..last, or those `selected_chapters`, 1-based) with
    `reserve` tokens kept free for question and answer. `apart`: no part has more than one chapter.

    Raises UserError when there is nothing to read, the chapters do not exist, or `reading_mode` is "full" and
    it does not fit.
    """
    assert reading_mode in READING_MODES, reading_mode
    book = book_chapters(document)
    names = chapter_names(document, book)
    chosen = _selected(book, selected_chapters) if selected_chapters else _chosen(book, chapters)
    sections = [book[number] for number in chosen]
    if not any(document.text[s.start : s.end].strip() for s in sections):
        said = _("There is no text to read in {title}. Choose other chapters or another file.")
        raise UserError(said.format(title=document.title or _("this file")))
    unchosen = _unchosen(names, chosen)
    left_out = _left_out(document, book, unchosen)
    spans = _spans(sections)
    if reading_mode == "retrieval":
        inside = [
            [n for n in chosen if not selected_chapters or start <= book[n].start < end]
            for start, end in spans
        ]
        places = tuple(
            ReadingPart(range_name(names, of), *span, 0) for of, span in zip(inside, spans, strict=True)
        )
        return ReadingPlan("retrieval", places, 0, left_out, unchosen=unchosen)
    room = context_tokens - reserve
    tokens = sum(counter.count(document.text[start:end].strip()) for start, end in spans)
    longest_whole = room if reading_mode == "full" else min(room, style.whole_tokens or room)
    if reading_mode == "full" and (tokens > room or len(spans) > 1):
        why = _does_not_fit(tokens, room, reserve, context_tokens, len(spans))
        raise UserError(why, ways=("retrieval", "chunked"))
    if reading_mode != "chunked" and tokens <= longest_whole and len(spans) == 1:
        whole = chapters is None and not selected_chapters
        label = _("the whole book") if whole else range_name(names, chosen)
        part = ReadingPart(label, *spans[0], tokens)
        return ReadingPlan("full", (part,), tokens, left_out, unchosen=unchosen)
    limit = min(style.part_tokens, room)
    parts = _parts(document, counter, book, names, chosen, limit=limit, apart=apart)
    notes: tuple[str, ...] = ()
    if reading_mode == "auto" and len(parts) > 1:
        why = _(
            "The text has {tokens:,} tokens; this model reads up to {most:,} in one go, so it is read by "
            "chapters, in {count} parts of about {limit:,} at most."
        )
        most = min(longest_whole, room)
        notes = (why.format(tokens=tokens, most=most, count=len(parts), limit=limit),)
    return ReadingPlan("chunked", parts, tokens, left_out, notes, unchosen)


def place_name(document: Document, parts: Sequence[ReadingPart]) -> str:
    """A name for consecutive parts of a book by the chapters they lie in."""
    book = book_chapters(document)
    inside = [
        i for i, section in enumerate(book) if section.start < parts[-1].end and section.end > parts[0].start
    ]
    return range_name(chapter_names(document, book), inside) if inside else parts[0].label


def _chosen(book: Sequence[Section], chapters: tuple[int, int] | None) -> range:
    if chapters is None:
        return range(len(book))
    first, last = chapters
    if not 1 <= first <= last <= len(book):
        said = _(
            "Chapters {first}-{last} were asked for, but this book has {count}. Choose between 1 and {count}."
        )
        raise UserError(said.format(first=first, last=last, count=len(book)))
    return range(first - 1, last)


def _selected(book: Sequence[Section], selected_chapters: Sequence[int]) -> list[int]:
    numbers = sorted(set(selected_chapters))
    _chosen(book, (numbers[0], numbers[-1]))
    return [number - 1 for number in numbers]


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers in order, cut where one is missing."""
    grouped = groupby(enumerate(numbers), key=lambda one: one[1] - one[0])
    return [[number for _at, number in run] for _key, run in grouped]


def _unchosen(names: Sequence[ChapterName], chosen: Sequence[int]) -> tuple[str, ...]:
    """The chapters that were not chosen, those in a row under one name."""
    runs = _runs(number for number in range(len(names)) if number not in set(chosen))
    return tuple(range_name(names, run) for run in runs)


def _left_out(document: Document, book: Sequence[Section], unchosen: Sequence[str]) -> tuple[str, ...]:
    """What is not read where all that was chosen is, in the order of the book."""

    def around(section: Section) -> str:
        words = _("{title} (after the book itself)")
        if section.start < book[0].start:
            words = _("{title} (before the book itself)")
        return words.format(title=outside_name(section))

    return (
        *(around(s) for s in document.outside if s.kind == "front"),
        *unchosen,
        *(around(s) for s in document.outside if s.kind == "back"),
    )


def outside_name(section: Section) -> str:
    """The title of one of Document.outside, as a person is told it."""
    return section_title(section.title) or _("untitled pages")


def _spans(chosen: Sequence[Section]) -> list[tuple[int, int]]:
    """The chosen sections joined where they touch, as character ranges."""
    spans: list[tuple[int, int]] = []
    for section in chosen:
        if spans and spans[-1][1] == section.start:
            spans[-1] = (spans[-1][0], section.end)
        else:
            spans.append((section.start, section.end))
    return spans


def _does_not_fit(tokens: int, room: int, reserve: int, context_tokens: int, num_spans: int) -> str:
    if tokens <= room and num_spans > 1:
        return _(
            "These chapters are not next to each other in the file, so they cannot be read in one go. "
            "Read them in parts, or choose chapters that follow each other."
        )
    return _(
        "The text has {tokens:,} tokens; {room:,} fit at once (the context of {context:,} less {reserve:,} "
        "for the question and the answer). Read it in parts, or fewer of its chapters."
    ).format(tokens=tokens, room=room, context=context_tokens, reserve=reserve)


def _parts(
    document: Document,
    counter: TokenCounter,
    book: Sequence[Section],
    names: Sequence[ChapterName],
    chosen: Sequence[int],
    *,
    limit: int,
    apart: bool,
) -> tuple[ReadingPart, ...]:
    pieces = [unit for i in chosen for unit in units(document.text, counter, i, book[i], limit)]
    groups: list[list[ChunkingUnit]] = []
    for unit in pieces:
        previous = groups[-1] if groups and not apart else None
        if previous and _joins(previous[-1], unit) and sum(u.tokens for u in previous) + unit.tokens <= limit:
            previous.append(unit)
        else:
            groups.append([unit])
    return tuple(
        ReadingPart(_group_label(names, group), group[0].start, group[-1].end, sum(u.tokens for u in group))
        for group in groups
    )


def _joins(left: ChunkingUnit, right: ChunkingUnit) -> bool:
    """Whole chapters that touch are merged with each other; a piece of a long chapter stands alone."""
    return left.end == right.start and left.pieces == right.pieces == 1


def _group_label(names: Sequence[ChapterName], group: Sequence[ChunkingUnit]) -> str:
    label = range_name(names, [unit.chapter for unit in group])
    if group[0].pieces == 1:
        return label
    return _("{place}, part {number} of {count}").format(
        place=label, number=group[0].piece + 1, count=group[0].pieces
    )
