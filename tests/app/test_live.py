"""A growing answer looks at every moment as if it were rendered whole, at the cost of its last paragraph."""

from __future__ import annotations

import pytest

from app.desk.pacing import cut
from app.web import streaming_text
from app.web.regions import answer_html
from app.web.streaming_text import LiveText, StandingText
from core.events import Piece

TEXT = """# The keeper

He lit *the lamp* **every night**.
A line below.

- one
- two

- three

Then came March, 3 years on.

1. first

2. second

And 4) is no list.


“Never,” he said.

- a

1 is a number
   indented, it goes on.

**Bold** begins this one, and ends it."""


def pieces_of(text: str, step: int) -> tuple[Piece, ...]:
    levels = ("draft", "retrieval", "target")
    return tuple(Piece(text[at : at + step], levels[at // step % 3]) for at in range(0, len(text), step))


ALL = 10**6  # characters: everything is to be seen


def whole(pieces: tuple[Piece, ...]) -> str:
    return answer_html([(one.text, one.level) for one in pieces])


@pytest.mark.parametrize("step", [1, 3, 17])
def test_every_moment_of_a_growing_answer_is_what_the_whole_would_be(step):
    """A cut in a list, or before one, would show two lists where there is one."""
    growing, pieces = LiveText(), pieces_of(TEXT, step)
    for count in range(len(pieces) + 1):
        assert "".join(growing.blocks(pieces[:count], ALL)) == whole(pieces[:count])
        assert not growing.hidden


def test_what_is_not_to_be_seen_yet_is_not_shown():
    growing, pieces = LiveText(), pieces_of(TEXT, 40)
    for visible in range(0, len(TEXT) + 1, 3):
        assert "".join(growing.blocks(pieces, visible)) == whole(cut(pieces, visible))
        assert growing.hidden == (visible < len(TEXT))


def test_what_stands_is_rendered_once(monkeypatch):
    """An answer of two thousand words was rendered whole, seventeen times a second."""
    rendered: list[int] = []
    monkeypatch.setattr(
        streaming_text,
        "answer_html",
        lambda given, signs: rendered.append(len(given)) or answer_html(given, signs),
    )
    growing, pieces = LiveText(), pieces_of("A paragraph of forty letters stands here.\n\n" * 50, 4)
    first = growing.blocks(pieces[:400], ALL)
    rendered.clear()
    second = growing.blocks(pieces[:402], ALL)
    assert rendered == [rendered[0]] and rendered[0] < 14
    assert all(one is other for one, other in zip(first[:-1], second[:-1], strict=True))


def test_another_text_begins_anew():
    """The next part of a book is told where the last one was; told again it may have other levels."""
    growing = LiveText()
    growing.blocks((Piece("One.\n\nTwo.\n\nThree.", "draft"),), ALL)
    for text, level in (("Four.\n\nFive.", "target"), ("Four.\n\nFive.", "draft"), ("Four.", "draft")):
        assert "".join(growing.blocks((Piece(text, level),), ALL)) == whole((Piece(text, level),))
    assert "".join(growing.blocks((), ALL)) == ""


def test_of_a_summary_told_in_place_only_the_paragraph_that_changes_is_drawn_anew(monkeypatch):
    drawn = []

    def counted(*given):
        drawn.append(given)
        return answer_html(*given)

    monkeypatch.setattr("app.web.streaming_text.answer_html", counted)
    standing = StandingText()
    before, after = Piece("First here.\n\nSecond there. ", ""), Piece("\n\nThird stays.", "")
    standing.blocks((before, after), (), (27, 27))
    assert len(drawn) == 3
    html = standing.blocks((before, Piece("He ro", "ngram"), after), (), (27, 32))
    assert len(drawn) == 4
    assert '<ins><span class="lv lv-ngram">He ro</span></ins>' in html[1].replace("\n", "")
    assert "<ins>" not in html[0] + html[2]
