"""What the person at the desk can do, and what is on the desk. No HTML and no Gradio here: a page is one view of this."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from app.history import History, Turn
from app.job import Job
from app.library import Library
from app.values import Notice, Opening, Passage, Wish
from core.documents.document import Document
from core.errors import PasswordNeeded, ScannedPages, UserError
from core.events import Event

log = logging.getLogger(__name__)
SUMMARIZE = "Summarize this book"
STOP_WAIT_S = 5.0
SAVE_WAIT_S = 30.0                             # 4 GB at 150 MB/s; more than that goes on after the next start
TURN_KEYS = ("ids", "level_pieces", "sources")


class Engine(Protocol):
    """What the desk needs of app.runtime.Runtime."""

    state: str
    error: str
    loading_fraction: float | None
    plan: dict | None
    model_name: str
    context_tokens: int

    def start(self) -> None: ...
    def save(self, timeout_s: float) -> None: ...
    def close(self) -> None: ...
    def card(self, book: Document) -> dict: ...
    def ask(self, *, book: Document | None, book_id: str, conversation_id: str, question: str | None,
            chapters: tuple[int, int] | None, fit: str, params: dict, history: list[dict]) -> Iterator[Event]: ...
    def stop(self) -> None: ...
    def forget(self, conversation_id: str) -> None: ...
    def forget_book(self, book_id: str) -> None: ...


class Desk:
    """One book open, one conversation, at most one answer in the making. Thread-safe; every change raises `version`."""

    def __init__(self, engine: Engine, library: Library, history: History, *, upload_dir: Path,
                 read: Callable[..., Document], can_ocr: Callable[[], bool], samples: tuple[Path, ...] = ()) -> None:
        self.engine, self.library, self.history, self.samples = engine, library, history, samples
        self._upload_dir, self._read, self._can_ocr = upload_dir.resolve(), read, can_ocr
        self._lock = threading.RLock()
        self._cancel_reading = threading.Event()
        self._hurry = threading.Event()
        self._wish = Wish()
        self._cards: dict[tuple[str, str], dict] = {}
        self._carding: set[tuple[str, str]] = set()
        self.version = 0
        self.shelf_version = 0
        self.book_id = ""
        self.conversation_id = ""
        self.job: Job | None = None
        self.opening: Opening | None = None
        self.notice: Notice | None = None
        self.passage = Passage()
        history.settle()

    def resume(self) -> None:
        """Puts the book that was opened last back on the desk."""
        entries = self.library.entries()
        if entries:
            self.select_book(entries[0].id)

    # --- what the page shows

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
        return job is not None and job.snapshot.running

    @property
    def turns(self) -> list[Turn]:
        """The conversation's turns, the one being written included."""
        return self.history.turns(self.conversation_id) if self.conversation_id else []

    def card(self) -> dict | None:
        """What the engine says about the open book; None until it has said it (it is asked in the background)."""
        key = (self.book_id, self.engine.model_name)
        if key in self._cards or not self.book_id or self.engine.state not in ("ready", "busy"):
            return self._cards.get(key)
        with self._lock:
            if self.engine.state == "ready" and key not in self._carding:
                self._carding.add(key)
                threading.Thread(target=self._fetch_card, args=(key, self.book), name="card", daemon=True).start()
        return None

    # --- books

    def open_upload(self, path: str, name: str) -> None:
        """Reads an uploaded file in the background; the upload is deleted once it is read. Foreign paths are refused."""
        real = Path(path).resolve()
        if not real.is_relative_to(self._upload_dir) or not real.is_file():
            self._say("That file did not arrive. Please drop it again.")
            return
        self._open(Opening(real, name))

    def refuse_upload(self, name: str, reason: str) -> None:
        """Says why a dropped file was not taken."""
        self._say(f"“{name}” was not opened. {reason}")

    def open_sample(self, name: str) -> None:
        """Opens one of the app's own books."""
        for sample in self.samples:
            if sample.name == name:
                self._open(Opening(sample, name, keep=True))

    def give_password(self, password: str) -> None:
        """Tries again to open the locked file."""
        opening = self.opening
        if opening and opening.locked:
            self._open_again(replace(opening, locked=False, password=password))

    def read_pictures(self) -> None:
        """Reads the file that waits again, its scanned pages by OCR."""
        opening = self.opening
        if opening and opening.offer:
            self._open_again(replace(opening, offer="", ocr=True))

    def cancel_opening(self) -> None:
        """Gives up on the file that is being read."""
        self._cancel_reading.set()
        with self._lock:
            if self.opening and self.opening.waiting:
                self._drop_upload(self.opening)
                self.opening = None
        self._change()

    def select_book(self, book_id: str) -> None:
        """Opens a book of the shelf with its newest conversation."""
        if self._refuse_while_busy():
            return
        try:
            self.library.touch(book_id)
        except KeyError:
            self._say("That book is no longer on the shelf. Drop its file again to read it.")
            return
        with self._lock:
            chapters = self.library.get(book_id).chapters
            first = Passage(chapters[0].start if chapters else 0)
            self.book_id, self.passage, self.notice, self.job = book_id, first, None, None
            talks = self.history.conversations(book_id)
            self.conversation_id = talks[0].id if talks else ""
            self.shelf_version += 1
        self._change()

    def forget_book(self, book_id: str) -> None:
        """Deletes the book's text, what was kept of its reading, and all conversations about it."""
        if self._refuse_while_busy():
            return
        try:
            self.library.forget(book_id)
        except KeyError:
            return
        self.engine.forget_book(book_id)
        for conversation_id in self.history.forget_book(book_id):
            self.engine.forget(conversation_id)
        with self._lock:
            self._cards = {key: card for key, card in self._cards.items() if key[0] != book_id}
            if self.book_id == book_id:
                self.book_id = self.conversation_id = ""
                self.job = None
            self.shelf_version += 1
            self.notice = Notice("The book's text and its conversations are deleted from this computer.", "info")
        self._change()

    # --- conversations

    def select_conversation(self, conversation_id: str) -> None:
        """Goes back to an older conversation about the open book."""
        if self._refuse_while_busy():
            return
        if any(talk.id == conversation_id for talk in self.history.conversations(self.book_id)):
            with self._lock:
                self.conversation_id, self.job, self.notice = conversation_id, None, None
            self._change()

    def new_conversation(self) -> None:
        """Puts the conversation away and starts an empty one; the book stays in the engine's memory."""
        if not self._refuse_while_busy():
            with self._lock:
                self.conversation_id, self.job, self.notice = "", None, None
            self._change()

    def forget_conversation(self, conversation_id: str) -> None:
        """Deletes one conversation."""
        if self._refuse_while_busy():
            return
        self.history.forget(conversation_id)
        self.engine.forget(conversation_id)
        with self._lock:
            self.shelf_version += 1
            if conversation_id == self.conversation_id:
                self.conversation_id, self.job = "", None
        self._change()

    def clear(self) -> None:
        """Deletes the current conversation."""
        if self.conversation_id:
            self.forget_conversation(self.conversation_id)

    # --- answers

    def summarize(self, wish: Wish) -> None:
        """Asks for a summary of the open book."""
        if self.book is None:
            self._say("Open a book first: drop a PDF, EPUB or TXT on the page, or choose the sample.")
        else:
            self._ask(None, wish)

    def ask(self, question: str, wish: Wish) -> bool:
        """Asks a question; False when it could not be taken (the text should stay in its box)."""
        return bool(question.strip()) and self._ask(question.strip(), wish)

    def regenerate(self, wish: Wish) -> None:
        """Answers the last question again; the old answer is dropped."""
        turns = self.turns
        if self.busy or not turns or turns[-1].role != "assistant":
            return
        question = turns[-2]
        self.history.cut(self.conversation_id, question.number)
        asked = question.extra
        chapters = tuple(asked["chapters"]) if asked.get("chapters") else None
        again = Wish(chapters=chapters, fit=asked.get("fit", "auto"), params=wish.params)
        self._ask(None if asked.get("summary") else question.text, again)

    def stop(self) -> None:
        """Ends the answer or the reading of a file as soon as possible; what is there stays."""
        self._cancel_reading.set()
        job = self.job
        if job and job.snapshot.running:
            job.stop()

    def restart_engine(self) -> None:
        """Starts a failed engine again."""
        if self.engine.state == "failed":
            self.engine.start()
        self._change()

    def show(self, offset: int, length: int = 0) -> None:
        """Shows a place of the book in the reader pane."""
        book = self.book
        if book and 0 <= offset < max(1, len(book.text)):
            self.passage = Passage(offset, max(0, min(length, len(book.text) - offset)))
            self._change()

    def dismiss(self) -> None:
        """Takes the message away."""
        self.notice = None
        self._change()

    def export(self) -> tuple[str, str]:
        """The conversation as (file name without suffix, Markdown)."""
        title = self.book.title if self.book else "Conversation"
        return title[:80], self.history.markdown(self.conversation_id, book=title)

    def close(self) -> None:
        """Stops everything, keeps what was read of books on disk, and ends the engine; nothing is left running.

        `hurry` may come meanwhile, from another thread.
        """
        self.stop()
        if self.job:
            self.job.join(STOP_WAIT_S)
        if not self._hurry.is_set():
            self.engine.save(SAVE_WAIT_S)
        self.engine.close()
        if self.job:
            self.job.join(STOP_WAIT_S)
        self.history.close()

    def hurry(self) -> None:
        """Lets `close` wait no longer for what is being stored."""
        self._hurry.set()
        self.engine.stop()

    # --- inside

    def _ask(self, question: str | None, wish: Wish) -> bool:
        if self.engine.state == "failed":
            self._say("The engine is not running. Restart it with the button at the top, then ask again.")
            return False
        with self._lock:
            if self.busy:
                return False
            if not self.conversation_id:
                self.conversation_id = self.history.create(self.book_id).id
            before = _for_engine(self.turns)
            text = _summary_words(wish.chapters) if question is None else question
            self.history.add(self.conversation_id, "user", text, extra={
                "summary": question is None, "chapters": wish.chapters, "fit": wish.fit})
            events = self.engine.ask(
                book=self.book, book_id=self.book_id, conversation_id=self.conversation_id, question=question,
                chapters=wish.chapters, fit=wish.fit, params=wish.params or {}, history=before)
            self.job = Job(events, self.history, self.conversation_id, changed=self._change, stop=self.engine.stop)
            self.notice = None
            self.shelf_version += 1
        self.job.start()
        self._change()
        return True

    def _open(self, opening: Opening) -> None:
        if self._refuse_while_busy():
            self._drop_upload(opening)
            return
        with self._lock:
            before = self.opening if self.opening and self.opening.path != opening.path else None
            if before and not before.waiting:
                self._drop_upload(opening)
                self._say("One file at a time, please: another one is still being read.")
                return
            if before:
                self._drop_upload(before)
            self.opening, self.notice = opening, None
        self._cancel_reading.clear()
        threading.Thread(target=self._read_file, args=(opening,), name="reading", daemon=True).start()
        self._change()

    def _open_again(self, opening: Opening) -> None:
        if self._refuse_while_busy():
            return
        if opening.path.is_file():
            self._open(replace(opening, stage="Opening", fraction=None))
        else:                                  # uploads do not wait for ever
            self.opening = None
            self._say(f"“{opening.name}” was deleted here in the meantime. Please drop it again.")

    def _read_file(self, opening: Opening) -> None:
        def progress(stage: str, fraction: float | None = None) -> None:
            self.opening = replace(opening, stage=stage, fraction=fraction)
            self._change()

        done: Opening | None = None
        try:
            document = self._read(opening.path, password=opening.password, ocr=opening.ocr, progress=progress,
                                  should_stop=self._cancel_reading.is_set)
            if not self._cancel_reading.is_set():
                self._shelve(_named(document, opening.name), again=opening.ocr)
                pages = len(document.page_starts)
                done = self._offered(opening, f"{document.pictures} of {pages} pages of “{opening.name}” are pictures and were left out."
                                     ) if document.pictures else None
        except PasswordNeeded as error:
            done = replace(opening, locked=True)
            self.notice = Notice(str(error)) if opening.password else None
        except ScannedPages as error:
            done = self._offered(opening, str(error))
            self.notice = None if done else Notice(str(error))
        except UserError as error:
            self.notice = Notice(str(error))
        except Exception:                      # the boundary to the person: a reader's bug must not take the page down
            log.exception("reading %s failed", opening.name)
            self.notice = Notice(f"“{opening.name}” could not be read. The log has the details; "
                                 "another format of the same book may work.")
        finally:
            if done is None:
                self._drop_upload(opening)
            self.opening = done
            self._change()

    def _offered(self, opening: Opening, words: str) -> Opening | None:
        """The file, waiting for a word about its pictures; None where nothing could read them."""
        return replace(opening, offer=words) if self._can_ocr() and not opening.ocr else None

    def _shelve(self, document: Document, *, again: bool) -> None:
        """Puts the book on the shelf, and on the desk unless an answer is being written there. `again`: its text has changed."""
        self.library.add(document)
        if again:
            self.engine.forget_book(document.sha256)
            self._cards = {key: card for key, card in self._cards.items() if key[0] != document.sha256}
        if self.busy:
            self.shelf_version += 1
            self._say(f"“{document.title}” was read and stands on the shelf.", "info")
        else:
            self.select_book(document.sha256)

    def _fetch_card(self, key: tuple[str, str], book: Document | None) -> None:
        try:
            if book is not None:
                self._cards[key] = self.engine.card(book)
        except UserError as error:
            self._cards[key] = {"notes": [str(error)]}
        except Exception:                      # a background thread's boundary: the page goes on without the estimate
            log.exception("no estimate for the book")
            self._cards[key] = {}
        finally:
            self._carding.discard(key)
            self._change()

    def _drop_upload(self, opening: Opening) -> None:
        if not opening.keep:
            opening.path.unlink(missing_ok=True)

    def _refuse_while_busy(self) -> bool:
        if self.busy:
            self._say("An answer is being written. Stop it first.", "info")
        return self.busy

    def _say(self, text: str, kind: str = "error") -> None:
        self.notice = Notice(text, kind)
        self._change()

    def _change(self) -> None:
        with self._lock:
            self.version += 1


def _summary_words(chapters: tuple[int, int] | None) -> str:
    """What the page shows as the question of a summary."""
    if chapters is None:
        return SUMMARIZE
    first, last = chapters
    return f"Summarize chapter {first}" if first == last else f"Summarize chapters {first} to {last}"


def _for_engine(turns: list[Turn]) -> list[dict]:
    """The finished exchanges; a question whose answer failed or never began would confuse the next one."""
    kept: list[Turn] = []
    for question, answer in zip(turns[::2], turns[1::2], strict=False):
        if answer.state != "failed" and answer.text:
            kept += [question, answer]
    return [{"role": turn.role, "text": turn.text, **{key: turn.extra.get(key, []) for key in TURN_KEYS}} for turn in kept]


def _named(document: Document, name: str) -> Document:
    return document if document.title.strip() else replace(document, title=Path(name).stem)
