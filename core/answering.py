"""One answer: the engine's rounds become printable text with running figures, and an answer that circles is ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from core.engine import Done, Params, Prefilled, Round
from core.events import Delta, Piece, Prefill, Stats
from core.text.circling import before_circling, circles
from core.text.detokenizer import Detokenizer


class Engine(Protocol):
    """What the session needs of the engine; core.engine.Engine is one."""

    context_tokens: int
    eos_ids: frozenset[int]
    model_name: str
    plan: Any

    def new_context(self, capacity_tokens: int) -> Any: ...
    def generate(
        self, context: Any, ids: list[int], params: Params, *, should_stop: Callable[[], bool],
    ) -> Iterator[Prefilled | Round | Done]: ...
    def verify(self, context: Any, ids: list[int], start: int, params: Params) -> dict[str, Any]: ...
    def stored_tokens(self, book_id: str, ids: list[int]) -> int: ...
    def save(self, context: Any, *, should_stop: Callable[[], bool]) -> None: ...
    def forget_book(self, book_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `token_ids` are what a later turn repeats: without the end token and without a circling tail."""

    reason: str
    text: str
    token_ids: tuple[int, ...]
    stats: Stats
    notes: tuple[str, ...] = ()                # what had to be left out for it


def answer(
    engine: Engine, context: Any, ids: list[int], params: Params, *,
    decode: Callable[[Sequence[int]], str], should_stop: Callable[[], bool],
) -> Generator[Prefill | Delta, None, Answer]:
    """Generate after `ids`, yielding progress and text, and return the whole answer."""
    scribe = _Scribe(decode, engine.eos_ids)
    for event in engine.generate(context, ids, params, should_stop=should_stop):
        if isinstance(event, Prefilled):
            yield Prefill(event.done_tokens, event.total_tokens, event.elapsed_s, event.eta_s, event.reused_tokens,
                          event.snapshot_tokens)
        elif isinstance(event, Done):
            rest = scribe.flush()
            if rest is not None:
                yield Delta((rest,), event.stats)
            return scribe.answer(event.reason, event.stats)
        else:
            pieces = scribe.write(event.tokens, event.levels)
            if pieces:
                yield Delta(pieces, event.stats)
            if circles(scribe.tokens):
                return scribe.answer("looping", event.stats, keep=before_circling(scribe.tokens))
    raise AssertionError("the engine ended without Done")


class _Scribe:
    """Collects an answer's tokens and their text."""

    def __init__(self, decode: Callable[[Sequence[int]], str], eos_ids: frozenset[int]) -> None:
        self._decode, self._eos_ids = decode, eos_ids
        self._detokenizer = Detokenizer(decode)
        self.tokens: list[int] = []
        self._text: list[str] = []

    def write(self, tokens: Sequence[int], levels: Sequence[str]) -> tuple[Piece, ...]:
        """The printable text of new tokens, one piece per run of the same level. End tokens are not text."""
        pieces: list[Piece] = []
        for token, level in zip(tokens, levels, strict=True):
            if token in self._eos_ids:
                continue
            self.tokens.append(token)
            text = self._detokenizer.feed(token)
            if text and pieces and pieces[-1].level == level:
                pieces[-1] = Piece(pieces[-1].text + text, level)
            elif text:
                pieces.append(Piece(text, level))
        self._text += [piece.text for piece in pieces]
        return tuple(pieces)

    def flush(self) -> Piece | None:
        """Text that waited for the rest of a character."""
        text = self._detokenizer.flush()
        self._text.append(text)
        return Piece(text, "target") if text else None

    def answer(self, reason: str, stats: Stats, *, keep: int | None = None) -> Answer:
        """The answer so far, or its first `keep` tokens."""
        if keep is None:
            return Answer(reason, "".join(self._text), tuple(self.tokens), stats)
        tokens, detokenizer = self.tokens[:keep], Detokenizer(self._decode)
        return Answer(reason, "".join(map(detokenizer.feed, tokens)), tuple(tokens), stats)
