"""Conversations and summaries as files: written for the person, and brought in again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from app.desk.books import OpenBooks
from app.desk.chapters import Chapters
from app.desk.import_queue import uploaded
from app.desk.reader import Reader
from app.desk.store import Store
from app.render.conversation_json import ImportedConversation, as_json, brought, same
from app.render.export import ConversationFile, Noted, as_html, as_markdown
from app.render.flash_cards import Card, as_tsv, cards_of_answers, cards_of_notes
from app.render.markdown import Citation
from app.render.notes_file import notes_as, quotations
from app.render.origin import WITHHELD, models_of, origin
from app.render.summary_book import as_epub
from app.render.summary_files import SummaryFile, summaries_html, summaries_json, summaries_markdown
from app.render.vault import file_name, properties, short_title
from app.store.history import History
from app.store.library import Library, SummaryOrigin
from app.store.turns import StoredTurn, displayed_text, numbered_title, told_behind
from core.conversation.reading import book_chapters
from core.documents.document import Document
from core.errors import UserError
from core.evidence.support import REFUSALS
from core.text.questions import asked_of_whole
from core.text.words import translated as _
from core.text.words import translated_count as _n

Cite = Callable[[StoredTurn, StoredTurn | None, Document], Sequence[Citation]]
Cited = Mapping[int, Sequence[Citation]]


def _nothing(_turn: StoredTurn, _question: StoredTurn | None, _book: Document) -> tuple[Citation, ...]:
    return ()


class ExportedFile(NamedTuple):
    """A file for a browser to keep."""

    name: str
    content: str | bytes


class Exports:
    """Writes what belongs to the open book as files. `form`: md, html, json, tsv (cards for Anki) or epub.

    `cite`: the marks of an answer to a question. They become footnotes, and in an e-book links.
    """

    def __init__(
        self,
        store: Store,
        history: History,
        *,
        books: OpenBooks,
        reader: Reader,
        chapters: Chapters,
        today: Callable[[], date] = date.today,
    ) -> None:
        self._store, self._history, self._today = store, history, today
        self._books, self._reader, self._chapters = books, reader, chapters

    def conversation(self, form: str = "md", cite: Cite = _nothing) -> ExportedFile:
        """The open conversation, with the book's bookmarks and notes; as tsv its answers and the notes as
        cards, as epub its summaries. What was told with more of the book than the limit allows is left out,
        but as json, which is to be brought in again. Raises UserError where there is nothing of the kind.
        """
        book, turns = self._books.current, self._books.turns if form == "json" else self._within_limit()
        title = book.title if book else _("Conversation")
        named = self._history.title(self._store.state.conversation_id) or title
        cited, notes = self._cited(turns, cite), self._reader.noted(limited=form != "json")
        made = origin(book, models_of(turns), self._today())
        if form == "epub":
            return self._told_in(turns, cited)
        if form == "tsv":
            cards = self._cards(turns, notes, cited)
            if not cards:
                raise self._no_card(self._books.turns)
            return self._file(short_title(title), form, as_tsv(book, cards), book)
        marked, limit = self._reader.all_bookmarks, self._store.state.spoiler_limit
        head = title if form == "md" else named
        talk = ConversationFile(book, head, turns, notes, cited, made, marked, limit)
        write = {"md": as_markdown, "html": as_html, "json": as_json}[form]
        return self._file(short_title(title), form, write(talk), book, models_of(turns))

    def notes(self, form: str, cite: Cite = _nothing) -> ExportedFile:
        """Bookmarks and notes of the open book, and what the conversation's answers quote of it; as tsv cards
        of the bookmarks. Raises UserError where there is nothing of the kind.
        """
        book, notes, turns = self._books.current, self._reader.noted(), self._within_limit()
        quoted = quotations(book, turns, self._cited(turns, cite)) if book and form != "tsv" else []
        if book is None or not (notes or quoted):
            if self._store.state.notebook.bookmarks:
                raise UserError(_("All bookmarks in this book lie behind your spoiler limit."))
            raise UserError(_("There is no bookmark yet: select words in the book, then “Bookmark”."))
        if form == "tsv" and not self._cards((), notes, {}):
            raise self._no_card(())
        models = models_of(turns) if quoted else []
        made = origin(book, models, self._today())
        name = _("{title}, notes").format(title=short_title(book.title))
        return self._file(name, form, notes_as(form, book, notes, quoted, made), book, models)

    def summaries(self, form: str, cite: Cite = _nothing) -> ExportedFile:
        """All kept summaries of the open book. None that lies behind the conversation's limit. Raises
        UserError where there is none that can be read.
        """
        book = self._books.known
        told = sorted(self._chapters.summaries(book).items()) if book else []
        if not told:
            words = _("No summary of this book can be read. See that the data folder is there, then retry.")
            raise UserError(words)
        chapters, origins = book_chapters(book), self._chapters.origins(book)
        turns, cited = [], {}
        for number, text in told:
            chapter, made = chapters[number - 1], origins.get(number, SummaryOrigin())
            question, answer = _exchange(number, text, made, chapter.start, self._store.state.spoiler_limit)
            turns.append((chapter.title, answer))
            cited[number] = cite(answer, question, self._books.current)
        return self._summaries(form, book, turns, cited)

    def _cards(self, turns: Sequence[StoredTurn], notes: Sequence[Noted], cited: Cited) -> list[Card]:
        book, day = self._books.current, self._today()
        cards = cards_of_answers(turns, cited, lambda one: origin(book, models_of([one]), day))
        return cards + cards_of_notes(notes, origin(book, (), day))

    def _no_card(self, turns: Sequence[StoredTurn]) -> UserError:
        """Why these turns and the book's bookmarks make no card: there is none, or the limit hides them."""
        if self._cards(turns, self._reader.noted(limited=False), {}):
            return UserError(_("What would make a card lies behind your spoiler limit."))
        return UserError(_("There is no card yet: ask a question, or write a note to a bookmark."))

    def _told_in(self, turns: Sequence[StoredTurn], cited: Cited) -> ExportedFile:
        """The summaries of the conversation as an e-book."""
        book = self._books.current
        told = _summaries_in(turns, book.title) if book else []
        if book is None or not told:
            if book and _summaries_in(self._books.turns, book.title):
                raise UserError(
                    _("All summaries here were told with more of the book than your spoiler limit allows.")
                )
            raise UserError(_("There is no summary in this conversation yet: press “Summarise” first."))
        return self._summaries("epub", book, told, cited)

    def _summaries(
        self, form: str, book: Document, told: Sequence[tuple[str, StoredTurn]], cited: Cited
    ) -> ExportedFile:
        models = models_of(turn for _title, turn in told)
        made = origin(book, models, self._today())
        title = _("{title}, summaries").format(title=short_title(book.title))
        file = SummaryFile(book, title, told, cited, made)
        write = {"md": summaries_markdown, "html": summaries_html, "json": summaries_json, "epub": as_epub}[
            form
        ]
        return self._file(title, form, write(file), book, models)

    def _file(
        self, title: str, form: str, content: str | bytes, book: Document | None, models: Sequence[str] = ()
    ) -> ExportedFile:
        head = properties(book, models, self._today()) if form == "md" else ""
        return ExportedFile(file_name(title, form), head + content if head else content)

    def _within_limit(self) -> list[StoredTurn]:
        """The open conversation's turns, without the words of what may tell of the book behind its limit."""
        turns, limit = self._books.turns, self._store.state.spoiler_limit
        return [
            replace(turn, text="", state=WITHHELD, extra={}) if told_behind(question, turn, limit) else turn
            for question, turn in zip([None, *turns], turns, strict=False)
        ]

    def _cited(self, turns: Sequence[StoredTurn], cite: Cite) -> Cited:
        """The marks of these answers by their numbers."""
        book = self._books.current
        pairs = zip([None, *turns], turns, strict=False)
        return {turn.number: cite(turn, question, book) for question, turn in pairs if book}


