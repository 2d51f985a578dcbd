"""Marks on the page over a real desk: they follow from the book, the answer and what was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.page import Page
from core.documents.document import Document, Section

FACT = "Ogilvy, the astronomer, lived at Ottershaw and watched the planet every night.\n\n"
FILLER = " ".join(f"The keeper counted sheep number {at} upon the quiet hill." for at in range(40))
FIRST = "A new first line.\n\n"


@pytest.fixture
def talking(make_desk, engine):
    """A desk with a book and a function that puts an exchange into its conversation."""
    text = FACT + FILLER
    document = Document("Mars", "", "txt", text, (Section("I", 0, len(text)),), sha256="b" * 64)
    desk = make_desk(engine)
    desk.shelve(document, cover=b"", again=False)
    desk.conversation_id = desk.history.create(document.sha256).id

    def say(question: str, answer: str, **extra: object) -> None:
        desk.history.add(desk.conversation_id, "user", question, extra=extra)
        desk.history.add(desk.conversation_id, "assistant", answer)

    return desk, say


def test_answer_shows_where_each_sentence_stands(talking):
    """A mark must open this desk's book at this place."""
    desk, say = talking
    say("Tell me about him.", "The astronomer Ogilvy lived at Ottershaw. He liked jazz.")
    html = "".join(Page(desk).render()["turns"])
    assert 'data-act="cite" data-offset="0"' in html
    assert "sign-agrees" in html and "sign-nothing" in html
    assert "Evidence: 1 of 2 sentences" in html


def test_short_answer_is_read_with_its_question_and_a_summary_without(talking):
    """The question of the exchange counts, not that of another one; "Summarize this book" is no question."""
    desk, say = talking
    say("Where did Ogilvy the astronomer live while he watched the planet?", "Ottershaw.")
    say("Why is that?", "Ottershaw.")
    say("Ogilvy the astronomer lived to watch the planet", "Ottershaw.", summary=True)
    answers = Page(desk).render()["turns"][1::2]
    assert ["sign-agrees" in answer for answer in answers] == [True, False, False]


def test_a_book_read_again_is_shown_as_it_reads_now(talking):
    """One file has one id, whatever a newer reader or OCR makes of it: nothing of the old text may stay."""
    desk, say = talking
    say("Tell me about him.", "The astronomer Ogilvy lived at Ottershaw.")
    page, before = Page(desk), desk.book
    assert FIRST.strip() not in "".join(page.render()["reader"])
    section = replace(before.sections[0], end=before.sections[0].end + len(FIRST))
    talk = desk.conversation_id
    desk.shelve(replace(before, text=FIRST + before.text, sections=(section,)), cover=b"", again=True)
    assert desk.conversation_id == talk
    shown = page.render()
    assert FIRST.strip() in "".join(shown["reader"])
    assert f'data-offset="{len(FIRST)}"' in "".join(shown["turns"])
