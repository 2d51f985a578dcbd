"""Whether a telling says of somebody or something what the book's sentence says of the same one: what was
left off between two of its words may be the subject of the second, or make a claim of it. English; no model.

A telling stands on words that it shares with a sentence, in their order (core.evidence.nearness). Of "the
crowd pressed in, and the boat was crushed" it then may leave "the crowd was crushed". So every stretch
between two shared words is looked at on both sides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise, takewhile

from core.evidence.naming import TITLES
from core.text.ranking import terms

_TOKEN = re.compile(r"[^\W_]+")
_PRONOUN = r"(?:he|she|it|they|I|we|you|there)\b"
_DETERMINER = (
    r"(?:the|an?|his|her|its|their|my|our|your|this|that|these|those|some|no|every|each|all|both|another"
    r"|one|two|three)\b"
)
# where another subject may begin: behind a mark, or a word that joins clauses
_JOINS = (
    r"(?:and|but|or|nor|so|yet|for|while|whilst|when|where|whereas|because|since|that|as|though|although|if"
    r"|unless|until|till|before|after)\b"
)
_ANOTHER = re.compile(
    rf"(?:[,;:.!?…)\]\"“”]|—|--|\b{_JOINS})\s*(?:{_JOINS}\s+){{0,2}}"
    rf"(?:(?P<pronoun>{_PRONOUN})|(?P<noun>{_DETERMINER}|(?-i:[A-Z]\w)))",
    re.IGNORECASE,
)
_PREPOSITION = (
    r"(?:of|in|on|at|to|from|with|by|for|into|onto|upon|under|over|about|against|between|through|among|behind"
    r"|before|after|beside|beyond|near|like|without|towards?|than|as)\b(?!-)"
)
_LAST_PREPOSITION = re.compile(rf".*\b({_PREPOSITION})", re.IGNORECASE | re.DOTALL)
_OF_WHICH = re.compile(rf"\b{_PREPOSITION}\s+(?:{_DETERMINER}\s+(?:[\w’'-]+\s+)?)?\Z", re.IGNORECASE)
_OF_NAME = re.compile(  # "the water of Lake Hollis", not of any lake
    r"\s*(?:of|in|at|from)\s+(?:the\s+|[a-z]+\s+)?[A-Z]"
)
_TO = re.compile(r"\bto\s+\Z", re.IGNORECASE)
# what says which of several, or how many of them, and the words behind it that it may say it of
_WHICH = re.compile(
    r"(?<!\bat )\b(?P<which>(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
    r"|\d+(?:st|nd|rd|th)|last|latter|former|next|previous|others?|another|same|such|only|sole|both|each"
    r"|every|either|neither|all|any|some|most|many|several|few|half|part|eldest|elder|youngest|younger|left"
    r"|right)\b"
    r"|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty"
    r"|sixty|seventy|eighty|ninety|hundreds?|thousands?|dozens?"
    r"|(?<![\d,.])(?:\d{1,3},)*\d{1,3})\b)"  # no year
    rf"(?:(?:\s+of)?\s+{_DETERMINER})?(?=(?P<row>(?:[\s-]+(?!(?:only|both|each)\b)[\w’']+)*))",
    re.IGNORECASE,
)

# "The line in her hand, which nobody had ever read."; "Paying her first forty crowns."
_NO_SENTENCE = re.compile(
    r"(?!(?:k|th|r|str|spr|w|morn|even)ing\b|\w*thing\b)[a-z]+ing\b"
    r"(?:\s(?!(?:is|was|were|are|had|has|did|could|would|made|gave|took)\b|\w+ed\b)[\w’'-]+)+[.!?]"
    rf"|{_DETERMINER}\s[\w’'-]+(?:\s(?!was\b|is\b|had\b|were\b)[\w’'-]+)?"
    rf"(?:\s{_PREPOSITION}(?:\s(?!was\b|is\b|had\b|were\b)[\w’'-]+){{1,3}}?)*"
    r",?\s(?:who|whom|whose|which|where|that)\b[^,;:]*[.!?]",
    re.IGNORECASE,
)
_NOUN_BEGINS = re.compile(rf"\b{_DETERMINER}\s\Z", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\d,.])(?:1\d|20)\d\d(?![\d,]|\.\d)")
_AMOUNT = re.compile(r"\d")
_OWNER = re.compile(r"\b(?:his|hers?|its|theirs?|him|them)\b")


@dataclass(frozen=True, slots=True)
class _Word:
    term: str
    start: int
    end: int


def same_clauses(said: str, there: str, *, subject_before: bool) -> bool:
    """Whether what `said` shares with the book's sentence `there` is said of the same there: its subject is
    no part of something else, no other subject stands between it and what is said of it, and no preposition
    is another. `subject_before`: a pronoun of the book's sentence stands for the subject.
    """
    own, others = list(_words(said)), list(_words(there))
    shared = _shared([one.term for one in own], [one.term for one in others])
    if not shared:
        return False
    first = next((at for at, word in enumerate(own) if word.term not in TITLES), 0)
    at, behind = shared[0]
    if at <= first:
        if _OF_WHICH.search(there[: others[behind].start]) and not _OF_WHICH.search(said[: own[at].start]):
            return False
    elif not subject_before or _ANOTHER.search(there[: others[behind].start]):
        return False
    for (left, low), (right, high) in pairwise(shared):
        ours, theirs = said[own[left].end : own[right].start], there[others[low].end : others[high].start]
        neighbours = right == left + 1  # else the telling has another order
        if not _same_subject(ours, theirs) or (neighbours and not _same_relation(ours, theirs)):
            return False
    return True


def is_sentence(said: str) -> bool:
    """Whether it says something of what it names: no noun with a clause behind it, and no participle."""
    return _NO_SENTENCE.fullmatch(said) is None


def shared_part(said: str, there: str) -> str:
    """The book's sentence up to the last word that `said` shares with it in its order."""
    others = list(_words(there))
    shared = _shared(terms(said), [one.term for one in others])
    return there[: others[shared[-1][1]].end] if shared else there


