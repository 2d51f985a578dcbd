"""Who occurs in a text: every person with the forms of the name, all mentions, and a sentence that introduces
whoever it is. No model, no torch.

Forms are one person's where a longer one holds a shorter one and no title tells them apart: "Mr. Holmes",
"Holmes" and "Sherlock Holmes". What several persons share ("Harker") is counted for the one that the text
names most, a bare surname only if it names nobody else nearly as often. Two names are one person's where the
text says so: "Isolde Farthing, called Pin".
A person stands on mentions alone, so what is known of the first half of a text stands on that half.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mode

from core.evidence.choosing import BACK
from core.evidence.names import MEN, TITLES, WOMEN, Mention, names
from core.evidence.passages import sentence_spans

_FIRST = 12  # mentions of which one introduces somebody
_LEAST_WORDS, _MOST_WORDS = 6, 60  # of a sentence that does
_STOPS = ".!?…\"”’')"
_AROUND = 1500  # characters on either side of a mention, in which its sentence ends
_TELLS = re.compile(
    r"\s?(?:,|--|—|\()?\s?(?:(?:is |was )(?!(?!known|called|named)\w+ed\b)"
    r"|who |the |a |an |his |her |my |our |their )"
    r"(?!(?:\w*ing|not|never|(?:is|was) (?:not|never))\b)"
)
_IS_WHAT = re.compile(
    r"\b(?:the|an?|his|her|my|our|their)\s(?:[\w’'-]+\s){0,3}[a-z][\w’'-]*,\s\Z"
)  # "the mate, Radney,"
_CALLED = re.compile(r"(?:called|named|name was|name is)\s+\W?$")
_GREETED = re.compile(r"(?:\A|\n|[“\"‘])\s*(?:my\s)?dear(?:est)?\s(?:\w+\.?\s)?\Z", re.I)
_BEHIND_GREETED = re.compile(r"\s?[,:;!.–—-]")
_CLOSED = re.compile(
    r"\b(?:yours|servant|friend|faithfully|truly|sincerely|affectionately|regards),?\s(?:\w+\.?\s)?\Z", re.I
)
_BEHIND_CLOSED = re.compile(r"\.?\s*(?:\n|\Z)")
_BEFORE = 60  # characters, in which a letter greets or closes, or somebody is said to be something
_BY_TITLE = dict.fromkeys(MEN, "he") | dict.fromkeys(WOMEN, "she")
_ROYAL = {"king", "queen", "prince", "princess"}
_USUAL = 0.05  # of the mentions
_FULL = 3  # mentions by a first name and a surname
_SURE = 3  # times as many sentences that go on with one pronoun as with the other, and at least so many
_MARRIED = 5  # times as often by her first name as by a wife's title, which is her mother's then
_MEANT = 3  # times as many mentions as of another bearer of the surname
_NEAR = 5000  # characters, two pages
_SHORTENED = {"mr", "mrs", "ms", "dr", "rev", "capt", "col"}


@dataclass(frozen=True, slots=True)
class Person:
    """`name`: the fullest usual form. `forms`: all, the most frequent first. `mentions`: every (start, end)
    in order.
    """

    name: str
    forms: tuple[str, ...]
    mentions: tuple[tuple[int, int], ...]


# mentions by whether they are a role, words and title
_Forms = Mapping[tuple[bool, tuple[str, ...], str], Sequence[Mention]]


@dataclass(slots=True)
class _Known:
    """A person while the forms are put together."""

    words: tuple[str, ...]
    titles: set[str]
    role: bool
    sex: str
    mentions: list[Mention] = field(default_factory=list)

    def may_be(self, mention: Mention, sex: str) -> bool:
        """Whether a form is one of this person's: words of the name, and no title or sex that tells them
        apart.
        """
        return (
            not self.role
            and words_within(mention.words, self.words)
            and not any(told_apart(mention.title, title) for title in self.titles)
            and (mention.title not in _ROYAL or len(self.words) == 1)  # "Prince John" is no John Little
            and {sex, self.sex} != {"he", "she"}
        )


def people(text: str) -> tuple[Person, ...]:
    """The persons of an English text, those it names most first."""
    return joined_people(names(text))


def joined_people(mentions: Sequence[Mention]) -> tuple[Person, ...]:
    """The persons of these mentions, which stand in order; those named most first."""
    forms: dict[tuple[bool, tuple[str, ...], str], list[Mention]] = {}
    for one in mentions:
        forms.setdefault((one.role, one.words, one.title), []).append(one)
    known, sexes = [], _sexes(mentions)
    # names before roles, the longest first, of equally long ones those with a title
    for (role, words, title), found in sorted(forms.items(), key=_order):
        sex = _BY_TITLE.get(title) or sexes[words[0]]
        bearers = [] if role else _bearers(known, found[0], sex)
        if not title and _divided(bearers, found):
            continue
        if title == "mrs" and all(_unmarried(one, found, forms) for one in bearers):
            bearers = []
        if not title:
            bearers = [one for one in bearers if not _namesake(one, found)]
        person = _by_role(known, words) if role else _by_name(bearers, found[0], sex, forms)
        if person is None:
            person = _Known(words, set(), role, sex)
            known.append(person)
        person.titles |= {title} - {""}
        person.mentions += found
    _put_together(known, mentions)
    ranked = sorted(known, key=lambda one: (-len(one.mentions), min(m.start for m in one.mentions)))
    return tuple(_person(one) for one in ranked)


def _put_together(known: list[_Known], mentions: Sequence[Mention]) -> None:
    """Makes one of two of `known` where a mention says that the one before it is called so, too."""
    for before, also in pairwise(mentions):
        if not also.called:
            continue
        owners = [one for one in known if before in one.mentions or also in one.mentions]
        if len(owners) == 2 and {one.sex for one in owners} != {"he", "she"}:
            first, second = owners
            first.mentions += second.mentions
            first.titles |= second.titles
            known.remove(second)


def introduction(text: str, mentions: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The sentence that says who somebody is, or what a place is, (start, end): of the first ones with the
    name the one that tells most, else the first. How a letter greets or closes only where all others do.
    """
    first = (introducing(text, mentions) or mentions)[:_FIRST]
    return max(
        (_sentence(text, *mention) for mention in first),
        key=lambda span: (_introduces(text, span, first), -span[0]),
    )


