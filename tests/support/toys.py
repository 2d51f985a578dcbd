"""Toy models whose laws are tables, over caches that hold token ids in place of keys and values: the real
loop, small enough to enumerate.

Everything is fp64. A toy model's logits are a fixed random function of the tokens its cache shows it: a wrong
row anywhere changes a law.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import torch

from core.decoding.verify import Draft


class ToyCache:
    """The full cache: every token is seen."""

    rotates_on_read = False
    ready = True
    oldest_rollback = 0
    nbytes = 0
    bytes_moved = 0

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.committed = 0
        self.observer = None
        self.observed_chunk: int | None = None

    @property
    def length(self) -> int:
        return len(self.rows)

    def visible(self, end: int) -> tuple[int, ...]:
        """What the row before `end` sees."""
        return tuple(self.rows[:end])

    def feed(self, ids: Sequence[int]) -> None:
        """The toy's `attend` and `advance`."""
        self.rows.extend(ids)
        if self.observer is not None:
            self.observer()

    def attend_on_host(self, share: float) -> None:
        pass

    def missing(self, length: int) -> Iterator[range]:
        return iter(())

    def commit(self, length: int) -> None:
        assert length <= self.length
        self.rollback(length)
        self.committed = length

    def rollback(self, length: int) -> None:
        assert 0 <= length <= self.length, f"rollback to {length} of {self.length}"
        del self.rows[length:]
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        self.rollback(0)


class ToyPrivate(ToyCache):
    """A full cache that a drafter feeds: it may hold fewer tokens than are committed."""

    def commit(self, length: int) -> None:
        super().commit(min(length, self.length))


class ToyStreaming(ToyPrivate):
    """Sees the first token and the newest two."""

    def visible(self, end: int) -> tuple[int, ...]:
        return (*self.rows[:1], *self.rows[max(1, end - 2) : end])


class ToyRetrieval(ToyCache):
    """Sees every second token of `source` up to the last refresh, and everything since."""

    summed = None

    def __init__(self, source: ToyCache) -> None:
        super().__init__()
        self.source = source
        self.ready = False
        self.anchor = 0
        self.needs_refresh = True
        self._observed = False

    @property
    def policy(self) -> ToyRetrieval:
        """It is shown what it selects from itself."""
        return self

    def visible(self, end: int) -> tuple[int, ...]:
        return (*self.rows[: self.anchor : 2], *self.rows[self.anchor : end])

    def observe(self) -> None:
        self._observed = True

    def refresh(self) -> bool:
        if not self._observed:
            return False
        self.rows = list(self.source.rows)
        self.committed = self.anchor = self.length
        self.ready, self.needs_refresh, self._observed = True, False, False
        return True

    def commit(self, length: int) -> None:
        self.rows = self.source.rows[:length]
        self.committed = length

    def rollback(self, length: int) -> None:
        assert self.anchor <= length <= self.length
        super().rollback(length)


class ToyModel:
    """Logits [n, vocab] fp64 by the visible tokens: a random table, mixed with `like`'s table by the share
    `likeness`.
    """

    def __init__(
        self,
        seed: int,
        *,
        vocab: int = 3,
        spread: float = 1.5,
        like: ToyModel | None = None,
        likeness: float = 0.7,
    ) -> None:
        self.seed, self.vocab, self.spread, self.like, self.likeness = seed, vocab, spread, like, likeness
        self._table: dict[tuple[int, ...], list[float]] = {}

    def forward(self, ids: Sequence[int], cache: ToyCache) -> torch.Tensor:
        start = cache.length
        cache.feed(ids)
        return torch.tensor(
            [self.row(cache.visible(end)) for end in range(start + 1, cache.length + 1)], dtype=torch.float64
        )

    def row(self, visible: tuple[int, ...]) -> list[float]:
        """The logits after `visible`."""
        if visible not in self._table:
            dice = random.Random(f"{self.seed}:{visible}")
            row = [dice.gauss(0.0, self.spread) for _ in range(self.vocab)]
            if self.like is not None:
                row = [
                    self.likeness * a + (1 - self.likeness) * b
                    for a, b in zip(self.like.row(visible), row, strict=True)
                ]
            self._table[visible] = row
        return self._table[visible]


