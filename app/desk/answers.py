"""Who answers next: a question goes into the history, and its answer is begun."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.chapters import Chapters
from app.desk.retelling import retold
from app.desk.store import Store
from app.desk.values import AnswerPlace
from app.errors import guarded, is_full
from app.store.history import History
from app.store.making_room import with_room
from app.store.turns import StoredTurn, going_on, wording
from core.events import Event
from core.request import HistoryTurn, Request

if TYPE_CHECKING:
    from app.engine.client import Runtime


class AnswerQueue:
    """Has questions answered, one at a time. `job`: the answer that was begun last."""

    def __init__(
        self,
        store: Store,
        engine: Runtime,
        history: History,
        chapters: Chapters,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called behind every answer."""
        self._store, self._engine, self._history, self._ended = store, engine, history, ended
        self._chapters, self._lock = chapters, threading.Lock()
        self.job: AnswerJob | None = None

    def begin(
        self,
        ask: Request,
        instead_of: StoredTurn | None = None,
        *,
        left: Sequence[HistoryTurn] = (),
        retell: bool = False,
        queued: Request | None = None,
    ) -> bool:
        """Has the question answered; False while another answer is written. `instead_of`: the answer that
        this one takes the place of. `left`: what goes no longer to the engine, of the questions before;
        `retell`: but as a summary. `queued`: the question that waited and is this one; False where another
        waits, or it does no more.
        """
        with self._lock:
            if self._store.state.working or self._store.state.queued is not queued:
                return False
            job = self.job = self._kept(lambda: self._prepared(ask, instead_of, left, retell))
            self._store.update(
                lambda now: replace(now, answers=now.answers + 1, arrivals=now.arrivals_but(now.book_id)),
                notice=None,
                answer=job.snapshot,
                answer_place=AnswerPlace(ask.book_id, ask.conversation_id, wording(ask)),
                queued=None,
            )
        job.start()
        return True

    def stop(self) -> None:
        """Ends the answer as soon as possible; what is there stays."""
        if self.job and self.job.snapshot.running:
            self.job.stop()

    def join(self, timeout_s: float) -> None:
        """Waits for the answer's end."""
        if self.job:
            self.job.join(timeout_s)

    def _kept(self, prepared: Callable[[], AnswerJob]) -> AnswerJob:
        """A question that the disk has no room for, or whose folder is gone, is asked all the same; its
        answer says that it is not stored.
        """

        def in_order() -> AnswerJob:
            self._history.store_again()  # what had no room before stands before it
            return prepared()

        try:
            return with_room(in_order)
        except sqlite3.Error as error:
            if self._history.path.is_file() and not is_full(error):
                raise
            with self._history.holding():
                return prepared()

    def _prepared(
        self, ask: Request, instead_of: StoredTurn | None, left: Sequence[HistoryTurn], retell: bool
    ) -> AnswerJob:
        """The question goes into the history, unless its answer stands there, and the answer's place."""
        history, talk = self._history, ask.conversation_id
        if not history.title(talk):  # it is its first question
            history.create(ask.book_id, ask.spoiler_limit, talk)
        pairs = going_on(history.turns(talk)[: -2 if instead_of else None], ask.spoiler_limit)
        with history.together():  # a question without its answer would shift all that follow
            number, since = instead_of.number - 1 if instead_of else history.ask(talk, ask), 0
            if left:
                since = pairs[-len(ask.history)][0].number if ask.history else number
                history.note(talk, number, since=since, told="")
            events = self._retold(ask, left, number, since) if retell else self._engine.ask(ask)
            callbacks = self._callbacks(ask)
            return AnswerJob(events, history, ask, self._store, callbacks, instead_of=instead_of)

    def _callbacks(self, ask: Request) -> Callbacks:
        return Callbacks(
            stop=self._engine.stop,
            done=lambda finished: self._chapters.keep(ask, finished, self._engine.model_name),
            ended=lambda: guarded(self._ended, self._store.say, None),
            model=lambda: self._engine.model_name,
        )

    def _retold(self, ask: Request, left: Sequence[HistoryTurn], number: int, since: int) -> Iterator[Event]:
        def keep(told: str) -> None:
            self._history.note(ask.conversation_id, number, since=since, told=told)

        return retold(self._engine, ask, left, keep=keep)
