"""How long a reading will take: by what was measured, before that by what the plan expects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from core.conversation.reading import HEARD_PASSAGES, ReadingPart, ReadingStyle
from core.events import Event, Prefill, Stats
from core.planning.costs import PASSAGE_TOKENS, PASSAGES
from core.planning.plan import Plan

# behind so much more an earlier measurement weighs half: one sentence, which may take twice the time of
# another (docs/LOG.md), moves a mean by a tenth, a part of a book by half
_READ_HALF_TOKENS, _WRITTEN_HALF_ROUNDS = 4096, 130
_PASSAGES_HALF = 6.6
_PACE_KEPT = 0.8  # of the weight of earlier pieces, by each that is done
_PACE_SHARE = 0.2  # of a telling: from there on the total that is promised holds to 30 % (docs/LOG.md)
_LEAST_TOKENS = 256  # a shorter prompt says little of the speed of a book
_LEAST_ROUNDS = 8
_SHORT_ANSWER_TOKENS = 40
_BATCH_TOKENS, _ROW_SHARE = 16, 0.18  # the longest of a batch; a row more costs of one (docs/LOG.md)
_DRAWN_ANSWER_TOKENS = 10  # in a few words, as a model with consensus answers (docs/LOG.md)


class TimeEstimate:
    """Seconds to read and to write so many tokens. `known`: `measured` of an earlier process; each counts as
    one measurement. `learned` is given `measured` when that is new.
    """

    def __init__(
        self,
        plan: Plan,
        known: Mapping[str, float] | None = None,
        *,
        learned: Callable[[Mapping[str, float]], None] = lambda measured: None,
    ) -> None:
        self._plan, self._learned, known = plan, learned, known or {}
        self.is_measured = False  # by this process, beside what runs now
        self._read = _Mean(_READ_HALF_TOKENS, known.get("read_s"))  # per token
        self._written = _Mean(_WRITTEN_HALF_ROUNDS, known.get("written_s"))
        # to read one and to ask it, over what the plan expects
        self._passage = _Mean(_PASSAGES_HALF, known.get("passage"))

    @property
    def measured(self) -> dict[str, float]:
        """What was measured, by name; what was not is left out."""
        found = {"read_s": self._read.s, "written_s": self._written.s, "passage": self._passage.s}
        return {name: value for name, value in found.items() if value is not None}

    def watch(self, event: Event) -> None:
        """Learns from a prompt that was read."""
        if isinstance(event, Prefill) and event.done_tokens == event.total_tokens >= _LEAST_TOKENS:
            self._read.add(event.elapsed_s / event.total_tokens, event.total_tokens)
            self._tell()

    def answered(self, stats: Stats) -> None:
        """Learns from an answer that was written."""
        if stats.rounds >= _LEAST_ROUNDS and stats.tbt_mean_ms > 0:
            self._written.add(stats.tbt_mean_ms / 1e3, stats.rounds)
            self._tell()

    def passage_took(self, seconds: float, style: ReadingStyle, read_tokens: int) -> None:
        """Learns from a passage that was asked, of which so many tokens were read, the question's among them:
        what had been read before is known.
        """
        self._passage.add(seconds / self._planned_s(style, read_tokens), 1)
        self._tell()

    def _tell(self) -> None:
        self.is_measured = True
        self._learned(self.measured)

    def reading_s(self, tokens: int) -> float:
        """Seconds until a text of so many tokens is read."""
        per_token = self._read.s or self._plan.expected_prefill_s / self._plan.context_tokens
        return tokens * per_token

    def writing_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds until so many tokens are written behind a text of `context_tokens`."""
        return tokens * (self._written.s or self._expected_tbt_s(context_tokens))

    def summary_s(
        self, unread: list[ReadingPart], parts: int, style: ReadingStyle, answer_tokens: int
    ) -> float:
        """Seconds until a book in `parts` is told: those `unread` are read and noted first, then the whole is
        told from all notes, in as many levels as it takes, where the model tells it.
        """
        if style.summaries == "own":
            return 0.0
        seconds = sum(
            self.reading_s(part.tokens) + self.writing_s(style.note_tokens, part.tokens) for part in unread
        )
        notes = parts
        while style.summaries == "told" and notes > 1:
            told = notes * style.note_tokens
            groups = max(1, min(-(-told // style.join_tokens), notes // 2))
            seconds += self.reading_s(told)
            if groups == 1:
                return seconds + self.writing_s(answer_tokens, told)
            seconds += groups * self.writing_s(style.note_tokens, told // groups)
            notes = groups
        return seconds

    def passages_s(
        self, style: ReadingStyle, count: int = HEARD_PASSAGES, *, question_tokens: int = 0
    ) -> float:
        """Seconds in which most questions are answered from `count` passages at most that were not read yet,
        each with a short answer; with a verifier, which hears them all, from so many.
        """
        if style.verifier:
            return count * self._asked_s(style, PASSAGE_TOKENS + question_tokens)
        read_s = self._passage_s(PASSAGE_TOKENS + question_tokens)
        drawn_s = self.writing_s(_DRAWN_ANSWER_TOKENS, PASSAGE_TOKENS)
        answer_s = self.writing_s(min(style.note_tokens, _SHORT_ANSWER_TOKENS), PASSAGE_TOKENS)
        return min(PASSAGES, count) * (read_s + answer_s + style.consensus * drawn_s)

    def _asked_s(self, style: ReadingStyle, read_tokens: int) -> float:
        """Of a passage that is read and asked: as those before took, else as all that was read, written."""
        if self._passage.s is not None:
            return self._passage.s * self._planned_s(style, read_tokens)
        return self._passage_s(read_tokens) + _rows(style) * self.writing_s(_BATCH_TOKENS, PASSAGE_TOKENS)

    def _planned_s(self, style: ReadingStyle, read_tokens: int) -> float:
        """The same by the plan alone, which nothing moves: measured twice, a slow minute counted squared."""
        read_s = read_tokens * self._plan.expected_passage_s / PASSAGE_TOKENS
        return read_s + _rows(style) * _BATCH_TOKENS * self._expected_tbt_s(PASSAGE_TOKENS)

    def _passage_s(self, tokens: int) -> float:
        """Until so many are read of a passage and its question: of a long text each takes longer."""
        return tokens * (self._read.s or self._plan.expected_passage_s / PASSAGE_TOKENS)

    def _expected_tbt_s(self, context_tokens: int) -> float:
        """Plain decoding's time grows with the context; with drafts it is no longer than at the full one."""
        plan = self._plan
        share = min(1.0, context_tokens / plan.context_tokens)
        plain = plan.expected_middle_ms + share * max(
            0.0, plan.expected_plain_tbt_ms - plan.expected_middle_ms
        )
        return min(plain, plan.expected_tbt_ms) / 1e3


class Pace:
    """What is left of pieces of work, of each of which so many seconds were `expected`: by the pace of those
    that were done last. What was expected says how the pieces compare, and no more: beside other work, which
    comes and goes, the same takes two to four times as long (docs/LOG.md).
    """

    def __init__(self, expected: Mapping[Hashable, float], clock: Callable[[], float]) -> None:
        self.expected, self._clock, self._since = expected, clock, clock()
        self._all_s, self._done_s = sum(expected.values()), 0.0
        self._lately_s = self._took_s = 0.0  # what was expected of the last ones, and what they took

    def done(self, piece: Hashable) -> None:
        """Counts a piece of those that were expected."""
        now, expected_s = self._clock(), self.expected[piece]
        self._done_s += expected_s
        self._lately_s = _PACE_KEPT * self._lately_s + expected_s
        self._took_s = _PACE_KEPT * self._took_s + now - self._since
        self._since = now

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done; None before `_PACE_SHARE` of it is, when that would be a guess."""
        if not self._all_s:
            return 0.0
        if self._done_s < _PACE_SHARE * self._all_s:
            return None
        return max(0.0, self._all_s - self._done_s) * self._took_s / self._lately_s


def _rows(style: ReadingStyle) -> float:
    """What a batch of several answers takes, of one: it grows with them."""
    return 1 + style.consensus * _ROW_SHARE


def passages_asked(tokens: int) -> int:
    """How many passages a question about a text of so many tokens is put to: a short one has not more."""
    return min(HEARD_PASSAGES, max(1, -(-tokens // PASSAGE_TOKENS)))


class _Mean:
    """`s`: the mean of the seconds that were measured, None before the first; behind `half` more of what is
    measured, earlier ones weigh half.
    """

    def __init__(self, half: float, known: float | None) -> None:
        self.s, self._half = known, half
        self._count = 0 if known is None else 1

    def add(self, new: float, amount: float) -> None:
        """Counts `new`, measured over so much."""
        self._count += 1
        old = new if self.s is None else self.s
        self.s = old + max(1 / self._count, 1 - 0.5 ** (amount / self._half)) * (new - old)
