"""The regions of the page, rendered when what they show has changed. Sits between the desk (state) and the
stream that carries them to the browser.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

from app.desk.answer_job import Snapshot
from app.desk.comparison import comparable
from app.desk.desk import Desk
from app.desk.reader import as_known
from app.desk.values import Notice
from app.errors import in_words
from app.store.turns import Turn
from app.web import models as model_views
from app.web import regions
from app.web.answers import Answers, edition, question_of
from app.web.chapters import section_words, told_html, tree_html
from app.web.composer import crowded_html, instructions_html, meter_html
from app.web.event_stream import Regions
from app.web.library import hits_html, library_html
from app.web.reader import found_html, marks_html, reader_html
from app.web.region_cache import Remembered
from app.web.settings import settings_html
from app.web.stats_panel import panel_html, plan_html
from core.documents.document import Document
from core.events import Stats
from core.text.words import in_language
from core.wire import unpack_stats

if TYPE_CHECKING:
    from app.engine.client import Runtime

AGAIN_S = 2.0  # until what could not be read is tried again
PANEL_S = 0.25  # between two updates of the numbers while an answer is written


class Page:
    """Renders a Desk, for one thread. Keeps every region's last HTML: an unchanged one costs a comparison."""

    def __init__(self, desk: Desk, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._desk, self._clock = desk, clock
        self._begin("en")
        self._panel_at = 0.0
        self._due_s: float | None = None
        self._shown: Regions = {}
        self._told: type[Exception] | None = None  # the last error that was put in words
        self._words = ""

    def _begin(self, language: str) -> None:
        """Everything is to be rendered anew, in `language`."""
        self._language = language
        self._answers, self._keep = Answers(self._desk), Remembered()

    def due_s(self) -> float | None:
        """Seconds until there is something new to see though nothing happens; None when there will not be."""
        return self._due_s

    def render(self) -> Regions:
        """All regions as they are now. What cannot be read stays as it was, and so does all where nobody
        foresaw it; it is told.
        """
        if self._language != self._desk.preferences.language:
            self._begin(self._desk.preferences.language)
        with in_language(self._language):
            return self._told_or_rendered()

    def _told_or_rendered(self) -> Regions:
        self._keep.failed = None
        try:
            self._shown = self._rendered()
        except Exception as error:  # the page's boundary: one bad state must not end its updates for good
            self._due_s = None
            return self._with(error)
        if self._keep.failed is None:
            return self._shown
        self._due_s = AGAIN_S if self._due_s is None else self._due_s
        return self._shown if self._desk.notice else self._with(self._keep.failed)

    def _with(self, error: Exception) -> Regions:
        """What was shown last, and why it is not newer."""
        if type(error) is not self._told:
            self._told, self._words = type(error), in_words(error)
        return {**self._shown, "notice": (regions.notice_html(Notice(self._words)),)}

    def _rendered(self) -> Regions:
        desk, job = self._desk, self._desk.job
        now = job.snapshot if job else None
        running = now is not None and now.running
        turns = self._keep(
            "stored", (desk.conversation_id, job if running else desk.history.version), lambda: desk.turns
        )
        # an answer stands in the history a moment before it is on the desk
        shown = turns[:-1] if running else [turn for turn in turns if turn.state != "writing"]
        asked = question_of(turns[-2]) if running and len(turns) > 1 else ""
        parts, live = self._answers.written(job, asked) if running else ((), ())
        self._due_s = 0.0 if running and self._answers.hidden else None
        waiting = desk.running.unapplied
        return {
            **{name: (html,) for name, html in self._around(turns, now).items()},
            "turns": tuple(
                self._answers.turn(turn, before, last=turn is shown[-1] and not running)
                for before, turn in zip([None, *shown], shown, strict=False)
            ),
            "preferences": self._keep(
                "preferences",
                (desk.preferences.settings, desk.preferences.origins, waiting, desk.storage.kept),
                lambda: settings_html(desk.preferences, waiting, desk.storage.kept),
            ),
            "parts": parts,
            "live": live,
            "panel": (
                self._panel(now.stats if now and now.stats else _last_stats(shown), shown, live=running),
            ),
        }

    def _about_models(self) -> dict[str, str]:
        models, current, keep = self._desk.models, self._desk.engine.model_name, self._keep
        offer, choosing = models.offer, self._desk.used.choosing
        fetching, looking = models.fetching, self._desk.used.looking
        shown = (models.list, current, models.offline, models.is_busy)
        return {
            "models": keep("models", shown, lambda: model_views.models_html(*shown)),
            "model-offer": keep("model-offer", offer, lambda: model_views.model_offer_html(offer)),
            "model-files": keep("model-files", choosing, lambda: model_views.model_files_html(choosing)),
            "fetching": keep(
                "fetching",
                (fetching, looking),
                lambda: model_views.fetching_html(fetching) + model_views.looking_html(looking),
            ),
        }

    def _around(self, turns: list[Turn], now: Snapshot | None) -> dict[str, str]:
        """The regions around the conversation."""
        desk, engine, intake, keep = self._desk, self._desk.engine, self._desk.intake, self._keep
        book, card, talking = desk.book, desk.card(), bool(turns)
        settings = desk.preferences.settings
        if book:
            book = keep("book", (edition(book), desk.until), lambda: as_known(book, desk.until))
            keep("prepared", edition(book), lambda: self._answers.prepare(book))
        covered = book is not None and desk.library.cover(book.sha256) is not None
        notice = desk.notice or _engine_notice(engine)
        device = {"cpu": "CPU", "cuda": "GPU"}.get((engine.plan or {}).get("device", ""), "")
        loading = engine.loading if engine.state == "loading" else None
        state = (engine.state, engine.model_name, device, loading)
        room = desk.meter.room()
        own = (settings.instructions, desk.reading.notebook.instructions)
        reading = now and (now.phase, now.loading, now.reading, now.preparing, now.prefill, now.stopping)
        return {
            "header": keep(
                "header",
                state,
                lambda: regions.header_html(state[0], model=state[1], device=device, loading=loading),
            ),
            "library": keep(
                "library",
                (desk.shelf_version, desk.book_id, desk.conversation_id, engine.stored, date.today()),
                self._library,
            ),
            "hits": keep(
                "hits",
                (
                    desk.shelf.wanted,
                    desk.shelf.wanted
                    and (desk.history.version, desk.shelf_version, desk.until, desk.reading.notebook),
                    desk.tree.version,
                ),
                lambda: hits_html(desk.shelf.found()),
            ),
            **self._about_models(),
            "stage": keep(
                "stage",
                (edition(book), card, covered, intake.opening, talking, desk.fit),
                lambda: regions.stage_html(
                    book, card, covered=covered, opening=intake.opening, talking=talking, fit=desk.fit
                ),
            ),
            "meter": keep("meter", room, lambda: meter_html(room)),
            "instructions": keep(
                "instructions",
                own,
                lambda: instructions_html(*own, fixed=desk.preferences.fixed("instructions")),
            ),
            "crowded": keep("crowded", desk.asking.shown, lambda: crowded_html(desk.asking.shown)),
            "ways": keep(
                "ways",
                (edition(desk.book), desk.fit, desk.until, desk.busy),
                lambda: regions.ways_html(desk.book, fit=desk.fit, until=desk.until, busy=desk.busy),
            ),
            "choices": keep(
                "choices",
                (edition(book), desk.until, desk.chapters, settings.summary_length, settings.summaries),
                lambda: regions.choices_html(
                    book,
                    desk.chapters,
                    "own" if settings.summaries == "own" else settings.summary_length,
                    fixed=any(map(desk.preferences.fixed, ("summary_length", "summaries"))),
                ),
            ),
            "suggestions": keep("suggestions", desk.until, lambda: regions.suggestions_html(desk.until)),
            "notice": keep(
                "notice",
                (notice, intake.opening),
                lambda: regions.notice_html(notice) + regions.offer_html(intake.opening),
            ),
            "moving": keep("moving", desk.storage.moving, lambda: regions.moving_html(desk.storage.moving)),
            "leaving": keep(
                "leaving",
                (desk.asks_when_closed, desk.was_left),
                lambda: regions.leaving_html(ask=desk.asks_when_closed, now=desk.was_left),
            ),
            "locked": keep("locked", intake.opening, lambda: regions.locked_html(intake.opening)),
            "progress": keep("progress", reading, lambda: regions.progress_html(now)),
            "plan": keep(
                "plan",
                (engine.plan, engine.model_name),
                lambda: plan_html(engine.plan, model=engine.model_name),
            ),
            "reader": keep(
                "reader",
                (edition(book), desk.reading.passage),
                lambda: reader_html(book, desk.reading.passage),
            ),
            **self._chapters(book, card),
            "found": keep(
                "found",
                (edition(book), desk.reading.wanted, desk.reading.exact, desk.reading.unfolded),
                lambda: found_html(book, desk.reading),
            ),
            "marks": keep(
                "marks", (edition(book), desk.reading.notebook), lambda: marks_html(book, desk.reading)
            ),
            "spoken": keep(
                "spoken", (now and now.phase, intake.opening), lambda: regions.spoken(now, intake.opening)
            ),
        }

    def _chapters(self, book: Document | None, card: dict | None) -> dict[str, str]:
        """The tree of the chapters and the summary of the one that stands open."""
        desk, keep, now = self._desk, self._keep, edition(book)
        place, ticked = desk.reading.passage, desk.tree.ticked
        words = keep("words", now, lambda: section_words(book) if book else [])
        told = keep(
            "summaries",
            (now, desk.until, desk.tree.version),
            lambda: desk.tree.summaries(book) if book else {},
        )
        return {
            "tree": keep(
                "tree",
                (now, desk.until, card, place, ticked, told),
                lambda: tree_html(book, card, place, words=words, ticked=ticked, told=told),
            ),
            "told": keep("told", (now, desk.until, place, told), lambda: told_html(book, place, told)),
        }

    def _library(self) -> str:
        desk = self._desk
        talks = desk.history.conversations(desk.book_id) if desk.book_id else []
        return library_html(
            desk.library.entries(),
            covered=desk.library.covered(),
            kept=desk.shelf.kept(),
            today=date.today(),
            current=desk.book_id,
            talks=talks,
            talk=desk.conversation_id,
            samples=tuple(sample.name for sample in desk.intake.samples),
        )

    def _panel(self, stats: Stats | None, turns: list[Turn], *, live: bool) -> str:
        """The numbers, a few times a second at most while they change: nobody reads faster."""
        desk, wait_s, before = self._desk, self._panel_at + PANEL_S - self._clock(), self._keep.last("panel")
        answer, why_not = (None, "") if live else comparable(turns)
        about = {
            "live": live,
            "plan": desk.engine.plan,
            "compared": answer.extra.get("compared") if answer else None,
            "comparable": answer is not None,
            "why_not": why_not,
            "comparing": desk.comparing.tokens if desk.comparing.running else None,
            "left_s": desk.comparing.left_s,
        }
        if live and before and before[0] != (stats, about) and wait_s > 0:
            self._due_s = wait_s if self._due_s is None else self._due_s
            return before[1]
        if not before or before[0] != (stats, about):
            self._panel_at = self._clock()
        return self._keep("panel", (stats, about), lambda: panel_html(stats, **about))


def _engine_notice(engine: Runtime) -> Notice | None:
    return Notice(engine.error) if engine.state == "failed" and engine.error else None


def _last_stats(turns: list[Turn]) -> Stats | None:
    for turn in reversed(turns):
        if stored := turn.extra.get("stats"):
            return unpack_stats(stored)
    return None
