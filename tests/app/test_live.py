"""A growing answer looks at every moment as if it were rendered whole, at the cost of its last paragraph."""

from __future__ import annotations

import pytest

from app import live
from app.live import LiveText
from app.views import answer_html
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


@pytest.mark.parametrize("step", [1, 3, 17])
def test_every_moment_of_a_growing_answer_is_what_the_whole_would_be(step):
    """A cut in a list, or before one, would show two lists where there is one."""
    growing, pieces = LiveText(), pieces_of(TEXT, step)
    for count in range(len(pieces) + 1):
        now = pieces[:count]
        assert "".join(growing.blocks(now)) == answer_html([(one.text, one.level) for one in now])


def test_what_stands_is_rendered_once(monkeypatch):
    """An answer of two thousand words was rendered whole, seventeen times a second."""
    rendered: list[int] = []
    whole = live.answer_html
    monkeypatch.setattr(live, "answer_html", lambda given: rendered.append(len(given)) or whole(given))
    growing, pieces = LiveText(), pieces_of("A paragraph of forty letters stands here.\n\n" * 50, 4)
    first = growing.blocks(pieces[:400])
    rendered.clear()
    second = growing.blocks(pieces[:402])
    assert rendered == [rendered[0]] and rendered[0] < 14
    assert all(one is other for one, other in zip(first[:-1], second[:-1], strict=True))


def test_another_text_begins_anew():
    """The next part of a book is told where the last one was."""
    growing = LiveText()
    growing.blocks((Piece("One.\n\nTwo.\n\nThree.", "draft"),))
    assert "".join(growing.blocks((Piece("Four.\n\nFive.", "target"),))) == answer_html(
        [("Four.\n\nFive.", "target")]
    )
    assert "".join(growing.blocks(())) == ""
