"""The regions of the page by name. Each is a function whose parameters name the values that it shows: fields
of the state (app.desk.state) and values of app.web.values. It gets no others, and is drawn again when one of
them has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from app.desk.shelf import StoredReading
from app.desk.values import (
    AnswerPlace,
    Aside,
    BookAnswer,
    ComparisonRun,
    ContextOverflow,
    FolderBooks,
    ImportedFile,
    NamesPanel,
    ShownPassage,
)
from app.models.catalogue import ListedModel
from app.models.local_files import FileInspection
from app.models.progress import Transfer
from app.store.book_entry import BookEntry
from app.store.notebook import Notebook
from app.store.turns import Conversation, StoredTurn
from app.web import messages, regions
from app.web import models as about_models
from app.web.answers import AnswerViews
from app.web.chapters import recap_html, told_html, tree_html
from app.web.composer import (
    asks_too_html,
    book_answers_html,
    crowded_html,
    instructions_html,
    meter_html,
    queue_html,
)
from app.web.library import folders_html, hits_html, library_html
from app.web.names import aside_html, names_html
from app.web.reader import found_html, marks_html, reader_html, way_back_html
from app.web.series import series_html
from app.web.settings import settings_html
from app.web.stats_panel import panel_html, plan_html
from app.web.values import FIXED_BY
from core.config import Settings
from core.documents.document import Document
from core.events import Loading, Stats
from core.request import Request

Region = Callable[..., str | tuple[str, ...]]


def _header(
    engine_state: str, engine_still: bool, model_name: str, device: str, loading: Loading | None
) -> str:
    if engine_still:
        engine_state, loading = "still", None
    return regions.header_html(engine_state, model=model_name, device=device, loading=loading)


def _library(
    entries: list[BookEntry],
    covered: frozenset[str],
    kept_books: Mapping[str, StoredReading],
    today: date,
    book_id: str,
    conversations: list[Conversation],
    conversation_id: str,
    samples: Sequence[Path],
) -> str:
    return library_html(
        entries,
        covered=covered,
        kept=kept_books,
        today=today,
        current=book_id,
        talks=conversations,
        talk=conversation_id,
        samples=tuple(sample.name for sample in samples),
    )


def _folders(folder_books: FolderBooks, settings: Settings, origins: Mapping[str, str]) -> str:
    return folders_html(folder_books, settings.book_folders, fixed=origins["book_folders"] in FIXED_BY)


def _models(models: tuple[ListedModel, ...], model_name: str, offline: bool, is_fetching: bool) -> str:
    return about_models.models_html(models, model_name, offline, is_fetching)


def _fetching(fetching: Transfer | None, looking: FileInspection | None) -> str:
    return about_models.fetching_html(fetching) + about_models.looking_html(looking)


def _stage(
    known: Document | None,
    card: dict[str, Any] | None,
    covered: frozenset[str],
    opening: ImportedFile | None,
    talking: bool,
    reading_mode: str,
) -> str:
    own_cover = known is not None and known.sha256 in covered
    return regions.stage_html(
        known, card, covered=own_cover, opening=opening, talking=talking, reading_mode=reading_mode
    )


def _instructions(settings: Settings, notebook: Notebook, origins: Mapping[str, str], ignored_by: str) -> str:
    fixed = origins["instructions"] in FIXED_BY
    return instructions_html(settings.instructions, notebook.instructions, fixed=fixed, ignored_by=ignored_by)


def _ways(book: Document | None, reading_mode: str, spoiler_limit: int | None, is_answered_here: bool) -> str:
    return regions.ways_html(
        book, reading_mode=reading_mode, spoiler_limit=spoiler_limit, busy=is_answered_here
    )


def _queue(
    answer_elsewhere: AnswerPlace | None,
    answer_phase: str,
    queued: Request | None,
    overflow: ContextOverflow | None,
    shown_overflow: ContextOverflow | None,
    entries: list[BookEntry],
    book_id: str,
    shown_book_answers: tuple[BookAnswer, ...],
) -> str:
    shown = {one.conversation_id for one in shown_book_answers}  # where the books' answers stand
    if answer_elsewhere and answer_elsewhere.conversation_id in shown:
        answer_elsewhere = None
    crowded = overflow if shown_overflow is None else None
    titles = {one.id: one.title for one in entries if one.id != book_id}
    return queue_html(answer_elsewhere, answer_phase, queued=queued, crowded=crowded, titles=titles)


def _choices(
    known: Document | None, chapters: tuple[int, int], settings: Settings, origins: Mapping[str, str]
) -> str:
    length = "own" if settings.summaries == "own" else settings.summary_length
    fixed = any(origins[key] in FIXED_BY for key in ("summary_length", "summaries"))
    return regions.choices_html(known, chapters, length, fixed=fixed)


def _tree(
    known: Document | None,
    card: dict[str, Any] | None,
    passage: ShownPassage,
    words: Sequence[int],
    selected_chapters: tuple[int, ...],
    summaries: Mapping[int, str],
) -> str:
    return tree_html(known, card, passage, words=words, selected_chapters=selected_chapters, told=summaries)


def _names(
    known: Document | None,
    names: NamesPanel,
    spoiler_limit: int | None,
    aside: Aside | None,
    portraits: list[dict[str, Any]],
    explains: bool,
) -> str:
    return names_html(
        known, names, limited=spoiler_limit is not None, aside=aside, portraits=portraits, explains=explains
    )


def _panel(
    stats: Stats | None,
    running: bool,
    plan: dict[str, Any] | None,
    comparable_turn: tuple[StoredTurn | None, str],
    comparing: ComparisonRun | None,
    of_summary: bool,
) -> str:
    answer, why_not = comparable_turn
    return panel_html(
        stats,
        live=running,
        plan=plan,
        compared=answer.extra.get("compared") if answer else None,
        comparable=answer is not None,
        why_not=why_not,
        comparing=comparing.tokens if comparing else None,
        left_s=comparing.left_s if comparing else None,
        summary=of_summary,
    )


REGIONS: Mapping[str, Region] = {
    "header": _header,
    "library": _library,
    "hits": hits_html,
    "folders": _folders,
    "models": _models,
    "model-offer": about_models.model_offer_html,
    "model-files": about_models.model_files_html,
    "fetching": _fetching,
    "preferences": settings_html,
    "stage": _stage,
    "meter": meter_html,
    "instructions": _instructions,
    "queue": _queue,
    "crowded": lambda shown_overflow: crowded_html(shown_overflow),
    "ways": _ways,
    "asks-too": asks_too_html,
    "book-answers": book_answers_html,
    "choices": _choices,
    "suggestions": regions.suggestions_html,
    "notice": messages.messages_html,
    "shortage": messages.shortage_html,
    "moving": messages.moving_html,
    "leaving": lambda asks_when_closed, was_left: messages.leaving_html(ask=asks_when_closed, now=was_left),
    "locked": messages.locked_html,
    "progress": lambda progress, late: regions.progress_html(progress, late),
    "plan": lambda plan, model_name: plan_html(plan, model=model_name),
    "reader": lambda known, passage: reader_html(known, passage),
    "way-back": lambda known, way_back: way_back_html(known, way_back),
    "tree": _tree,
    "told": lambda known, passage, summaries, outlines: told_html(known, passage, summaries, outlines),
    "recap": recap_html,
    "series": series_html,
    "names": _names,
    "aside": aside_html,
    "found": lambda known, book_search, spoiler_limit: found_html(
        known, book_search, limited=spoiler_limit is not None
    ),
    "marks": lambda known, bookmarks: marks_html(known, bookmarks),
    "spoken": regions.spoken_status,
    "panel": _panel,
}


def answer_regions(views: AnswerViews) -> Mapping[str, Region]:
    """The regions of the conversation. `views` keeps what it has rendered of it."""
    return {"turns": views.turns, "parts": views.parts, "live": views.live}
