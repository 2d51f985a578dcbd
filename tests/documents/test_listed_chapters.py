"""What a book's own list of chapters says to somebody who has not read them all."""

from __future__ import annotations

import pytest

from core.documents.document import Document, Section

CHAPTERS = ("The Lamp", "The Tide", "A Stranger Lands", "Who Lit It", "Ashore")
BODY = "The keeper rowed out at dusk, and the lamp burned. "


def book(front: str, titles: tuple[str, ...] = CHAPTERS) -> Document:
    text, sections = front, [Section("Front matter", 0, len(front), kind="front")]
    for title in titles:
        sections.append(Section(title, len(text), len(text) + len(BODY)))
        text += BODY
    return Document("B", "", "txt", text, tuple(sections), sha256="b")


def front_of(known: Document, front: str) -> str:
    return " ".join(known.text[: len(front)].split())


@pytest.mark.parametrize(
    ("front", "read"),
    [
        (
            "By A. Writer\n\nCONTENTS\n\nI. The Lamp . . 1\nII. The Tide . . 9\n"
            "III. A Stranger Lands . . 20\nIV. Who Lit It . . 31\nV. Ashore, an End . . 40\n\nFor Ada.",
            "By A. Writer CONTENTS I. The Lamp . . 1 II. The Tide . . 9 … For Ada.",
        ),
        (  # as a PDF has it that was set without lines
            "contents the lamp 1 the tide 9 a stranger lands 20 who lit it 31 ashore 40\n\nFor Ada.",
            "contents the lamp 1 the tide 9 … For Ada.",
        ),
        (  # one title in other words
            "The Lamp\nThe Tide\nThe Stranger\nWho Lit It\nAshore\n\nFor Ada.",
            "The Lamp The Tide … For Ada.",
        ),
    ],
)
def test_later_chapters_are_not_named_by_the_list(front: str, read: str):
    whole = book(front)
    known = whole.up_to(2)
    assert front_of(known, front) == read
    assert len(known.text) == known.sections[-1].end and known.text[len(front) :] == BODY * 2
    assert front_of(whole.before(whole.chapters[1].end - 9), front) == read
    assert whole.up_to(5).text == whole.text and whole.up_to(None) is whole


@pytest.mark.parametrize(
    "front",
    [
        "The lamp was lit for the tide, and nobody knew by whom.",  # a preface
        "",
        "Contents\n\nOne\nTwo\nThree",
    ],
)
def test_words_that_are_no_list_stay(front: str):
    assert book(front).up_to(1).text == front + BODY


def test_a_preface_far_before_the_list_does_not_hide_it():
    front = "The Lamp is dear to me. " + "So is the sea. " * 30 + "\n\n" + "\n".join(CHAPTERS)
    assert "Ashore" not in book(front).up_to(1).text and "dear to me" in book(front).up_to(1).text
