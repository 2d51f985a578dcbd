"""The regions of the page, rendered when what they show has changed. Sits between the desk (state) and the
page (Gradio).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from app import views
from app.citations import Citations, Cited
from app.engine import Engine
from app.handlers import Desk
from app.history import Turn
from app.reader import reader_html
from app.stats_panel import panel_html, plan_html
from app.values import Notice
from core.documents.document import Document
from core.events import Stats
from core.wire import unpack_stats

REGIONS = (
    "header",
    "library",
    "models",
    "fetching",
    "stage",
    "notice",
    "locked",
    "turns",
    "live",
    "progress",
    "panel",
    "plan",
    "reader",
    "spoken",
)


class Page:
    """Renders a Desk. Keeps the last HTML of every region, so that an unchanged region costs a comparison."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._citations = Citations()
        self._kept: dict[str, tuple[Hashable, str]] = {}
        self._turn_html: dict[tuple, str] = {}

    def signature(self) -> tuple:
        """Equal as long as nothing on the page can have changed; cheap enough to ask many times a second."""
        desk, engine = self._desk, self._desk.engine
        return (
            desk.version,
            desk.job.visible if desk.job else 0,
            engine.state,
            engine.model_name,
            id(engine.plan),
            _progress(engine),
        )

    def render(self) -> dict[str, str]:
        """All regions. Safe to call from several threads: the worst that can happen is that one is rendered
        twice.
        """
        desk, engine = self._desk, self._desk.engine
        job, book = desk.job, desk.book
        now = job.paced if job else None
        turns = desk.turns
        running = now is not None and now.running
        shown = turns[:-1] if running else turns
        device = {"cpu": "CPU", "cuda": "GPU"}.get((engine.plan or {}).get("device", ""), "")
        card = desk.card()
        if book:
            self._citations.prepare(book)
        keep = self._keep
        return {
            "header": views.header_html(
                engine.state, model=engine.model_name, device=device, progress=_progress(engine)
            ),
            "library": keep(
                "library", (desk.shelf_version, desk.book_id, desk.conversation_id), self._library
            ),
            "models": keep(
                "models",
                (desk.models.list, engine.model_name),
                lambda: views.models_html(desk.models.list, current=engine.model_name),
            ),
            "fetching": views.fetching_html(desk.models.fetching),
            "stage": keep(
                "stage",
                (desk.book_id, id(card), desk.intake.opening, bool(turns)),
                lambda: views.stage_html(book, card, opening=desk.intake.opening, talking=bool(turns)),
            ),
            "notice": views.notice_html(desk.notice or _engine_notice(engine))
            + views.offer_html(desk.intake.opening),
            "locked": views.locked_html(desk.intake.opening),
            "turns": "".join(
                self._turn(turn, book, _question(before), last=turn is shown[-1] and not running)
                for before, turn in zip([None, *shown], shown, strict=False)
            ),
            "live": views.live_html(now),
            "progress": views.progress_html(now),
            "panel": panel_html(now.stats if now and now.stats else _last_stats(shown), live=running),
            "plan": keep(
                "plan",
                (id(engine.plan), engine.model_name),
                lambda: plan_html(engine.plan, model=engine.model_name),
            ),
            "reader": keep("reader", (desk.book_id, desk.passage), lambda: reader_html(book, desk.passage)),
            "spoken": views.spoken(now, desk.intake.opening),
        }

    def _library(self) -> str:
        desk = self._desk
        talks = desk.history.conversations(desk.book_id) if desk.book_id else []
        return views.library_html(
            desk.library.entries(),
            current=desk.book_id,
            talks=talks,
            talk=desk.conversation_id,
            samples=tuple(sample.name for sample in desk.intake.samples),
        )

    def _turn(self, turn: Turn, book: Document | None, question: str, *, last: bool) -> str:
        key = (self._desk.conversation_id, turn.number, turn.state, len(turn.text), turn.text[-40:], last)
        if key not in self._turn_html:
            if len(self._turn_html) > 400:
                self._turn_html.clear()
            cited = Cited()
            if book and turn.role == "assistant" and turn.text:
                cited = self._citations(turn.text, book, question)
            self._turn_html[key] = views.turn_html(turn, cited, last=last)
        return self._turn_html[key]

    def _keep(self, region: str, key: Hashable, make: Callable[[], str]) -> str:
        kept = self._kept.get(region)
        if kept is None or kept[0] != key:
            kept = self._kept[region] = (key, make())
        return kept[1]


def _question(turn: Turn | None) -> str:
    """What was asked, where it was a question about the book's matter."""
    return turn.text if turn and turn.role == "user" and not turn.extra.get("summary") else ""


def _progress(engine: Engine) -> float | None:
    return engine.loading_fraction if engine.state == "loading" else None


def _engine_notice(engine: Engine) -> Notice | None:
    return Notice(engine.error) if engine.state == "failed" and engine.error else None


def _last_stats(turns: list[Turn]) -> Stats | None:
    for turn in reversed(turns):
        if stored := turn.extra.get("stats"):
            return unpack_stats(stored)
    return None
