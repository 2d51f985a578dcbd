"""Small books in chapters, and what a person does with one on a desk."""

from __future__ import annotations

from collections.abc import Iterable

from app.web.page import Page
from core.documents.document import Document, Section


def in_chapters(bodies: Iterable[str], *, front: str = "", author: str = "A. Writer") -> Document:
    """“Ferry”, a chapter under its heading for each body; `front`: the text of a title page before them."""
    text = front
    sections = [Section("Title page", 0, len(front), kind="front")] if front else []
    for number, body in enumerate(bodies, 1):
        start = len(text)
        text += f"Chapter {number}\n\n{body}"
        sections.append(Section(f"Chapter {number}", start, len(text)))
    return Document("Ferry", author, "txt", text, tuple(sections), sha256="c" * 64)


def on_shelf(desk, story: Document):
    """The desk, with the story put on its shelf and open."""
    desk.shelf.put(story, again=False, cover=b"")
    return desk


def region(desk, name: str) -> str:
    """What the page shows of the desk in one of its regions."""
    return "".join(map(str, Page(desk).render()[name]))


def stand(desk, story: Document, words: str) -> None:
    """The person reads on from these words."""
    desk.actions.dispatch({"act": "stand", "value": str(story.text.index(words))})
