"""One answer: the engine's rounds become printable text with running figures; one that circles is ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from core.conversation.attention_tracker import AttentionTracker
from core.decoding.context import Context
from core.engine import Done, Engine
from core.events import (
    AttentionEvidence,
    DecodingStarted,
    Delta,
    Event,
    Piece,
    Prefill,
    Preparing,
    RoundStats,
    Stats,
)
from core.request import Params
from core.text.circling import before_circling, circles
from core.text.detokenizer import Detokenizer
from core.text.stopping import StopStrings


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `token_ids` are what a later turn repeats: without the end token or stop string and
    without a circling tail.
    """

    reason: str
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...]
    stats: Stats
    # what had to be left out for it, or went otherwise than planned
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The pieces' text joined."""
        return "".join(piece.text for piece in self.pieces)


Answering = Generator[Event, None, Answer]


def generate_answer(
    engine: Engine,
    context: Context,
    ids: list[int],
    params: Params,
    *,
    decode: Callable[[Sequence[int]], str],
    should_stop: Callable[[], bool],
    looker: AttentionTracker | None = None,
) -> Generator[Preparing | Prefill | DecodingStarted | Delta | AttentionEvidence, None, Answer]:
    """Generate after `ids`, yielding progress and text, and return the whole answer. `looker`: after each
    sentence it is told where the model looked.
    """
    stops = StopStrings(params.stop, decode)
    scribe = _Scribe(decode, engine.eos_ids, stops)
    circling, rounds = False, list[RoundStats]()
    events = engine.generate(context, ids, params, should_stop=lambda: circling or should_stop(), ends=stops)
    for event in events:
        if isinstance(event, Done):
            if circling:
                kept = scribe.answer("looping", event.stats, keep=before_circling(scribe.tokens))
                return replace(kept, notes=event.notes)
            rest = scribe.flush()
            if rest:
                yield Delta(rest, tuple(rounds))
            if looker and scribe.tokens and context.cache is not None:
                yield from looker.look(scribe.text, scribe.ends, whole=True)
            return replace(scribe.answer(event.reason, event.stats), notes=event.notes)
        if isinstance(event, (Preparing, Prefill, DecodingStarted)):
            yield event
            continue
        pieces = scribe.write(event.tokens, event.levels)
        rounds.append(event.stats)
        if pieces:
            yield Delta(pieces, tuple(rounds))
            rounds.clear()
            if looker:
                yield from looker.look(scribe.text, scribe.ends)
        circling = circles(scribe.tokens)
    raise AssertionError("the engine ended without Done")


def finished_answer(
    tokens: Sequence[int],
    reason: str,
    stats: Stats,
    *,
    decode: Callable[[Sequence[int]], str],
    eos_ids: frozenset[int],
    stops: StopStrings,
) -> Answer:
    """The answer of these tokens, of which `stops` has been told."""
    scribe = _Scribe(decode, eos_ids, stops)
    scribe.write(tokens, ["target"] * len(tokens))
    scribe.flush()
    return scribe.answer(reason, stats)


class _Scribe:
    """Collects an answer's tokens and their text. What may be the beginning of a stop string waits until it
    is known to be none.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], eos_ids: frozenset[int], stops: StopStrings
    ) -> None:
        self._decode, self._eos_ids, self._stops = decode, eos_ids, stops
        self._detokenizer = Detokenizer(decode)
        self.tokens: list[int] = []
        self._levels: list[str] = []  # of each token
        self.ends: list[int] = []  # characters there were after each token, shown or waiting
        self.text = ""  # what was shown, and in pieces
        self._pieces: list[Piece] = []
        self._waiting: list[Piece] = []

    def write(self, tokens: Sequence[int], levels: Sequence[str]) -> tuple[Piece, ...]:
        """The printable text of new tokens, one piece per run of the same level. End tokens are not text."""
        for token, level in zip(tokens, levels, strict=True):
            if token not in self._eos_ids:
                self.tokens.append(token)
                self._levels.append(level)
                text = self._detokenizer.feed(token)
                self._waiting.append(Piece(text, level))
                self.ends.append((self.ends[-1] if self.ends else 0) + len(text))
        return self._show(lambda text: len(text) - self._stops.unsettled(text))

    def flush(self) -> tuple[Piece, ...]:
        """What waited for the rest of a character or of a stop string, as far as it belongs to the answer."""
        self._waiting.append(Piece(self._detokenizer.flush(), "target"))
        return self._show(len)

    def answer(self, reason: str, stats: Stats, *, keep: int | None = None) -> Answer:
        """The answer so far, or its first `keep` tokens."""
        if keep is None:
            end = self._stops.kept
            tokens = self.tokens if end is None else self.tokens[: end[1]]
            return Answer(reason, tuple(self._pieces), tuple(tokens), stats)
        tokens, detokenizer = self.tokens[:keep], Detokenizer(self._decode)
        levelled = zip(tokens, self._levels[:keep], strict=True)
        pieces = tuple(Piece(detokenizer.feed(token), level) for token, level in levelled)
        return Answer(reason, pieces, tuple(tokens), stats)

    def _show(self, settled: Callable[[str], int]) -> tuple[Piece, ...]:
        """As many characters of what waits as `settled` says, one piece per run of the same level; nothing
        from a stop string on.
        """
        end = self._stops.kept
        length = (
            settled("".join(piece.text for piece in self._waiting))
            if end is None
            else end[0] - len(self.text)
        )
        shown: list[Piece] = []
        while length > 0 and self._waiting:
            text, level = self._waiting[0].text, self._waiting[0].level
            if shown and shown[-1].level == level:
                shown[-1] = Piece(shown[-1].text + text[:length], level)
            elif text:
                shown.append(Piece(text[:length], level))
            rest = [Piece(text[length:], level)] if text[length:] else []
            self._waiting[:1] = rest
            length -= len(text)
        self.text += "".join(piece.text for piece in shown)
        self._pieces += shown
        return tuple(shown)