def same_number(said: str, there: str) -> bool:
    """Whether no word of `said` stands in `there` as one where it says several, or the other way round."""
    known = set(_TOKEN.findall(there.lower()))
    return all(
        word in known or not known.intersection(_other_number(word))
        for word in _TOKEN.findall(said.lower())
        if terms(word)
    )


def same_ones(said: str, there: str) -> bool:
    """Whether `said` speaks of as many, and of the same, as the book's sentence `there`: it leaves off no
    "second" or "only" of a noun that it keeps, nor what tells two of a name apart ("the county court ...; the
    court of appeal ..."), and makes no "all" of them.
    """
    kept, words = set(_TOKEN.findall(said.lower())), set(terms(said))
    told = {match["which"].lower() for match in _WHICH.finditer(said)}
    return (
        told <= {match["which"].lower() for match in _WHICH.finditer(there)}
        and all(
            kept.issuperset(_TOKEN.findall(match["which"].lower())) or words.isdisjoint(_of_which(match))
            for match in _WHICH.finditer(there)
        )
        and words.isdisjoint(_told_apart(words, there))
    )


def same_years(said: str, there: str) -> bool:
    """Whether what is counted in a year of the book's sentence `there` is not told as the count of always."""
    return not _AMOUNT.search(_YEAR.sub("", said)) or set(_YEAR.findall(there)) <= set(_YEAR.findall(said))


def same_owners(said: str, there: str) -> bool:
    """Whether whose something is, or whom it happens to, stands in the book's sentence `there` as well: of a
    needle that "gave its stroke" it is not "his".
    """
    return set(_OWNER.findall(said.lower())) <= set(_OWNER.findall(there.lower()))


def _told_apart(kept: Set[str], there: str) -> Iterator[str]:
    """The nouns that a sentence has more than once, one with a word right before it that is not `kept`."""
    found = list(_words(there))
    times = Counter(word.term for word in found)
    for before, word in pairwise(found):
        beside = _NOUN_BEGINS.search(there[: before.start]) and not there[before.end : word.start].strip(" -")
        if times[word.term] > 1 and beside and before.term not in kept:
            yield word.term


def _of_which(match: re.Match[str]) -> list[str]:
    """The content words in a row behind what says which one: a noun and what it is, a verb at times."""
    return [term for one in takewhile(terms, _TOKEN.findall(match["row"])) for term in terms(one)]


def _other_number(word: str) -> Iterator[str]:
    """The plural of a noun, or what it is one of, of regular ones."""
    yield from (f"{word}s", f"{word}es", f"{word[:-1]}ies")
    yield from (word.removesuffix("s"), word.removesuffix("es"), f"{word.removesuffix('ies')}y")


def _same_subject(said: str, there: str) -> bool:
    """Whether no other subject begins between two shared words in the book alone."""
    another = next(reversed(list(_ANOTHER.finditer(there))), None)
    if another is None:
        return True
    if another["pronoun"]:
        return bool(re.search(rf"\b{_PRONOUN}", said, re.IGNORECASE))
    left_off = terms(there[another.start("noun") :])
    return not left_off or bool(re.search(rf"\b{_DETERMINER}", said, re.IGNORECASE))


def _same_relation(said: str, there: str) -> bool:
    """Whether the second of two shared words hangs on the preposition that it has in the book; "tried to
    light" is not "lit".
    """
    if _TO.search(there) and not _TO.search(said):
        return False
    if _OF_NAME.match(there) and not _OF_NAME.match(said):
        return False
    wanted, found = _LAST_PREPOSITION.match(said), _LAST_PREPOSITION.match(there)
    return wanted is None or (found is not None and found[1].lower() == wanted[1].lower())


def _words(sentence: str) -> Iterator[_Word]:
    """The content words of a sentence with their places."""
    for match in _TOKEN.finditer(sentence):
        for term in terms(match.group()):
            yield _Word(term, match.start(), match.end())


def _shared(said: Sequence[str], there: Sequence[str]) -> list[tuple[int, int]]:
    """The longest common subsequence, as pairs of places."""
    lengths = [[0] * (len(there) + 1) for _ in range(len(said) + 1)]
    for at in reversed(range(len(said))):
        for other in reversed(range(len(there))):
            if said[at] == there[other]:
                lengths[at][other] = lengths[at + 1][other + 1] + 1
            else:
                lengths[at][other] = max(lengths[at + 1][other], lengths[at][other + 1])
    pairs, at, other = [], 0, 0
    while at < len(said) and other < len(there):
        if said[at] == there[other]:
            pairs.append((at, other))
            at, other = at + 1, other + 1
        elif lengths[at + 1][other] > lengths[at][other + 1]:
            at += 1
        else:
            other += 1
    return pairs
