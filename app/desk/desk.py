"""What the person at the desk can do, and what is on the desk. No HTML and no Gradio here: a page is one view
of this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.desk.answer_job import Job
from app.desk.book_cards import Cards
from app.desk.chapters import Chapters
from app.desk.comparison import Comparing
from app.desk.context_usage import Meter
from app.desk.conversations import Conversations
from app.desk.disk_usage import Storage
from app.desk.engine_settings import Running
from app.desk.import_queue import Intake
from app.desk.models import ModelsUsed
from app.desk.questions import Asking
from app.desk.reader import OpenBook
from app.desk.shelf import Shelf
from app.desk.trash import Removal
from app.desk.values import Notice
from app.models.catalogue import Models
from app.store.history import History
from app.store.library import Library
from app.store.preferences import Preferences
from app.store.turns import Turn, asked_again
from core.ask import Ask
from core.config import Settings
from core.documents.document import Document
from core.text.words import sentences
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

STOP_WAIT_S = 5.0
ENDING_S = 1.0  # between an answer's last word and its end
SAVE_WAIT_S = 30.0  # 4 GB at 150 MB/s; more than that goes on after the next start


class Desk:
    """One book open, one conversation, at most one answer in the making. Thread-safe; who watches is told of
    every change.
    """

    def __init__(
        self,
        engine: Runtime,
        library: Library,
        history: History,
        *,
        upload_dir: Path,
        read: Callable[..., Document],
        cover: Callable[..., bytes],
        can_ocr: Callable[[], bool],
        models: Models,
        samples: tuple[Path, ...] = (),
        preferences: Preferences | None = None,
    ) -> None:
        self.engine, self.library, self.history, self.models = engine, library, history, models
        self.preferences = preferences or Preferences(Settings())
        self.intake = Intake(
            self, upload_dir=upload_dir, read=read, cover=cover, can_ocr=can_ocr, samples=samples
        )
        self._lock = threading.RLock()
        self._hurry = threading.Event()
        self.cards = Cards(engine, self.change, counted=library.count_tokens)
        self._told: Callable[[], None] = lambda: None
        self.shelf_version = 0
        self.book_id = ""
        self.conversation_id = ""
        self.until: int | None = None  # of the conversation; see core.ask.Ask
        self.chapters = (0, 0)  # the first and the last to be summarised; 0: that of the book
        self.job: Job | None = None
        self.notice: Notice | None = None
        self.reading = OpenBook(
            library, whole=lambda: self.book, until=lambda: self.until, changed=self.change
        )
        self.talks, self.shelf, self.removal = Conversations(self), Shelf(self), Removal(self)
        self.asking, self.meter, self.tree = Asking(self), Meter(self), Chapters(self)
        self.storage, self.comparing, self.running = Storage(self), Comparing(self), Running(self)
        # whether the end of the last tab may end the app; whether that tab went before anybody was asked
        self.closable = self.was_left = False
        history.settle()
        self.removal.settle()
        models.changed, self.used = self.change, ModelsUsed(self)

    def resume(self) -> None:
        """Puts the book that was opened last back on the desk."""
        entries = self.library.entries()
        if entries:
            self.select_book(entries[0].id)
        if warnings := [one for one in (self.history.warning, self.preferences.warning) if one]:
            self.say(sentences(*warnings))

    # --- what the page shows

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called after every change of what is shown, from any thread; it must only take notice."""
        self._told = self.engine.changed = told

    @property
    def book(self) -> Document | None:
        """The open book."""
        try:
            return self.library.get(self.book_id) if self.book_id else None
        except KeyError:
            return None

    @property
    def busy(self) -> bool:
        """Whether an answer is being made."""
        job = self.job
        return self.comparing.running or (job is not None and job.snapshot.running)

    @property
    def turns(self) -> list[Turn]:
        """The conversation's turns, the one being written included."""
        return self.history.turns(self.conversation_id) if self.conversation_id else []

    def card(self) -> dict | None:
        """What the engine says about the open book; None until it has said it."""
        book = self.book
        return self.cards.of(book, self.until) if book else None

    # --- books

    def select_book(self, book_id: str) -> None:
        """Opens a book of the shelf with its newest conversation."""
        if self.refuse_while_busy():
            return
        try:
            self.library.touch(book_id)
        except KeyError:
            self.say(_("The text of that book is gone or damaged. Drop its file again to read it."))
            return
        with self._lock:
            self.book_id, self.notice, self.job = book_id, self.removal.offer, None
            self.asking.crowded = None
            self.chapters, self.tree.ticked = (0, 0), ()
            talks = self.history.conversations(book_id)
            self.conversation_id = talks[0].id if talks else ""
            self.until = self._limit(talks[0].until) if talks else None
            self.reading.open()
            self.shelf_version += 1
        self.change()

    def put_away(self) -> None:
        """Leaves the desk empty."""
        with self._lock:
            self.book_id = self.conversation_id = ""
            self.job = None
            self.reading.open()

    def shelf_changed(self) -> None:
        """What the shelf shows is not what it was."""
        self.shelf_version += 1
        self.change()

    # --- the conversation, and how much of the book it is about

    def lay(self, conversation_id: str, until: int | None) -> None:
        """Puts a conversation about the open book on the desk, with its limit; "": an empty one."""
        with self._lock:
            self.conversation_id, self.job, self.notice = conversation_id, None, self.removal.offer
            self.until = self._limit(until)
            self.reading.limited()
        self.change()

    def limit(self, chapter: int) -> None:
        """Nothing behind `chapter` is read or shown in this conversation from now on; 0: all of the book
        may be.
        """
        if self.refuse_while_busy() or self.book is None or chapter < 0:
            return
        with self._lock:
            self.until = self._limit(chapter or None)
            if self.conversation_id:
                self.history.limit(self.conversation_id, self.until)
            self.reading.limited()
        self.change()

    def _limit(self, until: int | None) -> int | None:
        """A limit as the open book has it: read anew, it may have fewer chapters."""
        book = self.book
        return min(until, len(book.chapters)) or None if book and until else None

    def choose_chapters(self, first: int, last: int) -> None:
        """Which chapters a summary is to be about; 0: from the beginning, to the end."""
        count = len(self.book.chapters) if self.book else 0
        self.chapters = (first if first <= count else 0, last if last <= count else 0)
        self.change()

    # --- settings

    @property
    def fit(self) -> str:
        """How books are read: one of core.config.FITS."""
        return self.preferences.settings.fit

    @property
    def asks_when_closed(self) -> bool:
        """Whether the person is to be asked what closing the last tab means."""
        origin = self.preferences.origin("when_closed")
        asks = self.preferences.settings.when_closed == "ask"
        return self.closable and asks and origin not in ("command line", "config.yaml")

    def choose(self, key: str, text: str) -> None:
        """Sets a key of the settings to what was typed. Raises UserError for what is not allowed."""
        try:
            self.preferences.choose(key, text)
        finally:
            self.change()

    def reset(self, key: str) -> None:
        """Sets a key back to its default."""
        self.preferences.reset(key)
        self.change()

    # --- answers

    def summarize(self, wish: Ask) -> None:
        """Asks for a summary of the open book."""
        if self.book is None:
            self.say(_("Open a book first: drop its file on the page, paste a text, or choose a sample."))
        else:
            self.asking.ask(replace(wish, question=None))

    def ask(self, question: str, wish: Ask) -> bool:
        """Asks a question; False when it could not be taken (the text should stay in its box)."""
        if self.job:
            self.job.join(
                ENDING_S
            )  # all of its words are to be seen already: whoever asks now means the next
        return (
            bool(question.strip())
            and not self.refuse_while_busy()
            and self.asking.ask(replace(wish, question=question.strip()))
        )

    def regenerate(self, wish: Ask) -> None:
        """Answers the last question again. The old answer stands until the new one is complete."""
        turns = self.turns
        if not turns or turns[-1].role != "assistant":
            return
        again = replace(
            asked_again(turns[-2]), params=wish.params, instructions=wish.instructions, again=True
        )
        self.asking.ask(again, instead_of=turns[-1])

    def run(self, prepare: Callable[[], Job]) -> bool:
        """Starts the answer that is prepared; False while another is being written."""
        with self._lock:
            if self.busy:
                return False
            self.job, self.notice = prepare(), self.removal.offer
            self.shelf_version += 1
        self.job.start()
        self.change()
        return True

    def stop(self) -> None:
        """Ends the answer or the reading of a file as soon as possible; what is there stays."""
        self.intake.stop()
        self.comparing.stop()
        job = self.job
        if job and job.snapshot.running:
            job.stop()

    def dismiss(self) -> None:
        """Takes the message away."""
        self.notice = None
        self.change()

    def close(self) -> None:
        """Stops everything, keeps what was read of books on disk, and ends the engine; nothing is left
        running.

        `hurry` may come meanwhile, from another thread.
        """
        self.stop()
        if self.job:
            self.job.join(STOP_WAIT_S)
        if not self._hurry.is_set():
            self.engine.save(SAVE_WAIT_S)
        self.models.close()
        self.engine.close()
        if self.job:
            self.job.join(STOP_WAIT_S)
        self.removal.close()
        self.history.close()

    def hurry(self) -> None:
        """Lets `close` wait no longer for what is being stored."""
        self._hurry.set()
        self.engine.stop()

    # --- messages

    def refuse_while_busy(self) -> bool:
        """Says that an answer is being written or the data being moved, if that is so."""
        if self.busy:
            self.say(_("An answer is being written. Stop it first."), "info")
        return self.busy or self.storage.refuse_while_moving()

    def say(self, text: str, kind: str = "error") -> None:
        """Puts a message above the conversation."""
        self.notice = Notice(text, kind)
        self.change()

    def change(self) -> None:
        """Something is to be shown anew."""
        self._told()
