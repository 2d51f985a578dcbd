"""Who tells a book as "I", where a sentence of it says the name outside of what its people say. English; no
model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEAST_SHARE = 1 / 200  # of the words that nobody says: a narrator who looks in for a sentence says "I" less
_SPEECH = re.compile(r"“[^”]*(?:”|(?=\n\s*\n)|\Z)|\"(?:(?!\n\s*\n)[^\"])*(?:\"|(?=\n\s*\n)|\Z)")
_FIRST = re.compile(r"\b(?:I|me|my|myself)\b")
_WORDS = re.compile(r"[^\W\d_]+")
_NAME = r"((?:(?:Mr|Mrs|Dr)\. )?[A-Z][\w’'-]*[a-z](?:[ \n](?:[A-Z]\.|[A-Z][\w’'-]*[a-z]))*)"
_SAYS = (
    re.compile(rf"(?:\A|(?<=[.!?;:—\n] )|(?<=\n))Call me {_NAME}"),
    re.compile(rf"\b[Mm]y (?:(?:own|full|real|whole|Christian) )?name,? (?:is|was|being) {_NAME}"),
    re.compile(rf"\bI,? (?:am|was) (?:called|named|christened|baptized) {_NAME}"),
    re.compile(rf"\bI (?:called|call) myself {_NAME}"),
    re.compile(rf"\bI am (?=[^\W\d_.]+\.? [A-Z]){_NAME}(?=[,.;])"),  # not "I am English,"
    re.compile(rf"(?<!s )(?<!said )(?<!thought )\bI, {_NAME}, "),  # not "Thinks I, Queequeg, this is"
)
_WRITER = r"[A-Z][\w.-]*(?: [A-Z][\w.-]*){0,3}?"
_WRITES = re.compile(  # a heading
    rf"^[_* ]*(?:(?P<before>{_WRITER})[’'][Ss] (?i:journal|diary|narrative|account|memorandum)"
    rf"|(?i:the )?(?i:journal|diary|narrative|memoirs?) (?i:of|kept by) (?P<behind>{_WRITER}))"
    r"[.:_* ]*(?:\([^)\n]*\)|[—–-][^\n]*)?[.:_* ]*$",
    re.MULTILINE,
)
_NUMBERED = re.compile(
    r"(?:(?:chapter|part)\s+)?(?:\d+|[ivxlc]+)[.:]*\s+|(?:chapter|part)\s+[a-z-]+[.:]\s+", re.IGNORECASE
)
_SENDS = re.compile(  # "Second Letter: Clara Hollis to M. Verbeke"
    rf"\b(?i:letter|telegram|note|postcard)\b(?:[:.,—–-]|\sfrom)+\s(?P<from>{_WRITER}),?\s(?i:to)\s[A-Z]"
)


@dataclass(frozen=True, slots=True)
class Narrator:
    """`first_person`: the book is told by "I". `named`: each name of whoever that is, with where it stands,
    (start, end) in characters; the first place of each, in order.
    """

    first_person: bool
    named: tuple[tuple[str, tuple[int, int]], ...] = ()


def narrator(text: str) -> Narrator:
    """Who tells this text; of one who is hardly there, and of a text that is not English, nothing."""
    told = _SPEECH.sub(lambda speech: "\x00" * len(speech[0]), text)
    if len(_FIRST.findall(told)) < _LEAST_SHARE * len(_WORDS.findall(told)):
        return Narrator(False)
    found = [(match[1], match.span()) for says in _SAYS for match in says.finditer(told)]
    found += [
        ((match["before"] or match["behind"]).title(), match.span()) for match in _WRITES.finditer(told)
    ]
    first: dict[str, tuple[int, int]] = {}
    for name, place in sorted(found, key=lambda one: one[1]):
        first.setdefault(" ".join(name.split()), place)
    return Narrator(True, tuple(first.items()))


def writer(heading: str) -> str | None:
    """Who says "I" in what stands under a heading of a letter or a journal; None where it does not say."""
    found = _NUMBERED.match(heading)
    title = heading[found.end() if found else 0 :].strip()
    if sent := _SENDS.search(title):
        return sent["from"].title()
    match = _WRITES.match(title)
    return (match["before"] or match["behind"]).title() if match else None
