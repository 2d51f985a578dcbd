"""Where an English text names a person. No model, no torch.

A name is a word that the text writes with a capital and hardly ever without. Whether it is a person's
is told
by what stands around it wherever it occurs: a title before it, a verb of speaking beside it, "who"
behind it;
"in", "at" or "the" before it speak against it. "The Psychologist" is a name, too, of somebody who speaks.
benchmarks/quality/people.py measures what is found; the weights were chosen on every other book of its list.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.evidence.speakers import written_names
from core.text.ranking import terms


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


MEN = word_set(
    """
    mr sir lord master monsieur king prince uncle squire count baron duke don father brother rev reverend
    """
)
WOMEN = word_set(
    """
    mrs miss ms lady madam madame mademoiselle mistress queen princess aunt countess duchess dame sister
    mother
    """
)
TITLES = MEN.union(
    WOMEN,
    word_set(
        """
        dr doctor professor captain capt colonel col major general cousin judge inspector sergeant lieutenant
        cardinal bishop monsignor mayor senator admiral commander corporal
        """
    ),
)
_OF_PERSONS = word_set("mr mrs ms miss dr sir")  # alone: "King Street" is nobody
_SHORTENED = word_set("Mr Mrs Ms Dr Rev Capt Col St")
_SHIPS = word_set(
    """
    ship barque bark brig brigantine schooner sloop cutter ketch lugger smack trawler whaler steamer steamship
    frigate packet yacht vessel boat
    """
)
_FOND = word_set("poor dear old young little honest good beloved brave late")
SPEAKS = word_set(
    """
    said says say asked asks cried cries replied answered exclaimed whispered murmured muttered shouted
    returned observed remarked added continued began repeated demanded inquired enquired laughed called
    declared thought told spoke rejoined interrupted suggested growled sighed roared retorted admitted agreed
    explained nodded smiled sobbed wept knew felt
    """
)
_ACTS = word_set(
    """
    had has was is would could did does should might must will came went took looked turned stood sat made
    gave saw found ran got put held kept rose fell heard left seemed wanted never
    """
)
_WHO = word_set("who whose whom himself herself")
PLACE_PREPOSITIONS = word_set(
    "in at on near into across through throughout around over via upon within inside outside towards"
)
_PRONOUNS = {"he": "he", "his": "he", "himself": "he", "she": "she", "her": "she", "herself": "she"}
_REACH = 12  # words in which a sentence goes on with one
_WITH = word_set("to from of")
ARTICLES = word_set("the a an this that these those every each all no some many any")
_LEADS = ARTICLES.union(  # before a name, with a sentence's capital
    word_set(
        """
        either neither both whichever whatever whoever everybody everyone everything somebody someone
        something anybody anyone anything nobody none nothing since though although unless until till whether
        because lest whereas whenever wherever meanwhile meantime however therefore moreover perhaps thus
        hence never ever always once seldom thou thee thy thine ye messrs
        """
    )
)
PLACE_NOUNS = word_set(
    """
    st street road lane square house hall park river lake mount mountain hill island islands bay church castle
    city county town village bridge court place hotel inn college university station palace abbey valley
    forest sea ocean avenue club company society railway cathedral school gardens garden prison fort cape
    creek grange heights cottage farm manor villa harbour harbor quay chapel priory lodge terrace
    """
)
LANDS = word_set(
    """
    europe asia africa america england france germany italy spain russia india china scotland ireland wales
    greece egypt rome london paris york vienna berlin boston chicago bremen yemen
    """
)
NO_NAMES = word_set(
    """
    january february march april may june july august september october november december monday tuesday
    wednesday thursday friday saturday sunday christmas easter heaven providence chapter volume book part oh
    ah yes latin greek bible god lord majesty highness ha aha nay yea aye alas hush faith gramercy hello
    """
)
DAYS = word_set("mondays tuesdays wednesdays thursdays fridays saturdays sundays")
PEOPLES = re.compile(r"(?:ish|ese|ians|icans|eans|m[ae]n|ists?|ench|utch)$")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’](?=[A-ZÀ-Þ])[^\W\d_]+)*")
_OPENS = re.compile(r"[.!?:;“”\"‘(\[_*]|``|''|--|—|\n\s*\n")
_CALLED = re.compile(r"(?:[,“\"‘]|``)\s*$")
_CALLED_END = re.compile(r"\s?[,!?.]")
_OWNS = re.compile(r"\s?['’]s\b")
IS_WHERE = re.compile(r"[ \n]+is[ \n]+where\b")  # behind a place's name
_ALSO = re.compile(r",\s(?:\w+ly\s|also\s|otherwise\s)?(?:called|nicknamed|known\sas)\s|,?\salias\s")
_WHO_THAT_IS = re.compile(r",\s(?:the|an?)\s[^,.;:!?]*[,.;:!?)]")
_NAMED = re.compile(r"\b(?:named|name is|name was)\s+([A-Z][a-z]+)\b(?!\s+(?:of|[A-Z]))")
_HIS_NAME = re.compile(r"\b(?:his|her|my|whose)\sname\s(?:is|was)\s\Z", re.IGNORECASE)
_ANIMAL = (
    r"(?:dog|hound|puppy|spaniel|terrier|retriever|mastiff|collie|sheepdog|poodle|bulldog|greyhound|cat"
    r"|kitten|tomcat|horse|pony|mare|stallion|donkey|parrot)"
)
_DOES = r"(?:barked|barks|wagged|whined|yelped|neighed|whinnied|purred)"  # an animal alone
_WHOSE = r"(?:an?|the|my|our|his|her|their)"
# not "the dog Father gave me"
_MAY_NAME = "|".join(
    one.capitalize()
    for one in TITLES
    - word_set("mr mrs ms miss dr rev father mother brother sister uncle aunt cousin master mistress")
)
_NAMED_ANIMAL = re.compile(
    rf"\b{_ANIMAL}(?:,?\s+called)?\s+(?P<behind>{_MAY_NAME})\b(?!\s+(?:of|[A-Z]))"
    rf"|(?<!\b[Tt]he\s)(?<!\b[Oo]ur\s)\b(?P<before>{_MAY_NAME})"
    rf"(?:\s+{_DOES}\b|(?:,|\s+(?:is|was))\s+{_WHOSE}\s+(?:\w+\s+){{0,3}}{_ANIMAL}[,.;])"
)
_PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]+)*")
_LINE = re.compile(r"[^\n]*[^\W_][.?!]?")  # without a sentence's end, or with no more than that
_SIGNED = 5  # words below a letter
_SMALL_IN_HEADINGS = word_set("a an the and or of in on at to from by for with into as s")
_ADJACENT = (" ", "\n")
_OPENING_ONLY = 1.3  # less for a word that only ever begins sentences
_PRIOR = 0.2  # what speaks for a person where nothing else does, as one mention
_LEAST = 0.1  # on the mean, for a name of one word
_PLACE = -0.8  # on the mean: no person has such a word in a name
_SMALL = 0.2  # of a word's capitals: a name is not written small more often
_ROLE_SPEAKS, _ROLE_SHARE = 2, 0.03  # of the mentions of somebody who is called by what he is


@dataclass(frozen=True, slots=True)
class Mention:
    """`text[start:end]` names a person by `words`, behind a `title` in small letters or none. `role`: it is
    what somebody is, with "the" before it, which stands in for a name. `sex`: "he" or "she" where the
    sentence goes on so, "" where it does not. `called`: the text says that whom it named just before has
    this name, too. `introduced`: it says behind the name who that is.
    """

    start: int
    end: int
    words: tuple[str, ...]
    title: str = ""
    role: bool = False
    sex: str = ""
    called: bool = False
    introduced: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """A mention that may be one. `evidence`: above 0 where its surroundings speak for a person's."""

    mention: Mention
    opens: bool
    speaks: bool
    evidence: float


