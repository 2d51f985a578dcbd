"""What is on the desk as HTML, region by region: values in, HTML out. All names and texts are escaped here."""

from __future__ import annotations

import hashlib
import re
from html import escape

from app.history import Conversation, Turn
from app.job import Snapshot
from app.library import BookEntry
from app.markup import LEVELS, Citation, answer_html, plain_html
from app.templating import render
from app.values import Notice, Opening
from core.documents.document import Document

MARK = """<svg class="mark" viewBox="0 0 128 128" aria-hidden="true"><rect width="128" height="128" rx="28" fill="#17323A"/>
<g fill="none" stroke="#F8F3E8" stroke-linecap="round" stroke-linejoin="round">
<path d="M39,55.76 C49.5,52.08 59,54 64,62 69,54 78.5,52.08 89,55.76" stroke-width="7"/>
<path d="M27,73.76 C42.54,68.32 56.6,71.16 64,83 71.4,71.16 85.46,68.32 101,73.76" stroke-width="8.5"/>
<path d="M15,94.77 C35.58,87.56 54.2,91.32 64,107 73.8,91.32 92.42,87.56 113,94.77" stroke-width="10"/></g>
<circle cx="64" cy="31" r="10.5" fill="#E9A45B"/></svg>"""
COVERS = (
    ("#1F5560", "#123A43"),
    ("#7A3E1D", "#552A12"),
    ("#3F5A45", "#28402F"),
    ("#4E4A6B", "#353252"),
    ("#6B3145", "#4A1F2F"),
    ("#5B5A2E", "#403F1D"),
)
SMALL_WORDS = {"a", "an", "and", "at", "by", "in", "of", "on", "the", "to"}
STATE_WORDS = {
    "starting": "Starting the engine",
    "loading": "Loading the model",
    "ready": "Ready",
    "busy": "Working",
    "failed": "Engine stopped",
}
REASONS = {
    "length": "Stopped at the length limit. Ask “go on”, or raise the limit in Settings.",
    "user": "Stopped by you.",
    "context_full": "The context is full: start a new conversation to go on.",
    "looping": "Stopped because the answer began to repeat itself.",
}


def header_html(state: str, *, model: str, device: str, progress: float | None) -> str:
    """Brand and the state of the engine."""
    words = STATE_WORDS.get(state, state)
    detail = " · ".join(part for part in (model, device) if part)
    if state == "loading" and progress is not None:
        words += f" {progress:.0%}"
    restart = (
        '<button type="button" class="pill-button" data-act="restart">Restart</button>'
        if state == "failed"
        else ""
    )
    return (
        f'<div class="brand">{MARK}<div><h1>TriForce <span>Chat</span></h1></div></div>'
        f'<div class="engine engine-{escape(state)}" role="status"><i></i><b>{words}</b>'
        f"<span>{escape(detail)}</span>{restart}</div>"
    )


def library_html(
    entries: list[BookEntry], *, current: str, talks: list[Conversation], talk: str, samples: tuple[str, ...]
) -> str:
    """The shelf, with the open book's conversations under it."""
    books = "".join(
        _shelf_card(entry, entry.id == current, talks if entry.id == current else [], talk)
        for entry in entries
    )
    offered = "".join(
        f'<button type="button" class="sample" data-act="sample" data-name="{escape(name)}">'
        f"{_icon('spark')}<span>{escape(_sample_title(name))}</span></button>"
        for name in samples
    )
    shelf = f'<ul class="shelf">{books}</ul>' if books else '<p class="quiet">Books you open appear here.</p>'
    tail = f'<h2>Try a sample</h2><div class="samples">{offered}</div>' if offered else ""
    return f"<div><h2>Library</h2>{shelf}{tail}</div>"


def _shelf_card(entry: BookEntry, current: bool, talks: list[Conversation], talk: str) -> str:
    marked = ' aria-current="true"' if current else ""
    card = (
        f'<li class="book {"book-current" if current else ""}"><button type="button" class="book-open" '
        'data-act="book" '
        f'data-id="{entry.id}"{marked}>{cover_html(entry.title, entry.id)}<span class="book-name">'
        f"<b>{escape(entry.title)}</b><span>{escape(entry.author or 'Unknown author')}</span>"
        f"<small>{entry.words:,} words · {entry.format.upper()}</small>"
        f'</span></button><button type="button" class="ghost" data-act="forget" data-id="{entry.id}" '
        'data-confirm="Forget '
        f'“{escape(entry.title)}”? Its text and all conversations about it are deleted from this computer." '
        f'aria-label="Forget {escape(entry.title)}" title="Forget this book">{_icon("bin")}</button>'
    )
    if talks:
        card += (
            '<ul class="talks" aria-label="Conversations">'
            + "".join(
                '<li><button type="button" data-act="talk" '
                f'data-id="{one.id}"{_current(one.id == talk)}>{escape(one.title)}'
                f'</button><button type="button" class="ghost" data-act="forget-talk" data-id="{one.id}" '
                'data-confirm="Delete this conversation?" aria-label="Delete conversation '
                f'{escape(one.title)}">{_icon("bin")}'
                "</button></li>"
                for one in talks[:12]
            )
            + "</ul>"
        )
    return card + "</li>"


