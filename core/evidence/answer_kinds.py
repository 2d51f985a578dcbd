"""Whether a short answer is of the kind that an English question asks for: somebody for "who", a number for
"how many", a time for "when". No model.

What cannot be told is let through. Who is somebody, the book tells: who speaks, has a title or is told of
with "who".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from core.evidence.names import TITLES
from core.text.ranking import terms

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SPEAKS = "said|says|asked|cried|replied|answered|exclaimed|shouted|whispered|remarked|observed|told|thought"
_SOMEBODY = re.compile(
    rf"\b(?:{_SPEAKS})\s+(?:(?:the|a|an|my|his|her|our|old|young)\s+)*([^\W\d_]+)"
    rf"|([^\W\d_]+),?\s+(?:(?:{_SPEAKS}|who)\b)"
    r"|\b(?:Mr|Mrs|Ms|Miss|Dr|Sir|Lady|Lord|Captain|Professor|King|Queen|Prince|Princess|Count|Father)\b\.?"
    r"\s+([A-Z][^\W\d_]+)"
)
_PERSONS = frozenset(
    re.findall(
        r"\w+",
        "i me he him she her we us they them himself herself themselves everybody everyone nobody "
        "somebody someone man men woman women boy boys girl girls child children baby people person "
        "persons family crowd couple father mother son sons daughter daughters brother brothers "
        "sister sisters husband wife uncle aunt cousin nephew niece friend friends enemy enemies "
        "stranger neighbour neighbours guest guests master mistress maid king queen prince princess "
        "lord lady knight priest monk nun bishop witch wizard giant giants troll trolls dwarf dwarfs "
        "fairy fairies elf elves god gods devil thief thieves servant servants slave soldier soldiers "
        "captain doctor nurse lawyer clerk cook shepherd smith beggar widow orphan hero chief army "
        "police crew bride bridegroom guard guards judge youth lad maiden parents relatives "
        "sailor sailors farmer miller hunter teacher officer keeper peasants "
        "baker barber burglar butcher champion companion courtier dame duke emperor gardener gipsy gypsy "
        "grocer heir inspector inmate lodger merchant messenger murderer noble outlaw passenger pirate poet "
        "porter prisoner proprietor robber sexton squire steward tailor traveller twin valet villager "
        "visitor waiter warrior",
    )
)
_OF_PERSONS = re.compile(
    r"(?:ists?|ians?|man|men|woman|women|ess|mates?|folk|fellows?|keepers?|lords?|lad(?:y|ies)|maids?)\b"
)
_RELATED = re.compile(r"^(?:great|grand|step|god|fore|half)(?=\w)")
_NUMBER_WORD = (
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty(?:-\w+)?|hundreds?"
    r"|thousands?|millions?|dozens?|half|score|an?|no|none|single|once|twice|several|few|many|all|both|pair"
    r"|couple"
)
# words that are one: no part of them stands there for itself
_ONE_WORD = re.compile(
    r"\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty-(?:one|two|three|four|five|six|seven|eight|nine)"
    r"|\w+-in-law)\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\W*(?:yes|no)\W*", re.IGNORECASE)
_QUANTITY = re.compile(rf"{_NUMBER_WORD})\b", re.IGNORECASE)
_AMOUNT = re.compile(rf"{_NUMBER_WORD}|much|more|little|lot|everything|nothing|enough)\b", re.IGNORECASE)
TIME_WORD = (
    r"mornings?|evenings?|nights?|midnight|noon|afternoon|days?|weeks?|months?|years?|hours?|minutes?"
    r"|moments?|centur(?:y|ies)|o['’]clock|dawn|sunrise|sunset|dusk|daybreak|spring|summer|autumn|winter"
    r"|christmas|easter|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july"
    r"|august|september|october|november|december"
)
_TIME = re.compile(
    rf"\d|\b(?:{TIME_WORD}|may|when|while|after|before|during|until|till|since|ago|soon|later|now|then|as"
    r"|once|first|last|never|always|yesterday|tomorrow|today|time|age|war|death|birth|end|beginning)\b",
    re.IGNORECASE,
)
# a time and no more: "The night after the funeral."
_ONLY_TIME = re.compile(
    rf"\W*(?:(?:on|at|in|the|that|this|a|an|one|next|last|early|late|same)\s+)*(?:{TIME_WORD})\b"
    r"(?!.*\b(?:because|for|to|was|were|had|is|did)\b)",
    re.IGNORECASE,
)
# a date, too: "In the spring" may be a place
_A_TIME = re.compile(rf"\d+(?:st|nd|rd|th|s)?|may|(?!spring\b)(?:{TIME_WORD})", re.IGNORECASE)
_COLOUR = re.compile(
    r"\b(?:red|blue|green|yellow|white|black|brown|gr[ae]y|purple|violet|pink|orange|gold(?:en)?|silver(?:y)?"
    r"|scarlet|crimson|blond|fair|dark|pale|light|ruddy|tawny|ivory|azure|bronze|rosy|colou?r\w*|\w+ish)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\bhow (?:many|old)\b", re.IGNORECASE)
_WHO = re.compile(r"^\W*(?:\w+ )?whom?\b", re.IGNORECASE)
_OTHER_KINDS = (
    (_COUNTED, _QUANTITY),
    (re.compile(r"\bhow much\b(?! (?:do|does|did)\b)", re.IGNORECASE), _AMOUNT),
    (re.compile(r"^\W*(?:\w+ )?when\b", re.IGNORECASE), _TIME),
    (re.compile(r"\b(?:what|which) colou?r\b", re.IGNORECASE), _COLOUR),
)
_WHY = re.compile(r"^\W*(?:why|for what reason)\b", re.IGNORECASE)
_WHERE = re.compile(r"^\W*(?:from |to )?where\b", re.IGNORECASE)
_NO_PERSON = re.compile(r"^\W*(?:where|what (?:do|does|did)\b)", re.IGNORECASE)
# the answer to "A or B?" and to "Did he ...?" stands in the question
_CHOICE = re.compile(
    r"\bor\b|^\W*(?:is|are|was|were|am|do|does|did|has|have|had"
    r"|can|could|will|would|shall|should|may|might|must)\b",
    re.IGNORECASE,
)
_POSSESSIVE = re.compile(r"['’]s?$")
_A_NAME = re.compile(r"\b(?:call|name|say|shout|cry|become)\w*\b", re.IGNORECASE)


def somebodies(text: str) -> frozenset[str]:
    """The words of a text, in small letters, that stand where it names or means somebody."""
    found = (word for match in _SOMEBODY.finditer(text) for word in match.groups() if word)
    return frozenset(word.lower() for word in found if terms(word))


def in_part(said: str, text: str) -> bool:
    """Whether a word of `said` stands in `text` only as a part of one: "eight" in "eighty-eight"."""
    parts = set(terms(" ".join(_ONE_WORD.findall(text))))
    if not parts:
        return False
    return bool(set(terms(_ONE_WORD.sub("", said))) & (parts - set(terms(_ONE_WORD.sub("", text)))))


def is_verdict(answer: str) -> bool:
    """Whether it is no more than a yes or a no, whose words no passage can hold."""
    return _VERDICT.fullmatch(answer) is not None


def own_words(answer: str, question: str) -> frozenset[str]:
    """The content words of an answer, stemmed, that its question has not; no titles: "Mr. Utterson" says
    nothing that "Utterson" did not.
    """
    titles = {term for title in TITLES for term in terms(title)}
    return frozenset(terms(answer)) - frozenset(terms(question)) - titles


def repeats_question(answer: str, question: str) -> bool:
    """Whether an answer has nothing but words of the question: the name of the ship is "The ship". Of 1,025
    answers that people wrote to FairytaleQA's validation questions one has not a word of its own.
    """
    return bool(terms(answer)) and not own_words(answer, question) and not _CHOICE.search(question)


def fits_kind(answer: str, question: str, people: Collection[str], is_name: Callable[[str], bool]) -> bool:
    """Whether `answer` is of the kind that was asked for. `people`: the book's `somebodies`; `is_name`:
    whether the book has a word as a name that may be somebody's.
    """

    def somebody(word: str) -> bool:
        forms = _forms(_POSSESSIVE.sub("", word).lower())
        known = any(one in _PERSONS or one in TITLES or one in people for one in forms)
        return known or any(map(_OF_PERSONS.search, forms))

    def somebodys(word: str) -> bool:
        return any(map(is_name, _POSSESSIVE.sub("", word).split("-")))

    for asks, says in _OTHER_KINDS:
        if asks.search(question):
            return bool(says.search(answer))
    words = _WORD.findall(answer)
    if _WHO.search(question):
        return any(somebody(word) or somebodys(word) for word in words)
    content = [word for word in words if terms(word)]
    person = bool(content) and all(word[0].isupper() and somebody(word) for word in content)
    if _WHERE.search(question) and content and all(map(_A_TIME.fullmatch, content)):
        return False
    if _WHY.search(question):
        return not person and not _ONLY_TIME.match(answer)
    return not person or not _NO_PERSON.search(question) or bool(_A_NAME.search(question))


def _forms(word: str) -> set[str]:
    """A word in small letters, what stands behind its last hyphen, each as one of several, and without what
    only says which: "grandmothers" is "mother".
    """
    forms = {word, word.rpartition("-")[2]}
    forms |= {_RELATED.sub("", one) for one in forms}
    forms |= {f"{one.removesuffix('ies')}y" for one in forms if one.endswith("ies")}
    return forms | {one.removesuffix(end) for one in forms for end in ("s", "es")}
