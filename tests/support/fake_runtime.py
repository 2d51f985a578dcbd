"""An engine by script, with the interface of app.engine.client.Runtime: the same events, paced and
repeatable, no model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from core.config import Settings
from core.documents.document import Document
from core.errors import UserError
from core.events import (
    Acceptance,
    DecodingStarted,
    Delta,
    Event,
    Failed,
    Finished,
    Loading,
    Piece,
    Prefill,
    ReadingStep,
    RoundStats,
    SourceSpan,
    Stats,
    VerificationResult,
)
from core.request import Request
from core.stats import StatsRecorder
from tests.support.at_work import at_work

SUMMARY = (
    "In the chapters read here, the keeper of a small lighthouse takes in a stranger who claims to have "
    "walked across the sea "
    "bed at low tide. At first nobody believes him.\n\n"
    "- The keeper writes everything down in the log, **hour by hour**, because the log must never be empty.\n"
    "- The stranger repairs the lamp and, in doing so, learns what the keeper has been hiding.\n"
    "- When the storm comes, the two have to trust each other.\n\n"
    "The book ends quietly. The lamp burns through the night, and in the morning the log holds a single line "
    "in a second "
    "handwriting. What the story leaves open is whether the stranger ever left."
)
ANSWER = (
    "The keeper hides that the lamp went out once, on the night his brother's boat was lost. He had written "
    "a full page "
    "in the log that night, and every word of it was invented. The stranger finds the page because it is the "
    "only one "
    "without a single correction."
)
GB = 1 << 30
_LOOK_S, _LOOKS = 0.005, 20  # between two looks at what is waited for; and, in looks, at who works


class FakeRuntime:
    """`pace`: seconds per round; `parts` > 1 reads the book in parts; `fail` ends the answer with that
    message.
    """

    def __init__(
        self,
        *,
        pace: float = 0.05,
        load_s: float = 0.0,
        parts: int = 1,
        fail: str = "",
        prefill_steps: int = 40,
        summary: str = SUMMARY,
        answer: str = ANSWER,
    ) -> None:
        self.pace, self.load_s, self.parts, self.fail, self.prefill_steps = (
            pace,
            load_s,
            parts,
            fail,
            prefill_steps,
        )
        self.summary, self.answer = summary, answer
        self._watcher: Callable[[], None] = lambda: None
        self.state = "starting"
        self.still = False
        self.error = ""
        self.loading = Loading("Loading the model")
        self.before = ""  # the model that `use` was called beside
        self.model_name = ""
        self.context_tokens = 8192
        self.stored_as, self.stored = "", 0
        self.reading = "full"
        self.plan: dict | None = None
        self.asked: list[Request] = []
        self.renewed: list[object] = []
        self.forgotten: list[str] = []
        self.forgotten_books: list[str] = []
        self.scopes: list[dict] = []  # of the cards that were asked for
        self.prefilled_tokens: list[int] = []  # per question: how much had to be read
        self.closed = self.saved = False
        self.save_s = 0.0
        self._known: set[str] = set()
        self._stop = threading.Event()

    @property
    def state(self) -> str:
        """starting | loading | ready | busy | failed"""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state = state
        self._watcher()

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called after every change of the state."""
        self._watcher = told

    def start(self) -> None:
        """Becomes ready after `load_s`, as a worker that loads its model."""
        self.state = "loading"
        threading.Thread(target=self._load, daemon=True).start()

    def restart(self) -> None:
        """Likewise, where it stood still."""
        self.still = False
        self.start()

    def save(self, timeout_s: float) -> None:
        """Takes `save_s`, or as long as it may, or until `stop`."""
        self._stop.clear()
        self.saved = not self._stop.wait(min(timeout_s, self.save_s)) and self.save_s <= timeout_s

    def close(self) -> None:
        """Ends whatever runs."""
        self._stop.set()
        self.closed = True

    def use(self, model: str) -> None:
        """Loads another model."""
        self.before = self.model_name
        self.state = "loading"
        self._load()
        if self.before:
            self.model_name, self.before = model, ""

    def cancel_loading(self) -> Settings | None:
        """Back to the model before, or none."""
        before, self.before = self.before, ""
        self.error = "" if before else "Loading was cancelled."
        self.state = "ready" if before else "failed"
        return Settings(model=before) if before else None

    def rest(self) -> None:
        """Ends its process."""
        self.state = "starting"

    def renew(self, settings: object) -> None:
        """Loads again with other settings."""
        self.renewed.append(settings)
        self.state = "loading"
        self._load()

    def stop(self) -> None:
        """Ends the answer after the current round."""
        self._stop.set()

    def stop_guest(self) -> None:
        """Likewise, for another program."""
        self._stop.set()

    def forget(self, conversation_id: str) -> None:
        """Notes that the conversation's memory was given back."""
        self.forgotten.append(conversation_id)

    def forget_book(self, book_id: str) -> None:
        """Notes that what was kept of the book's reading was deleted."""
        self.forgotten_books.append(book_id)

    def card(self, book: Document, until: int | None = None, **scope) -> dict:
        """A card with plausible sizes, from the real text; `scope` is noted."""
        self.scopes.append(scope)
        book = book.up_to(until)
        tokens = round(book.words * 1.3)
        labels = [section.title for section in book.chapters]
        size = max(1, -(-len(labels) // self.parts))
        parts = [
            f"{labels[at]} – {labels[min(at + size, len(labels)) - 1]}" for at in range(0, len(labels), size)
        ]
        left_out = [section.title for section in book.sections if section.kind != "chapter"]
        return {
            "title": book.title,
            "author": book.author,
            "chapters": len(book.chapters),
            "words": book.words,
            "tokens": tokens,
            "share_of_context": tokens / self.context_tokens,
            "fits": self.parts == 1 and tokens < self.context_tokens,
            "parts": parts if self.parts > 1 else ["Whole book"],
            "prefill_s_estimate": tokens / 320,
            "read_s_estimate": tokens / 320,
            "chapter_tokens": [
                round(len(book.text[one.start : one.end].split()) * 1.3) for one in book.chapters
            ],
            "chapters_read": [at == 0 for at in range(len(book.chapters))],
            "passages_s_estimate": 6.0,
            "is_measured": False,
            "from_passages": False,
            "notes": [f"Left out: {', '.join(left_out)}"] if left_out else [],
        }

    def room(self, ask: Request, timeout_s: float = 30.0) -> dict:
        """By words, as the card: what would be in the context for an answer."""
        if self.state not in ("ready", "busy"):
            raise UserError("The engine is not running.")
        book = ask.book.up_to(ask.spoiler_limit) if ask.book else None
        return {
            "text": _tokens(book.text) if book else 0,
            "turns": [_tokens(one.question) + _tokens(one.answer) for one in ask.history],
            "question": _tokens(ask.question or "") + _tokens(ask.instructions),
            "answer": ask.params.get("max_new_tokens", 512),
            "context": self.context_tokens,
            "reading": self.reading,
        }

    def ask(self, ask: Request) -> Iterator[Event]:
        """The scripted answer. The first question about a book prefills it, the following ones only
        themselves.
        """
        self.asked.append(ask)
        self._stop.clear()
        self.state = "busy"
        try:
            if ask.question is None and ask.summary_length == "chapters":
                yield _by_chapters(ask)
            else:
                for event in self._answer(ask.book, ask.book_id, ask.question):
                    yield self._judged(event, ask) if isinstance(event, Finished) and ask.compare else event
        finally:
            self.state = "ready"

    def _answer(self, book: Document | None, book_id: str, question: str | None) -> Iterator[Event]:
        total = round(book.words * 1.3) if book else 40
        fresh = 24 if book_id in self._known else total
        self.prefilled_tokens.append(fresh)
        started = DecodingStarted(
            "triforce", self.model_name, self.context_tokens, total + 24, total + 24 - fresh
        )
        asked_at = time.monotonic()
        for part in range(1, self.parts + 1):
            yield (
                ReadingStep(part, self.parts - 1, f"Part {part}", "part summary")
                if part < self.parts
                else ReadingStep(1, 1, "the whole book", "whole summary")
                if self.parts > 1
                else ReadingStep(1, 1, "Whole book")
            )
            steps = self.prefill_steps if fresh > 24 else 1
            for step in range(1, steps + 1):
                if self._stop.wait(self.pace):
                    yield Finished("user", "", StatsRecorder(started).stats())
                    return
                elapsed = time.monotonic() - asked_at
                yield Prefill(fresh * step // steps, fresh, elapsed, elapsed / step * (steps - step))
            if part < self.parts:
                yield Delta((Piece(f"What part {part} tells.", "draft"),))
        if self.fail:
            yield Failed(self.fail)
            return
        self._known.add(book_id)
        waited = time.monotonic() - asked_at
        text = self.summary if question is None else self.answer
        yield from self._rounds(text, replace(started, prefill_s=waited))

    def _judged(self, event: Finished, ask: Request) -> Finished:
        """A plain run at half the speed, with what it says of the answer it is compared with."""
        verified = VerificationResult(len(ask.compare), 1, 0, 0.1, 0.2, ((4, 10),))
        rate, temperature = event.stats.tokens_per_s / 2, ask.params.get("temperature", 0.0)
        plain = replace(
            event.stats,
            mode=ask.params["mode"],
            tokens_per_s=rate,
            temperature=temperature,
            verified=verified,
        )
        return replace(event, stats=plain)

    def _rounds(self, text: str, started: DecodingStarted) -> Iterator[Event]:
        recorder = StatsRecorder(started)
        yield started
        words = [word + " " for word in text.split(" ")]
        words[-1] = words[-1].rstrip()
        at, number, reason, told = 0, 0, "stop", []
        while at < len(words):
            if self._stop.wait(self.pace):
                reason = "user"
                break
            drafted, kept = 6, (5, 3, 6, 4, 2, 6, 5)[number % 7]
            taken = words[at : at + kept]
            levels = ["draft"] * (len(taken) - 2) + ["retrieval", "target"][-min(2, len(taken)) :]
            at, number = at + len(taken), number + 1
            done = RoundStats(
                len(taken),
                self.pace * (1.0 + 0.25 * ((number * 7) % 5) / 5),
                Acceptance(kept, drafted),
                Acceptance(max(kept - 1, 1), kept),
                peak_memory_bytes=700 << 20,
            )
            recorder.round(done)
            pieces = tuple(Piece(word, level) for word, level in zip(taken, levels, strict=True))
            told += pieces
            yield Delta(pieces, (done,))
        yield Finished(
            reason,
            "".join(words[:at]),
            recorder.stats(),
            token_ids=tuple(range(at)),
            sources=("Whole book",),
            plan=self.plan or {},
            pieces=tuple(told),
        )

    def _load(self) -> None:
        time.sleep(self.load_s)
        if self.state != "loading":
            return
        self.model_name = "SmolLM2-135M-Instruct"
        self.plan = {
            "model": self.model_name,
            "device": "cpu",
            "dtype": "float32",
            "context_tokens": 8192,
            "on_chip_layers": 30,
            "layers": 30,
            "retrieval_budget": 1024,
            "notes": ["No CUDA GPU was found: everything runs on the CPU with the embedded model."],
            "budget": [
                {"name": "Weights", "bytes": GB // 4, "place": "RAM"},
                {"name": "KV cache", "bytes": GB // 3, "place": "RAM"},
                {"name": "Retrieval cache", "bytes": GB // 24, "place": "RAM"},
            ],
        }
        self.state = "ready"


def _tokens(text: str) -> int:
    return round(len(text.split()) * 1.3)


def _by_chapters(ask: Request) -> Finished:
    """Each chapter that is asked for, told by its first words."""
    chapters = ask.book.up_to(ask.spoiler_limit).chapters
    first, last = ask.chapters or (1, len(chapters))
    text, stands = "", []
    for number in ask.selected_chapters or range(first, last + 1):
        one = chapters[number - 1]
        begun = ask.book.text[one.start : one.start + 30].split()
        said = f"Told of {one.title}: {' '.join(begun)}."
        text += f"## {one.title}\n\n"
        stands.append(SourceSpan(len(text), len(text) + len(said), one.start, one.start + 30))
        text += f"{said}\n\n"
    return Finished("stop", text.strip(), Stats(), sources=("Whole book",), stands=tuple(stands))


def wait_until(true: Callable[[], object], idle_s: float = 30.0) -> None:
    """Returns when the condition holds. Fails the test once nobody was at work for so long in all: however
    slow a busy machine makes it, what computes is waited for.
    """
    idle, looks = 0.0, 0
    while not true():
        assert idle < idle_s, "waited in vain"
        time.sleep(_LOOK_S)
        looks += 1
        if looks % _LOOKS == 0 and not at_work():
            idle += _LOOKS * _LOOK_S
