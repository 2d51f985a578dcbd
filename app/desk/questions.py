"""A question on its way from the desk to the engine. What the context has no room for is chosen by the person
before anything is sent, and a question about several books is refused in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from app.desk.answer_job import Job
from app.store.fulltext import searchable
from app.store.library import BookEntry
from app.store.turns import Turn, exchanges, going_on, retelling, wording
from core.ask import Ask, Exchange
from core.documents.document import Document
from core.errors import UserError
from core.events import Delta, Event, Failed, Finished, Loading, Prefill, Preparing
from core.stats import AnswerStats
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

RETOLD_TOKENS = 256  # of a summary of what was said
SHORTEST_TITLE = 4  # letters; two where each is a word; shorter ones are like others
TRANSCRIPT = (
    "This was asked about a book, and answered:\n\n{said}\n\nTell in short what was asked and answered, so "
    "that the conversation can go on from there."
)
# in the languages of the page
SEVERAL = re.compile(
    r"\b(?:both|these|those|all|other|several|two|my|all (?:of )?(?:the|my)|the other) books\b"
    r"|\b(?:across|between|among) (?:the |my |these |all )*books\b|\b(?:another|the other) book\b"
    r"|\bmy (?:library|shelf)\b"
    r"|\b(?:beide|diese|alle|andere|mehrere|meine)[nr]? (?:anderen )?büchern?\b|\bzwei(?:er)? büchern?\b"
    r"|\bandere[nms]? buch\b|\bmeine[mr]? (?:bibliothek|bücherregal)\b"
    r"|(?:两|几|兩|幾)本[书書]|[这那這]些[书書]|所有的?[书書]|(?:另一|其他|别的|別的)本?的?[书書]|我的[书書][架库庫]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Crowded:
    """A question that waits: the context cannot hold it with all that was said. `oldest` of `count` questions
    would have to be left out. `room`: core.conversation.turns.Turns.room.
    """

    ask: Ask
    oldest: int
    count: int
    room: dict[str, Any]
    retells: bool  # whether there is room for a summary in their place
    instead_of: Turn | None = None

    @property
    def wording(self) -> str:
        """What was asked."""
        return wording(self.ask)


class Asking:
    """Sends a desk's questions. `crowded`: the one that waits for a choice."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._warned = ""  # the question that was refused last; asked once more it is meant for this book
        self.crowded: Crowded | None = None

    @property
    def shown(self) -> Crowded | None:
        """The question that waits in the open conversation."""
        waiting, desk = self.crowded, self._desk
        here = (desk.book_id, desk.conversation_id)
        return waiting if waiting and (waiting.ask.book_id, waiting.ask.conversation_id) == here else None

    def ask(self, ask: Ask, instead_of: Turn | None = None) -> bool:
        """Asks, or lets the person choose first; False where the question was refused, in words."""
        desk = self._desk
        if desk.engine.state == "failed":
            words = _("The engine is not running. Restart it with the button at the top, then ask again.")
            desk.say(words)
            return False
        if instead_of is None and self._concerns_others(ask.question or ""):
            return False
        whole = self.whole(ask, instead_of)
        if waiting := self._crowded(whole, instead_of):
            self.crowded = waiting
            desk.change()
            return True
        return self._send(whole, instead_of)

    def whole(self, ask: Ask, instead_of: Turn | None = None) -> Ask:
        """The question with what the desk brings to it: the book and its limit, and what was said before."""
        desk = self._desk
        return replace(
            ask,
            book=desk.book,
            conversation_id=desk.conversation_id,
            history=exchanges(self._before(instead_of), desk.until),
            until=desk.until,
            keep_all=True,
        )

    def drop_oldest(self) -> None:
        """Asks without the oldest questions; they stay to be read."""
        self._leave_out(retold=False)

    def retell_oldest(self) -> None:
        """Asks with a summary in place of the oldest questions."""
        self._leave_out(retold=True)

    def start_fresh(self) -> None:
        """Asks in a new conversation."""
        if waiting := self._taken():
            self._desk.talks.begin()
            self._send(replace(waiting.ask, history=()), None)

    def cancel(self) -> None:
        """The question is not asked."""
        self.crowded = None
        self._desk.change()

    # --- inside

    def _leave_out(self, *, retold: bool) -> None:
        if waiting := self._taken():
            left, kept = waiting.ask.history[: waiting.oldest], waiting.ask.history[waiting.oldest :]
            self._send(replace(waiting.ask, history=kept), waiting.instead_of, left=left, retold=retold)

    def _taken(self) -> Crowded | None:
        waiting, desk = self.crowded, self._desk
        if waiting is None or desk.refuse_while_busy():
            return None
        self.crowded = None
        if (waiting.ask.book_id, waiting.ask.conversation_id) == (desk.book_id, desk.conversation_id):
            return waiting
        desk.change()
        return None

    def _before(self, instead_of: Turn | None) -> list[Turn]:
        return self._desk.turns if instead_of is None else self._desk.turns[:-2]

    def _crowded(self, ask: Ask, instead_of: Turn | None) -> Crowded | None:
        """The choice, where there is one to make. Of an engine that still loads nothing is known: it answers
        nothing rather than leave anything out (Ask.keep_all).
        """
        if not ask.history or self._desk.engine.state != "ready":
            return None
        try:
            room = self._desk.engine.room(ask)
        except UserError:
            return None  # the answer will say what is wrong
        least = too_many(room)
        if not least or least > len(ask.history):
            return None  # there is room, or none even without all that was said: the answer says so
        count, half = len(ask.history), (len(ask.history) + 1) // 2
        retold = too_many(room, beside=RETOLD_TOKENS)
        retells = retold <= count
        return Crowded(ask, max(retold if retells else least, half), count, room, retells, instead_of)

    def _send(
        self, ask: Ask, instead_of: Turn | None, *, left: tuple[Exchange, ...] = (), retold: bool = False
    ) -> bool:
        """`left`: what goes no longer to the engine, of the questions before; `retold`: but as a summary."""
        desk = self._desk

        def prepare() -> Job:
            """The question goes into the history, unless its answer stands there, and the answer's place."""
            if not desk.conversation_id:
                desk.conversation_id = desk.history.create(desk.book_id, desk.until).id
            talk, pairs = desk.conversation_id, going_on(self._before(instead_of), desk.until)
            whole = replace(ask, conversation_id=talk)
            with desk.history.together():  # a question without its answer would shift all that follow
                number = instead_of.number - 1 if instead_of else desk.history.ask(talk, whole)
                since = 0
                if left:
                    since = pairs[-len(ask.history)][0].number if ask.history else number
                    desk.history.leave_out(talk, number, since)
                return Job(
                    self._retold(whole, left, number, since) if retold else desk.engine.ask(whole),
                    desk.history,
                    talk,
                    changed=desk.change,
                    stop=desk.engine.stop,
                    say=desk.say,
                    instead_of=instead_of,
                    until=desk.until,
                    instructions=ask.instructions,
                    done=lambda finished: desk.tree.keep(whole, finished),
                    params=ask.params,
                )

        return desk.run(prepare)

    def _retold(self, ask: Ask, left: tuple[Exchange, ...], number: int, since: int) -> Iterator[Event]:
        """A summary of what is left out, and then the answer. Nothing is answered where that is stopped."""
        engine, told = self._desk.engine, ""
        before = "\n\n".join(f"- {one.question}\n{one.answer}" for one in left)
        wish = Ask(
            TRANSCRIPT.format(said=before),
            params={**ask.params, "max_new_tokens": RETOLD_TOKENS},
            instructions=ask.instructions,
        )
        stage = _("Telling in short what was said so far")
        yield Loading(stage)
        figures = AnswerStats()
        for event in engine.ask(wish):
            figures.take(event)
            if isinstance(event, Failed) or isinstance(event, Finished) and event.reason == "user":
                yield event
                return
            if isinstance(event, Finished):
                told = event.text.strip()
            elif isinstance(event, Prefill) and event.total_tokens:
                yield Loading(stage, event.done_tokens / event.total_tokens, event.eta_s)
            elif isinstance(event, Preparing):
                yield Loading(_("Preparing memory"), event.done_bytes / event.total_bytes, event.eta_s)
            elif isinstance(event, Delta) and (stats := figures.stats()):
                more = max(0, RETOLD_TOKENS - stats.new_tokens)
                left_s = more * stats.tbt_mean_ms / 1e3 if stats.tbt_mean_ms else None  # after one round
                yield Loading(stage, 1 - more / RETOLD_TOKENS, left_s)
        self._desk.history.leave_out(ask.conversation_id, number, since, told)
        first = (Exchange(retelling(), told),) if told else ()
        yield from engine.ask(replace(ask, history=first + ask.history))

    def _concerns_others(self, question: str) -> bool:
        """Says that a question is put to one book, where it names others; the same question once more is
        meant for this one.
        """
        desk = self._desk
        if question == self._warned or desk.book is None:
            return False
        other = another_title(question, desk.book, desk.library.entries())
        if not other and not SEVERAL.search(question):
            return False
        self._warned = question
        words = _(
            "A question is put to one book, and this one seems to be about several. Open one of them to ask "
            "about it, or send the question once more to put it to “{title}” alone."
        )
        if other:
            words = _(
                "A question is put to one book, and “{other}” is another one. Open it to ask about it, or "
                "send the question once more to put it to “{title}” alone."
            )
        desk.say(words.format(title=desk.book.title, other=other), "info")
        return True


def too_many(room: dict[str, Any], *, beside: int = 0) -> int:
    """How many of the oldest turns must go so that an answer fits with what is left, and with `beside`
    tokens more; one more than there are where nothing helps.
    """
    free = room["context"] - room["text"] - room["question"] - room["answer"]
    turns, gone = list(room["turns"]), 0
    while gone <= len(turns) and sum(turns[gone:]) + (beside if gone else 0) > free:
        gone += 1
    return gone


def another_title(question: str, book: Document, shelf: Sequence[BookEntry]) -> str:
    """The title of another book on the shelf that a question names, and that the open book does not; or
    nothing.
    """
    asked, known = _plain(question), None
    for entry in shelf:
        named = re.split(r"[:;(\uff1a\uff1b\uff08]", entry.title)[0]  # without a subtitle
        title = _plain(named)
        short = len(searchable(named)) < SHORTEST_TITLE
        if entry.id == book.sha256 or short or f" {title} " not in f" {asked} ":
            continue
        known = known if known is not None else f" {_plain(book.title)} {_plain(book.text)} "
        if f" {title} " not in known:
            return entry.title
    return ""


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", searchable(text).casefold()))
