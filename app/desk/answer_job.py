"""The one answer that is being made.

It lives in the server, so a reloaded page finds it again. Knows nothing of pages.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace

from app.desk.answer_snapshot import Snapshot, joined
from app.desk.pacing import Pacer
from app.desk.store import Store
from app.errors import in_words
from app.store.history import History
from app.store.turns import StoredTurn, told_chars
from core.conversation.summary_layout import quoted, retold_to
from core.events import (
    AttentionEvidence,
    Delta,
    Event,
    Failed,
    Finished,
    Loading,
    Piece,
    Prefill,
    Preparing,
    ReadingStep,
    Stats,
    SummaryDraft,
)
from core.request import Request
from core.stats import AnswerStats
from core.text.words import translated as _

log = logging.getLogger(__name__)
SAVE_EVERY_S = 1.0
LATE = 1.5  # times as long as was promised: what is read differs by half
COUNT_EVERY_S = 0.25  # the panel is drawn as often


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What an answer asks of the engine, and whom it tells. `done` is given an answer that was not stopped;
    `ended` is called last, however it ended. `model`: which one answers, asked when the answer is kept.
    """

    stop: Callable[[], None] = lambda: None
    done: Callable[[Finished], None] = lambda finished: None
    ended: Callable[[], None] = lambda: None
    model: Callable[[], str] = lambda: ""


