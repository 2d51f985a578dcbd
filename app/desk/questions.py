"""A question on its way from the page to the engine. What the context has no room for is chosen by the person
before anything is sent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from app.desk.answers import AnswerQueue
from app.desk.books import OpenBooks
from app.desk.reader import read_up_to
from app.desk.requests import Requests, span
from app.desk.retelling import RETOLD_TOKENS
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import ContextOverflow, Remedy
from app.desk.waiting import WaitingQuestions
from app.errors import in_words
from app.store.history import History
from app.store.turns import StoredTurn, asked_again, exchanges, in_short, new_id
from core.conversation.reading import book_chapters
from core.documents.document import Document
from core.documents.word_count import count_words
from core.errors import UserError
from core.request import Request
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime


MOST_CHARS = 20_000  # of a question
RECAP_WORDS = 60  # that must have been read
ROOM_WAIT_S = 1.0  # until the engine says what there is room for


class Questions:
    """Asks what the person asks. `refuses(question)` says why one is not asked, if that is so;
    `also(question)` puts it to other books, too; `choose_reading` has the open book read in another way.
    """

    def __init__(
        self,
        store: Store,
        engine: Runtime,
        books: OpenBooks,
        *,
        requests: Requests,
        answers: AnswerQueue,
        history: History,
        waiting: WaitingQuestions,
        refuses: Callable[[str], bool],
        also: Callable[[str], None],
        choose_reading: Callable[[str], None],
    ) -> None:
        self._store, self._engine, self._books, self._history = store, engine, books, history
        self._requests, self._answers, self._refuses, self._also = requests, answers, refuses, also
        self._choose_reading, self._waiting = choose_reading, waiting

    def ask(self, question: str) -> bool:
        """Asks a question, or has it wait for the end of the answer that is written. False when it could not
        be taken (the text should stay in its box).
        """
        question = question.strip()
        if not question or self._is_long(question) or self._is_down() or self._refuses(question):
            return False
        asked = self._send(question)
        if asked:
            self._also(question)
        return asked

    def summarize(self) -> None:
        """Asks for a summary of the open book as the page says."""
        if not self._is_down() and self._is_open():
            self._send(None)

    def summarize_chapter(self, number: int) -> None:
        """Has a chapter told, from its own text alone."""
        self._summarize_each((number,))

    def summarize_selected(self) -> None:
        """Has each of the ticked chapters told, from its own text alone."""
        self._summarize_each(self._store.state.selected_chapters)

    def summarize_up_to(self, number: int) -> None:
        """Has each chapter told up to this one, from its own text alone."""
        book = self._books.current
        self._summarize_each(range(1, min(number, max(1, len(book.chapters) if book else 0)) + 1))

    def recap(self, what: str) -> None:
        """Has told what was read, up to where the book stands open: of this chapter, of the one before, which
        is told whole, or since the visit before this one ("chapter", "before", "visit").
        """
        book, state = self._books.known, self._store.state
        if book is None:
            return
        end = read_up_to(book, state)
        starts = [one.start for one in book_chapters(book)]
        here = max(1, bisect_left(starts, end))
        if what == "before":
            self._summarize_each((here - 1,))
        elif what in ("chapter", "visit"):
            visited = state.notebook.visit_before or 0
            first = max(1, bisect_right(starts, visited)) if what == "visit" else here
            self._recap(book, min(first, here), here, end)

    def regenerate(self) -> None:
        """Answers the last question again. The old answer stands until the new one is complete; a summary
        that broke off goes on from the parts that were told.
        """
        turns = self._books.turns
        if turns and turns[-1].role == "assistant" and not self._is_down():
            again = turns[-1].state == "finished"
            self._send(instead_of=turns[-1], **asked_again(turns[-2]), again=again)

    def ask_again(self, number: int) -> None:
        """Asks at the end of the conversation what the answer of this number never began to answer."""
        for question, answer in pairwise(self._books.turns):
            if answer.number == number and answer.role == "assistant" and not self._is_down():
                self._send(**asked_again(question))

    def ask_as(self, mode: str) -> None:
        """Asks the question that was refused again, with the book read in a way that answers it; the book is
        read so from now on.
        """
        turns = self._books.turns
        if not turns or turns[-1].state != "failed" or self._store.refuse_while_busy() or self._is_down():
            return
        self._choose_reading(mode)
        self._history.note(self._store.state.conversation_id, turns[-2].number, reading_mode=mode)
        self.regenerate()

    def drop_oldest(self) -> None:
        """Asks without the oldest questions; they stay to be read."""
        self._leave_out(retell=False)

    def retell_oldest(self) -> None:
        """Asks with a summary in place of the oldest questions."""
        self._leave_out(retell=True)

    def start_fresh(self) -> None:
        """Asks in a new conversation."""
        if waiting := self._taken():
            self._books.begin_conversation()
            talk = self._store.update(conversation_id=new_id()).conversation_id
            self._answers.begin(replace(waiting.ask, conversation_id=talk, history=()))
            self._waiting.keep()

    def advance(self) -> None:
        """Asks the question that waits, once nothing else is answered. It gets what was said before it."""
        queued = self._store.state.queued
        if queued is None or self._store.state.working:
            return
        try:
            self._ask_queued(queued)
        except Exception as error:  # nobody waits for this call: what it could not do is said on the page
            words = _("“{question}” could not be asked. {reason}")
            self._store.say(words.format(question=in_short(queued), reason=in_words(error)))
            self._store.update(queued=None)
        self._waiting.keep()

    def drop(self) -> str:
        """The question that waits is not asked; what it was, "" for a summary or none."""
        dropped = self._store.state.queued
        self._store.update(queued=None)
        self._waiting.keep()
        return dropped.question or "" if dropped else ""

    def cancel(self) -> None:
        """The question is not asked."""
        self._store.update(overflow=None)
        self._waiting.keep()

    def close(self) -> None:
        """Asks nothing more. What waits stays on disk, for the next start."""
        self._store.update(queued=None)

    def _summarize_each(self, numbers: Iterable[int]) -> None:
        """Chapters that the book has not, or not before its limit, are passed over."""
        book, spoiler_limit = self._books.current, self._store.state.spoiler_limit
        count = max(1, spoiler_limit or (len(book.chapters) if book else 0))
        told = sorted({one for one in numbers if 1 <= one <= count})
        if told and not self._is_down() and self._is_open():
            self._send(None, **span(told), summary_length="chapters")

    def _recap(self, book: Document, first: int, last: int, end: int) -> None:
        """Nothing is told where hardly anything was read."""
        start = book_chapters(book)[first - 1].start
        if count_words(book.text[start:end]) < RECAP_WORDS:
            self._store.say(_("There is nothing to recap yet: read on a little first."), "info")
        elif not self._is_down():
            told = {"chapters": (first, last), "selected_chapters": (), "end": end}
            self._send(None, **told, summary_length="paragraph")

    def _is_open(self) -> bool:
        """Whether a book lies open; says so where none does."""
        if self._books.current is None:
            words = _("Open a book first: drop its file on the page, paste a text, or choose a sample.")
            self._store.say(words)
        return self._books.current is not None

    def _send(self, question: str | None, *, instead_of: StoredTurn | None = None, **chosen: Any) -> bool:
        """Makes the question, and asks it, or has it wait, or lets the person choose first."""
        if self._store.refuse_while_busy() if instead_of else self._store.refuse_while_moving():
            return False
        before = self._books.turns[: -2 if instead_of else None]
        talk = self._store.state.conversation_id or new_id()
        ask = self._requests.make(question, before, conversation_id=talk, **chosen)
        if self._store.state.busy:
            return self._queue(ask)
        if waiting := self._overflow(ask, instead_of):
            return self._has_choice(waiting)
        self._store.update(AppState.gone_on, conversation_id=talk)
        return self._answers.begin(ask, instead_of) or (instead_of is None and self._queue(ask))

    def _queue(self, ask: Request) -> bool:
        """Has the question wait until nothing else is answered; there is one place."""
        taken = self._store.update(lambda now: now if now.queued else replace(now, queued=ask)).queued is ask
        if taken:
            self._store.update(conversation_id=ask.conversation_id)
            self._waiting.keep()
            self.advance()  # the answer may have ended meanwhile
        else:
            self._store.say(_("One question waits already: let it have its turn, or drop it."), "info")
        return taken

    def _has_choice(self, waiting: ContextOverflow) -> bool:
        """Lets the person choose what goes; there is one place for a question that waits for that."""
        before = self._store.update(
            lambda now: now if now.overflow else replace(now, overflow=waiting)
        ).overflow
        if before is waiting:
            self._waiting.keep()
        else:
            words = _("“{question}” waits for a choice first: make it, or do not ask it.")
            there = Remedy(_("Go there"), act="said", id=before.ask.conversation_id, book=before.ask.book_id)
            self._store.say(words.format(question=in_short(before.ask)), "info", there)
        return before is waiting

    def _ask_queued(self, queued: Request) -> None:
        before = self._books.turns_of(queued.conversation_id)
        ask = replace(queued, history=exchanges(before, queued.spoiler_limit))
        if waiting := self._overflow(ask, None):
            if self._store.state.overflow is not None:
                raise UserError(_("Another question waits for a choice first."))
            self._store.update(lambda now: _crowded(now, queued, waiting))
        else:
            self._answers.begin(ask, queued=queued)

    def _is_long(self, question: str) -> bool:
        """Says that a question is longer than any is, if that is so: it stays in its box, whole."""
        if len(question) > MOST_CHARS:
            words = _(
                "The question has {count} characters; {most} are taken at most. Shorten it, or have the text "
                "read as a book of its own: “Paste text”, on the left."
            )
            self._store.say(words.format(count=f"{len(question):,}", most=f"{MOST_CHARS:,}"), "info")
        return len(question) > MOST_CHARS

    def _is_down(self) -> bool:
        """Says that nothing can be asked, if that is so."""
        down = self._engine.state == "failed"
        if down:
            words = _("The engine is not running. Restart it, then ask again.")
            self._store.say(words, "error", Remedy(_("Restart"), act="restart"))
        return down or self._books.tell_lost()

    def _leave_out(self, *, retell: bool) -> None:
        if waiting := self._taken():
            said, oldest = waiting.ask.history, waiting.oldest
            ask = replace(waiting.ask, history=said[oldest:])
            self._answers.begin(ask, waiting.instead_of, left=said[:oldest], retell=retell)
            self._waiting.keep()

    def _taken(self) -> ContextOverflow | None:
        """The question that waited, if it belongs to what lies open."""
        if self._store.state.overflow is None or self._store.refuse_while_busy():
            return None
        waiting = self._store.state.shown_overflow
        self._store.update(overflow=None)
        return waiting

    def _overflow(self, ask: Request, instead_of: StoredTurn | None) -> ContextOverflow | None:
        """The choice, where there is one to make. Of an engine that still loads, or counts a long book first,
        nothing is known: it answers nothing rather than leave anything out (Request.forbid_truncation).
        """
        if not ask.history or self._engine.state != "ready":
            return None
        try:
            room = self._engine.room(ask, ROOM_WAIT_S)
        except UserError:
            return None  # the answer will say what is wrong
        least = too_many(room)
        if not least or least > len(ask.history):
            return None  # there is room, or none even without all that was said: the answer says so
        count, half = len(ask.history), (len(ask.history) + 1) // 2
        retold = too_many(room, beside=RETOLD_TOKENS)
        retells = retold <= count
        oldest = max(retold if retells else least, half)
        return ContextOverflow(ask, oldest, count, room, retells, instead_of)


def _crowded(now: AppState, queued: Request, waiting: ContextOverflow) -> AppState:
    """The question that waited for its turn waits for a choice instead, unless it was dropped."""
    return replace(now, queued=None, overflow=waiting) if now.queued is queued else now


def too_many(room: dict[str, Any], *, beside: int = 0) -> int:
    """How many of the oldest turns must go so that an answer fits with what is left, and with `beside`
    tokens more; one more than there are where nothing helps.
    """
    free = room["context"] - room["text"] - room["question"] - room["answer"]
    turns, gone = list(room["turns"]), 0
    while gone <= len(turns) and sum(turns[gone:]) + (beside if gone else 0) > free:
        gone += 1
    return gone
