"""A conversation's answers as the page shows them: the finished ones, kept as HTML, and the one that is being
written, each sentence with the places in the book it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup

from app.desk.answer_snapshot import Snapshot
from app.desk.reader import as_known, as_read
from app.render.markdown import Citation
from app.store.turns import StoredTurn, answered_limit
from app.web import regions
from app.web.citations import Citations, CitedAnswer
from app.web.region_cache import RegionMemo
from app.web.streaming_text import LiveText, StandingText
from core.documents.document import Document
from core.events import SourceSpan
from core.wire import unpack_looked

MOST_KEPT = 400  # turns, and parts


class AnswerViews:
    """Renders answers, for one thread. `turns`, `parts` and `live` are regions: what they show they name, see
    app.web.region_table.
    """

    def __init__(self) -> None:
        self._citations = Citations()
        self._live, self._standing = LiveText(), StandingText()
        self._keep = RegionMemo()
        self._turn_html: dict[tuple, str] = {}
        self._part_html: dict[tuple, Markup] = {}

    @property
    def hidden(self) -> bool:
        """Whether letters are written that are still to be shown."""
        return self._live.hidden

    def prepare(self, book: Document) -> None:
        """Makes the book ready to be looked through for what sentences rest on."""
        self._citations.prepare(book)

    def ready(self, book: Document) -> bool:
        """Whether it is ready."""
        return self._citations.ready(book)

    def turns(
        self,
        done_turns: list[StoredTurn],
        book: Document | None,
        conversation_id: str,
        running: bool,
        spoiler_limit: int | None,
    ) -> tuple[str, ...]:
        """The finished turns, one by one."""
        shown = []
        for before, turn in zip([None, *done_turns], done_turns, strict=False):
            last = turn is done_turns[-1] and not running
            shown.append(self.turn(turn, before, book, talk=conversation_id, last=last, limit=spoiler_limit))
        return tuple(shown)

    def parts(
        self, shown_answer: Snapshot | None, running: bool, book: Document | None, spoiler_limit: int | None
    ) -> str | tuple[str, ...]:
        """What was told of the parts of the `book`."""
        if not running:
            return ()
        return regions.parts_html(self._parts(shown_answer.parts, book, spoiler_limit))

    def live(
        self,
        shown_answer: Snapshot | None,
        running: bool,
        visible: int,
        read: Document | None,
        asked: str,
        ready: bool,
    ) -> tuple[str, ...]:
        """The answer so far to what was `asked`, in blocks; of a text that grows the first `visible`
        characters. `ready`: whether the book that is `read` can be looked through, see `ready`.
        """
        if not running:
            return ()
        now, signs = shown_answer, ()
        if now.standing:
            if read and now.pieces:
                signs = self._signs(now, read)
            return self._standing.blocks(now.pieces, signs, now.telling)
        if read and now.pieces:
            signs = self._citations.so_far(now.text, read, asked, now.looked)
        return self._live.blocks(now.pieces, visible, signs)

    def _signs(self, now: Snapshot, book: Document) -> tuple[Citation, ...]:
        """The signs of the sentences that stand, looked up when others do, moved by what is being told."""
        standing, (start, end) = now.standing, now.telling
        text = "".join(piece.text for piece in (*standing.before, *standing.after))
        signs = self._keep(
            "signs",
            (edition(book), text, standing.stands, self._citations.ready(book)),
            lambda: self._citations.standing(text, book, standing.stands),
        )
        return tuple(
            replace(one, start=one.start + end - start, end=one.end + end - start)
            if one.shown_from > start
            else one
            for one in signs
        )

    def turn(
        self,
        turn: StoredTurn,
        question: StoredTurn | None,
        book: Document | None,
        *,
        talk: str,
        last: bool,
        limit: int | None = None,
    ) -> str:
        """A finished turn of the conversation `talk`, which has this spoiler `limit` now; what an answer
        stands on is looked for where it was looked for then.
        """
        spoiler_limit = answered_limit(question, turn)
        chosen = tuple(turn.extra.get(name) for name in ("instructions", "since", "told", "error"))
        chosen += ((turn.extra.get("compared") or {}).get("text"),)
        said = (
            turn.number,
            turn.state,
            len(turn.text),
            turn.text[-40:],
            spoiler_limit,
            turn.versions,
            chosen,
            turn.unstored,
        )
        key = (talk, edition(book), *said, last, limit)
        if key not in self._turn_html:
            if len(self._turn_html) > MOST_KEPT:
                self._turn_html.clear()
            cited = cited_answer(self._citations, turn, question, book) if book else CitedAnswer()
            parts = self._parts(turn.extra.get("parts", ()), book, spoiler_limit)
            self._turn_html[key] = regions.turn_html(
                turn, cited, talk=talk, parts=parts, question=question, last=last, limit=limit
            )
        return self._turn_html[key]

    def _parts(
        self, parts: Sequence[Sequence[str]], book: Document | None, spoiler_limit: int | None
    ) -> list[tuple[str, Markup]]:
        """What was told of each part of the book, with the marks of its sentences."""
        found = []
        for label, told in parts:
            key = (edition(book), spoiler_limit, told)
            if key not in self._part_html:
                if len(self._part_html) > MOST_KEPT:
                    self._part_html.clear()
                cited = self._citations(told, as_known(book, spoiler_limit)) if book else CitedAnswer()
                self._part_html[key] = regions.answer_html(((told, ""),), cited.citations)
            found.append((label, self._part_html[key]))
        return found


def cited_answer(
    citations: Citations, turn: StoredTurn, question: StoredTurn | None, book: Document
) -> CitedAnswer:
    """What a finished answer stands on, looked for where it was looked for then; of a question nothing."""
    if turn.role != "assistant" or not turn.text:
        return CitedAnswer()
    looked = [unpack_looked(one) for one in turn.extra.get("looked", ())]
    stands = [SourceSpan(**one) for one in turn.extra.get("stands", ())]
    known = as_read(as_known(book, answered_limit(question, turn)), question)
    return citations(turn.text, known, question_of(question), looked, stands)


def edition(book: Document | None) -> tuple:
    """What tells books and their readings apart: a file that was read again may have another text."""
    return (book.sha256, hash(book.text), book.reader_version) if book else ()


def question_of(turn: StoredTurn | None) -> str:
    """What was asked, where it was a question about the book's matter."""
    return turn.text if turn and turn.role == "user" and not turn.extra.get("summary") else ""
