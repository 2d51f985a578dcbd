"""What can be done with the conversations about the open book: names, pins, deletion that can be taken back,
forks at a turn, and earlier versions of an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.render.export import as_html, as_json, as_markdown, brought
from core.errors import UserError
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

TITLE_CHARS = 120


class Conversations:
    """Acts on a desk. Nothing changes while an answer is being written."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def select(self, conversation_id: str) -> None:
        """Goes back to an older conversation about the open book."""
        desk = self._desk
        if desk.refuse_while_busy():
            return
        for talk in desk.history.conversations(desk.book_id):
            if talk.id == conversation_id:
                desk.lay(talk.id, talk.until)

    def begin(self) -> None:
        """Puts the conversation away and starts an empty one with the same limit; the book stays in the
        engine's memory.
        """
        if not self._desk.refuse_while_busy():
            self._desk.lay("", self._desk.until)

    def rename(self, conversation_id: str, title: str) -> None:
        """Gives a conversation another name; an empty one changes nothing."""
        if title := " ".join(title.split())[:TITLE_CHARS]:
            self._desk.history.rename(conversation_id, title)
            self._desk.shelf_changed()

    def pin(self, conversation_id: str) -> None:
        """Puts a conversation before the others, or back among them."""
        self._desk.history.pin(conversation_id)
        self._desk.shelf_changed()

    def forget(self, conversation_id: str) -> None:
        """Takes a conversation off the page; see app.desk.trash."""
        desk = self._desk
        if not conversation_id or desk.refuse_while_busy():
            return
        if conversation_id == desk.conversation_id:
            desk.conversation_id, desk.job = "", None
        words = _("The conversation is deleted.")
        desk.removal.mark(conversation_id, desk.history.mark_forgotten, words)
        desk.shelf_changed()

    def fork(self, number: int) -> bool:
        """Opens a copy of the conversation up to and with its turn `number`. False when there is none."""
        desk = self._desk
        if desk.refuse_while_busy() or not any(turn.number == number for turn in desk.turns):
            return False
        made = desk.history.fork(desk.conversation_id, number, _("Fork of “{title}”"))
        self.select(made)
        self._desk.shelf_changed()
        return True

    def ask_otherwise(self, number: int) -> None:
        """Opens a copy that ends before the question `number`, for another wording of it."""
        if number <= 1:
            self.begin()
        else:
            self.fork(number - 1)

    def use_version(self, number: int, version: int) -> None:
        """Lets an earlier version of the answer `number` stand in its place; the one that stood is kept."""
        desk = self._desk
        if not desk.refuse_while_busy():
            desk.history.use_version(desk.conversation_id, number, version)
            desk.job = None
            desk.change()

    def export(self, form: str = "md") -> tuple[str, str]:
        """The open conversation as (file name, content); `form`: md, html or json. With the
        book's bookmarks and notes.
        """
        desk = self._desk
        title = desk.book.title if desk.book else _("Conversation")
        name = f"{title[:80]}.{form}"
        if form == "md":
            said = as_markdown(title, desk.turns)
            return name, "\n\n".join(part for part in (said, desk.reading.markdown()) if part)
        told = desk.history.title(desk.conversation_id) or title
        return name, (as_html if form == "html" else as_json)(
            desk.book, told, desk.turns, desk.reading.noted()
        )

    def bring_in(self, path: str) -> None:
        """Opens a conversation that was exported as JSON; `path`: an upload, which is deleted. Raises
        UserError where it is none, or about a book that is not on the shelf.
        """
        desk = self._desk
        file = desk.intake.uploaded(path)
        try:
            made = brought(file)
        finally:
            file.unlink(missing_ok=True)
        if desk.refuse_while_busy():
            return
        if not any(entry.id == made.book_id for entry in desk.library.entries()):
            words = _(
                "That conversation is about “{title}”. Open that book's file first, then bring it in again."
            )
            raise UserError(words.format(title=made.book_title))
        talk = desk.history.bring_in(made.book_id, made.title, made.turns)
        desk.select_book(made.book_id)
        self.select(talk)
        self._desk.shelf_changed()