class _Text:
    """A text as words with their places."""

    def __init__(self, text: str) -> None:
        self.written = written_names(text)
        self.text = self.written.text
        self.words = [(match.start(), match.end(), match.group()) for match in _WORD.finditer(self.text)]
        self.small = Counter(word for _start, _end, word in self.words if word[0].islower())
        self.large = Counter(word for _start, _end, word in self.words if not word[0].islower())
        self.in_headings = frozenset(_in_headings(text))
        self._named = frozenset(_NAMED.findall(text)) | {
            one["behind"] or one["before"] for one in _NAMED_ANIMAL.finditer(text)
        }

    def word(self, at: int) -> str:
        """A word in small letters; "" outside of the text."""
        return self.words[at][2].lower() if 0 <= at < len(self.words) else ""

    def is_title(self, at: int, last: int) -> bool:
        """Whether a word of a run that ends with `last` is a title, and no name: a dog may be named Duke."""
        return self.word(at) in TITLES and (at < last or self.words[at][2] not in self._named)

    def names_at(self, start: int) -> bool:
        """Whether what stands there may name somebody: a heading does not, but for a play's."""
        return start not in self.in_headings or start in self.written.starts

    def begins(self, at: int) -> bool:
        """Whether a word has its capital from the sentence that it begins."""
        word = self.words[at][2]
        return self.small[word.lower()] > _SMALL * self.large[word]

    def is_opening(self, run: _Run) -> bool:
        """Whether it is one word with a capital that may be its sentence's alone."""
        (word, *more) = run.mention.words
        return run.opens and not more and self.small[word.lower()] > 0

    def between(self, at: int) -> str:
        """What stands between a word and the next; nothing counts as adjacent to the text's borders."""
        if not 0 <= at < len(self.words) - 1:
            return ""
        return self.text[self.words[at][1] : self.words[at + 1][0]]

    def runs(self) -> Iterator[tuple[int, int]]:
        """Words with capitals in a row, as first and last."""
        at = 0
        while at < len(self.words):
            first = at
            if _capital(self.words[at][2]):
                while at + 1 < len(self.words) and self._joined(at):
                    at += 1
                yield first, at
            at += 1

    def _joined(self, at: int) -> bool:
        left, (start, _end, right), gap = self.words[at][2], self.words[at + 1], self.between(at)
        stop = gap.strip() == "." and (left in _SHORTENED or len(left) == 1)
        initial = len(right) == 1 and right.isupper() and right != "I"
        apart = start in self.written.starts  # "Enter PIP"
        return (gap in _ADJACENT or stop) and (_capital(right) or initial) and not apart


