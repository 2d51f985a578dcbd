"""How near a text is to what people wrote. Values in, values out; no model.

F1 over words as SQuAD counts it (https://arxiv.org/abs/1606.05250, section 6.1); ROUGE-N as F-measure over
lowercased words without stemming (Lin 2004), the best over the references.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile("[" + re.escape(string.punctuation) + "“”‘’—…]")
_WORDS = re.compile(r"[a-z0-9]+")
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")


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


def refuses(said: str, refusal: str) -> bool:
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


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = _WORDS.findall(text.lower())
    return Counter(tuple(words[index : index + n]) for index in range(len(words) - n + 1))


def _f1(said: Counter, wanted: Counter) -> float:
    common = sum((said & wanted).values())
    if not common:
        return float(said == wanted)
    precision, recall = common / sum(said.values()), common / sum(wanted.values())
    return 2 * precision * recall / (precision + recall)