def cover_html(title: str, key: str, *, large: bool = False) -> str:
    """A cloth-bound cover in a colour that stays with the book."""
    top, bottom = COVERS[int(hashlib.sha256(key.encode()).hexdigest(), 16) % len(COVERS)]
    words = " ".join(title.split()[:6])
    return (
        f'<span class="cover {"cover-large" if large else ""}" style="--c1:{top};--c2:{bottom}" '
        'aria-hidden="true">'
        f"<span>{escape(words)}</span></span>"
    )


def stage_html(book: Document | None, card: dict | None, *, opening: Opening | None, talking: bool) -> str:
    """The middle of the desk: nothing (the drop zone shows), a file being read, or the book's card."""
    if opening is not None and not opening.waiting:
        return f'<div class="stage" data-stage="opening">{_opening(opening)}</div>'
    if book is None:
        return '<div class="stage" data-stage="empty"></div>'
    kind = "talk" if talking else "book"
    return f'<div class="stage" data-stage="{kind}">{_book_card(book, card)}</div>'


def _opening(opening: Opening) -> str:
    share = opening.fraction
    return (
        '<div class="opening" role="status"><b>Opening '
        f"“{escape(opening.name)}”</b><span>{escape(opening.stage)}</span>"
        f"{bar_html(share, 'Opening the file')}"
        '<button type="button" class="quiet-button" data-act="cancel-opening">Cancel</button></div>'
    )


def _book_card(book: Document, card: dict | None) -> str:
    known = card or {}
    facts = [
        f"<b>{len(book.chapters):,}</b> {_plural(len(book.chapters), 'chapter')}",
        f"<b>{book.words:,}</b> words",
    ]
    if known.get("tokens"):
        facts.append(f"<b>{known['tokens']:,}</b> tokens")
    if known.get("snapshot_tokens", 0) > known.get("tokens", 0) // 2:
        facts.append("<b>read before</b>, opens at once")
    elif known.get("prefill_s_estimate"):
        facts.append(f"about <b>{duration(known['prefill_s_estimate'])}</b> to read")
    notes = [*map(str, known.get("notes", ())), *book.warnings]
    listed = (
        f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>' if notes else ""
    )
    return (
        f'<article class="card">{cover_html(book.title, book.sha256, large=True)}<div class="card-body">'
        f'<h2>{escape(book.title)}</h2><p class="author">{escape(book.author or "Unknown author")}</p>'
        f'<p class="card-facts">{" <i>·</i> ".join(facts)}</p>{_fit(known)}{listed}</div></article>'
    )


def _fit(card: dict) -> str:
    if "share_of_context" not in card:
        return (
            '<p class="fit quiet">How it fits is worked out as soon as the engine is ready.</p>'
            if not card
            else ""
        )
    share, parts = float(card["share_of_context"]), [str(part) for part in card.get("parts", ())]
    if card.get("fits"):
        words, tone = f"Fits the context: {share:.0%} of it", "good"
    else:
        words, tone = f"Read in {len(parts)} parts, then the whole from the parts", "warn"
        words = f"{share:.1f} × the context. {words}" if share > 1 else words
    listed = ""
    if len(parts) > 1:
        listed = '<ol class="parts">' + "".join(f"<li>{escape(part)}</li>" for part in parts) + "</ol>"
    return (
        f'<div class="fit fit-{tone}"><div class="meter meter-{tone}" role="img" aria-label="{words}">'
        f'<i style="width:{min(share, 1):.1%}"></i></div><span>{words}</span></div>{listed}'
    )


def progress_html(now: Snapshot | None) -> str:
    """The bar while the engine loads or reads; empty otherwise."""
    if now is None or not now.running or now.phase == "streaming":
        return ""
    title, detail, share = "Getting ready", "", None
    if now.phase == "loading" and now.loading:
        title, share = now.loading.stage, now.loading.fraction
    if now.reading:
        verb = "Telling the whole" if now.reading.purpose == "whole summary" else "Reading"
        which = f", {now.reading.index} of {now.reading.total}" if now.reading.total > 1 else ""
        title = f"{verb}{which}: {now.reading.label}"
    if now.prefill:
        done, total = now.prefill.done_tokens, now.prefill.total_tokens
        share = done / total if total else None
        detail = f"{done:,} of {total:,} tokens"
        if now.prefill.eta_s is not None:
            detail += f" · {duration(now.prefill.eta_s)} left"
        if now.prefill.snapshot_tokens:
            detail += f" · {now.prefill.snapshot_tokens:,} known from before"
    if now.stopping:
        detail = "Stopping after this step…"
    return (
        f'<div class="progress" id="prefill-box"><div><b>{escape(title)}</b><span '
        f'id="prefill-detail">{detail}</span></div>'
        f'{bar_html(share, "Prefill")}<button type="button" class="quiet-button" '
        'data-act="stop">Cancel</button></div>'
    )


