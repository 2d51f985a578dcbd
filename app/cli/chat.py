"""Commands that answer: summarize and chat."""

from __future__ import annotations

import argparse
import json
import sys

from app.cli.printing import Stream, answer_json, report, unsure
from app.cli.terminal import chapter_range, read_book, say, status, tell
from app.engine.client import Runtime
from app.store.turns import wording
from app.web.citations import Citations
from core.config import Settings
from core.documents.document import Document
from core.errors import UserError
from core.request import HistoryTurn, Request, params_of
from core.text.words import translated as _

INTERRUPTED = 130


def summarize(given: argparse.Namespace, settings: Settings) -> int:
    """One summary, or one answer."""
    runtime = Runtime(settings)
    try:
        runtime.start()  # the model is loaded while the book is read
        book = read_book(given.file, given.password, ocr=given.ocr, whole_page=given.whole_page)
        ask = Request(
            given.question,
            book,
            "command line",
            chapters=given.chapters,
            reading_mode=settings.reading_mode,
            params=params_of(settings),
            ignore_cache=True,
            summary_length=settings.summary_length,
            summaries=settings.summaries,
            instructions=settings.instructions,
            spoiler_limit=given.spoiler_limit,
        )
        stream = Stream(runtime)
        finished = stream.show(runtime.ask(ask))
        report(finished, unsure(Citations(), ask, finished, stream.looked))
        if given.json:
            exact_for = (runtime.plan or {}).get("exact_for", "")
            say(json.dumps({**answer_json(finished), "exact_for": exact_for}, ensure_ascii=False))
        _save(runtime)
    finally:
        runtime.close()
    return INTERRUPTED if finished.reason == "user" else 0


def _save(runtime: Runtime) -> None:
    """Let the engine keep the book for the next time. Ctrl-C skips it: the answer is complete."""
    status(_("Keeping what was read for the next time; Ctrl-C skips this"))
    try:
        runtime.save()
    except KeyboardInterrupt:
        pass
    finally:
        status("")


def chat(given: argparse.Namespace, settings: Settings) -> int:
    """A conversation, line by line, until the input ends."""
    runtime = Runtime(settings)
    try:
        runtime.start()  # the model is loaded while the book is read
        book = read_book(given.file, given.password, ocr=given.ocr, whole_page=given.whole_page)
        words = _("{title}: {words:,} words. Ask, or type /summary.")
        say(words.format(title=book.title or given.file, words=book.words))
        say(_help())
        _Chat(runtime, book, settings, given.chapters, given.spoiler_limit).run()
        _save(runtime)
    finally:
        runtime.close()
    return 0


class _Chat:
    """The conversation and the commands that begin with a slash."""

    def __init__(
        self,
        runtime: Runtime,
        book: Document,
        settings: Settings,
        chapters: tuple[int, int] | None,
        spoiler_limit: int | None,
    ) -> None:
        self._runtime, self._book, self._settings, self._chapters = runtime, book, settings, chapters
        self._until = spoiler_limit
        self._said: list[HistoryTurn] = []
        self._asked: str | None = None
        self._citations = Citations()

    def run(self) -> None:
        """Read lines until the input ends or /quit."""
        while (line := _prompt()) is not None:
            word, __, rest = line.partition(" ")
            if word == "/quit":
                return
            try:
                if word.startswith("/"):
                    self._obey(word, rest.strip())
                else:
                    self._ask(line)
            except UserError as error:
                tell(str(error))

    def _obey(self, word: str, rest: str) -> None:
        if word == "/summary":
            self._ask(None)
        elif word == "/again" and self._said:
            self._said.pop()
            self._ask(self._asked)
        elif word == "/new":
            self._said.clear()
            self._runtime.forget("chat")
        elif word == "/chapters":
            self._chapters = None if rest in ("", "all") else chapter_range(rest)
        else:
            say(_help())

    def _ask(self, question: str | None) -> None:
        self._asked = question
        ask = Request(
            question,
            self._book,
            "chat",
            chapters=self._chapters,
            reading_mode=self._settings.reading_mode,
            params=params_of(self._settings),
            history=tuple(self._said),
            spoiler_limit=self._until,
            summary_length=self._settings.summary_length,
            summaries=self._settings.summaries,
            instructions=self._settings.instructions,
        )
        stream = Stream(self._runtime)
        finished = stream.show(self._runtime.ask(ask))
        report(finished, unsure(self._citations, ask, finished, stream.looked))
        if finished.token_ids:
            self._said.append(HistoryTurn(wording(ask), finished.text, finished.token_ids, ask.instructions))


def _help() -> str:
    return _("/summary  /chapters 1-3  /chapters all  /again  /new  /help  /quit   (Ctrl-C stops an answer)")


def _prompt() -> str | None:
    """The next line that says something; None at the end of the input."""
    while True:
        try:
            line = input("\n> " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        if line.strip():
            return line.strip()
