"""Of an answer under a spoiler limit only what the book up to it bears out is said: a model knows a famous
book from elsewhere, too. No model here.

A sentence waits until it is complete. It is said where it has a mark (core.evidence.support), knows no name
or number that the allowed text has not, and does not call somebody somebody else whom that text never calls
so. An answer in another language than the text's, as own instructions may ask for, has no marks: it is held
by its names and numbers alone.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import replace

from core.conversation.answering import Answer
from core.documents.document import Document
from core.documents.word_count import count_words
from core.events import AttentionEvidence, Delta, Event, Finished, ReadingStep, RoundStats
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence
from core.request import Request
from core.text.language_detection import foreign, script
from core.text.levelled import LevelledText
from core.text.ranking import NAME, terms
from core.text.words import translated as _
from core.text.words import translated_count as _n

Answering = Generator[Event, None, Answer]
_FEW_WORDS = 3  # content words: with fewer, "Yes." or "It is so.", a sentence of several says nothing to hold
_FRAGMENT_WORDS = 4  # of an answer that is no sentence of its own
_SHORT_WORDS = 8
_WHO_IS = re.compile(r"\bwho(?:['’]s| (?:is|was|are|were))\b", re.IGNORECASE)
# what stands between two names of one person: "Hyde is really Dr. Jekyll", "Hyde, alias Jekyll"
_BETWEEN = (
    r"(?:\W+(?:really|actually|truly|secretly|also|in|truth|fact|reality|the|same|man|woman|person|none|no|other"
    r"|than|himself|herself|mr|mrs|miss|dr|doctor|sir|lady|lord))*"
)
_IS = rf"(?:['’]s|\W+(?:is|was|are|were|am|be|being|alias|called|named|as|or)){_BETWEEN}\W+"


class SpoilerGuard:
    """Judges the sentences of an answer to `question` by the text that may be read for it. `by_words`: they
    need a mark; else their names and numbers count alone.
    """

    def __init__(
        self, allowed: Document, question: str, evidence: Evidence, *, by_words: bool = True
    ) -> None:
        self._allowed, self._question, self._evidence = allowed.text, question, evidence
        self._by_words = by_words
        self._names, self._numbers = set(NAME.findall(allowed.text)), set(re.findall(r"\d+", allowed.text))

    def allows(self, sentence: str, *, alone: bool) -> bool:
        """Whether it may be said. `alone`: it is the whole answer."""
        if not self._knows(sentence) or self._reveals(sentence):
            return False
        if not self._by_words or self._is_translated(sentence):
            return True
        if not alone and len(set(terms(sentence))) < _FEW_WORDS:
            return True
        short = alone and count_words(sentence) <= _FRAGMENT_WORDS  # one with its question
        marks = self._evidence.marks(sentence, self._question if short else "")
        return all(mark.place is not None for mark in marks)

    def _is_translated(self, sentence: str) -> bool:
        """Whether it is in another language than the text; of a few words that cannot be told."""
        if script(sentence) != script(self._allowed):
            return True
        return count_words(sentence) > _SHORT_WORDS and foreign(sentence) != foreign(self._allowed)

    def _knows(self, sentence: str) -> bool:
        """Whether the text has the names and numbers of the sentence. A word that it writes small is none."""
        for match in NAME.finditer(sentence):
            word = match.group()
            if word not in self._names and not self._is_common(word):
                return False
        return set(re.findall(r"\d+", sentence)) <= self._numbers

    def _is_common(self, word: str) -> bool:
        return not self._evidence.is_name(word) and word.lower() in self._allowed.lower()

    def _reveals(self, sentence: str) -> bool:
        """Whether it says of two names that they are one person's, and the text never does."""
        said = self._persons(sentence)
        groups = [
            [
                (one, other)
                for other in said - {one}
                if re.search(rf"\b{one}{_IS}{other}\b", sentence, re.IGNORECASE)
            ]
            for one in said
        ]
        others = set(terms(sentence)).difference(*(terms(name) for name in said))
        if _WHO_IS.search(self._question) and len(others) <= 1:  # hardly more than a name
            asked = self._persons(self._question)
            groups.append([(one, other) for one in asked for other in said - asked])
        # of "Henry Jekyll" one name is enough
        return any(pairs and not any(self._are_one(*pair) for pair in pairs) for pairs in groups)

    def _persons(self, words: str) -> set[str]:
        return {word for word in NAME.findall(words) if self._evidence.is_name(word)}

    def _are_one(self, one: str, other: str) -> bool:
        """Whether both stand in one name ("Edward Hyde"), or the text says that one is the other."""
        beside = rf"\b(?:{one}\W+{other}|{other}\W+{one})\b"
        said = rf"\b(?:{one}{_IS}{other}|{other}{_IS}{one})\b"
        return bool(re.search(beside, self._allowed) or re.search(said, self._allowed, re.IGNORECASE))