def introducing(text: str, mentions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the mentions with which a letter neither greets nor closes."""
    return [one for one in mentions if not _addresses(text, *one)]


def _addresses(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _BEFORE) : start]
    greets = _GREETED.search(before) and _BEHIND_GREETED.match(text, end)
    left, right = _sentence(text, start, end)
    alone = text[left:right].strip(" .,\n") == text[start:end]
    return bool(greets or alone or _CLOSED.search(before) and _BEHIND_CLOSED.match(text, end))


def _order(form: tuple[tuple[bool, tuple[str, ...], str], list[Mention]]) -> tuple:
    (role, words, title), found = form
    return role, -len(words), not title, -len(found)


def _bearers(known: Sequence[_Known], mention: Mention, sex: str) -> list[_Known]:
    """Whose form it may be."""
    fitting = [one for one in known if one.may_be(mention, sex)]
    if not mention.title and any(one.titles & MEN for one in fitting):  # a bare surname is the husband's
        fitting = [one for one in fitting if not one.titles & WOMEN] or fitting
    return fitting


def _divided(bearers: Sequence[_Known], found: Sequence[Mention]) -> bool:
    """Whether a bare form is a surname of two whom the text names nearly as often, and oftener than by it."""
    (name, *more) = found[0].words
    often = sorted((len(one.mentions) for one in bearers if one.words[-1] == name), reverse=True)
    return not more and len(often) > 1 and len(found) < often[0] < _MEANT * often[1]


def _unmarried(person: _Known, found: Sequence[Mention], forms: _Forms) -> bool:
    """Whether a wife's title with the surname is her mother's: the text calls her by her first name nearly
    always. "Clarissa" is Mrs. Dalloway.
    """
    surname = len(person.words) > 1 and found[0].words == person.words[-1:] and not person.titles
    return surname and _times(person, forms) >= _MARRIED * len(found)


def _namesake(person: _Known, found: Sequence[Mention]) -> bool:
    """Whether a bare first name is somebody else's: the text says who that is ("Owen, the anatomist"), and
    never has it near where it names the person in full.
    """
    (name, *more) = found[0].words
    if more or name == person.words[-1] or not any(one.introduced for one in found):
        return False
    near = (abs(one.start - other.start) <= _NEAR for one in found for other in person.mentions)
    return not any(near)


def _by_name(fitting: list[_Known], mention: Mention, sex: str, forms: _Forms) -> _Known | None:
    """Whom of its bearers a form belongs to: of several the one with its title, else whom the text names
    most. With a surname, and a title that none of several has, it is one's whom the text names far oftener
    than the others, else somebody else's.
    """
    titled = [one for one in fitting if mention.title and mention.title in one.titles]
    if mention.title and not titled and len(fitting) > 1:
        called = [one for one in fitting if mention.words[0] == one.words[0] and len(one.words) > 1]
        alike = [one for one in fitting if sex and one.sex == sex]
        fitting = _sole(called or alike or fitting, forms)  # "Madam Mina" and "Mrs. Harker" are one
    return max(titled or fitting, key=lambda one: len(one.mentions), default=None)


def _sole(bearers: list[_Known], forms: _Forms) -> list[_Known]:
    """The one that the text names far oftener than the others, if any."""
    first, *others = sorted(bearers, key=lambda one: -_times(one, forms))
    return [first] if not others or _times(first, forms) >= _MEANT * _times(others[0], forms) else []


def _times(person: _Known, forms: _Forms) -> int:
    """How often the text names somebody so far, and by the first name alone."""
    first, *more = person.words
    return len(person.mentions) + len(forms.get((False, (first,), ""), ()) if more else ())


def _sexes(mentions: Sequence[Mention]) -> defaultdict[str, str]:
    """Of each first name "he" or "she", by titles before it and by what its sentences go on with; "" where
    they say too little. A surname has other names before it, or titles of both.
    """
    titled = {(one.words[0], _BY_TITLE.get(one.title)) for one in mentions if len(one.words) == 1}
    surnames = {one.words[-1] for one in mentions if len(one.words) > 1}
    surnames |= {word for word, sex in titled if sex == "he" and (word, "she") in titled}
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for one in mentions:
        if not one.role and one.words[0] not in surnames:
            said[one.words[0]][_BY_TITLE.get(one.title, one.sex)] += 1
    sexes: defaultdict[str, str] = defaultdict(str)
    for word, counts in said.items():
        less, more = sorted(("he", "she"), key=counts.__getitem__)
        sexes[word] = more if counts[more] >= _SURE * max(1, counts[less]) else ""
    return sexes


def _by_role(known: Sequence[_Known], words: tuple[str, ...]) -> _Known | None:
    """Who alone has a role as a title, "the Count" of Count Dracula."""
    title = words[-1].lower()
    fitting = [one for one in known if len(words) == 1 and title in one.titles]
    return fitting[0] if len(fitting) == 1 else None


def told_apart(title: str, other: str) -> bool:
    """Whether nobody has both titles: a man's and a woman's, a wife's and a daughter's."""
    both = {title, other}
    return both == {"mrs", "miss"} or bool(both & MEN and both & WOMEN)


def words_within(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether a name's words are some of another's, in a row, or the first and the last of them and others
    between, in order: "Augusta Pellow" is Augusta Maria Pellow.
    """
    starts = range(len(long) - len(short) + 1)
    if any(tuple(long[at : at + len(short)]) == tuple(short) for at in starts):
        return True
    rest = iter(long)
    ends = (short[0], short[-1]) == (long[0], long[-1])
    return ends and len(short) > 1 and all(word in rest for word in short)


def _person(known: _Known) -> Person:
    forms = Counter(_said(mention) for mention in known.mentions)
    usual = [form for form, times in forms.items() if times >= _USUAL * len(known.mentions)]
    full = [form for form, times in forms.items() if times >= _FULL and _fullness(form) == (2, 2)]
    return Person(
        max(usual + full, key=lambda form: (_fullness(form), forms[form])),
        tuple(form for form, _times in forms.most_common()),
        tuple(sorted((one.start, one.end) for one in known.mentions)),
    )


def _fullness(form: str) -> tuple[int, int]:
    """Words of a name that a form has, and of it all: "Lucy Westenra" is fuller than "Miss Lucy"."""
    words = form.split()
    return sum(word.rstrip(".").lower() not in TITLES for word in words), len(words)


def _said(mention: Mention) -> str:
    """A form as one would write it."""
    words = [f"{word}." if len(word) == 1 else word for word in mention.words]
    if mention.title:
        words.insert(0, mention.title.capitalize() + "." * (mention.title in _SHORTENED))
    return " ".join(["the"] * mention.role + words)


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    line = text.rfind("\n", 0, start) + 1
    if text[line:end].isupper() and text[end : end + 1] in (",", "\n"):  # of the persons of a play
        last = text.find("\n", end)
        return line, last if last >= 0 else len(text)
    low = max(text.rfind("\n\n", 0, start), start - _AROUND, 0)
    found = sentence_spans(text, low, min(len(text), end + _AROUND))
    return next((left, right) for left, right in found if right >= end)


def _introduces(text: str, span: tuple[int, int], mentions: Sequence[tuple[int, int]]) -> float:
    """How much a sentence says of who somebody is."""
    start, end = span
    inside = [one for one in mentions if start <= one[0] < end]
    words = len(text[start:end].split())
    tells = any(_TELLS.match(text, right) for _left, right in inside)
    before = [(text[max(start, left - _BEFORE) : left], text[right : right + 1]) for left, right in inside]
    tells = tells or any(_IS_WHAT.search(one) and behind == "," for one, behind in before)
    usual = mode(len(text[left:right].split()) for left, right in mentions)
    whole = (len(text[left:right].split()) >= usual for left, right in inside)  # else who is named after
    called = any(_CALLED.search(one) and full for (one, _behind), full in zip(before, whole, strict=True))
    full = any(len(text[left:right].split()) > 1 for left, right in inside)
    in_cast = any(text[left:right].isupper() for left, right in inside)
    good = _LEAST_WORDS <= words <= _MOST_WORDS and (text[end - 1] in _STOPS or in_cast)
    # somebody else speaks, or of somebody else
    apart = text[start] in "“‘\"'" or text[end - 1] == "?" or BACK.match(text, start) is not None
    apart = apart or _in_speech(text, start)
    return 2.0 * tells + 2.0 * called + 0.5 * full + 1.5 * good - apart - 0.1 * mentions.index(inside[0])


def _in_speech(text: str, at: int) -> bool:
    """Whether somebody goes on speaking there who began in the same paragraph."""
    before = text[text.rfind("\n\n", 0, at) + 1 : at]
    return before.count("“") > before.count("”") or before.count('"') % 2 == 1
