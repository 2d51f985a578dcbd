"""The typed events that flow from the engine to whoever shows them. Values only; no behaviour, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# How far a long step is: what it is, in words, and its share in 0..1 or None when unknown.
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How one level's proposals fared. `evaluated` counts the accepted ones and the one rejected, if any."""

    accepted: int = 0
    evaluated: int = 0

    @property
    def rate(self) -> float | None:
        """Accepted / evaluated; None before anything was evaluated."""
        return self.accepted / self.evaluated if self.evaluated else None

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(self.accepted + other.accepted, self.evaluated + other.evaluated)


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """What a plain pass over a finished answer said of its tokens. A near-tie is closer than `margin`, a
    mismatch is not. `places`: characters of the answer's text that near-ties brought, where that was asked.
    """

    tokens: int
    near_ties: int
    mismatches: int
    # in log-probability, of a token that plain decoding would not have produced
    largest_gap: float
    margin: float
    places: tuple[tuple[int, int], ...] = ()

    @property
    def agreed(self) -> int:
        """Tokens that plain decoding could have produced, near-ties included."""
        return self.tokens - self.mismatches


@dataclass(frozen=True, slots=True)
class RoundStats:
    """The figures of one round of an answer. `acceptance_retrieval` is the outermost level's (see Stats);
    `peak_memory_bytes`: of the process so far.
    """

    tokens: int
    seconds: float
    acceptance_draft: Acceptance = Acceptance()
    acceptance_retrieval: Acceptance = Acceptance()
    bytes_moved: int = 0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What the side panel and `--json` show about one answer so far. Seconds, unless named `_ms`."""

    mode: str = "autoregressive"
    model: str = ""
    prompt_tokens: int = 0
    reused_tokens: int = 0  # prompt tokens whose KV was there already
    snapshot_tokens: int = 0  # of these, loaded from disk for this answer
    new_tokens: int = 0
    prefill_s: float = 0.0
    ttft_s: float = 0.0
    # TBT of a token = its round's time / tokens emitted by the round
    tbt_last_ms: float = 0.0
    tbt_mean_ms: float = 0.0
    tbt_p50_ms: float = 0.0
    tbt_p95_ms: float = 0.0
    longest_wait_ms: float = 0.0
    tokens_per_s: float = 0.0
    acceptance_draft: Acceptance = Acceptance()  # draft -> retrieval
    # retrieval -> full (the drafter's own, when there is one level)
    acceptance_retrieval: Acceptance = Acceptance()
    tokens_per_round: float = 0.0
    rounds: int = 0
    # of these, without the first: those for which nothing was proposed, which are plain decoding; mean TBT
    plain_rounds: int = 0
    plain_tbt_ms: float = 0.0
    context_used: int = 0
    context_total: int = 0
    peak_memory_bytes: int = 0
    bytes_moved: int = 0  # host -> device KV bytes of this answer
    # one per round behind the first, whose time is in ttft_s; of more than 300 rounds, means of as many
    # neighbours as it takes, beside the lowest and the highest of all
    tbt_series_ms: tuple[float, ...] = ()
    # accepted / evaluated of the outermost level per round, in means likewise; None: nothing was proposed
    acceptance_series: tuple[float | None, ...] = ()
    round_sizes: tuple[int, ...] = ()  # how many rounds emitted 1 token, 2, 3, ...
    temperature: float | None = None  # it was sampled at; None: not known
    verified: VerificationResult | None = (
        None  # when the answer was checked afterwards (the setting `verify`)
    )
    # of an answer that is one of several: how many were written for it, and their tokens in all; bytes moved
    # and peak memory are then those of all, what else is of the answer is its own
    answers: int = 1
    all_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Loading:
    """The engine is getting ready. `fraction` in 0..1 and `left_s`, until it is ready: None when unknown."""

    stage: str
    fraction: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadingStep:
    """Which part of the book is read next: `index` of `total` (1-based), `label` such as "Chapters 3-5"."""

    index: int
    total: int
    label: str
    # "answer" | "passage" | "part summary" | "whole summary" | "telling" (in the place of what stands there)
    purpose: str = "answer"
    # above 1: what was written of this part is replaced by what comes
    attempt: int = 1
    left_s: float | None = None  # until all parts are read and told, where that is known


@dataclass(frozen=True, slots=True)
class Preparing:
    """Host memory for the KV cache of what is read next is made ready."""

    done_bytes: int
    total_bytes: int
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress through the prompt: `total_tokens` leave out what was in the cache or came from disk."""

    done_tokens: int
    total_tokens: int
    elapsed_s: float
    eta_s: float | None = None
    reused_tokens: int = 0  # see Stats
    snapshot_tokens: int = 0