def allowed_text(ask: Request) -> Document | None:
    """What may be told of the book (`ask.book` ends at its limit already); None where all of it may. Chapters
    that somebody chose to be read are no limit to what may be told.
    """
    return ask.book if ask.spoiler_limit is not None else None


def guarded_answer(answer: Answering, guard: SpoilerGuard | None) -> Answering:
    """The events of an answer, and the answer, with what the guard allows alone; as they are without one."""
    if guard is None:
        return (yield from answer)
    waiting, said, left_out = LevelledText(), LevelledText(), False

    def ready(*, to_the_end: bool) -> LevelledText:
        """Of what waits, the complete sentences that may be said."""
        nonlocal waiting, left_out
        spans = sentence_spans(waiting.text, 0, len(waiting.text))
        whole = spans if to_the_end else spans[:-1]
        found, at = LevelledText(), 0
        for number, (start, end) in enumerate(whole):
            alone = to_the_end and len(spans) == 1 and not said.text.strip()
            following = spans[number + 1][0] if number + 1 < len(spans) else len(waiting.text)
            if guard.allows(waiting.text[start:end], alone=alone):
                found += waiting[at:following]
            else:
                left_out = True
            at = following
        waiting = LevelledText() if to_the_end else waiting[at:]
        return found

    while True:
        try:
            event = next(answer)
        except StopIteration as finished:
            done: Answer = finished.value
            break
        if isinstance(event, Delta):
            waiting += LevelledText.of(event.pieces)
            found = ready(to_the_end=False)
            said += found
            yield Delta(found.pieces, event.rounds)
        elif not (isinstance(event, AttentionEvidence) and left_out):
            yield event
    found = ready(to_the_end=True)
    said += found
    if not left_out:
        yield from _told(found)
        return done
    note = _("What the chapters that may be read do not bear out was left out of this answer.")
    if not said.text.strip():
        found = said = LevelledText.plain(_("What may be read of the book does not seem to say."))
        note = _("What the model said instead, the chapters that may be read do not bear out.")
    yield from _told(found)
    return replace(done, pieces=said.pieces, token_ids=(), notes=(*done.notes, note))


def _told(text: LevelledText, rounds: tuple[RoundStats, ...] = ()) -> Iterator[Delta]:
    if text.text:
        yield Delta(text.pieces, rounds)


def named_up_to(events: Iterator[Event], limit: int, chapters: int) -> Iterator[Event]:
    """The events of an answer under a limit: what is read is called the book up to there, never the whole."""
    counted = _n("its {count} chapter", "all {count} chapters", chapters).format(count=chapters)
    whole = (str(_("the whole book")), str(counted))
    so_far = _("the book up to chapter {number}").format(number=limit)
    for event in events:
        if isinstance(event, ReadingStep) and str(event.label) in whole:
            event = replace(event, label=so_far)
        elif isinstance(event, Finished):
            sources = tuple(so_far if str(one) in whole else one for one in event.sources)
            event = replace(event, sources=sources)
        yield event
