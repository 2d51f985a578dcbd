"""Conversations and summaries as files: written for the person, and brought in again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from app.desk.books import OpenBooks
from app.desk.chapters import Chapters
from app.desk.import_queue import uploaded
from app.desk.reader import Reader, as_known
from app.desk.store import Store
from app.render.export import as_html, as_json, as_markdown, brought, summaries_as
from app.render.markdown import Citation
from app.store.history import History
from app.store.library import Library
from app.store.turns import StoredTurn
from core.conversation.reading import book_chapters
from core.documents.document import Document
from core.errors import UserError
from core.text.words import translated as _

Cite = Callable[[StoredTurn, StoredTurn | None, Document], Sequence[Citation]]


class Exports:
    """Writes what belongs to the open book as (file name, content); `form`: md, html or json."""

    def __init__(
        self, store: Store, history: History, *, books: OpenBooks, reader: Reader, chapters: Chapters
    ) -> None:
        self._store, self._history = store, history
        self._books, self._reader, self._chapters = books, reader, chapters

    def conversation(self, form: str = "md", cite: Cite = lambda turn, question, book: ()) -> tuple[str, str]:
        """The open conversation, with the book's bookmarks and notes. `cite`: the marks of an answer to a
        question, which become footnotes in Markdown and HTML.
        """
        book, turns = self._books.current, self._books.turns
        title = book.title if book else _("Conversation")
        name = f"{title[:80]}.{form}"
        pairs = zip([None, *turns], turns, strict=False)
        cited = {turn.number: cite(turn, question, book) for question, turn in pairs if book}
        if form == "md":
            parts = (as_markdown(title, turns, cited), self._reader.markdown())
            return name, "\n\n".join(part for part in parts if part)
        told = self._history.title(self._store.state.conversation_id) or title
        notes = self._reader.noted()
        if form == "html":
            return name, as_html(book, told, turns, notes, cited)
        return name, as_json(book, told, turns, notes)

    def summaries(self, form: str) -> tuple[str, str]:
        """All kept summaries of the open book. None that lies behind the conversation's limit. Raises
        UserError where there is none that can be read.
        """
        whole = self._books.current
        book = as_known(whole, self._store.state.spoiler_limit) if whole else None
        told = sorted(self._chapters.summaries(book).items()) if book else []
        if not told:
            words = _("No summary of this book can be read. See that the data folder is there, then retry.")
            raise UserError(words)
        chapters = book_chapters(book)
        titled = [(chapters[number - 1].title, text) for number, text in told]
        name = _("{title}, summaries").format(title=book.title[:80])
        return f"{name}.{form}", summaries_as(form, book, titled)


class ConversationImport:
    """Brings in what `Exports` wrote as JSON. `uploads`: where a browser's files arrive."""

    def __init__(
        self, store: Store, library: Library, history: History, *, books: OpenBooks, uploads: Path
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._books, self._uploads = books, uploads

    def bring_in(self, path: str) -> None:
        """Opens a conversation that was exported; `path`: an upload, which is deleted. Raises UserError where
        it is none, or about a book that is not on the shelf.
        """
        file = uploaded(self._uploads, path)
        try:
            made = brought(file)
        finally:
            file.unlink(missing_ok=True)
        if self._store.refuse_while_moving():
            return
        if not any(entry.id == made.book_id for entry in self._library.entries()):
            words = _(
                "That conversation is about “{title}”. Open that book's file first, then bring it in again."
            )
            raise UserError(words.format(title=made.book_title))
        talk = self._history.bring_in(made.book_id, made.title, made.turns)
        self._books.select(made.book_id)
        self._books.open_conversation(talk)
