"""Marks on the page over a real desk: they follow from the book, the answer and what was asked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.web.citations import Citations
from app.web.page import Page
from app.web.streaming_text import LiveText
from core.documents.document import Document, Section
from core.events import AttentionEvidence, Piece
from tests.support.said import figures, text_in

FACT = "Ogilvy, the astronomer, lived at Ottershaw and watched the planet every night.\n\n"
FILLER = " ".join(f"The keeper counted sheep number {at} upon the quiet hill." for at in range(40))
FIRST = "A new first line.\n\n"


@pytest.fixture
def talking(make_desk, engine):
    """A desk with a book and a function that puts an exchange into its conversation."""
    text = FACT + FILLER
    document = Document("Mars", "", "txt", text, (Section("I", 0, len(text)),), sha256="b" * 64)
    desk = make_desk(engine)
    desk.shelf.put(document, cover=b"", again=False)
    desk.store.update(conversation_id=desk.history.create(document.sha256).id)

    def say(question: str, answer: str, **extra: object) -> None:
        desk.history.add(desk.state.conversation_id, "user", question, extra=extra)
        desk.history.add(desk.state.conversation_id, "assistant", answer)

    return desk, say


def test_answer_shows_where_each_sentence_stands(talking):
    """A mark must open this desk's book at this place."""
    desk, say = talking
    say("Tell me about him.", "The astronomer Ogilvy lived at Ottershaw. He liked jazz.")
    html = "".join(Page(desk).render()["turns"])
    assert 'data-act="cite" data-offset="0"' in html
    assert "sign-agrees" in html and "sign-nothing" in html
    assert figures(text_in(html, 'class="evidence"'))[:2] == ["1", "2"]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("He liked jazz.", "no place in the book was found for its 1 sentence."),
        ("He liked jazz. It rained.", "no place in the book was found for any of its 2 sentences."),
        ("The astronomer Ogilvy lived at Ottershaw. He liked jazz.", None),
        ("Jazz bands sang “watched the planet every night” to drunken sailors everywhere.", None),
    ],
)
def test_an_answer_without_any_evidence_says_so(talking, answer: str, line: str | None):
    """Bare circles stood behind its sentences and no line below: as if nothing had been looked up."""
    desk, say = talking
    say("Tell me about him.", answer)
    html = " ".join("".join(Page(desk).render()["turns"]).split())
    assert ("<p>Evidence:" in html) == (line is not None)
    assert line is None or f"<p>Evidence: {line}</p>" in html


def test_where_no_sentence_has_a_place_the_passages_near_the_question_unfold(talking):
    """By its words, and where the model looked when it had read them."""
    desk, say = talking
    look = AttentionEvidence(None, ((desk.books.current.text.index(FILLER[:20]), 0.9), (0, 0.1)))
    say("Where did the astronomer live?", "He liked jazz.")
    html = " ".join("".join(Page(desk).render()["turns"]).split())
    (summary,) = re.findall("<summary>(.*?)</summary>", html)
    assert figures(summary) == ["1"], "of none of them a place, else two numbers"
    shown = text_in(html, 'class="evidence"')
    assert 'data-act="cite" data-offset="0"' in html and "near" in shown and "looked" not in shown
    found = Citations()("He liked jazz.", desk.books.current, "Where did he go?", [look]).found
    assert [(one.state, one.reasons) for one in found][:1] == [("nearest", ("looked",))]


def test_saying_that_the_book_is_silent_lacks_no_evidence(talking):
    """It is no sentence about the book: none was looked up."""
    desk, say = talking
    say("Who?", "No answer was found.")
    assert "Evidence:" not in "".join(Page(desk).render()["turns"])


def test_short_answer_is_read_with_its_question_and_a_summary_without(talking):
    """The question of the exchange counts, not that of another one; "Summarise this book" is no question."""
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
    page, before = Page(desk), desk.books.current
    assert FIRST.strip() not in "".join(page.render()["reader"])
    section = replace(before.sections[0], end=before.sections[0].end + len(FIRST))
    talk = desk.state.conversation_id
    desk.shelf.put(replace(before, text=FIRST + before.text, sections=(section,)), cover=b"", again=True)
    assert desk.state.conversation_id == talk
    shown = page.render()
    assert FIRST.strip() in "".join(shown["reader"])
    assert f'data-offset="{len(FIRST)}"' in "".join(shown["turns"])


