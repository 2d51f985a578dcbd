"""Puts the desk together: who is given what. Nothing in here is known to the services themselves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from app.desk.action_table import of_answers, of_books, of_conversations, of_models, of_the_app
from app.desk.actions import Action, Dispatcher
from app.desk.answers import AnswerQueue
from app.desk.asides import Asides
from app.desk.book_cards import BookEstimates
from app.desk.book_folders import BookFolders
from app.desk.books import OpenBooks
from app.desk.chapters import Chapters
from app.desk.choices import Choices
from app.desk.comparison import Comparison
from app.desk.context_usage import ContextUsage
from app.desk.conversations import Conversations
from app.desk.data_folder import DataFolder
from app.desk.disk_usage import DiskUsage
from app.desk.earlier_volumes import EarlierVolumes
from app.desk.engine_settings import EngineSettings
from app.desk.exports import ConversationImport, Exports
from app.desk.import_queue import ImportQueue, Readers
from app.desk.models import ModelChoice
from app.desk.names import BookNames
from app.desk.other_books import OtherBooks
from app.desk.questions import Questions
from app.desk.reader import Reader
from app.desk.requests import Requests
from app.desk.search import ShelfSearch
from app.desk.series import BookSeries
from app.desk.several_books import SeveralBooks
from app.desk.shelf import Shelf
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.trash import Trash
from app.desk.waiting import WaitingQuestions
from app.errors import guarded
from app.models.catalogue import Models
from app.store.history import History
from app.store.known_files import KnownFiles
from app.store.library import Library
from app.store.preferences import Preferences
from core.config import Settings
from core.text.words import joined_sentences

if TYPE_CHECKING:
    from app.engine.client import Runtime

STOP_WAIT_S = 5.0
SAVE_WAIT_S = 30.0  # 4 GB at 150 MB/s; more than that goes on after the next start


class AppServices:
    """All services, for those who show them and serve them. Beginning and end of the app are here, too."""

    def __init__(
        self,
        engine: Runtime,
        library: Library,
        history: History,
        *,
        models: Models,
        readers: Readers,
        uploads: Path,
        samples: tuple[Path, ...] = (),
        preferences: Preferences | None = None,
    ) -> None:
        """`readers`: what reads files; `uploads`: where a browser's are; `samples`: the app's own books."""
        self.engine, self.library, self.history, self.models = engine, library, history, models
        self.preferences = preferences = preferences or Preferences(Settings())
        self.store = store = Store()
        for source in (engine, models, preferences):
            source.watch(store.tell)
        self._hurry = threading.Event()

        self.reader = Reader(store, library)
        self.names = BookNames(store, library, self.reader, EarlierVolumes(library, history))
        self.series = BookSeries(store, library, self.names)
        self.books = books = OpenBooks(store, library, history, reader=self.reader, names=self.names)
        self.asides = Asides(store, library, engine)
        self.waiting = WaitingQuestions(store, library, history)
        self.trash = Trash(store, library, history, engine=engine, books=books, waiting=self.waiting)
        self.shelf = Shelf(store, library, engine=engine, books=books, trash=self.trash)
        known = KnownFiles()
        self.imports = ImportQueue(store, self.shelf, readers, uploads=uploads, known=known, samples=samples)
        self.folders = BookFolders(store, library, self.imports, preferences=preferences, known=known)
        store.watch(self.folders.follow)
        self.conversations = Conversations(store, history, books)
        self.conversation_import = ConversationImport(
            store, library, history, books=books, reader=self.reader, uploads=uploads
        )

        self.chapters = Chapters(store, library)
        self.requests = Requests(store, library, preferences)
        self.answers = AnswerQueue(store, engine, history, self.chapters, ended=self._after_answer)
        self.several = SeveralBooks(store, library, history, requests=self.requests, answers=self.answers)
        self.choices = Choices(store, preferences, self.reader)
        others = OtherBooks(store, library)
        self.questions = Questions(
            store,
            engine,
            books,
            requests=self.requests,
            answers=self.answers,
            history=history,
            waiting=self.waiting,
            refuses=lambda asked: not self.several.chosen and others.refuses(asked),
            also=self.several.ask,
            choose_reading=self.choices.reading,
        )
        self.comparison = Comparison(store, engine, history, books, ended=self._advance)
        self.context_usage = ContextUsage(store, engine, books, self.requests)
        self.cards = BookEstimates(engine, store.tell, counted=library.count_tokens)
        self.search = ShelfSearch(store, library, history, self.chapters)
        self.exports = Exports(store, history, books=books, reader=self.reader, chapters=self.chapters)

        self.model_choice = ModelChoice(store, engine, models)
        self.engine_settings = EngineSettings(store, engine, preferences, self.model_choice)
        self.disk_usage = DiskUsage(store, library, history, preferences=preferences, models=models)
        store.watch(self.disk_usage.follow)
        self.data_folder = DataFolder(store, engine, history)
        self.actions = Dispatcher(store, self._table())
        history.settle()
        self.trash.settle()

    def _table(self) -> dict[str, Action]:
        """All actions of the page."""
        books, reader, preferences = self.books, self.reader, self.preferences
        return {
            **of_books(
                books,
                reader,
                self.imports,
                shelf=self.shelf,
                search=self.search,
                trash=self.trash,
                chapters=self.chapters,
                questions=self.questions,
                folders=self.folders,
                names=self.names,
                series=self.series,
                asides=self.asides,
            ),
            **of_answers(
                self.questions,
                self.comparison,
                self.stop,
                books=books,
                reader=reader,
                choices=self.choices,
                preferences=preferences,
                several=self.several,
            ),
            **of_conversations(self.conversations, books, self.trash, self.conversation_import),
            **of_models(self.models, self.model_choice),
            **of_the_app(
                self.store,
                self.engine_settings,
                self.choices,
                preferences,
                disk=self.disk_usage,
                folder=self.data_folder,
            ),
        }

    @property
    def state(self) -> AppState:
        """What lies on the desk now."""
        return self.store.state

    @property
    def at_work(self) -> bool:
        """Whether something is being read, answered or downloaded that a sleep would hold up."""
        opening, fetching = self.state.opening, self.models.fetching
        return (
            self.engine.state in ("loading", "busy")
            or self.state.busy
            or (opening is not None and not opening.waiting)
            or (fetching is not None and fetching.state == "running")
        )

    def resume(self) -> None:
        """Puts the book that was opened last back on the desk, and says what is wrong with what was kept."""
        self.books.resume()
        self.folders.follow()
        self.disk_usage.warn()
        waited = guarded(self.waiting.restore, self.store.say, None)
        warnings = [one for one in (self.history.warning, self.preferences.warning) if one]
        if warnings or waited:
            told = joined_sentences(*warnings, *([waited.text] if waited else []))
            self.store.say(told, "error" if warnings else "info", *(waited.remedies if waited else ()))

    def _after_answer(self) -> None:
        self.disk_usage.warn()
        self._advance()

    def _advance(self) -> None:
        """Asks what waits: the person's question, then the other books."""
        self.questions.advance()
        self.several.advance()

    def stop(self) -> None:
        """Ends the answer or the reading of a file as soon as possible; what is there stays."""
        self.imports.stop()
        self.several.drop()
        self.comparison.stop()
        self.asides.stop()
        self.answers.stop()

    def close(self) -> None:
        """Stops everything, keeps what was read of books on disk, and ends the engine; nothing is left
        running.

        `hurry` may come meanwhile, from another thread.
        """
        self.folders.close()
        self.questions.close()
        self.stop()
        self.answers.join(STOP_WAIT_S)
        if not self._hurry.is_set():
            self.engine.save(SAVE_WAIT_S)
        self.models.close()
        self.engine.close()
        self.answers.join(STOP_WAIT_S)
        self.trash.close()
        self.history.close()

    def hurry(self) -> None:
        """Lets `close` wait no longer for what is being stored."""
        self._hurry.set()
        self.engine.stop()
