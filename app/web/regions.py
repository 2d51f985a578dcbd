"""What is on the desk, region by region: values in, the HTML of app/templates out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest
from os.path import commonprefix

from markupsafe import Markup, escape

from app.desk.answer_snapshot import Snapshot
from app.desk.values import ImportedFile
from app.render.markdown import answer_html
from app.render.templating import nonbreaking, render
from app.store.turns import StoredTurn, displayed_text, level_pieces, told_behind, within
from app.web.chapters import chapter_menu
from app.web.citations import CitedAnswer
from app.web.rough_times import roughly
from app.web.stats_panel import mode_names
from core.config import READING_MODES
from core.conversation.reading import outside_name
from core.documents.document import Document
from core.documents.word_count import count_words
from core.events import Loading, Preparing
from core.model.store.catalogue import title_of
from core.text.language_detection import foreign, spoken_language
from core.text.words import duration, localized, size
from core.text.words import translated as _
from core.text.words import translated_count as _n

IN_TURN = ("passage", "part summary", "telling")  # purposes of a reading whose parts are all read
IN_LEVELS = ("part summary", "whole summary")  # of one whose parts are told, then the whole from these
AT_ONCE_S = 1.0  # what takes less takes no time
WORTH_A_CHOICE = 2  # times as long as an answer from passages
_WORTH_SAYING = 20  # words of a section that is not read
# more are one click away
SHOWN_NOTES = 3
NOTHING_CITED = CitedAnswer()


# --- the bar on top


def header_html(state: str, *, model: str, device: str, loading: Loading | None) -> str:
    """Brand and the state of the engine. `loading`: how far that is, while it does."""
    detail = " · ".join(part for part in (title_of(model), device) if part)
    return render("header.html", state=state, detail=detail, loading=loading)


# --- the middle of the desk


def stage_html(
    book: Document | None,
    card: dict | None,
    *,
    covered: bool,
    opening: ImportedFile | None,
    talking: bool,
    reading_mode: str = "auto",
) -> str:
    """Nothing (the drop zone shows), a file being read, or the book's card. `covered`: it has a cover of its
    own. `reading_mode`: how the person wants it read.
    """
    if opening is not None and not opening.waiting:
        return render("stage.html", kind="opening", opening=opening)
    if book is None:
        return render("stage.html", kind="empty")
    known = card or {}
    return render(
        "stage.html",
        kind="talk" if talking else "book",
        book=book,
        covered=covered,
        known=bool(known),
        facts=_card_facts(book, known),
        fit=_fit(known),
        ways=_ways(known, reading_mode),
        parts=known.get("parts", ()),
        outside=_outside(book),
        notes=_notes(book, known),
        shown_notes=SHOWN_NOTES,
    )


def _ways(card: dict, reading_mode: str) -> list[dict[str, object]]:
    """The two ways to an answer, with their times; none where reading takes no longer than passages."""
    passages_s, read_s = card.get("passages_s_estimate"), card.get("prefill_s_estimate")
    if passages_s is None or not (card["from_passages"] or read_s > WORTH_A_CHOICE * passages_s):
        return []
    parts = len(card["parts"])
    slower = read_s / parts < passages_s
    full = "full" if card["fits"] else "chunked"
    chosen = reading_mode if reading_mode != "auto" else "retrieval" if card["from_passages"] else full
    read, time, takes_s = _("Read it all"), _("about {time}, can be paused"), read_s
    if parts > 1:  # as it adds up to the time that is said of all
        read, time = _("Read it in parts"), _("about {time} a part, can be paused")
        takes_s = roughly(read_s) / parts
    promise = _("up to {time}")
    if not card.get("is_measured"):
        promise = _("about {time}, longer beside other programs")
    passages, whole = (
        {
            "mode": "retrieval",
            "words": _("Answer from passages") if slower else _("Answer from passages now"),
            "time": nonbreaking(promise.format(time=duration(passages_s))),
            "chosen": chosen == "retrieval",
        },
        {
            "mode": full,
            "words": read,
            "time": nonbreaking(time.format(time=duration(takes_s))),
            "chosen": chosen == full,
        },
    )
    return [whole, passages] if slower else [passages, whole]


def ways_html(book: Document | None, *, reading_mode: str, spoiler_limit: int | None, busy: bool) -> str:
    """How questions have the book read, and how far it may be read."""
    fits = [
        ("auto", _("Automatic")),
        ("retrieval", _("From passages")),
        ("full", _("Whole, or refuse")),
        ("chunked", _("In parts")),
    ]
    return render(
        "ways.html",
        fits=fits,
        reading_mode=reading_mode,
        parts=chapter_menu(book, spoiler_limit),
        spoiler_limit=spoiler_limit,
        busy=busy,
    )


def choices_html(book: Document | None, chosen: tuple[int, int], length: str, *, fixed: bool) -> str:
    """What a summary is to be about, how long, or "own". `fixed`: that is set elsewhere."""
    lengths = [("paragraph", _("A paragraph")), ("page", _("A page")), ("chapters", _("By chapters"))]
    lengths.append(("own", _("In the book's own sentences, at once")))
    return render(
        "choices.html", parts=chapter_menu(book), chosen=chosen, lengths=lengths, length=length, fixed=fixed
    )


def suggestions_html(known: Document | None, spoiler_limit: int | None) -> str:
    """Questions to begin with; of a book that may not be read to its end, none about the end, and of one that
    is not in English none about its people.
    """
    people = [] if known and foreign(known.text) else [_("Who are the main characters?")]
    told = (
        [_("What is it about?"), _("How does it end?")]
        if spoiler_limit is None
        else [_("What has happened so far?")]
    )
    return render("suggestions.html", questions=[*people, *told])


def _notes(book: Document, known: dict) -> list[str]:
    """What is to be known of the book, each once: the card's notes hold the book's own, when it has come."""
    said = (*known.get("notes", ()), *book.warnings, *_outdated(book))
    return list({localized(one): one for one in said}.values())


def _outside(book: Document) -> list[str]:
    """The names of what stands around the book itself and is not read; a title page is not worth a word."""
    return [
        outside_name(section)
        for section in book.outside
        if count_words(book.text[section.start : section.end]) >= _WORTH_SAYING
    ]


def _outdated(book: Document) -> list[str]:
    """What to tell of a book that stands on the shelf as an older version read it."""
    if not book.outdated:
        return []
    return [_("Books are read better now than when this one was. Drop its file again to have it read anew.")]


def _card_facts(book: Document, card: dict) -> dict[str, object]:
    """A time is left out where none is known. A book in parts may have to be told of, beside being read."""
    tokens, read_s = card.get("tokens", 0), card.get("read_s_estimate")
    told = read_s != card.get("prefill_s_estimate", read_s)
    return {
        "chapters": card.get("chapters", len(book.chapters)),
        "words": card.get("words", book.words),
        "tokens": tokens,
        "read_before": card.get("snapshot_tokens", 0) > tokens // 2,
        "at_once": read_s is not None and read_s < AT_ONCE_S,
        "told": told,
        "read_s": None if read_s is None else roughly(read_s),
    }


def _fit(card: dict) -> dict[str, object] | None:
    """How much of the context the book takes, in words and as a share; None before the engine has said it."""
    if "share_of_context" not in card:
        return None
    share, count = float(card["share_of_context"]), len(card.get("parts", ()))
    if card.get("fits"):
        words = _("Fits the context: {share} of it").format(share=f"{share:.0%}")
        return {"tone": "good", "words": words, "width": min(share, 1)}
    words = _n(
        "Summarised in {count} part, then the whole from the parts",
        "Summarised in {count} parts, then the whole from the parts",
        count,
    ).format(count=count)
    if share > 1:
        words = _("{times} × the context").format(times=f"{share:.1f}") + f". {words}"
    return {"tone": "warn", "words": words, "width": min(share, 1)}


# --- the conversation


def turn_html(
    turn: StoredTurn,
    cited: CitedAnswer = NOTHING_CITED,
    *,
    talk: str = "",
    parts: Sequence[tuple[str, Markup]] = (),
    question: StoredTurn | None = None,
    last: bool = False,
    limit: int | None = None,
) -> str:
    """One finished turn of the conversation `talk`; `parts`: what was told of each part, as `answer_html`
    makes it. `question`: what it answers. What may tell of the book behind the spoiler `limit` is folded.
    """
    stored = turn.extra
    if turn.role == "user":
        return render(
            "asked.html",
            text=displayed_text(turn),
            number=turn.number,
            talk=talk,
            instructions=stored.get("instructions", ""),
            left_out=bool(stored.get("since")),
            told=stored.get("told", ""),
        )
    asked_with = question.extra.get("instructions", "") if question else ""
    stats = stored.get("stats") or {}
    reason = stored.get("reason", "")
    return render(
        "answer.html",
        parts=parts,
        spoken=spoken_language(displayed_text(turn)),
        text=answer_html(level_pieces(turn), cited.citations),
        found=cited.found,
        sentences=cited.sentences,
        supported=cited.supported,
        bare=cited.bare,
        error=stored.get("error", ""),
        ways=[way for way in stored.get("ways", ()) if way in READING_MODES] if last else [],
        reason="interrupted" if turn.state == "stopped" and not reason else reason,
        sources=stored.get("sources", ()),
        notes=stored.get("notes", ()),
        tokens=stats.get("new_tokens", 0),
        tokens_per_s=stats.get("tokens_per_s", 0.0),
        answers=stats.get("answers", 1),
        all_tokens=stats.get("all_tokens", 0),
        last=last,
        unstored=turn.unstored,
        number=turn.number,
        talk=talk,
        behind=told_behind(question, turn, limit) and not turn.unstored,
        versions=[
            (*one, not within(given, limit)) for one, given in zip_longest(turn.versions, turn.version_limits)
        ],
        plain_text=displayed_text(turn),
        compared=_beside(turn.text, stored.get("compared"), stats.get("mode", "")),
        instructions=stored.get("instructions", asked_with),
        others=stored.get("instructions", asked_with) != asked_with,
    )


def _beside(text: str, compared: dict | None, mode: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The answer and plain decoding's as (title, its runs of (kind, text)). `kind`: "other" from where they
    part, "tie" for what a near-tie brought, else "".
    """
    if not compared:
        return []
    text, plain = text.strip(), compared["text"].strip()
    ties = (compared.get("verified") or {}).get("places", ())
    at = len(commonprefix([text, plain]))
    if at < max(len(text), len(plain)):
        at = text.rfind(" ", 0, at) + 1  # whole words
    name = mode_names().get(mode, mode)
    return [(name, _runs(text, at, ties)), (_("Plain decoding"), _runs(plain, at, ()))]


