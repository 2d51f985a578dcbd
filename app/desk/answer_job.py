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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.desk.pacing import Pacer
from app.errors import in_words
from app.store.history import History
from app.store.turns import StoredTurn
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
    SourceSpan,
    Stats,
    SummaryDraft,
)
from core.stats import AnswerStats
from core.text.words import Message
from core.text.words import translated as _

log = logging.getLogger(__name__)
SAVE_EVERY_S = 1.0
COUNT_EVERY_S = 0.25  # the panel is drawn as often


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of the answer at one moment. `phase`: starting | loading | preparing | prefill |
    streaming | finished | failed.
    """

    phase: str = "starting"
    loading: Loading | None = None
    reading: ReadingStep | None = None
    preparing: Preparing | None = None
    prefill: Prefill | None = None
    pieces: tuple[Piece, ...] = ()
    looked: tuple[AttentionEvidence, ...] = ()  # where the model looked for these pieces
    parts: tuple[tuple[str, str], ...] = ()  # (label, text) of the parts read before this one
    standing: SummaryDraft | None = None  # of a summary that is told in the place of what stands there
    stats: Stats | None = None
    finished: Finished | None = None
    error: str = ""
    whole_s: float = 0.0  # how long it takes by what was known at its first part; 0: unknown
    fatal: bool = False
    stopping: bool = False

    @property
    def running(self) -> bool:
        """Whether more is to come."""
        return self.phase not in ("finished", "failed")

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def kept(self) -> tuple[Piece, ...]:
        """What stays where the answer breaks off: what was told of the parts, and the text so far."""
        told = "".join(f"## {label}\n\n{text}\n\n" for label, text in self.parts)
        return _joined((Piece(told, ""),) if told else (), self.pieces)

    @property
    def telling(self) -> tuple[int, int]:
        """Where in the text the sentence stands that is not complete, or not held to the book yet."""
        if self.standing is None:
            return (0, 0)
        start, told = (sum(len(piece.text) for piece in some) for some in self._told())
        return (start, start + told)

    @property
    def stands(self) -> tuple[SourceSpan, ...]:
        """The places in the book of the sentences that stand, counted in the text."""
        start, end = self.telling
        return tuple(
            replace(one, start=one.start + end - start, end=one.end + end - start)
            if one.start >= start
            else one
            for one in (self.standing.stands if self.standing else ())
        )

    def _told(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        return self.standing.before, self.standing.telling


class AnswerJob:
    """Runs one stream of events in its own thread and writes the answer to the history while it grows.

    An answer `instead_of` an earlier one is written when it is complete; `say` tells when it does not come to
    that and the earlier one stands. `done` is given an answer that was not stopped; `ended` is called last,
    however it ended.
    """

    def __init__(
        self,
        events: Iterator[Event],
        history: History,
        conversation_id: str,
        *,
        changed: Callable[[], None],
        stop: Callable[[], None] = lambda: None,
        say: Callable[[str, str], None] = lambda words, kind: None,
        instead_of: StoredTurn | None = None,
        spoiler_limit: int | None = None,
        instructions: str = "",
        done: Callable[[Finished], None] = lambda finished: None,
        ended: Callable[[], None] = lambda: None,
        params: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.conversation_id, self.spoiler_limit, self._instructions = (
            conversation_id,
            spoiler_limit,
            instructions,
        )
        self._params = dict(params or {})
        self._events, self._history, self._clock = events, history, clock
        self._changed, self._stop, self._say = changed, stop, say
        self._done, self._ended = done, ended
        self._snapshot = Snapshot()
        self._pacer = Pacer(clock)
        # of the answer, before what is being written now
        self._standing: tuple[Piece, ...] = ()
        self._saved_at = clock()
        self._figures, self._counted_at = AnswerStats(), -math.inf
        # what of an earlier answer must not be lost
        self._stands = instead_of.text if instead_of else ""
        if instead_of is None:
            self.turn = history.add(conversation_id, "assistant", "", state="writing")
        else:
            self.turn = instead_of.number
        self._thread = threading.Thread(target=self._run, name="answer", daemon=True)

    @property
    def snapshot(self) -> Snapshot:
        """The newest state; a value, safe to read from any thread."""
        return self._snapshot

    @property
    def visible(self) -> int:
        """Characters of the text that is being written which are to be seen by now."""
        return self._pacer.visible()

    def start(self) -> None:
        """Begins to read the events."""
        self._thread.start()

    def stop(self) -> None:
        """Asks for the end; it comes with the next event at the latest."""
        self._set(stopping=True)
        self._stop()

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
                    self._end(Finished("user", "", Stats()))  # nothing was asked of the engine yet
                    break
                if self._snapshot.stopping and isinstance(event, ReadingStep):
                    self._stop()  # the engine has only now heard of the question
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
        self._ended()

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
            self._stand(replace(now, telling=_joined(now.telling, event.pieces)), stats=self._counted())
            self._save_sometimes()
        elif isinstance(event, Delta):
            pieces = _joined(self._snapshot.pieces, event.pieces)
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
        self._changed()

    def _save_sometimes(self) -> None:
        if not self._stands and self._clock() - self._saved_at >= SAVE_EVERY_S:
            self._saved_at = self._clock()
            with contextlib.suppress(sqlite3.Error):  # the end says so; until then the answer goes on
                text = "".join(piece.text for piece in self._snapshot.kept)
                self._history.update(self.conversation_id, self.turn, text, state="writing")

    def _end(self, event: Finished | Failed) -> None:
        now = self._snapshot
        if isinstance(event, Failed):
            if now.standing:  # without the sentence that nobody held to the book
                now = replace(now, pieces=(*now.standing.before, *now.standing.after))
            stands = [asdict(one) for one in now.standing.stands] if now.standing else []
            said = {"error": event.message, "ways": list(event.ways), "stands": stands}
            self._save("".join(piece.text for piece in now.kept), now.kept, state="failed", **said)
            if self._stands:
                self._say(_("{reason} The earlier answer is kept.").format(reason=event.message), "error")
            self._set(phase="failed", error=event.message, fatal=event.fatal, parts=())
            return
        pieces = _joined((), event.pieces or (Piece(event.text, ""),))
        self._save(
            event.text,
            pieces,
            state="stopped" if event.reason == "user" else "finished",
            ids=list(event.token_ids),
            decoded=list(event.decoded),
            drawn=event.drawn,
            sources=list(event.sources),
            notes=list(event.notes),
            reason=event.reason,
            stats=asdict(event.stats),
            stands=[asdict(one) for one in event.stands],
        )
        if self._stands and event.reason == "user":
            self._say(_("Stopped. The earlier answer is kept."), "info")
        if event.reason != "user":
            self._done(event)
        parts = now.parts if event.reason != "user" else ()  # they stand in the text then
        self._set(phase="finished", finished=event, pieces=pieces, stats=event.stats, parts=parts)

    def _save(self, text: str, pieces: tuple[Piece, ...], *, state: str, **extra: object) -> None:
        """Writes the answer. One that cannot be written is shown all the same, and the person is told."""
        if self._stands and state != "finished":
            return
        extra["level_pieces"] = [[piece.text, piece.level] for piece in pieces]
        extra["spoiler_limit"], extra["instructions"] = self.spoiler_limit, self._instructions
        extra["params"] = self._params
        extra["looked"] = [asdict(one) for one in self._snapshot.looked]
        extra["parts"] = [list(part) for part in self._snapshot.parts]
        try:
            self._history.update(
                self.conversation_id,
                self.turn,
                text,
                state=state,
                extra=extra,
                keeps_version=bool(self._stands),
            )
        except sqlite3.Error as error:  # the turn tells so too, as long as it stands there
            said = _("The answer is shown, but it is not stored yet. {reason}")
            self._say(said.format(reason=in_words(error)), "error")


def _joined(old: tuple[Piece, ...], new: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces in a row, neighbours of the same level made one. What the program says stays apart."""
    joined = list(old)
    for piece in new:
        if joined and joined[-1].level == piece.level and not _said(joined[-1], piece):
            joined[-1] = Piece(joined[-1].text + piece.text, piece.level)
        else:
            joined.append(piece)
    return tuple(joined)


def _said(*pieces: Piece) -> bool:
    return any(isinstance(piece.text, Message) for piece in pieces)
