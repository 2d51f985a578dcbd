"""Where the model looked while it was asked and while it answered, sentence by sentence, as events.

The text before the model is a stretch of a book; what is told of it are its passages (core.evidence), by
where they begin in the book. What a passage's share of attention is worth beside words is not known here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.cache.query_recorder import QueryRecorder
from core.decoding.context import Context
from core.documents.document import Document
from core.events import AttentionEvidence
from core.evidence.attention_evidence import strongest
from core.evidence.passages import Passage, sentence_spans


@dataclass(frozen=True, slots=True)
class PassageSpans:
    """The passages of a text before the model: where each begins in the book, and in the text's own tokens,
    where the last border is the text's end.
    """

    starts: tuple[int, ...]
    borders: tuple[int, ...]


def stretches(
    book: Document,
    passages: Sequence[Passage],
    start: int,
    end: int,
    tokens: int,
    count: Callable[[str], int],
) -> PassageSpans:
    """Of `book.text[start:end]`, which is `tokens` long.

    Tokens are counted passage by passage and made to add up: at a border a token may belong to either side.
    """
    inside = [one for one in passages if one.start < end and one.end > start]
    cuts = [start, *(one.start for one in inside[1:]), end]
    counted = [0]
    for left, right in pairwise(cuts):
        counted.append(counted[-1] + count(re.sub(r"\n\s*\n\s*", "\n\n", book.text[left:right])))
    share = tokens / max(1, counted[-1])
    return PassageSpans(tuple(one.start for one in inside), tuple(round(at * share) for at in counted))


class AttentionTracker:
    """Watches one answer in `context`, whose `looking` keeps the queries.

    `text_start`: the token at which the text begins. `question`: the tokens of the question's own words.
    `prompt_tokens`: where the answer begins. None of it costs anything between two sentences.
    """

    def __init__(
        self, context: Context, places: PassageSpans, *, text_start: int, question: range, prompt_tokens: int
    ) -> None:
        self._context, self._starts = context, places.starts
        self._borders = [text_start + at for at in places.borders]
        self._question, self._prompt_tokens = question, prompt_tokens
        self._told = -1  # sentences, the question before them

    def look(self, text: str, ends: Sequence[int], *, whole: bool = False) -> Iterator[AttentionEvidence]:
        """What can be told that was not told yet: of the question, then of the answer's complete sentences.
        `ends`: how many characters of `text` there are after each token. `whole`: no more comes.
        """
        if self._told < 0:
            self._told = 0
            yield from self._event(None, self._question)
        spans = sentence_spans(text, 0, len(text))
        for number, (start, end) in enumerate(spans if whole else spans[:-1]):
            if number >= self._told:
                self._told = number + 1
                # a token is written by the query of the one before it
                first, last = bisect_right(ends, start), bisect_left(ends, end)
                at = self._prompt_tokens - 1
                yield from self._event(number, range(at + first, at + last + 1))

    def _event(self, sentence: int | None, tokens: range) -> Iterator[AttentionEvidence]:
        looking: QueryRecorder = self._context.looking
        masses = looking.masses(self._context.cache, tokens, self._borders)
        if masses is not None:
            yield AttentionEvidence(sentence, strongest(masses, self._starts))
