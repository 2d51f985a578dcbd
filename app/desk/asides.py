"""Short answers beside the book's text: who somebody is so far, and what selected words mean, who says them,
what they are in the page's language. The model is asked as another program asks it, so that what was read of
the book stays, and a question of the conversation goes first.

Who somebody is, is kept with the place it was told up to: it is shown from there on, and never before.
"""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.reader import as_known, place_of_words
from app.desk.store import Store
from app.desk.values import Aside
from app.errors import guarded, in_words
from app.store.library import Library
from core.conversation.asides import (
    KINDS_OF_ASIDE,
    AsideGuard,
    AsideSentence,
    paragraph_end,
    person_question,
    words_question,
)
from core.conversation.reading import follows_wishes
from core.documents.document import Document
from core.errors import UserError
from core.events import Delta, Failed, Finished, Loading
from core.request import Request
from core.text.language_detection import foreign
from core.text.words import language
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)
TOKENS = {"person": 120, "meaning": 160, "speaker": 40, "translation": 400}
MOST_CHARS = 1500  # of selected words


class Asides:
    """Has them answered, one at a time. Thread-safe."""

    def __init__(self, store: Store, library: Library, engine: Runtime) -> None:
        self._store, self._library, self._engine = store, library, engine
        self._numbers = itertools.count(1)

    def explain(self, kind: str, paragraph: int, words: str) -> None:
        """Asks about words that stand from the `paragraph` on. Raises UserError where the model would not
        answer well, or they are too many.
        """
        book = self._known()
        span = place_of_words(book.text, paragraph, words) if book else None
        if kind not in KINDS_OF_ASIDE[1:] or span is None:
            return
        start, end = span
        if end - start > MOST_CHARS:
            said = _("You selected {count} characters; up to {most} are explained. Select fewer.")
            raise UserError(said.format(count=end - start, most=MOST_CHARS))
        self._check(kind, book)
        question = words_question(kind, book.text, start, end, language=language())
        limit = paragraph_end(book.text, end)
        self._begin(
            Aside(next(self._numbers), kind, book.text[start:end], (start, end), limit), book, question
        )

    def portray(self, name: str) -> None:
        """Asks who somebody of the panel of names is, up to where it goes. Raises UserError likewise."""
        book, panel = self._known(), self._store.state.names
        one = next((one for one in panel.found or () if one.kind == "person" and one.name == name), None)
        if book is None or one is None or panel.end > len(book.text):
            return
        self._check("person", book)
        question = person_question(book.text[: panel.end], name, one.mentions)
        self._begin(Aside(next(self._numbers), "person", name, one.mentions[0], panel.end), book, question)

    def dismiss(self) -> None:
        """Puts the answer away; one that is written is ended."""
        self.stop()
        self._store.update(aside=None)

    def stop(self) -> None:
        """Ends the answer that is written; what is there stays."""
        if self.running:
            self._engine.stop_guest()
        self._store.update(lambda now: replace(now, aside=_ended(now.aside)))

    @property
    def running(self) -> bool:
        """Whether one is being written."""
        now = self._store.state.aside
        return now is not None and now.state == "writing"

    def _known(self) -> Document | None:
        state = self._store.state
        return as_known(book, state.spoiler_limit) if (book := self._library.find(state.book_id)) else None

    def _check(self, kind: str, book: Document) -> None:
        if not follows_wishes(self._engine.model_name):
            words = _(
                "The model that is loaded answers from passages and explains nothing. Choose a larger one "
                "under Models, then ask again."
            )
            raise UserError(words)
        if kind != "translation" and self._store.state.spoiler_limit and foreign(book.text):
            words = _(
                "Under a spoiler limit words are explained in English books only: elsewhere the answer "
                "cannot be held to the limit. Lift the limit, or have the words translated."
            )
            raise UserError(words)

    def _begin(self, aside: Aside, book: Document, question: str) -> None:
        self.stop()
        self._store.update(aside=aside)
        threading.Thread(target=self._run, args=(aside, book, question), name="aside", daemon=True).start()

    def _run(self, aside: Aside, book: Document, question: str) -> None:
        try:
            self._answer(aside, book, question)
        except Exception as error:  # the thread's boundary: else the page would wait for ever
            log.exception("an answer beside the text broke off")
            self._show(aside, state="failed", error=in_words(error))

    def _answer(self, aside: Aside, book: Document, question: str) -> None:
        guard = AsideGuard(aside.kind, book, aside.end, aside.words)
        talk, text = f"aside {aside.number}", ""
        params = {"max_new_tokens": TOKENS[aside.kind], "temperature": 0.0, "seed": 1}
        asked = Request(question, conversation_id=talk, params=params, low_priority=True)
        events = self._engine.ask(asked)
        try:
            for event in events:
                if not self._is_shown(aside):
                    return
                if isinstance(event, Loading):
                    text = ""  # the person's own question went first: it begins anew
                elif isinstance(event, Delta):
                    text += "".join(piece.text for piece in event.pieces)
                    self._show(aside, sentences=tuple(guard.said(text, ended=False)))
                elif isinstance(event, Failed):
                    self._show(aside, state="failed", error=event.message)
                elif isinstance(event, Finished) and event.reason != "user":
                    self._end(aside, book, tuple(guard.said(event.text, ended=event.reason == "stop")))
        finally:
            events.close()
            self._engine.forget(talk)

    def _end(self, aside: Aside, book: Document, sentences: tuple[AsideSentence, ...]) -> None:
        self._show(aside, state="finished", sentences=sentences)
        if aside.kind == "person" and sentences:
            guarded(lambda: self._keep(aside, book, sentences), self._store.say, None)

    def _keep(self, aside: Aside, book: Document, sentences: tuple[AsideSentence, ...]) -> None:
        """Beside the book, with the place and the model."""
        told = {
            "name": aside.words,
            "end": aside.end,
            "model": self._engine.model_name,
            "sentences": [[one.text, *one.place] for one in sentences if one.place],
        }
        self._library.add_portrait(book.sha256, told)
        self._store.update(lambda now: replace(now, aside=None) if _is(now.aside, aside) else now)

    def _is_shown(self, aside: Aside) -> bool:
        now = self._store.state.aside
        return _is(now, aside) and now.state == "writing"

    def _show(self, aside: Aside, **changes: object) -> None:
        self._store.update(
            lambda now: replace(now, aside=replace(now.aside, **changes)) if _is(now.aside, aside) else now
        )


def _is(shown: Aside | None, aside: Aside) -> bool:
    return shown is not None and shown.number == aside.number


def _ended(aside: Aside | None) -> Aside | None:
    return replace(aside, state="finished") if aside and aside.state == "writing" else aside
