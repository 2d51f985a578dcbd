"""An engine without a model: it continues prompts with scripted tokens and keeps books about what was fed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from core.decoding.branching import AnswerBranch
from core.decoding.decoder import Round
from core.engine import Done
from core.events import Acceptance, DecodingStarted, Prefill, Stats
from core.planning.plan import Plan
from core.request import Params
from core.text.tokenizer import Frame
from tests.support.tiny import PLAN

EOS, BYTES_PER_TOKEN = 3, 100
FAKE_PLAN = replace(PLAN, model="fake", context_tokens=4000, expected_prefill_s=8.0)


class CharTokenizer:
    """One token per character: code point + 10. Frames are single control tokens."""

    def encode(self, text: str) -> list[int]:
        return [ord(char) + 10 for char in text]

    def count(self, text: str) -> int:
        return len(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i - 10) for i in ids if i >= 10)

    def frame(self, system: str) -> Frame:
        return Frame((1, *self.encode(system)), (2,), (EOS, 4))


class FakeContext:
    """Ids and a size."""

    cache = "there is one"

    def __init__(self, capacity: int, *, beside: bool = False) -> None:
        self.capacity, self.beside = capacity, beside
        self.ids, self.closed, self.book = [], False, ("", 0)
        self.stored_while_read: list[bool] = []  # of each text of a book

    def belongs_to(self, book_id: str, book_tokens: int, *, stored_while_read: bool = True) -> None:
        self.book = (book_id, book_tokens)
        self.stored_while_read += [stored_while_read] if book_tokens else []

    @property
    def nbytes(self) -> int:
        return self.capacity * BYTES_PER_TOKEN

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeEngine:
    """`reply(ids, params)` gives the tokens of an answer; an end token is added. `fed` lists how many new
    tokens each call fed.
    """

    reply: Callable[[list[int], Params], Sequence[int]]
    context_tokens: int = 4000
    eos_ids: frozenset[int] = frozenset({EOS})
    model_name: str = "fake"
    model_identity: str = "fake"
    model: None = None
    plan: Plan = FAKE_PLAN
    fed: list[int] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    params: list[Params] = field(default_factory=list)
    contexts: list[FakeContext] = field(default_factory=list)
    saved: list[tuple[str, int]] = field(default_factory=list)  # (book, tokens) of each save
    forgotten: list[str] = field(default_factory=list)
    # of what the engine is asked the log-probability of: (prompt, said)
    likely: Callable[[list[int], Sequence[int]], list[float]] = lambda ids, said: [-9.0] * len(said)

    def log_probabilities(
        self, context: FakeContext, ids: list[int], said: Sequence[int], *, kept: int = 0
    ) -> list[float]:
        assert not context.closed and context.ids[: len(ids)] == ids, "of a prompt that was just read"
        return self.likely(ids, said)

    def several(
        self,
        context: FakeContext,
        ids: list[int],
        branches: Sequence[AnswerBranch],
        *,
        should_stop: Callable[[], bool],
    ) -> list[float] | None:
        """Every branch says the reply to its params."""
        for one in branches:
            self.prompts.append(list(ids))
            for token in (*self.reply(ids, one.params), EOS):
                if one.reason is None:
                    one.tokens.append(token)
                    one.log_probability -= 0.1
                    one.reason = "stop" if token == EOS or one.ends(token) else None
        return None if should_stop() else [0.01] * max(len(one.tokens) for one in branches)

    def new_context(self, capacity_tokens: int) -> FakeContext:
        assert capacity_tokens <= self.context_tokens
        self.contexts.append(FakeContext(capacity_tokens))
        return self.contexts[-1]

    def planned_context(self, capacity_tokens: int, *, beside: bool = False) -> FakeContext:
        made = self.new_context(capacity_tokens)
        made.beside = beside
        return made

    def complete(self, context: FakeContext) -> None:
        """It needs nothing."""

    stored_as = "fake"
    lost = False

    def stored_tokens(self, book_id: str, ids: list[int]) -> int:
        return min(len(ids), dict(self.saved).get(book_id, 0))

    def save(self, context: FakeContext, *, should_stop: Callable[[], bool]) -> None:
        if context.book[1] and not should_stop():
            self.saved.append(context.book)
            context.book = ("", 0)

    def forget_book(self, book_id: str) -> None:
        self.forgotten.append(book_id)

    def generate(
        self,
        context: FakeContext,
        ids: list[int],
        params: Params,
        *,
        should_stop: Callable[[], bool],
        ends: Callable[[int], bool] = lambda token: False,
    ) -> Iterator[Prefill | Round | Done]:
        assert not context.closed
        assert len(ids) < context.capacity
        common = next(
            (i for i, (a, b) in enumerate(zip(context.ids, ids, strict=False)) if a != b),
            min(len(context.ids), len(ids)),
        )
        new = len(ids) - common
        self.fed.append(new)
        self.prompts.append(list(ids))
        self.params.append(params)
        for done in sorted({new // 2, new}):
            if should_stop():
                yield Done("user", Stats(prompt_tokens=len(ids)))
                return
            if done == new:  # as the engine: the last of it is held once it is asked to go on
                yield Prefill(done, new, 0.1, 0.0)
            context.ids = list(ids[: common + done])
            if done < new:
                yield Prefill(done, new, 0.1, 0.0)
        tokens = [*self.reply(ids, params), EOS]
        written = 0
        yield DecodingStarted(params.mode, "fake", self.context_tokens, len(ids), common)
        for start in range(0, len(tokens), 2):
            stats = Stats(
                mode=params.mode,
                model="fake",
                prompt_tokens=len(ids),
                reused_tokens=common,
                new_tokens=written,
            )
            if should_stop():
                yield Done("user", stats)
                return
            pair = tuple(tokens[start : start + 2])[: params.max_new_tokens - written]
            last = next((n for n, token in enumerate(pair, 1) if token == EOS or ends(token)), None)
            pair = pair[:last]
            written += len(pair)
            context.ids += pair
            accepted = Acceptance(len(pair), len(pair))
            yield Round(pair, ("retrieval",) * len(pair), Acceptance(), accepted, 0.01)
            if last is not None:
                break
            if written >= params.max_new_tokens and pair[-1] != EOS:
                yield Done("length", stats)
                return
        yield Done("stop", Stats(mode=params.mode, model="fake", prompt_tokens=len(ids), new_tokens=written))