def bar_html(share: float | None, label: str) -> str:
    """A progress bar; without a share it only says that something is going on."""
    value = "" if share is None else f' aria-valuenow="{share * 100:.0f}"'
    width = "" if share is None else f' style="width:{share:.2%}"'
    return (
        f'<div class="bar {"bar-unknown" if share is None else ""}" role="progressbar" aria-label="{label}" '
        f'aria-valuemin="0" aria-valuemax="100"{value}><i{width}></i></div>'
    )


def turn_html(turn: Turn, citations: tuple[Citation, ...] = (), *, last: bool = False) -> str:
    """One finished turn."""
    if turn.role == "user":
        return f'<div class="turn asked"><div class="bubble">{plain_html(turn.text)}</div></div>'
    pieces = tuple((text, level) for text, level in turn.extra.get("level_pieces", ())) or ((turn.text, ""),)
    error = turn.extra.get("error", "")
    body = answer_html(pieces, citations) or (
        "" if error else '<p class="quiet">No text: stopped before the first word.</p>'
    )
    failed = f'<p class="failed" role="alert">{escape(error)}</p>' if error else ""
    parts = _parts(turn.extra.get("parts", ()))
    return f'<div class="turn answer">{parts}<div class="text">{body}</div>{failed}{_foot(turn, last)}</div>'


def live_html(now: Snapshot | None) -> str:
    """The answer that is being written."""
    if now is None or not now.running:
        return ""
    pieces = tuple((piece.text, piece.level) for piece in now.pieces)
    body = answer_html(pieces)
    return (
        f'<div class="turn answer" aria-busy="true">{_parts(now.parts)}<div class="text" '
        f'id="live-text">{body}</div></div>'
    )


def _parts(parts: tuple | list) -> str:
    return "".join(
        f'<details class="part"><summary>{escape(label)}</summary>{plain_html(text)}</details>'
        for label, text in parts
    )


def _foot(turn: Turn, last: bool) -> str:
    stats, sources = turn.extra.get("stats") or {}, turn.extra.get("sources", ())
    lines = [REASONS[turn.extra["reason"]]] if turn.extra.get("reason") in REASONS else []
    if turn.state == "stopped" and not lines:
        lines.append("Interrupted: the app was closed while this was being written.")
    if sources:
        lines.append("Read for this answer: " + "; ".join(sources))
    lines += [str(note) for note in turn.extra.get("notes", ())]
    told = "".join(f"<p>{escape(line)}</p>" for line in lines)
    numbers = ""
    if stats.get("new_tokens"):
        numbers = f"<span>{stats['new_tokens']:,} tokens · {stats['tokens_per_s']:.1f} per second</span>"
    again = f'<button type="button" data-act="regenerate">{_icon("again")}Regenerate</button>' if last else ""
    copy = f'<button type="button" data-copy>{_icon("copy")}Copy</button>'
    return f'<footer>{told}<div class="tools">{copy}{again}{numbers}</div></footer>'


def legend_html() -> str:
    """What the colours and underlines of the levels mean."""
    return "".join(f'<span class="lv lv-{level}">{name}</span>' for level, name in LEVELS.items())


def notice_html(notice: Notice | None) -> str:
    """The message above the conversation."""
    return render("notice.html", kind=notice.kind, text=notice.text) if notice else ""


def offer_html(opening: Opening | None) -> str:
    """The question whether OCR is to read a file's scanned pages; empty when no file waits for that."""
    return render("offer.html", offer=opening.offer) if opening and opening.offer else ""


def locked_html(opening: Opening | None) -> str:
    """The words above the password box; empty when no file is locked."""
    return render("locked.html", name=opening.name) if opening and opening.locked else ""


def spoken(now: Snapshot | None, opening: Opening | None) -> str:
    """One sentence for screen readers: what began or ended, never single tokens."""
    if opening is not None and not opening.offer:
        return f"Opening {escape(opening.name)}."
    if now is None:
        return ""
    sentences = {
        "prefill": "Reading the book.",
        "streaming": "The answer is being written.",
        "failed": "The answer failed.",
        "finished": "The answer is complete.",
    }
    return sentences.get(now.phase, "")


def duration(seconds: float) -> str:
    """A time for reading, rounded the way people say it."""
    if seconds < 1:
        return "1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _sample_title(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    words = [
        word if at and word in SMALL_WORDS else word.capitalize()
        for at, word in enumerate(re.split(r"[-_ ]+", stem))
    ]
    return f"{' '.join(words)} ({suffix.upper()})"


def _current(yes: bool) -> str:
    return ' aria-current="true"' if yes else ""


def _plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"


ICONS = {
    "bin": "M4 6h12M8 6V4h4v2M6 6l1 10h6l1-10",
    "copy": "M7 7V4h9v9h-3M4 7h9v9H4z",
    "again": "M15.500 8A6 6 0 1 0 16 11M16 4v4h-4",
    "spark": "M10 3l1.800 5.200L17 10l-5.200 1.800L10 17l-1.800-5.200L3 10l5.200-1.800z",
}


def _icon(name: str) -> str:
    return (
        '<svg class="icon" viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.6" '
        'aria-hidden="true" '
        f'stroke-linecap="round" stroke-linejoin="round"><path d="{ICONS[name]}"/></svg>'
    )