@dataclass(frozen=True, slots=True)
class DecodingStarted:
    """The prompt is read, and tokens come next. What of Stats does not change from round to round."""

    mode: str
    model: str
    context_total: int
    prompt_tokens: int
    reused_tokens: int
    snapshot_tokens: int = 0
    prefill_s: float = 0.0
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Printable text and the level whose proposal it was: "draft", "ngram", "retrieval", or "target"."""

    text: str
    level: str


@dataclass(frozen=True, slots=True)
class Delta:
    """New printable text, one piece per run of tokens of the same level. `rounds`: those since the last
    Delta; a text that is there at once has none. Whoever shows figures adds them up (core.stats.AnswerStats).
    """

    pieces: tuple[Piece, ...]
    rounds: tuple[RoundStats, ...] = ()

    @property
    def text(self) -> str:
        """The pieces' text joined."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class AttentionEvidence:
    """Where in the book the model looked: when it was asked (`sentence` None), or while it wrote the answer's
    sentence of that number, from 0.

    `places`: passages (core.evidence) by where they begin in the book's text, each with its score
    (core.evidence.attention_evidence), the strongest first. What it did not read is not among them.
    """

    sentence: int | None
    places: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """`text[start:end]`, a sentence of a summary or an answer from passages, stands on the book's
    text[book_start:book_end]. `quoted`: word for word. Not `borne_out`: this is the nearest place, no more.
    """

    start: int
    end: int
    book_start: int
    book_end: int
    quoted: bool = False
    borne_out: bool = True


@dataclass(frozen=True, slots=True)
class SummaryDraft:
    """A summary as it stands while it is told, all of it in pieces.

    `telling` is a sentence that is not complete, or not held to the book yet: what comes next is added to it.
    Behind the Reading of a part's first telling what is `before` stays as it is. `stands` are the places of
    the other sentences, counted in the text without `telling`.
    """

    before: tuple[Piece, ...]
    telling: tuple[Piece, ...] = ()
    after: tuple[Piece, ...] = ()
    stands: tuple[SourceSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. `reason`: stop | length | user | context_full | looping."""

    reason: str
    text: str
    stats: Stats
    token_ids: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()  # what was read for this answer, in the reader's words
    notes: tuple[str, ...] = ()  # what was left out, re-planned or degraded
    plan: dict = field(default_factory=dict)
    decoded: tuple[int, ...] = ()  # what the model produced, where `token_ids` hold more: quotations
    # of a summary's sentences, and of an answer that a verifier has judged; of others it is looked up
    stands: tuple[SourceSpan, ...] = ()
    # of an answer from a passage: "passage" (start, end), "temperature", "top_p", and whether "instructed"
    drawn: dict = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()  # the text, by the levels of the tokens it was decoded in


@dataclass(frozen=True, slots=True)
class Failed:
    """The command ended without an answer; `message` is for the user. `fatal`: the engine process is gone.
    `refused`: as it was asked it cannot be answered, and asking again does not help. `ways`: how the book
    would have to be read for that (core.config.READING_MODES).
    """

    message: str
    fatal: bool = False
    refused: bool = False
    ways: tuple[str, ...] = ()


Event = (
    Loading
    | ReadingStep
    | Preparing
    | Prefill
    | DecodingStarted
    | Delta
    | AttentionEvidence
    | SummaryDraft
    | Finished
    | Failed
)