def _runs(text: str, at: int, ties: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
    """`text` cut where it goes on otherwise and around its near-ties."""
    borders = sorted({0, at, len(text), *(min(max(one, 0), len(text)) for tie in ties for one in tie)})
    found = []
    for start, end in pairwise(borders):
        tied = any(first <= start < last for first, last in ties)
        found.append(("tie" if tied else "other" if start >= at else "", text[start:end]))
    return found


def parts_html(parts: Sequence[tuple[str, Markup]]) -> str:
    """What was told of each part, above the answer that is being written."""
    return render("parts.html", parts=parts)


def progress_html(now: Snapshot | None, late: bool = False) -> str:
    """The bar while the engine loads or reads; empty otherwise. `late`: see AnswerJob."""
    if now is None or not now.running or now.phase == "streaming" and not (now.standing or _in_levels(now)):
        return ""
    return render(
        "progress.html", title=_doing(now), detail=nonbreaking(_how_far(now, late)), share=_share(now)
    )


def _share(now: Snapshot) -> float | None:
    """How far the whole answer is; of several parts each counts alike, one half of it for its reading."""
    reading, prefill = now.reading, now.prefill
    if now.phase == "preparing":
        return now.preparing.done_bytes / now.preparing.total_bytes
    if now.phase == "loading" and now.loading:
        return now.loading.fraction
    read = prefill.done_tokens / prefill.total_tokens if prefill and prefill.total_tokens else None
    in_levels = _in_levels(now)
    if reading is None or not (in_levels or reading.purpose in IN_TURN):
        return read
    read = 1.0 if now.phase == "streaming" else read or 0.0
    if in_levels:  # of what is left, this part has its share, half of which is reading it
        left_s = reading.left_s * (1 - read / 2 / (reading.total - reading.index + 1))
        return max(0.0, 1 - left_s / max(now.whole_s, reading.left_s))
    return (reading.index - 1 + read / 2) / reading.total


def _in_levels(now: Snapshot) -> bool:
    """Whether parts are told that are told in one later: how long all of that takes is known."""
    return bool(now.reading and now.reading.purpose in IN_LEVELS and now.reading.left_s and now.whole_s)


def _doing(now: Snapshot) -> str:
    reading = now.reading
    if now.phase == "preparing":
        return _("Preparing memory")
    if reading is None:
        return localized(now.loading.stage) if now.phase == "loading" and now.loading else _("Getting ready")
    if reading.purpose == "telling" or now.phase == "streaming" and reading.purpose == "part summary":
        one, among = _("Telling: {part}"), _("Telling part {index} of {total}: {part}")
    elif reading.purpose == "answer":  # the others are not read for it
        one = among = _("Reading: {part}")
    elif reading.purpose == "passage":
        one, among = _("Reading a passage: {part}"), _("Reading passage {index} of {total}: {part}")
    elif reading.purpose == "whole summary":
        one, among = _("Telling the whole: {part}"), _("Telling the whole, {index} of {total}: {part}")
    else:
        one, among = _("Reading: {part}"), _("Reading, {index} of {total}: {part}")
    return (among if reading.total > 1 else one).format(
        index=reading.index, total=reading.total, part=reading.label
    )


def _how_far(now: Snapshot, late: bool) -> str:
    if now.stopping:
        return _("Stopping after this step…")
    if now.phase == "preparing":
        return _memory_ready(now.preparing)
    prefill, loading = now.prefill, now.loading
    if late:
        return _("takes longer than expected")
    if _in_levels(now) or now.standing:
        words, left_s = _("about {time} until all is told"), now.reading.left_s
        return words.format(time=duration(roughly(left_s))) if left_s else ""
    if now.reading and now.reading.purpose == "passage" and now.reading.left_s:
        return _("about {time} left").format(time=duration(roughly(now.reading.left_s)))
    if prefill is None:
        left_s = loading.left_s if loading and now.phase == "loading" else None
        return "" if left_s is None else _("about {time} left").format(time=duration(left_s))
    said = [
        _("{done} of {total} tokens").format(
            done=f"{prefill.done_tokens:,}", total=f"{prefill.total_tokens:,}"
        )
    ]
    if prefill.eta_s:
        said.append(_("{time} left").format(time=duration(prefill.eta_s)))
    if prefill.snapshot_tokens:
        said.append(_("{count} known from before").format(count=f"{prefill.snapshot_tokens:,}"))
    return " · ".join(said)


def _memory_ready(preparing: Preparing) -> str:
    done = _("{done} of {total}").format(done=size(preparing.done_bytes), total=size(preparing.total_bytes))
    if preparing.eta_s is None:
        return done
    return done + " · " + _("{time} left").format(time=duration(preparing.eta_s))


def spoken_status(phase: str, opening: ImportedFile | None) -> str:
    """One sentence for screen readers: what began or ended, never single tokens. `phase` of the answer; ""
    without one.
    """
    if opening is not None and not opening.offer:
        return escape(_("Opening {name}.").format(name=opening.name))
    sentences = {
        "preparing": _("Preparing memory"),
        "prefill": _("Reading the book."),
        "streaming": _("The answer is being written."),
        "failed": _("The answer failed."),
        "finished": _("The answer is complete."),
    }
    return escape(sentences.get(phase, ""))
