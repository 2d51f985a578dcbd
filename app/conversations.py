"""What can be done with the conversations about the open book: names, pins, deletion that can be taken back,
forks at a turn, and earlier versions of an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.exported import as_html, as_json, brought
from app.faults import guarded
from app.values import Notice
from core.errors import UserError
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.handlers import Desk

UNDO_S = 10.0  # a deleted conversation can be taken back so long; then it is gone for good
TITLE_CHARS = 120


class Conversations:
    """Acts on a desk. Nothing changes while an answer is being written."""

    def __init__(self, desk: Desk, *, clock: Callable[[], float] = time.time) -> None:
        self._desk, self._clock = desk, clock
        self._timer: threading.Timer | None = None

    def rename(self, conversation_id: str, title: str) -> None:
        """Gives a conversation another name; an empty one changes nothing."""
        if title := " ".join(title.split())[:TITLE_CHARS]:
            self._desk.history.rename(conversation_id, title)
            self._shelf_changed()

    def pin(self, conversation_id: str) -> None:
        """Puts a conversation before the others, or back among them."""
        self._desk.history.pin(conversation_id)
        self._shelf_changed()

    def forget(self, conversation_id: str) -> None:
        """Takes a conversation off the page; for UNDO_S it can be brought back, then it is deleted."""
        desk = self._desk
        if not conversation_id or desk.refuse_while_busy():
            return
        desk.history.mark_forgotten(conversation_id, self._clock())
        if conversation_id == desk.conversation_id:
            desk.conversation_id, desk.job = "", None
        words = _("The conversation is deleted.")
        desk.notice = Notice(words, "info", undo=conversation_id)
        self._wait()
        self._shelf_changed()

    def restore(self, conversation_id: str) -> None:
        """Brings a deleted conversation back, and opens it where its book is open."""
        desk = self._desk
        if desk.refuse_while_busy():
            return
        if desk.history.unmark_forgotten(conversation_id):
            desk.notice = None
            desk.select_conversation(conversation_id)
        else:
            desk.notice = Notice(_("It was too late: the conversation is gone."), "info")
        self._shelf_changed()

    def purge(self, *, all_of_them: bool = False) -> None:
        """Deletes for good what was taken off the page UNDO_S ago."""
        desk = self._desk
        for conversation_id in desk.history.purge(self._clock() - (0.0 if all_of_them else UNDO_S)):
            desk.engine.forget(conversation_id)
            if desk.notice and desk.notice.undo == conversation_id:
                desk.notice = None
        desk.change()

    def close(self) -> None:
        """Deletes at once what waits."""
        if self._timer:
            self._timer.cancel()
            self.purge(all_of_them=True)

    def fork(self, number: int) -> bool:
        """Opens a copy of the conversation up to and with its turn `number`. False when there is none."""
        desk = self._desk
        if desk.refuse_while_busy() or not any(turn.number == number for turn in desk.turns):
            return False
        made = desk.history.fork(desk.conversation_id, number, _("Fork of “{title}”"))
        desk.select_conversation(made)
        self._shelf_changed()
        return True

    def ask_otherwise(self, number: int) -> None:
        """Opens a copy that ends before the question `number`, for another wording of it."""
        if number <= 1:
            self._desk.new_conversation()
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
        """The open conversation as (file name, content); `form`: md, with the book's notes, html or json."""
        desk = self._desk
        title = desk.book.title if desk.book else _("Conversation")
        name = f"{title[:80]}.{form}"
        if form == "md":
            said = desk.history.markdown(desk.conversation_id, book=title)
            return name, "\n\n".join(part for part in (said, desk.reading.markdown()) if part)
        told = desk.history.title(desk.conversation_id) or title
        return name, (as_html if form == "html" else as_json)(desk.book, told, desk.turns)

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
        desk.select_conversation(talk)
        self._shelf_changed()

    def _wait(self) -> None:
        if self._timer:
            self._timer.cancel()
        again = self._desk.say
        self._timer = threading.Timer(UNDO_S + 0.1, lambda: guarded(self.purge, again, None))
        self._timer.daemon = True
        self._timer.start()

    def _shelf_changed(self) -> None:
        self._desk.shelf_version += 1
        self._desk.change()