def _summaries_in(turns: Sequence[StoredTurn], book: str) -> list[tuple[str, StoredTurn]]:
    """What was told of the `book` of this title, each under a name of its own: summaries, its end, what it
    is about.
    """
    found: dict[str, StoredTurn] = {}
    for question, answer in pairwise(turns):
        if _wants_telling(question, book) and answer.text and not answer.text.startswith(REFUSALS):
            found[numbered_title(_asked_as(question), found)] = answer
    return list(found.items())


def _wants_telling(question: StoredTurn, book: str) -> bool:
    asked = question.role == "user" and asked_of_whole(question.text, book) in ("about", "end")
    return asked or bool(question.extra.get("summary"))


def _asked_as(question: StoredTurn) -> str:
    """What was asked, and of a summary how it was to be told."""
    asked, extra = displayed_text(question), question.extra
    if not extra.get("summary"):
        return asked
    lengths = {"paragraph": _("A paragraph"), "page": _("A page"), "chapters": _("By chapters")}
    lengths["own"] = _("In the book's own sentences")
    length = "own" if extra.get("summaries") == "own" else extra.get("summary_length", "page")
    return f"{asked} · {lengths[length]}"


def _exchange(
    number: int, text: str, made: SummaryOrigin, start: int, spoiler_limit: int | None
) -> tuple[StoredTurn, StoredTurn]:
    """A summary of the chapter that begins at `start`, as the question and the answer that it was."""
    stands = [asdict(one) for one in made.stands_from(start)]
    extra = {"level_pieces": [[text, ""]], "model": made.model, "stands": stands}
    extra["spoiler_limit"] = spoiler_limit
    question = StoredTurn(number, "user", "", "finished", {"summary": True, "chapters": [number, number]})
    return question, StoredTurn(number, "assistant", text, "finished", extra)


class ConversationImport:
    """Brings in what `Exports` wrote as JSON. `uploads`: where a browser's files arrive."""

    def __init__(
        self,
        store: Store,
        library: Library,
        history: History,
        *,
        books: OpenBooks,
        reader: Reader,
        uploads: Path,
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._books, self._reader, self._uploads = books, reader, uploads

    def bring_in(self, path: str, name: str) -> None:
        """Opens a conversation that was exported, or the one there that is the same, and takes the bookmarks
        of its book along; `path`: an upload, which is deleted. Says why of a file called `name` that is none,
        or about a book that is not on the shelf.
        """
        try:
            self._bring_in(uploaded(self._uploads, path))
        except UserError as error:
            self._store.fail(name, str(error))

    def _bring_in(self, file: Path) -> None:
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
        there = (one.id for one in self._history.conversations(made.book_id))
        known = next((one for one in there if same(made, self._history.turns(one))), "")
        talk = known or self._history.bring_in(made.book_id, made.title, made.turns, made.spoiler_limit)
        self._books.select(made.book_id)
        self._books.open_conversation(talk)
        self._reader.bring(made.bookmarks)
        self._say(made, known=bool(known))

    def _say(self, made: ImportedConversation, *, known: bool) -> None:
        if made.damaged and not known:
            questions = len(made.turns) // 2
            words = _n(
                "That file is damaged: not all of it can be read. {count} question was brought in.",
                "That file is damaged: not all of it can be read. {count} questions were brought in.",
                questions,
            )
            self._store.say(words.format(count=questions), "warning")
            return
        words = _("That conversation is here already.") if known else _("The conversation was brought in.")
        self._store.say(words, "info")
