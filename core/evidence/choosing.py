"""A text told in sentences of its own: those that say most of what it says, in its order. No model.

A sentence is worth the mean weight of its words, the names that it is the first to bring, and whether it
names one of the main characters. A word weighs more the more often it stands in the text and the fewer blocks
of it have it (tf-idf over blocks; after centroid summaries, Radev et al. 2004, arXiv cs/0005020): "look" and
"hand" stand in every chapter of a novel and tell none of them. The text is cut into stretches, a short one at
its end, and each gives its best sentences, less what was said before (maximal marginal relevance, Carbonell
and Goldstein 1998). The shares were chosen on SQuALITY's and FairytaleQA's training stories and by reading
what they choose of four novels (docs/decisions/0029-summaries.md); benchmarks/quality/summaries.py measures
what they give on others.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from core.evidence.naming import needs_another
from core.evidence.passages import sentence_spans
from core.evidence.quotations import is_quotation
from core.text.ranking import is_alike, terms

LEAST_WORDS, MOST_WORDS = 11, 60  # of a sentence worth choosing
_STOCK = 3  # times that a sentence stands in the text which tells nothing of it
_STRETCH_WORDS = 40  # of the summary, from one stretch of the text; half as many where it is short:
_LEAST_STRETCHES = 6
_LAST_STRETCH = 3  # the last one is so many times as short as the others: what a story comes to is told
_BLOCK_WORDS = 1000
_WEIGHT, _MAIN_NAME, _NEW_NAME = 3.0, 0.3, 0.3
_POINTS_BACK, _OPEN_END, _ADDRESSES, _QUOTES, _SAID_BEFORE = 0.2, 1.0, 1.0, 0.3, 1.2
_MOST_NEW_NAMES = 2
_MAIN_NAMES = 12
_BURST = 1.5  # power of a word's weight
_FULL_WORTH = 0.95  # of the sentences, by weight: the one there is worth 1, so that no outlier sets the scale
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\W_぀-ヿ㐀-鿿]+")
_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b")
BACK = re.compile(
    r"(?:he|she|it|they|his|her|their|this|that|these|those|we|i|you|but|and|then|so|him|them"
    r"|und|aber|dann|doch|denn|wir|ich|du|ihr|das)\b|[但而且又并我你您]",
    re.IGNORECASE,
)
_YOU = re.compile(
    r"\b(?:you|your|yours|thou|thee|thy|du|dich|dir|deine?[mnrs]?|euch|eure?[mnrs]?)\b|[你您]", re.IGNORECASE
)
_DEAR = r"(?:my\s|very\s)*(?:dear(?:est)?|beloved|liebe[rs]?|sehr\sgeehrte[rs]?)\b[^,;:!?—–\n]{0,50}"
_SALUTATION = re.compile(  # "Dear M. Verbeke, - ", "SIR,--"
    rf"(?:{_DEAR}[,:!](?:\s*[-—–]+)?"
    rf"|(?:{_DEAR}|sirs?|madame?|gentlemen|mademoiselle|monsieur|messieurs)[,:!.]?"
    r"(?:\s*[-—–]+|\n))\s*",
    re.IGNORECASE,
)
_OF_REGARD = (
    r"(?:(?:faithful|sincere|true|tru|respectful|affectionate|obedient|humble|cordial|dutiful|devoted)(?:ly)?"
    r"|ever|always|servant|friend)"
)
_REGARDS = re.compile(  # "Believe me, Sir, yours faithfully, Clara Hollis."
    rf"\b(?:yours?(?:[\s,]+(?:very|most|and|{_OF_REGARD}))*?[\s,]+{_OF_REGARD}"
    r"|mit\s\w+en\sgrüßen|hochachtungsvoll"
    r"|ihre?\sergebene[rs]?)[,.:]?(?-i:(?:\s+[A-Z][\w.’'-]*)*)[.!]?\Z",
    re.IGNORECASE,
)
_OPENS = '“«„「『"'
_CLOSES = '”»」』"'
_MARKS = frozenset(_OPENS + _CLOSES)
_QUOTED = re.compile(r"[“«„「『\"](?:(?!\n\s*\n)[^“”\"«»„「『」』])*[”\"»」』]?")
_MOST_QUOTED = 0.2  # of a sentence's characters: a nickname, a ship's name
_LONG_SPEECH_CHARS = 400
ENDS = re.compile(r"[.!?…。！？][)\]”“»«」』\"]*\Z")
_NAMES_ALONE = re.compile(r"(?:(?:[A-Z][\w’'-]*|\d+|of|the|at|in|on|to|for|by|and|near)\W+)+")
_MOST_NUMBERS, _MANY_NUMBERS = 0.4, 0.2  # of a sentence's words, and where they follow commas as pages do
_NOTE = re.compile(r"(\d+) ")
_NOTE_OPENS = re.compile(r"\s*\[(?:\d+|[*†‡§])\] ")
_NOTE_REACH_CHARS = 20_000  # how far behind what refers to it a note may stand: at the end of a chapter
_CAPTION = re.compile(  # "Fig. 12. The hook", not "Figure 12 shows"
    r"[\[(*_ ]*(?:(?:fig(?:ure|s)?|plate|table|map|chart|diagram|photo(?:graph)?|illustration|abb(?:ildung)?"
    r"|tafel|tab(?:elle)?|bild|karte|插?图|表)\b\.?\s*(?:\d[\d.]*[a-z]?|[IVXLC]+)\s*"
    r"(?:[.:：)\]|—–-]|\n|\Z|(?-i:[^\W\da-z_]))|illustration\s*[:\]])",
    re.IGNORECASE,
)
_PAGES = re.compile(r"[^\W\d_],\s\d{1,4}(?:[–—-]\d{1,4})?(?=[,;.]|\s+[^\W\da-z_]|\Z)")  # "whales, 12–14;"
_CELLS = re.compile(r"\s\|\s|\t")
_LEFT_OPEN = re.compile(r"(?:[?!？！]|\.\.\.|…)[)\]]*$")


def best_sentences(text: str, ranges: Sequence[tuple[int, int]], words: int) -> list[tuple[int, int]]:
    """The sentences that tell text[start:end] of all `ranges` in about `words` words, as offsets, in order.

    They are whole ones that the book tells itself, not what somebody says, unless he goes on for so long that
    he tells the story; none that stands there again and again, word for word. A quotation mark that opens or
    ends such a long speech is left off.
    """
    found = [span for start, end in ranges for span in sentence_spans(text, start, end)]
    spans = [_without_open_marks(text, *_without_salutation(text, low, high)) for low, high in found]
    spoken = [span for start, end in ranges for span in _speeches(text, start, end)]
    sentences = [text[low:high] for low, high in spans]
    told = [
        number
        for number, (low, high) in enumerate(spans)
        if _is_whole(sentences[number])
        and not is_set_apart(text, low, sentences[number])
        and not _is_of_a_letter(sentences[number])
        and not _is_speech(low, high, spoken)
    ]
    times = Counter(tuple(one.split()) for one in sentences)
    once = [number for number in told if times[tuple(sentences[number].split())] < _STOCK]
    among = _by_themselves(sentences, once or told or range(len(spans)))
    return [spans[number] for number in choose_sentences(sentences, words, among)]


def choose_sentences(told: Sequence[str], words: int, among: Collection[int] | None = None) -> list[int]:
    """Which of the sentences `told`, which follow one another, to keep for a summary of about `words` words;
    with `among`, of those with these numbers.

    Their numbers, in order; all where they have no more words than that.
    """
    table = _Table(told)
    among = frozenset(range(len(told)) if among is None else among)
    if sum(table.sentences[number].length for number in among) <= words:
        return sorted(among)
    among = _by_themselves(told, among)
    chosen: list[int] = []
    said: Counter[str] = Counter()
    stretches, room = list(table.stretches(_num_stretches(words), among)), 0.0
    for good, others in stretches:
        room += words / len(stretches)
        taken = table.best(good, room, chosen, said) or table.best(others, room, chosen, said)
        room -= sum(table.sentences[number].length for number in taken)
    return sorted(chosen)


def _num_stretches(words: int) -> int:
    """Of how many stretches of a text so many words tell."""
    least = min(_LEAST_STRETCHES, 2 * words // _STRETCH_WORDS)
    return max(1, least, round(words / _STRETCH_WORDS))


@dataclass(frozen=True, slots=True)
class _Sentence:
    length: int  # words
    terms: frozenset[str]


class _Table:
    """Sentences with what each is worth."""

    def __init__(self, told: Sequence[str]) -> None:
        content = [terms(one) for one in told]
        self.sentences = [
            _Sentence(len(_WORD.findall(one)), frozenset(some))
            for one, some in zip(told, content, strict=True)
        ]
        self._times = Counter(term for some in content for term in some)
        blocks = self._blocks()
        holding = Counter(term for block in blocks for term in block)
        self._weights = {
            term: (math.log(1 + times) * math.log(1 + len(blocks) / holding[term])) ** _BURST
            for term, times in self._times.items()
        }
        self._worth = [
            _WEIGHT * weight + _NEW_NAME * new + _MAIN_NAME * main - _unfit(text)
            for text, weight, (new, main) in zip(told, self._mean_weights(), _names(told), strict=True)
        ]

    def _blocks(self) -> list[set[str]]:
        """The words of each block of the text, of about _BLOCK_WORDS words."""
        blocks: list[set[str]] = []
        before = 0
        for one in self.sentences:
            if before >= len(blocks) * _BLOCK_WORDS:
                blocks.append(set())
            blocks[-1] |= one.terms
            before += one.length
        return blocks

    def worth(self, number: int, said: Counter[str]) -> float:
        """What a sentence adds to what was `said`."""
        own = self.sentences[number].terms
        total = fsum(self._weights[term] for term in own) or 1.0
        known = fsum(self._weights[term] * min(said[term], 3) / 3 for term in own)
        return self._worth[number] - _SAID_BEFORE * known / total

    def best(self, among: Collection[int], room: float, chosen: list[int], said: Counter[str]) -> list[int]:
        """The numbers of those that add most to what was `said`, until they have `room` words, which go to
        `chosen`; none that says hardly more than one that is there.
        """
        left, taken = list(among), list[int]()
        while room > 0 and left:
            best = max(left, key=lambda number: (self.worth(number, said), -number))
            left.remove(best)
            one = self.sentences[best]
            if any(is_alike(one.terms, self.sentences[other].terms) for other in chosen):
                continue
            if chosen and one.length > 2 * room:
                break
            taken.append(best)
            chosen.append(best)
            room -= one.length
            said.update(one.terms)
        return taken

    def stretches(self, count: int, among: Collection[int]) -> Iterator[tuple[list[int], list[int]]]:
        """The numbers of the sentences that may be chosen, in `count` stretches of equally many words, less
        for the last: those of a good length, and the others.
        """
        found: list[list[int]] = [[] for _ in range(count)]
        total, before = sum(one.length for one in self.sentences), 0
        pieces = (count - 1) * _LAST_STRETCH + 1
        for number, one in enumerate(self.sentences):
            if number in among:
                found[min(count - 1, before * pieces // total // _LAST_STRETCH)].append(number)
            before += one.length
        for stretch in found:
            good = [at for at in stretch if LEAST_WORDS <= self.sentences[at].length <= MOST_WORDS]
            yield good, [at for at in stretch if at not in good]

    def _mean_weights(self) -> list[float]:
        def mean(one: _Sentence) -> float:
            heavy = fsum(self._weights[term] * math.log(1 + self._times[term]) for term in one.terms)
            return heavy / max(1, len(one.terms))

        weights = [mean(one) for one in self.sentences]
        full = sorted(weights)[int(_FULL_WORTH * (len(weights) - 1))] if weights else 0.0
        return [weight / (full or 1.0) for weight in weights]


def _by_themselves(told: Sequence[str], among: Collection[int]) -> Collection[int]:
    """Those that say by themselves of whom they speak; all where none does."""
    return [number for number in among if not needs_another(told[number])] or among


def _is_whole(sentence: str) -> bool:
    """Whether it has a beginning and an end, what somebody says in it as well, and is no heading or address:
    “VII.”, “THE END.”, “To the Keeper of the Light.”; nor who said what stands before it: “Mara asked.”
    """
    return (
        bool(ENDS.search(sentence))
        and len(_WORD.findall(sentence)) > 2
        and num_marks(sentence) % 2 == 0
        and not sentence[0].islower()
        and not sentence.isupper()
        and not _NAMES_ALONE.fullmatch(sentence)
    )


def _is_of_a_letter(sentence: str) -> bool:
    """Whether a sentence ends a letter with regards, or tells or asks whom it is written to something."""
    asks = _LEFT_OPEN.search(sentence) and _YOU.search(sentence)
    return bool(asks or _YOU.match(sentence) or _REGARDS.search(sentence))


def _without_salutation(text: str, low: int, high: int) -> tuple[int, int]:
    """A sentence without whom the letter that it begins is written to."""
    begins = not text[text.rfind("\n", 0, low) + 1 : low].strip()
    salutation = _SALUTATION.match(text, low, high) if begins else None
    return (salutation.end() if salutation and salutation.end() < high else low), high


def is_set_apart(text: str, low: int, sentence: str) -> bool:
    """Whether a sentence is a note or a motto, or stands in a caption, a table or an index."""
    line = text.rfind("\n", 0, low) + 1
    words = _WORD.findall(sentence)
    numbers = sum(map(str.isdecimal, words))
    mostly = numbers > 2 and numbers >= _MOST_NUMBERS * len(words)
    entries = len(_PAGES.findall(sentence)) > 1 and numbers >= _MANY_NUMBERS * len(words)
    in_list = mostly or entries or _CELLS.search(sentence) is not None
    return in_list or bool(_CAPTION.match(text, line)) or _is_note(text, low) or is_quotation(text, low)


def _is_note(text: str, low: int) -> bool:
    """Whether a sentence stands in a paragraph that begins with a number in brackets, or begins with one that
    the text refers to so: “1 A slip is a way.”
    """
    if _NOTE_OPENS.match(text, text.rfind("\n\n", 0, low) + 1):
        return True
    number = _NOTE.match(text, low)
    before = text[max(0, low - _NOTE_REACH_CHARS) : low]
    return bool(number) and f"[{number[1]}]" in before


def _unfit(sentence: str) -> float:
    """What a sentence loses that points back to another, leaves something open, speaks to somebody or has
    words that somebody says.
    """
    return (
        _POINTS_BACK * bool(BACK.match(sentence))
        + _OPEN_END * bool(_LEFT_OPEN.search(sentence))
        + _ADDRESSES * bool(_YOU.search(sentence))
        + _QUOTES * any(mark in sentence for mark in _OPENS)
    )


def _names(told: Sequence[str]) -> Iterator[tuple[int, bool]]:
    """Of each sentence, how many names it is the first to bring, two at most, and whether it has one of the
    commonest: words that are never written small and stand in two sentences or more.
    """
    small = {word for one in told for word in re.findall(r"\b[a-z]+\b", one)}
    found = [dict.fromkeys(word for word in _NAME.findall(one) if word.lower() not in small) for one in told]
    times = Counter(word for one in found for word in one)
    main = {word for word, count in times.most_common(_MAIN_NAMES) if count > 1}
    known: set[str] = set()
    for one in found:
        fresh = {word for word in one if times[word] > 1} - known
        yield min(len(fresh), _MOST_NEW_NAMES), not main.isdisjoint(one)
        known |= fresh


def _without_open_marks(text: str, low: int, high: int) -> tuple[int, int]:
    """A sentence without a mark that opens or closes what goes on outside of it."""
    inside = text[low:high]
    alone = num_marks(inside) == 1
    if alone and inside[0] in _OPENS:
        return low + 1, high
    return low, high - (alone and inside[-1] in _CLOSES)


def num_marks(sentence: str) -> int:
    return sum(char in _MARKS for char in sentence)


def _speeches(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What is quoted, to the closing mark or the paragraph's end, but for long speeches."""
    for match in _QUOTED.finditer(text, start, end):
        if match.end() - match.start() < _LONG_SPEECH_CHARS:
            yield match.start(), match.end()


def _is_speech(low: int, high: int, spoken: Sequence[tuple[int, int]]) -> bool:
    """Whether more than a name or two of the sentence is said by somebody."""
    first = max(0, bisect_right(spoken, (low, high)) - 1)
    quoted = 0
    for left, right in spoken[first:]:
        if left >= high:
            break
        quoted += max(0, min(right, high) - max(left, low))
    return quoted > _MOST_QUOTED * (high - low)
