"""What stands around the question box: how full the context is, the person's instructions, and the choice
where a question does not fit any more. Values in, HTML out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.desk.values import AnswerPlace, BookAnswer, ContextOverflow
from app.render.markdown import answer_html
from app.render.templating import render
from app.store.book_entry import BookEntry
from app.store.turns import wording
from core.config import INSTRUCTIONS_CHARS
from core.model.store.catalogue import title_of
from core.request import Request


def meter_html(room: dict[str, Any] | None) -> str:
    """Book, conversation and what is left of the context; empty until it is known."""
    if not room:
        return ""
    total, said = room["context"], sum(room["turns"])
    kept = room["question"] + room["answer"]
    free = total - room["text"] - said - kept
    return render(
        "meter.html",
        text=room["text"],
        said=said,
        kept=kept,
        free=max(free, 0),
        total=total,
        passages=room["reading"] == "retrieval",
        tone="bad" if free <= 0 else "warn" if free < room["answer"] else "good",
    )


def instructions_html(everywhere: str, here: str, *, fixed: bool, ignored_by: str = "") -> str:
    """The person's own instructions, for all books and for the open one. `fixed`: the former are set
    elsewhere. `ignored_by`: the model that most answers are made by without them.
    """
    return render(
        "instructions.html",
        everywhere=everywhere,
        here=here,
        fixed=fixed,
        ignored_by=title_of(ignored_by) if ignored_by else "",
        most=INSTRUCTIONS_CHARS,
    )


def crowded_html(crowded: ContextOverflow | None) -> str:
    """The choice that a question waits for; empty when none does."""
    if crowded is None:
        return ""
    room = crowded.room
    return render(
        "crowded.html",
        wording=crowded.wording,
        oldest=crowded.oldest,
        count=crowded.count,
        retells=crowded.retells,
        text=room["text"],
        said=sum(room["turns"]),
        total=room["context"],
    )


def asks_too_html(entries: Sequence[BookEntry], asked_too: Sequence[tuple[str, str]], book_id: str) -> str:
    """The other books that a question may be put to, too; empty where no book is open, or no other one."""
    there = [one for one in entries if not one.missing]
    others = [one for one in there if one.id != book_id] if book_id in [one.id for one in there] else []
    ticked = [(one, (book_id, one.id) in asked_too) for one in others]
    return render("asks_too.html", books=ticked, count=sum(chosen for _one, chosen in ticked))


def book_answers_html(shown_book_answers: Sequence[BookAnswer]) -> str:
    """What they answered, one after another."""
    said = {one.conversation_id: answer_html(one.pieces) for one in shown_book_answers}
    return render("book_answers.html", answers=shown_book_answers, said=said)


def queue_html(
    elsewhere: AnswerPlace | None,
    phase: str,
    *,
    queued: Request | None,
    crowded: ContextOverflow | None,
    titles: Mapping[str, str],
) -> str:
    """What goes on beside the open conversation: the answer that is or was made `elsewhere`, in this `phase`;
    the question that waits for its turn; one that waits elsewhere for a choice. `titles`: of the books that
    do not lie open. Empty where there is nothing.
    """
    if not (elsewhere or queued or crowded):
        return ""
    return render(
        "queue.html",
        elsewhere=elsewhere,
        phase=phase,
        queued=queued,
        queued_wording=wording(queued) if queued else "",
        crowded=crowded,
        titles=titles,
    )
