"""The last words of a text, as they stand in it: what somebody says there as well. No model here."""

from __future__ import annotations

import re

from core.documents.word_count import count_words
from core.evidence.choosing import ENDS, is_set_apart, num_marks
from core.evidence.passages import sentence_spans

_MOST_WORDS, _FEW_WORDS = 60, 20
_HEADING_WORDS = 12  # at most, of what ends without a stop and is no verse
_PARAGRAPH = re.compile(r"\S(?:(?!\n\s*\n).)*", re.S)
_BROKEN_OFF = re.compile(r"[—–-][\"'”’“‘)\]»«」』]*\Z")
_NO_MORE = re.compile(
    r"\W*(?:the end|finis|fin|ende|(?:the )?end of\b.*|ende des\b.*|printed (?:by|in|at)\b.*"
    r"|[（(]?[全本]?[书文篇]?[完终][）)]?)\W*",
    re.IGNORECASE | re.S,
)


def last_words(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the last words of text[start:end] stand: its last paragraphs as far as they have sixty words
    together, of a longer one that few words follow its last sentences. Neither “THE END” nor notes, tables
    and lines like headings below them. None where there is nothing else.
    """
    place: tuple[int, int] | None = None
    for one in reversed(list(_PARAGRAPH.finditer(text, start, end))):
        spans = _told(text, *one.span())
        if not spans and place:
            break
        if not spans:
            continue
        starts, high = [left for left, _right in spans], place[1] if place else spans[-1][1]
        if count_words(text[starts[0] : high]) > _MOST_WORDS:
            enough = place is not None and count_words(text[slice(*place)]) >= _FEW_WORDS
            return place if enough else (_begin(text, starts, place[0] if place else None, high), high)
        place = starts[0], high
    return place


def _told(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of a paragraph, without one that is broken off; none of what is no part of a telling."""
    spans = sentence_spans(text, start, end)
    said = text[start:end].strip()
    if not spans or said.isupper() or _NO_MORE.fullmatch(said) or is_set_apart(text, start, said):
        return []
    whole = [span for span in spans if _ended(text[slice(*span)])]
    if not whole:
        return spans if count_words(said) > _HEADING_WORDS else []
    return spans[: spans.index(whole[-1]) + 1]


def _ended(sentence: str) -> bool:
    return bool(ENDS.search(sentence) or _BROKEN_OFF.search(sentence))


def _begin(text: str, starts: list[int], behind: int | None, end: int) -> int:
    """The first of these sentences from which on there are few enough words, if not within what somebody
    says; else `behind` them, and where there is nothing, the first or the last of them.
    """
    few = [at for at in starts if count_words(text[at:end]) <= _MOST_WORDS]
    last = (few or starts[-1:])[0] if behind is None else behind
    return next((at for at in few if num_marks(text[at:end]) % 2 == 0), last)
