"""What the regions of the page show, by name, beside the fields of the state (app.desk.state): values that
the services have, read anew for every look, and values that are made of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from app.desk.answer_snapshot import Snapshot
from app.desk.assembly import AppServices
from app.desk.comparison import comparable
from app.desk.reader import as_known, as_read, shown_bookmarks, way_back
from app.desk.requests import chosen_chapters, chosen_mode
from app.desk.shelf import kept_of_books
from app.desk.values import FolderBooks, Notice, Remedy, TextSearch
from app.store.turns import StoredTurn
from app.web.answers import question_of
from app.web.chapters import section_words
from core.conversation.reading import follows_wishes
from core.events import Stats, SummaryDraft
from core.text.words import joined_sentences
from core.text.words import translated as _
from core.wire import unpack_stats

FIXED_BY = ("command line", "config.yaml")
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def sources(parts: AppServices) -> Mapping[str, Callable[[], Any]]:
    """What the services say now."""
    engine, models, preferences = parts.engine, parts.models, parts.preferences
    return {
        "engine_state": lambda: engine.state,
        "engine_error": lambda: engine.error,
        "engine_still": lambda: engine.still,
        "loading": lambda: engine.loading if engine.state == "loading" else None,
        "plan": lambda: engine.plan,
        "model_name": lambda: engine.model_name,
        "stored": lambda: (engine.stored, engine.stored_as),
        "models": lambda: models.list,
        "offline": lambda: models.offline,
        "fetching": lambda: models.fetching,
        "is_fetching": lambda: models.is_busy,
        "offer": lambda: models.offer,
        "settings": lambda: preferences.settings,
        "origins": lambda: preferences.origins,
        "unapplied": lambda: parts.engine_settings.unapplied,
        "history_version": lambda: parts.history.version,
        "shelf_version": lambda: parts.library.shelf_version,
        "summaries_version": lambda: parts.library.summaries_version,
        "portraits_version": lambda: parts.library.portraits_version,
        "series_version": lambda: parts.library.series.version,
        "book": lambda: parts.books.current,
        "card": lambda: _card(parts),
        "room": lambda: parts.context_usage.room((parts.history.version, preferences.settings)),
        "late": lambda: bool(parts.answers.job and parts.answers.job.late),
        "visible": lambda: parts.answers.job.visible if parts.answers.job else 0,
        "samples": lambda: parts.imports.samples,
        "today": date.today,
    }


def _card(parts: AppServices) -> dict[str, Any] | None:
    """The card of what is to be read of the open book; the words of chapters stand in it, too."""
    state, book = parts.state, parts.books.current
    if book is None:
        return None
    settings, fixed = parts.preferences.settings, parts.preferences.fixed("reading_mode")
    scope = chosen_chapters(state, book)
    if chosen_mode(state.notebook, settings, fixed=fixed) == "full":
        scope["whole"] = True
    # until it has come, that of the whole book stands
    return parts.cards.of(book, state.spoiler_limit, **scope) or parts.cards.of(book, state.spoiler_limit)


def derived(parts: AppServices) -> Mapping[str, Callable[..., Any]]:
    """What is made of other values; the parameters name them."""
    history, library = parts.history, parts.library

    def results(
        shelf_search: str,
        shelf_version: tuple[int, int],
        summaries_version: int,
        book_id: str,
        spoiler_limit: int | None,
        bookmarks: object,
        said: int,
        text_search: TextSearch,
        folder_books: FolderBooks,
    ) -> Any:
        return parts.search.results(shelf_search, text_search)

    return {
        # of the open book
        "known": lambda book, spoiler_limit: as_known(book, spoiler_limit) if book else None,
        "words": lambda known: section_words(known) if known else [],
        "summaries": lambda known, summaries_version: parts.chapters.summaries(known) if known else {},
        "outlines": lambda known, summaries_version: parts.chapters.outlines(known) if known else {},
        "portraits": lambda known, portraits_version: library.portraits(known.sha256) if known else [],
        "explains": lambda model_name: follows_wishes(model_name),
        "reading_mode": lambda notebook, settings, origins: chosen_mode(
            notebook, settings, fixed=origins["reading_mode"] in FIXED_BY
        ),
        "way_back": lambda known, notebook: way_back(known, notebook),
        "bookmarks": lambda known, notebook: shown_bookmarks(known, notebook),
        # of the conversation
        "running": lambda shown_answer: shown_answer is not None and shown_answer.running,
        "progress": _progress,
        "phase": lambda shown_answer: shown_answer.phase if shown_answer else "",
        "answer_phase": lambda answer: answer.phase if answer else "",
        "turns_version": lambda running, answers, history_version: (
            ("of answer", answers) if running else history_version
        ),
        "turns": lambda conversation_id, turns_version: (
            history.turns(conversation_id) if conversation_id else []
        ),
        "talking": lambda turns: bool(turns),
        # an answer stands in the history a moment before it is on the desk
        "done_turns": lambda turns, running: (
            turns[:-1] if running else [turn for turn in turns if turn.state != "writing"]
        ),
        "read": lambda known, turns, running: (
            as_read(known, turns[-2]) if known and running and len(turns) > 1 else known
        ),
        "asked": lambda turns, running: question_of(turns[-2]) if running and len(turns) > 1 else "",
        "stats": _figures,
        "of_summary": lambda turns: bool(len(turns) > 1 and turns[-2].extra.get("summary")),
        "comparable_turn": lambda done_turns, running: (None, "") if running else comparable(done_turns),
        # of the shelf
        "entries": lambda shelf_version: library.entries(),
        "series": lambda entries, book_id, series_version: library.series.of(entries, book_id),
        "covered": lambda shelf_version: library.covered(),
        "kept_books": lambda shelf_version, stored, summaries_version, portraits_version, bookmarks: (
            kept_of_books(library, stored[1])
        ),
        "conversations": lambda book_id, history_version: history.conversations(book_id) if book_id else [],
        "results": results,
        "said": lambda shelf_search, history_version: history_version if shelf_search else 0,
        # of the app
        "ignored_by": lambda model_name: "" if follows_wishes(model_name) else model_name,
        "device": lambda plan: DEVICES.get((plan or {}).get("device", ""), ""),
        "message": _message,
        "asks_when_closed": lambda closable, settings, origins: (
            closable and settings.when_closed == "ask" and origins["when_closed"] not in FIXED_BY
        ),
    }


def _progress(shown_answer: Snapshot | None) -> Snapshot | None:
    """An answer without its text: how far it is."""
    if shown_answer is None:
        return None
    standing = shown_answer.standing and SummaryDraft(())
    bare = {"pieces": (), "looked": (), "parts": (), "stats": None, "finished": None}
    return replace(shown_answer, standing=standing, **bare)


def _message(
    notice: Notice | None, engine_state: str, engine_error: str, engine_still: bool
) -> Notice | None:
    """What was said last, and why the engine failed or that it stands still, as long as that is so."""
    ways, wrong = (Remedy(_("Restart"), "restart"),), ""
    if engine_state == "failed":
        ways, wrong = (*ways, Remedy(_("Settings"), opens="settings")), engine_error
    elif engine_still:
        wrong = _(
            "The engine has done nothing for a minute: it hangs, or the system holds it. Wait, or restart "
            "it. What was written so far is kept."
        )
    if not wrong:
        return notice
    if notice is None:
        return Notice(wrong, remedies=ways)
    others = tuple(one for one in notice.remedies if one not in ways)
    return Notice(joined_sentences(notice.text, wrong), "error", (*others, *ways))


def _figures(shown_answer: Snapshot | None, done_turns: list[StoredTurn]) -> Stats | None:
    """Those of the answer that is made, once there are some, else of the last one, where it has some: never
    an earlier one's.
    """
    if shown_answer and (shown_answer.running or shown_answer.stats):
        return shown_answer.stats
    stored = done_turns[-1].extra.get("stats") if done_turns else None
    return unpack_stats(stored) if stored else None
