"""What an assistant can have of the books, as plain values. Every text of a book in them is marked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.api.answering import ApiAnswers, FinalChunk, ProgressChunk
from app.api.request import ApiError, ParsedRequest
from app.desk.assembly import AppServices
from app.mcp.jobs import BackgroundJob, Jobs, Refused
from app.mcp.quoting import ABOUT, line, place_in_book, tagged
from app.store.allowed_folders import allowed
from app.store.library import BOOK_ID
from core.documents.document import Document
from core.documents.finding import Finder
from core.documents.quotes import QuoteIndex
from core.request import Request

WAIT_S = 20.0  # a call's answer comes within that: many clients give up at 60 s
MOST_QUESTION, MOST_WORDS, MOST_PLACES, MOST_EVIDENCE = 8000, 2000, 10, 20
AROUND_CHARS = 240  # before and behind what was found
OFF = (
    "TriForce Chat does not let assistants in. The person at this computer can switch it on: Settings, "
    "Other programs, mcp; or mcp: true in config.yaml."
)
Values = dict[str, Any]


class BookTools:
    """The tools, on the app's side. `wait_s`: how long a call may wait for its job."""

    def __init__(
        self, parts: AppServices, answers: ApiAnswers, *, jobs: Jobs | None = None, wait_s: float = WAIT_S
    ) -> None:
        self._engine, self._library, self._preferences = parts.engine, parts.library, parts.preferences
        self._imports, self._shelf, self._requests = parts.imports, parts.shelf, parts.requests
        self._answers, self._wait_s = answers, wait_s
        self._jobs = jobs or Jobs()
        self._lock = threading.Lock()
        self._found: tuple[str, Finder, QuoteIndex] | None = None

    def call(self, tool: str, given: Values) -> Values:
        """What a tool gives. Raises Refused or UserError, in words for the assistant."""
        if not self._preferences.settings.mcp:
            raise Refused(OFF)
        tools: dict[str, Callable[..., Values]] = {
            "list_books": self.list_books,
            "open_book": self.open_book,
            "ask_book": self.ask_book,
            "summarise_chapter": self.summarise_chapter,
            "find_quote": self.find_quote,
            "check_job": self.check_job,
        }
        return {**tools[tool](**given), "about_book_text": ABOUT}

    def list_books(self) -> Values:
        """The shelf."""
        books = [
            {
                "book": one.id,
                "title": line(one.title),
                "author": line(one.author),
                "words": one.words,
                "chapters": one.chapters,
            }
            for one in self._library.entries()
            if not one.missing
        ]
        return {"books": books}

    def open_book(self, book: str) -> Values:
        """Begins to read a book of the shelf, or a file in a ticked folder; returns at once."""
        if BOOK_ID.fullmatch(book):
            document = self._book(book)
            job = self._jobs.begin(("open", book), lambda *how: self._read(document, *how))
            return {**_contents(document), **self._told(job, 0.0)}
        path = allowed(book, self._preferences.settings.mcp_folders)
        job = self._jobs.begin(("open", str(path)), lambda *how: self._read(self._shelved(path, *how), *how))
        return self._told(job, 0.0)

    def ask_book(self, book: str, question: str, until_chapter: int | None = None) -> Values:
        """An answer with the places it rests on, or how far it is."""
        document, question = self._book(book), question.strip()
        if not question or len(question) > MOST_QUESTION:
            raise Refused(f"A question has 1 to {MOST_QUESTION} characters.")
        if until_chapter is not None:
            _chapter(document, until_chapter)
        ask = Request(question, document, f"mcp-{book[:16]}", spoiler_limit=until_chapter)
        job = self._jobs.begin((book, question, until_chapter), lambda *how: self._answer(ask, *how))
        return self._told(job, self._wait_s)

    def summarise_chapter(self, book: str, chapter: int) -> Values:
        """A summary of one chapter, or how far it is."""
        document = self._book(book)
        _chapter(document, chapter)
        ask = Request(None, document, f"mcp-{book[:16]}", chapters=(chapter, chapter))
        job = self._jobs.begin((book, chapter), lambda *how: self._answer(ask, *how))
        return self._told(job, self._wait_s)

    def find_quote(self, book: str, words: str, until_chapter: int | None = None) -> Values:
        """Where some words stand in a book, with what stands around them. No model is asked."""
        document = self._book(book)
        if not words.strip() or len(words) > MOST_WORDS:
            raise Refused(f"Give 1 to {MOST_WORDS} characters to look for.")
        if until_chapter is not None:
            _chapter(document, until_chapter)
            document = document.up_to(until_chapter)
        finder, quotes = self._prepared(document)
        found = finder.find(words)
        places, count = found.places[:MOST_PLACES], found.count
        if not places and (loose := quotes.find(words)):  # other punctuation, or words left out by "..."
            places, count = (loose,), 1
        return {"book": book, "count": count, "places": [_around(document, *one) for one in places]}

    def check_job(self, job: str) -> Values:
        """How far a job is, or its result."""
        return self._told(self._jobs.get(job), self._wait_s)

    # --- inside

    def _book(self, book_id: str) -> Document:
        try:
            return self._library.get(book_id)
        except KeyError:
            raise Refused(
                f"There is no book {book_id!r} on the shelf. list_books names those there are."
            ) from None

    def _told(self, job: BackgroundJob, wait_s: float) -> Values:
        now = job.after(wait_s)
        if now.state == "failed":
            raise Refused(now.error)
        if now.result is not None:
            return {**now.result, "job": job.id, "state": "done"}
        how_far = {"step": now.step, "fraction": now.fraction}
        return {"job": job.id, "state": "running", **how_far, "next": f"Call check_job with job {job.id!r}."}

    def _shelved(self, path: Path, tell: Callable[..., None], unwanted: Callable[[], bool]) -> Document:
        document, cover = self._imports.read_apart(path, progress=tell, should_stop=unwanted)
        with contextlib.suppress(KeyError):  # as it stands on the shelf; the person may have it open
            return self._library.get(document.sha256)
        if unstored := self._shelf.keep(document, cover=cover):
            raise Refused(unstored)
        return document

    def _read(self, book: Document, tell: Callable[..., None], unwanted: Callable[[], bool]) -> Values:
        """Has the model read the book where it will be asked about all of it: then answers come at once."""
        tell("waiting for the model")
        card = self._engine.card(book)
        if card["fits"] and not card["from_passages"]:
            params = {"max_new_tokens": 1, "temperature": 0.0}
            self._made(
                Request("…", book, f"mcp-{book.sha256[:16]}", reading_mode="full", params=params),
                tell,
                unwanted,
            )
        return _contents(book)

    def _answer(self, ask: Request, tell: Callable[..., None], unwanted: Callable[[], bool]) -> Values:
        text, ended = self._made(replace(ask, params=self._requests.params()), tell, unwanted)
        book = ask.book.up_to(ask.spoiler_limit)
        evidence = {}  # a passage once, though several sentences rest on it; a quotation's word goes first
        for one in ended.evidence:
            if words := one.get("words", "").rstrip("."):
                shown = {
                    "kind": one["kind"],
                    "text": tagged(one["words"], place_in_book(book, one["book_start"])),
                }
                evidence.setdefault((one["book_start"], words), shown)
        return {
            "book": ask.book_id,
            "answer": tagged(text, kind="summary" if ask.question is None else "answer"),
            "evidence": list(evidence.values())[:MOST_EVIDENCE],
            "sentences_without_evidence": sum(one["kind"] == "nothing" for one in ended.evidence),
            "read": [line(one) for one in ended.finished.sources],
            "notes": [line(one) for one in ended.finished.notes],
        }

    def _made(
        self, ask: Request, tell: Callable[..., None], unwanted: Callable[[], bool]
    ) -> tuple[str, FinalChunk]:
        """The answer, made in the row of other programs' and behind the person's own. Raises Refused."""
        try:
            answering = self._answers.begin(ParsedRequest("", replace(ask, low_priority=True)))
        except ApiError as error:
            raise Refused(str(error)) from None
        text: list[str] = []
        try:
            while not unwanted():
                news = answering.next(1.0)
                if isinstance(news, FinalChunk):
                    return "".join(text), news
                if isinstance(news, ApiError):
                    raise Refused(str(news))
                if isinstance(news, str):
                    text.append(news)
                    tell("answering")
                elif isinstance(news, ProgressChunk) and news.fraction is not None:
                    tell(news.words, news.fraction)
            raise Refused("Nobody asked after it any more; it was stopped.")
        finally:
            answering.stop()

    def _prepared(self, document: Document) -> tuple[Finder, QuoteIndex]:
        with self._lock:
            if self._found is None or self._found[0] != document.text:
                self._found = document.text, Finder(document.text), QuoteIndex(document)
            return self._found[1:]


def _contents(book: Document) -> Values:
    chapters = [{"number": number, "title": line(one.title)} for number, one in enumerate(book.chapters, 1)]
    about = {"title": line(book.title), "author": line(book.author), "words": book.words}
    return {"book": book.sha256, **about, "chapters": chapters}


def _chapter(book: Document, number: int) -> None:
    if not 1 <= number <= len(book.chapters):
        raise Refused(f"The chapters of this book are numbered from 1 to {len(book.chapters)}.")


def _around(book: Document, start: int, end: int) -> Values:
    before, behind = max(0, start - AROUND_CHARS), end + AROUND_CHARS
    where = place_in_book(book, start)
    return {"place": where, "text": tagged(book.text[before:behind].strip(), where)}