def names(text: str) -> tuple[Mention, ...]:
    """Every mention of a person by name, in order."""
    return names_and_others(text)[0]


def names_and_others(text: str) -> tuple[tuple[Mention, ...], tuple[Mention, ...]]:
    """Every mention of a person by name, and what else the text writes with capitals, both in order."""
    read = _Text(text)
    found = (_run(read, first, last) for first, last in read.runs())
    runs = [run for run in found if run and (run.speaks or read.names_at(run.mention.start))]
    judged = _Judged(read, runs)
    persons, others = [], []
    for run in runs:
        if judged.is_person(run.mention):
            full = bool(persons) and len(persons[-1].words) > 1  # "Come, Mary, called John"
            called = full and _ALSO.fullmatch(text[persons[-1].end : run.mention.start])
            introduced = _WHO_THAT_IS.match(text, run.mention.end)
            persons.append(replace(run.mention, called=bool(called), introduced=bool(introduced)))
        elif not read.is_opening(run):
            others.append(run.mention)
    return tuple(persons), tuple(others)


class _Judged:
    """What all mentions of a word or of a role together say of it."""

    def __init__(self, read: _Text, runs: Sequence[_Run]) -> None:
        self._read = read
        self._evidence: dict[str, list[float]] = defaultdict(list)
        self._inside: Counter[str] = Counter()  # of sentences, where a capital says something
        self._roles: dict[tuple[str, ...], list[bool]] = defaultdict(list)
        self._bare: Counter[tuple[str, ...]] = Counter()
        for run in runs:
            if run.mention.role:
                self._roles[run.mention.words].append(run.speaks)
                continue
            self._bare[run.mention.words] += 1
            for word in set(run.mention.words):
                self._evidence[word].append(run.evidence)
                self._inside[word] += not run.opens or bool(run.mention.title)

    def is_person(self, mention: Mention) -> bool:
        """Whether it names one."""
        words, roles = mention.words, self._roles.get(mention.words, ())
        if mention.role:
            return sum(roles) >= max(_ROLE_SPEAKS, _ROLE_SHARE * len(roles)) and not _nobody(words[-1])
        if mention.title in _OF_PERSONS:
            return True
        weights = [self._weight(word) for word in words]
        mean = sum(weights) / len(weights)
        if mention.title:
            return mean > 0
        enough = min(weights) > _PLACE and mean > (_LEAST if len(words) == 1 else 0)
        return enough and any(map(self._is_name, words)) and len(roles) <= self._bare[words]

    def _weight(self, word: str) -> float:
        found = self._evidence[word]
        lone = 0.0 if self._inside[word] else _OPENING_ONLY
        return (_PRIOR - lone + sum(found)) / (1 + len(found))

    def _is_name(self, word: str) -> bool:
        singular = word[:-1] if word.endswith("s") else ""
        many = self._read.large[singular] or self._read.small[singular.lower()]
        return (
            bool(terms(word)) and not many and self._read.small[word.lower()] <= _SMALL * self._inside[word]
        )


