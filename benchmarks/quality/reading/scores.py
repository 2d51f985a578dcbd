"""How near a text is to what people wrote. Values in, values out; no model.

F1 over words as SQuAD counts it (https://arxiv.org/abs/1606.05250, section 6.1); ROUGE-N as F-measure over
lowercased words without stemming (Lin 2004), the best over the references where benchmarks.quality.summaries
has the mean.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from core.conversation.supported_sentences import ENDED
from core.evidence.naming import points_back
from core.text.circling import MIN_DISTINCT, distinct_share
from core.text.ranking import NAME, terms

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile("[" + re.escape(string.punctuation) + "“”‘’—…]")
_WORDS = re.compile(r"[a-z0-9]+")
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
TAKEN_WORDS = 8
_QUOTED = re.compile(r"^> (.+)$", re.MULTILINE)


def plain(text: str) -> list[str]:
    """Words without case, punctuation and articles."""
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split()


def f1(said: str, answers: Sequence[str]) -> float:
    """The best over the answers."""
    return max(_f1(Counter(plain(said)), Counter(plain(answer))) for answer in answers)


def contains(said: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers stands in `said`, word for word."""
    text = f" {' '.join(plain(said))} "
    return any(plain(answer) and f" {' '.join(plain(answer))} " in text for answer in answers)


def said_refusal(said: str, refusal: str) -> bool:
    """Whether `said` is the refusal, or nothing."""
    return plain(said)[: len(plain(refusal))] == plain(refusal) or not plain(said)


def right(said: str, keywords: Sequence[str]) -> bool:
    """Whether all keywords occur, `a|b` being alternatives."""
    return all(re.search(word, said, re.IGNORECASE) for word in keywords)


def rouge(said: str, references: Sequence[str], n: int) -> float:
    """ROUGE-N, 0 to 1."""
    return max(_f1(_grams(said, n), _grams(reference, n)) for reference in references)


def unknown_names(said: str, text: str) -> tuple[int, int]:
    """Names inside the sentences of `said`, each time they stand there: not in `text`, and in all."""
    known = set(_WORDS.findall(text.lower()))
    names = [name.lower() for name in _INSIDE.findall(said)]
    return sum(name not in known for name in names), len(names)


def quotes(said: str, text: str) -> tuple[int, int]:
    """The stretches quoted below an answer: all of them, and those that stand in `text` word for word, white
    space apart. One that was cut begins with "… " or ends in " …".
    """
    held, below = f" {' '.join(text.split())} ", said.partition("\n\n")[2]
    cut = (quote.removeprefix("… ").removesuffix(" …") for quote in _QUOTED.findall(below))
    found = [" ".join(quote.split()) for quote in cut]
    return len(found), sum(f" {quote} " in held for quote in found)


def circling(said: str) -> bool:
    """Whether a text goes round in circles, by its words."""
    return distinct_share(said.split()) < MIN_DISTINCT


def taken(said: str, text: str) -> bool:
    """Whether a sentence shares `TAKEN_WORDS` words in a row with a text."""
    words, known = _WORDS.findall(said.lower()), f" {' '.join(_WORDS.findall(text.lower()))} "
    runs = (words[at : at + TAKEN_WORDS] for at in range(len(words) - TAKEN_WORDS + 1))
    return any(f" {' '.join(run)} " in known for run in runs)


def pointing(sentences: Sequence[str]) -> int:
    """How many of a summary's sentences begin with a pronoun behind one that names nobody and points to
    nobody who was named.
    """
    found, known = 0, False
    for sentence in sentences:
        back = points_back(sentence.lstrip("“"))
        found += back and not known
        known = bool(NAME.search(sentence, 1)) or back and known
    return found


def mid_sentence(said: str) -> bool:
    """Whether a text stops before its last sentence does."""
    return not ENDED.search(said.rstrip())


def first_by_words(heard: Sequence[Sequence[float]], most: int) -> bool:
    """Whether one of the `most` best passages by words is right. `heard`: of each passage its score by words,
    what else is known of it, and whether it is right, in any order.
    """
    best = sorted(heard, key=lambda one: one[0], reverse=True)[:most]
    return any(hit for *_said, hit in best)


def holding(
    text: str, gold: Sequence[tuple[int, int]], answers: Sequence[str], passages: Sequence[tuple[int, int]]
) -> set[tuple[int, int]]:
    """The passages that hold the answer, of all `passages` of a text; `gold` are the sections that do.

    Sections end elsewhere than passages do: of a section that lies in several, those hold the answer that
    have as many of its words as any; where the section has none of them, the one with the most of it.
    """
    right = set()
    for low, high in gold:
        parts = [((s, e), max(low, s), min(high, e)) for s, e in passages if s < high and e > low]
        wanted = [set(terms(answer)) & set(terms(text[low:high])) for answer in answers]
        words = [set(terms(text[left:end])) for _passage, left, end in parts]
        held = [max((len(one & known) for one in wanted), default=0) for known in words]
        most = max(held)
        if most:
            right |= {passage for (passage, _left, _end), one in zip(parts, held, strict=True) if one == most}
        else:
            right.add(max(parts, key=lambda part: part[2] - part[1])[0])
    return right


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = _WORDS.findall(text.lower())
    return Counter(tuple(words[index : index + n]) for index in range(len(words) - n + 1))


def _f1(said: Counter, wanted: Counter) -> float:
    common = sum((said & wanted).values())
    if not common:
        return float(said == wanted)
    precision, recall = common / sum(said.values()), common / sum(wanted.values())
    return 2 * precision * recall / (precision + recall)
