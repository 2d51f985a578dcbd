"""What a book is to one model: how it is read, the ids of its parts and where its words stand. Worked out
once and kept for the books read last.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from core.conversation.attention_tracker import PassageSpans, stretches
from core.conversation.chunking import KeptCounts
from core.conversation.reading import ReadingPart, ReadingPlan, ReadingStyle, book_chapters, plan_reading
from core.conversation.spoiler_guard import allowed_text
from core.documents.document import Document, Section
from core.evidence.allowed_sentences import SpoilerGuard
from core.evidence.passages import Passage, book_passages
from core.evidence.support import Evidence
from core.request import Request
from core.text.ranking import PartIndex
from core.text.tokenizer import Tokenizer

_PLANS = 16
_TOKENS = 1 << 18  # of the texts read last, a megabyte
V = TypeVar("V")


class LruCache(Generic[V]):
    """The values used last: as many as weigh `most` together, and always the newest. For several threads."""

    def __init__(self, most: int, weight: Callable[[V], int] = lambda value: 1) -> None:
        self._most, self._weight = most, weight
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, made where it is not kept; what another thread makes of it is waited for."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self._values.get(key)
            try:
                value = make() if value is None else value
            finally:
                with self._lock:
                    self._making.pop(key, None)
            self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > 1 and sum(map(self._weight, self._values.values())) > self._most:
                self._values.popitem(last=False)

    def drop(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drops the values whose keys are `wanted`."""
        with self._lock:
            for key in [key for key in self._values if wanted(key)]:
                del self._values[key]


class BookCache:
    """Reading plans, ids and word indexes by the book's hash, and by what else they depend on."""

    def __init__(self, tokenizer: Tokenizer, style: ReadingStyle, context_tokens: int) -> None:
        self._tokenizer, self._style, self._context_tokens = tokenizer, style, context_tokens
        self._counter = KeptCounts(tokenizer)
        self._plans: LruCache[ReadingPlan] = LruCache(_PLANS)
        self._ids: LruCache[array[int]] = LruCache(_TOKENS, len)
        self._indexes: LruCache[PartIndex] = LruCache(1)
        self._evidence: LruCache[Evidence] = LruCache(1)
        self._passages: LruCache[tuple[Passage, ...]] = LruCache(1)
        self._chapter_tokens: LruCache[tuple[int, ...]] = LruCache(_PLANS)
        self._stretches: LruCache[PassageSpans] = LruCache(_PLANS)

    def plan(
        self,
        book: Document,
        *,
        reading_mode: str,
        chapters: tuple[int, int] | None,
        reserve: int,
        selected_chapters: tuple[int, ...] = (),
        apart: bool = False,
    ) -> ReadingPlan:
        """How the book is read. Raises UserError as `plan_reading`."""
        return self._plans.get(
            (book.sha256, len(book.text), reading_mode, chapters, selected_chapters, reserve, apart),
            lambda: plan_reading(
                book,
                self._counter,
                context_tokens=self._context_tokens,
                style=self._style,
                reading_mode=reading_mode,
                chapters=chapters,
                selected_chapters=selected_chapters,
                reserve=reserve,
                apart=apart,
            ),
        )

    def chapter_tokens(self, book: Document) -> tuple[int, ...]:
        """How many tokens each chapter has."""
        return self._chapter_tokens.get(
            (book.sha256, len(book.text)),
            lambda: tuple(self._counter.count(passage(book, one)) for one in book_chapters(book)),
        )

    def ids(self, book: Document, part: ReadingPart) -> Sequence[int]:
        """A part's text as the model is fed it, with the blank line behind it."""
        return self._ids.get(
            (book.sha256, len(book.text), part.start, part.end),
            lambda: array("i", self._tokenizer.encode(passage(book, part) + "\n\n")),
        )

    def stretches(self, book: Document, part: ReadingPart) -> PassageSpans:
        """Where the book's passages stand in the part's ids."""

        def made() -> PassageSpans:
            found = self._passages.get((book.sha256, len(book.text)), lambda: book_passages(book))
            tokens = len(self.ids(book, part))
            return stretches(book, found, part.start, part.end, tokens, self._tokenizer.count)

        return self._stretches.get((book.sha256, len(book.text), part.start, part.end), made)

    def index(self, book: Document, parts: tuple[ReadingPart, ...]) -> PartIndex:
        """Finds the part that a question is about."""
        return self._indexes.get(
            (book.sha256, parts), lambda: PartIndex([passage(book, part) for part in parts])
        )

    def guard(self, ask: Request) -> SpoilerGuard | None:
        """What an answer to this question is held against, where not all of the book may be read for it."""
        allowed = allowed_text(ask) if ask.question is not None else None
        if allowed is None:
            return None
        return SpoilerGuard(allowed, ask.question, self.evidence(allowed), by_words=not ask.instructions)

    def evidence(self, book: Document) -> Evidence:
        """The book's passages, ranked. They belong to the text, not to the file."""
        return self._evidence.get((book.sha256, book.text, book.sections), lambda: Evidence(book))

    def forget(self, sha256: str) -> None:
        """Drops what is kept of a book."""
        for kept in (
            self._plans,
            self._ids,
            self._chapter_tokens,
            self._indexes,
            self._evidence,
            self._passages,
            self._stretches,
        ):
            kept.drop(lambda key: key[0] == sha256)


def passage(book: Document, part: ReadingPart | Passage | Section) -> str:
    """A part's text as the model gets it: paragraphs apart, no runs of blank lines."""
    return re.sub(r"\n\s*\n\s*", "\n\n", book.text[part.start : part.end]).strip()