class StubbornDrafter:
    """Certain of tokens that have nothing to do with the model: the count of tokens decides. An adversary
    that knows no law.
    """

    def __init__(self, vocab: int = 3) -> None:
        self._vocab = vocab

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        tokens = tuple((len(committed) + i * i) % self._vocab for i in range(gamma))
        return Draft(tokens, None, ("draft",) * gamma)

    def rollback(self, length: int) -> None:
        pass

    def commit(self, length: int) -> None:
        pass


class WrongDrafter(StubbornDrafter):
    """Draws from a law that likes what the model dislikes: logits with the sign turned."""

    def __init__(self, model: ToyModel, randomness: object) -> None:
        super().__init__(model.vocab)
        self._model, self._randomness = model, randomness

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        tokens: list[int] = []
        laws: list[torch.Tensor] = []
        for _ in range(gamma):
            logits = torch.tensor(self._model.row((*committed, *tokens)), dtype=torch.float64)
            laws.append(torch.softmax(-2.0 * logits, -1))
            tokens.append(int(self._randomness.draw(laws[-1])))
        return Draft(tuple(tokens), torch.stack(laws) if laws else None, ("draft",) * gamma)


class StoredRows:
    """A toy cache as what a snapshot reads and writes: keys and values [n, 1, 1] that say which token stands
    there.
    """

    def __init__(self, cache: ToyCache) -> None:
        self.cache = cache

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor(self.cache.rows[start : start + n], dtype=torch.float32).view(n, 1, 1)
        return ids, -ids

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        assert start == self.cache.length and torch.equal(k, -v)
        self.cache.rows.extend(int(token) for token in k.flatten())
        self.cache.committed = self.cache.length


class EndsWith:
    """Ends an answer with a passage of tokens, as a stop string does. An empty passage ends nothing."""

    def __init__(self, passage: Sequence[int]) -> None:
        self.passage, self.tail = tuple(passage), ()

    def __call__(self, token: int) -> bool:
        self.tail = (*self.tail, token)[-len(self.passage) :]
        return bool(self.passage) and self.tail == self.passage


def target_law(
    model: ToyModel,
    prompt: Sequence[int],
    horizon: int,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    penalty: float = 1.0,
    eos: frozenset[int] = frozenset(),
    stop: tuple[int, ...] = (),
) -> dict[tuple[int, ...], float]:
    """The law of plain decoding over at most `horizon` tokens, in plain Python: it shares no line with the
    code under test.
    """
    law: dict[tuple[int, ...], float] = {}

    def walk(answer: tuple[int, ...], weight: float) -> None:
        stopped = bool(stop) and answer[-len(stop) :] == stop
        if len(answer) == horizon or stopped or (answer and answer[-1] in eos):
            law[answer] = law.get(answer, 0.0) + weight
            return
        for token, p in enumerate(
            token_law(model.row((*prompt, *answer)), answer, temperature, top_p, penalty)
        ):
            if p > 0.0:
                walk((*answer, token), weight * p)

    walk((), 1.0)
    return law


def token_law(
    logits: list[float], seen: Sequence[int], temperature: float, top_p: float, penalty: float
) -> list[float]:
    """Penalty, temperature, nucleus, in this order."""
    values = [
        (value / penalty if value > 0 else value * penalty) if token in seen else value
        for token, value in enumerate(logits)
    ]
    if temperature == 0:
        return [float(token == values.index(max(values))) for token in range(len(values))]
    top = max(values)
    weights = [math.exp((value - top) / temperature) for value in values]
    law = [weight / sum(weights) for weight in weights]
    kept: set[int] = set()
    for token in sorted(range(len(law)), key=lambda token: -law[token]):
        if sum(law[other] for other in kept) >= top_p:
            break
        kept.add(token)
    mass = sum(law[token] for token in kept)
    return [p / mass if token in kept else 0.0 for token, p in enumerate(law)]