@pytest.mark.parametrize(
    ("chosen", "found"), [({}, True), ({"chapters": [1, 1]}, False), ({"selected_chapters": [2]}, True)]
)
def test_an_answer_stands_on_the_chapters_that_were_read_for_it(make_desk, engine, chosen: dict, found: bool):
    """Of a range of chapters a mark led to one that the same footer called not read."""
    text = FILLER + "\n\n" + FACT
    sections = (Section("I", 0, len(FILLER) + 2), Section("II", len(FILLER) + 2, len(text)))
    desk = make_desk(engine)
    desk.shelf.put(Document("Mars", "", "txt", text, sections, sha256="c" * 64), cover=b"", again=False)
    talk = desk.history.create("c" * 64).id
    desk.store.update(conversation_id=talk)
    desk.history.add(talk, "user", "Tell me about him.", extra=chosen)
    desk.history.add(talk, "assistant", "The astronomer Ogilvy lived at Ottershaw.")
    html = "".join(Page(desk).render()["turns"])
    assert ("sign-agrees" in html) == found
    assert f'data-offset="{len(FILLER) + 2}"' in html or not found


ANSWER = (
    "The astronomer Ogilvy lived at Ottershaw. He liked jazz.\n\n"
    "The keeper counted sheep upon the quiet hill. Then he slept. “He was at Ottershaw,” they say.\n\nThe end"
)


def signs(html: str) -> list[tuple[str, str]]:
    """Each sign with the words before it."""
    plain = re.sub(r"<(?!button[^>]*sign|span class=.sign)[^>]*>", "", html)
    found = re.finditer(r"(\w+)\W*<[^>]*sign-(\w+)", plain)
    return [(match[1], match[2]) for match in found]


def test_marks_appear_while_the_answer_is_written_and_stay(talking):
    """One code path: what stands behind a sentence while the next is written stands there at the end, too."""
    desk, say = talking
    say("Tell me about him.", ANSWER)
    page = Page(desk)
    (_asked, html), seen = page.render()["turns"], []
    at_the_end = signs(html)
    citations, text = page._answers._citations, desk.books.turns[-1].text
    growing = LiveText()
    for length in range(len(text) + 1):
        pieces = (Piece(text[:length], "target"),)
        live = growing.blocks(
            pieces, length, citations.so_far(text[:length], desk.books.current, "Tell me about him.")
        )
        now = signs("".join(live))
        assert now[: len(seen)] == seen, "a mark went away"
        seen = now
    assert len(seen) == 5 and seen == at_the_end[:5]
    assert [state for _, state in seen[:2]] == ["agrees", "nothing"]


def test_a_look_that_comes_late_moves_the_mark_that_stands(talking):
    """Blocks above the last are rendered once; a mark in them that changes must still be seen to change."""
    desk, say = talking
    say("", "Hm.")
    page = Page(desk)
    page.render()
    citations = page._answers._citations
    citations("Hm.", desk.books.current)
    text = "Nothing of it stands there.\n\nAnd then"
    growing = LiveText()
    pieces = (Piece(text, "target"),)
    before = growing.blocks(pieces, len(text), citations.so_far(text, desk.books.current))
    look = [AttentionEvidence(0, ((0, 0.9),))]
    after = growing.blocks(pieces, len(text), citations.so_far(text, desk.books.current, looked=look))
    assert "sign-nothing" in before[0] and "data-offset" not in before[0]
    assert 'data-offset="0"' in after[0] and len(after) == 2


def test_the_fold_says_when_the_model_looked_there(talking):
    desk, _ = talking
    history, talk = desk.history, desk.state.conversation_id
    history.add(talk, "user", "Who?")
    looked = [{"sentence": 0, "places": [[0, 0.8]]}, {"sentence": None, "places": [[0, 0.8]]}]
    said = "The astronomer Ogilvy lived at Ottershaw."
    history.add(talk, "assistant", said, extra={"looked": looked})
    history.add(talk, "user", "Who?")
    history.add(talk, "assistant", said + " ")
    _, with_look, _, without = Page(desk).render()["turns"]
    looked, alone = (text_in(turn, 'class="evidence"') for turn in (with_look, without))
    assert "looked" in looked and "agree" in looked
    assert "looked" not in alone and "agree" in alone


def test_a_summarys_sentences_lead_where_they_were_found(talking):
    """What was found when it was told counts, for the whole and for each part; nothing is looked up anew."""
    desk, _ = talking
    at = len(FACT) + 120
    desk.history.add(desk.state.conversation_id, "user", "Summarise this book", extra={"summary": True})
    extra = {
        "stands": [{"start": 0, "end": 16, "book_start": at, "book_end": at + 40, "quoted": False}],
        "parts": [["Chapter 1", "The astronomer Ogilvy lived at Ottershaw."]],
    }
    desk.history.add(desk.state.conversation_id, "assistant", "It goes on so on.", extra=extra)
    html = "".join(Page(desk).render()["turns"])
    part, whole = html.split("</details>", 1)
    assert 'data-act="cite" data-offset="0"' in " ".join(part.split()) and "sign-agrees" in part
    assert f'data-offset="{at}"' in whole
    assert figures(text_in(whole, 'class="evidence"'))[:2] == ["1", "1"]