def _in_headings(text: str) -> Iterator[int]:
    """Where the words of headings begin: of lines by themselves whose every word has a capital, but for
    little ones. What stands so between prose and a heading, or the end, signs a letter.
    """
    lines = [(one.start(), one.end(), _looks_like_heading(one[0])) for one in _PARAGRAPH.finditer(text)]
    for at, (start, end, looks) in enumerate(lines):
        words = [start + word.start() for word in _WORD.finditer(text[start:end])] if looks else []
        told = at > 0 and not lines[at - 1][2]
        signs = told and len(words) <= _SIGNED and all(one[2] for one in lines[at + 1 : at + 2])
        if not signs:
            yield from words


def _looks_like_heading(paragraph: str) -> bool:
    if not _LINE.fullmatch(paragraph):
        return False
    words = _WORD.findall(paragraph)
    return all(word[0].isupper() or word in _SMALL_IN_HEADINGS for word in words)


def _nobody(word: str) -> bool:
    """Whether "the" before a word makes no role of it: several, a place, God."""
    return word.endswith(("s", "men")) or word.lower() in PLACE_NOUNS | NO_NAMES


def _run(read: _Text, first: int, last: int) -> _Run | None:
    """What a run of words with capitals would name; None where nothing is left of it."""
    speech = read.words[first][0] in read.written.speeches
    opens = not speech and (not first or bool(_OPENS.search(read.between(first - 1))))
    leads = not terms(read.words[first][2]) or read.word(first) in _LEADS
    start = first + (leads or opens and read.begins(first))  # "Then Mary"
    before = "" if (opens or speech) and start == first else read.word(start - 1)
    beside = not read.between(start - 1).strip(" .\n")  # "my cousin, Lettice is here"
    at, title = start, before if before in TITLES and beside else ""
    while at <= last and (read.is_title(at, last) or opens and read.word(at) in _FOND):  # "Little John"
        title = read.word(at) if read.is_title(at, last) else title
        at += 1
    role = before == "the" and (at == start or at > last)
    if at > last:
        at, title = start, ""
    if at > last or not role and (read.is_title(at, last) or at == last and read.word(at) in _FOND):
        return None
    words = tuple(word for _start, _end, word in read.words[at : last + 1])
    mention = Mention(read.words[at][0], read.words[last][1], words, title, role, _sex(read, last))
    speaks = speech or _speaks(read, at, last)
    evidence = 2.0 * speaks + _evidence(read, at, last, title, before if at == start else "")
    return _Run(mention, opens and at == first, speaks, evidence)


def _sex(read: _Text, last: int) -> str:
    """The first pronoun behind a name in its sentence, before anybody else is named."""
    for at in range(last, min(last + _REACH, len(read.words) - 1)):
        if re.search(r"[.!?:;”\"]", read.between(at)) or _capital(read.words[at + 1][2]):
            break
        if found := _PRONOUNS.get(read.word(at + 1)):
            return found
    return ""


def _speaks(read: _Text, first: int, last: int) -> bool:
    """Whether a verb of speaking stands beside it."""
    behind = read.between(last) in _ADJACENT and read.word(last + 1) in SPEAKS
    start = first - (read.word(first - 1) == "the")
    return behind or read.word(start - 1) in SPEAKS and not _OPENS.search(read.between(start - 1))


def _evidence(read: _Text, first: int, last: int, title: str, before: str) -> float:
    """What the surroundings of a name say, beside verbs of speaking, for a person's."""
    end = read.words[last][1]
    behind = read.word(last + 1) if read.between(last) in _ADJACENT else ""
    called = _CALLED.search(read.between(first - 1)) and _CALLED_END.match(read.text, end)
    lead, tail = read.word(first), read.word(last)
    beside = read.between(first - 1) in _ADJACENT
    fond = beside and read.word(first - 1) in _FOND
    ship = beside and read.word(first - 1) in _SHIPS
    start = read.words[first][0]
    named = _HIS_NAME.search(read.text, max(0, start - 30), start)
    acts = behind in _ACTS or behind.endswith("ed") and behind not in SPEAKS
    return (
        3.0 * bool(title)
        + 0.7 * (acts and not IS_WHERE.match(read.text, end))
        + 1.0 * (read.word(last + 1) in _WHO)
        + 0.4 * bool(_OWNS.match(read.text, end))
        + 0.5 * bool(called)
        + 1.0 * fond
        + 3.0 * bool(named)
        - 4.0 * ship
        - 1.5 * (before in PLACE_PREPOSITIONS)
        - 0.3 * (before in _WITH)
        - 2.0 * (before in ARTICLES and not title)
        - 4.0 * bool(not title and {lead, tail} & PLACE_NOUNS)
        - 2.0 * bool(not title and PEOPLES.search(tail))
        - 5.0 * bool({lead, tail} & (NO_NAMES | LANDS))
    )


def _capital(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and not word.isupper()