class AnswerJob:
    """Runs one stream of events in its own thread, puts the answer as it stands into the state, and writes it
    to the history while it grows. The earlier answer that it takes the place of (`instead_of`) is kept as a
    version from the first that is written; where this one breaks off, the better one stands.
    """

    def __init__(
        self,
        events: Iterator[Event],
        history: History,
        asked: Request,
        store: Store,
        tell: Callbacks,
        *,
        instead_of: StoredTurn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events, self._history, self._asked = events, history, asked
        self._store, self._tell, self._clock = store, tell, clock
        self._snapshot, self._step_at = Snapshot(), clock()
        self._pacer = Pacer(clock)
        # of the answer, before what is being written now
        self._standing: tuple[Piece, ...] = ()
        self._saved_at = clock()
        self._figures, self._counted_at = AnswerStats(), -math.inf
        # what of an earlier answer must not be lost
        self._earlier, self._beside = bool(instead_of and instead_of.text), False
        if instead_of is None:
            self.turn = history.add(self.conversation_id, "assistant", "", state="writing")
        else:
            self.turn = instead_of.number
        self._thread = threading.Thread(target=self._run, name="answer", daemon=True)

    @property
    def conversation_id(self) -> str:
        """Where the answer is kept."""
        return self._asked.conversation_id

    @property
    def snapshot(self) -> Snapshot:
        """The newest state; a value, safe to read from any thread."""
        return self._snapshot

    @property
    def visible(self) -> int:
        """Characters of the text that is being written which are to be seen by now."""
        return self._pacer.visible()

    @property
    def late(self) -> bool:
        """Whether what is read now takes longer than was promised: the time that is left stands still."""
        now, step = self._snapshot, self._snapshot.reading
        if not now.running or step is None or not step.left_s:
            return False
        pieces = step.total - step.index + 1 if step.purpose == "passage" else 1
        return self._clock() - self._step_at > LATE * step.left_s / pieces

    def start(self) -> None:
        """Begins to read the events."""
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end; it comes with the next event at the latest."""
        self._set(stopping=True)
        self._tell.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the answer is complete and saved; False when it still runs after `timeout`."""
        if self._thread.ident is not None:  # it may not have begun
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for event in self._events:
                self._take(event)
                if self._snapshot.stopping and isinstance(event, Loading):
                    self._end(Finished("user", "", Stats()))  # nothing was answered yet
                    if isinstance(self._events, Generator):
                        self._events.close()  # what was asked of the engine ends with it
                    break
                if self._snapshot.stopping and isinstance(event, ReadingStep):
                    self._tell.stop()  # the engine has only now heard of the question
            if self._snapshot.running:
                self._end(Failed(_("The answer ended without a result. Please ask again.")))
        # the thread's boundary: without this the page would wait for ever
        except Exception:
            log.exception("the answer broke off")
            words = _(
                "Something went wrong inside the app and the answer broke off; the log has the details. "
                "What was written so far is kept. Please ask again."
            )
            self._end(Failed(words))
        self._tell.ended()

    def _take(self, event: Event) -> None:
        self._figures.take(event)
        if isinstance(event, Loading):
            self._set(phase="loading", loading=event)
        elif isinstance(event, ReadingStep):
            self._next_part(event)
        elif isinstance(event, Preparing):
            self._set(phase="preparing", preparing=event)
        elif isinstance(event, Prefill):
            self._set(phase="prefill", prefill=event)
        elif isinstance(event, SummaryDraft):
            self._stand(event)
        elif isinstance(event, Delta) and self._snapshot.standing:
            now = self._snapshot.standing
            self._stand(replace(now, telling=joined(now.telling, event.pieces)), stats=self._counted())
            self._save_sometimes()
        elif isinstance(event, Delta):
            pieces = joined(self._snapshot.pieces, event.pieces)
            self._pacer.arrived(sum(len(piece.text) for piece in pieces))
            self._set(phase="streaming", pieces=pieces, stats=self._counted())
            self._save_sometimes()
        elif isinstance(event, AttentionEvidence):
            self._set(looked=(*self._snapshot.looked, event))
        elif isinstance(event, (Finished, Failed)):
            self._end(event)

    def _stand(self, now: SummaryDraft, **changes: object) -> None:
        """Shows a summary that is told in the place of what stands there. It is all to be seen at once."""
        pieces = (*now.before, *now.telling, *now.after)
        self._pacer.arrived(0)
        self._pacer.arrived(sum(len(piece.text) for piece in pieces))
        phase = "streaming" if now.telling else self._snapshot.phase
        self._set(phase=phase, standing=now, pieces=pieces, **changes)

    def _counted(self) -> Stats | None:
        """The figures so far, as old as the panel's may be."""
        if self._clock() - self._counted_at < COUNT_EVERY_S:
            return self._snapshot.stats
        self._counted_at = self._clock()
        return self._figures.stats()

    def _next_part(self, event: ReadingStep) -> None:
        """What was written about the part before is not the answer; it is kept beside it, unless the same
        part is told anew.

        The stretches of a summary of the whole follow each other in the answer.
        """
        self._step_at = self._clock()
        now = self._snapshot = replace(self._snapshot, whole_s=self._snapshot.whole_s or event.left_s or 0.0)
        if event.purpose == "telling":  # in the place of what stands there
            self._set(phase="prefill", reading=event, prefill=None, looked=())
            return
        if event.attempt == 1:
            whole = (
                event.purpose == "whole summary"
                and now.reading is not None
                and now.reading.purpose == event.purpose
            )
            self._standing = now.pieces if whole else ()
            if not whole and now.reading and now.text.strip():
                self._set(parts=(*now.parts, (now.reading.label, now.text.strip())))
        self._set(phase="prefill", reading=event, prefill=None, pieces=self._standing, looked=())

    def _set(self, **changes: object) -> None:
        self._snapshot = replace(self._snapshot, **changes)
        self._store.update(answer=self._snapshot)

    def _save_sometimes(self) -> None:
        if self._clock() - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = self._clock()
            with contextlib.suppress(sqlite3.Error):  # the end says so; until then the answer goes on
                self._write(self._snapshot.kept, state="writing", **so_far(self._snapshot))

    def _end(self, event: Finished | Failed) -> None:
        now = self._snapshot
        if isinstance(event, Failed):
            said = {"error": event.message, "ways": list(event.ways), **so_far(now)}
            self._save(now.kept, state="failed", why=event.message, **said)
            self._set(phase="failed", error=event.message, fatal=event.fatal, parts=())
            return
        pieces = joined((), event.pieces or (Piece(event.text, ""),))
        parts = now.parts if event.reason != "user" else ()  # they stand in the text then
        self._save(
            pieces,
            text=event.text,
            state="stopped" if event.reason == "user" else "finished",
            why=_("Stopped."),
            parts=[list(part) for part in parts],
            ids=list(event.token_ids),
            decoded=list(event.decoded),
            drawn=event.drawn,
            sources=list(event.sources),
            notes=list(event.notes),
            reason=event.reason,
            stats=asdict(event.stats),
            stands=[asdict(one) for one in event.stands],
        )
        if event.reason != "user":
            self._tell.done(event)
        self._set(phase="finished", finished=event, pieces=pieces, stats=event.stats, parts=parts)

    def _save(self, pieces: tuple[Piece, ...], *, state: str, why: str, **said: object) -> None:
        """Writes the answer at its end. One that cannot be written is shown all the same, and the person is
        told; also which answer stands, where this one broke off, `why`.
        """
        try:
            written = self._write(pieces, state=state, **said)
            if state == "finished" or not self._earlier:
                return
            words = _("{reason} The earlier answer is kept.")
            if written:
                words = _("{reason} The earlier answer stands; what was written anew is kept beside it.")
            if not written or self._history.stand_back(self.conversation_id, self.turn):
                self._store.say(words.format(reason=why), "info" if state == "stopped" else "error")
        except sqlite3.Error as error:  # the turn tells so too, as long as it stands there
            words = _("The answer is shown, but it is not stored yet. {reason}")
            self._store.say(words.format(reason=in_words(error)))

    def _write(
        self, pieces: tuple[Piece, ...], *, state: str, text: str | None = None, **said: object
    ) -> bool:
        """Puts the answer into the history as it is; False where an earlier one is there and nothing was told
        yet. Raises sqlite3.Error.
        """
        text = "".join(piece.text for piece in pieces) if text is None else text
        if self._earlier and state != "finished" and not told_chars(text, said["stands"]):
            return False
        extra = {
            **said,
            "level_pieces": [[piece.text, piece.level] for piece in pieces],
            "spoiler_limit": self._asked.spoiler_limit,
            "instructions": self._asked.instructions,
            "params": dict(self._asked.params),
            "model": self._tell.model(),
            "looked": [asdict(one) for one in self._snapshot.looked],
        }
        keeps, self._beside = self._earlier and not self._beside, True
        self._history.update(
            self.conversation_id, self.turn, text, state=state, extra=extra, keeps_version=keeps
        )
        return True


def so_far(now: Snapshot) -> dict[str, list]:
    """What is kept with an answer that breaks off at this moment; what was told of parts is in its text."""
    stands = [asdict(one) for one in now.standing.stands] if now.standing else []
    return {"stands": stands, "notes": how_far(now)}


def how_far(now: Snapshot) -> list[str]:
    """What is said of a summary that broke off while its parts were told."""
    if now.standing is None or now.reading is None:
        return []
    return [*quoted(now.standing.stands), retold_to(now.reading.index, now.reading.total)]
