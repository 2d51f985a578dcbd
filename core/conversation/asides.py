"""What is asked beside a book's text: who somebody is so far, what selected words mean, who says them, and
what they are in another language. No model here.

A model is given passages that end where the person is, and nothing of the book behind them. What it says is
held to the text up to there sentence by sentence (core.evidence.allowed_sentences); a translation tells
nothing that the words do not, and is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.conversation.supported_sentences import ENDED
from core.documents.document import Document
from core.evidence.allowed_sentences import SpoilerGuard
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence
from core.text.language_detection import foreign

KINDS_OF_ASIDE = ("person", "meaning", "speaker", "translation")
_TOLD_OF = 8  # passages with somebody
_PASSAGE_CHARS, _BEFORE_CHARS = 700, 3000
_GAP = re.compile(r"\n\s*\n")
_PROMPTS = {
    "person": (
        "These passages of a book stand in its order.\n\n{passages}\n\nWho is {words}, as far as these "
        "passages tell? Answer in two sentences, from the passages alone."
    ),
    "meaning": (
        "This is a passage of a book; some of its words stand between [[ and ]].\n\n{passages}\n\nWhat do "
        "the words between [[ and ]] mean here? Explain them in one or two plain sentences, in the language "
        "of the passage, and tell nothing else of the book."
    ),
    "speaker": (
        "This is a passage of a book; some of its words stand between [[ and ]].\n\n{passages}\n\nWho says "
        "the words between [[ and ]]? Answer in one short sentence with the name that the passage has. If "
        "the passage does not say, answer exactly: The passage does not say."
    ),
    "translation": "Translate into {language}. Answer with the translation alone.\n\n{words}",
}
_LANGUAGES = {"en": "English", "de": "German", "zh": "Chinese"}


@dataclass(frozen=True, slots=True)
class AsideSentence:
    """A sentence beside the text, and the (start, end) in the book that bears it out; None: it was held to
    the book's names alone, or to nothing.
    """

    text: str
    place: tuple[int, int] | None = None


def person_question(text: str, name: str, mentions: Sequence[tuple[int, int]]) -> str:
    """Who somebody is, asked of passages with some of these mentions, the first and the last among them."""
    step = max(1, -(-len(mentions) // _TOLD_OF))
    chosen = [*mentions[::step][: _TOLD_OF - 1], mentions[-1]]
    spans = dict.fromkeys(_paragraph(text, *mention) for mention in chosen)
    passages = "\n\n".join(" ".join(text[start:end].split()) for start, end in spans)
    return _PROMPTS["person"].format(passages=passages, words=name)


def words_question(kind: str, text: str, start: int, end: int, *, language: str = "en") -> str:
    """What is asked of `text[start:end]`, with what stands before it and the end of its paragraph."""
    first = _GAP.split(text[max(0, start - _BEFORE_CHARS) : start])
    before = "\n\n".join(first[1:] if start > _BEFORE_CHARS and len(first) > 1 else first)
    words = text[start:end]
    passage = f"{before}[[{words}]]{text[end : paragraph_end(text, end)]}".strip()
    return _PROMPTS[kind].format(passages=passage, words=words, language=_LANGUAGES[language])


def paragraph_end(text: str, at: int) -> int:
    """Where the paragraph ends that the character before `at` stands in."""
    gap = _GAP.search(text, at)
    return gap.start() if gap else len(text)


class AsideGuard:
    """Lets through what the book up to `end` bears out of an answer of this kind, sentence by sentence."""

    def __init__(self, kind: str, book: Document, end: int, question: str) -> None:
        self._kind = kind
        self._bound = kind != "translation" and not foreign(book.text[:end])
        if self._bound:
            begun = (one for one in book.sections if one.start < end)
            sections = tuple(replace(one, end=min(one.end, end)) for one in begun)
            known = replace(book, text=book.text[:end], sections=sections)
            self._evidence = Evidence(known)
            self._guard = SpoilerGuard(known, question, self._evidence, by_words=kind == "person")

    def said(self, text: str, *, ended: bool) -> Iterator[AsideSentence]:
        """What may be shown of an answer so far, complete sentences alone until it has `ended`."""
        spans = sentence_spans(text, 0, len(text))
        for start, end in spans if ended else spans[:-1]:
            sentence = " ".join(text[start:end].split())
            if not self._bound:
                yield AsideSentence(sentence)
            elif self._guard.allows(sentence, alone=False):
                marks = self._evidence.marks(sentence) if self._kind == "person" else ()
                place = marks[0].place if marks else None
                if self._kind != "person" or place and ENDED.search(sentence):
                    yield AsideSentence(sentence, place)


def _paragraph(text: str, start: int, end: int) -> tuple[int, int]:
    """What stands around a mention, its paragraph at most."""
    gaps = list(_GAP.finditer(text, max(0, start - _PASSAGE_CHARS), start))
    left = gaps[-1].end() if gaps else max(0, start - _PASSAGE_CHARS // 2)
    return left, min(paragraph_end(text, end), left + _PASSAGE_CHARS + end - start)
