"""Books long enough to be told in parts, and who tells them."""

from __future__ import annotations

import dataclasses
import re

from core.documents.document import Document
from core.documents.document import Section as Chapter
from core.events import Finished
from tests.support.fakes import CharTokenizer
from tests.support.talks import STYLE, encoded

NAMES = ("Oddo", "Mirabel", "Tancred", "Ysolde")


VERBS = ("rowed", "carried", "counted", "painted", "buried", "guarded", "lifted", "traded")


THINGS = ("barrels", "lanterns", "ledgers", "anchors", "candles", "blankets", "hammers", "coins")


PLACES = ("ferry", "market", "chapel", "harbour", "orchard", "cellar", "bridge", "tower")


def long_book(chapters: int = 4, sentences: int = 16) -> Document:
    """Every sentence is another; each chapter has a person of its own."""
    text, sections, number = "", [], 0
    for chapter in range(chapters):
        start = len(text)
        for at in range(sentences):
            thing, place = THINGS[(at + chapter) % 8], PLACES[(at // 2 + chapter) % 8]
            verb, number = VERBS[(at * 3 + chapter) % 8], number + 1
            text += (
                f"In winter {1000 + number} the patient {NAMES[chapter % 4]} {verb} all of the {thing} from "
                f"the old {place} before it was dark.\n\n"
            )
        sections.append(Chapter(f"Chapter {chapter + 1}", start, len(text)))
    return Document("B", "", "txt", text, tuple(sections), sha256="B")


def style(summaries: str, **more):
    return dataclasses.replace(
        STYLE,
        **{"part_tokens": 900, "whole_tokens": 1000, "note_tokens": 600, "summaries": summaries, **more},
    )


def stands_in(book: Document, done: Finished) -> None:
    """Every sentence has a place, and the places say what the sentences say."""
    covered = re.sub(r"^## .*$|\s", "", done.text, flags=re.MULTILINE)
    told = "".join(done.text[one.start : one.end] for one in done.stands)
    assert re.sub(r"\s", "", told) == covered != ""
    for one in done.stands:
        said, there = done.text[one.start : one.end], book.text[one.book_start : one.book_end]
        assert set(re.findall(r"[A-Z]\w{3,}", said)) <= set(re.findall(r"\w+", there)) | {"In"}
        assert said[-1] in ".”", "never in the middle of a sentence"
        if one.quoted:
            assert " ".join(there.split()) == said.strip("“”")


def inventing(ids, params):
    """Tells a sentence of the text and plants a name that no text knows, then a promise of its own."""
    prompt = CharTokenizer().decode(ids)
    said = re.findall(r"(?:patient )?(\w+ \w+ all of the \w+) from the (old \w+)", prompt)
    first, place = said[-1]
    person = first.split()[0]
    return encoded(
        f"{first} from the {place} before dark. Captain Gatsby sailed with {person} to Boston. "
        "The patient winter was a merry wedding of distant merchants in silk. And so he"
    )


def telling(sentences):
    """A model that tells `sentences(prompt, params)` of whatever it is asked."""

    def reply(ids, params):
        return encoded(sentences(CharTokenizer().decode(ids), params))

    return reply


def true_of(part: str, params=None) -> str:
    """The last sentence of what is asked, told anew, and one that has not ended."""
    person, verb, thing, place = re.findall(r"patient (\w+) (\w+) all of the (\w+) from the old (\w+)", part)[
        -1
    ]
    return f"The patient {person} {verb} all the {thing} from that old {place} before it was dark. And so he"
