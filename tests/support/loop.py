"""Builds the loop over toys in every composition and computes its exact law, merging equal states between
rounds.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.cache.snapshot import SnapshotStore
from core.decoding.decoder import Decoder
from core.decoding.draft_length import Costs, DraftLength, ExpectedGain, FixedLength
from core.decoding.drafters import (
    Drafter,
    EmptyDrafter,
    FirstDrafter,
    ModelDrafter,
    NgramDrafter,
    VerifiedDrafter,
)
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from tests.support.branches import Branches
from tests.support.toys import (
    EndsWith,
    StoredRows,
    StubbornDrafter,
    ToyCache,
    ToyModel,
    ToyPrivate,
    ToyRetrieval,
    ToyStreaming,
    WrongDrafter,
    target_law,
)

PROMPT = (0, 1, 2, 1, 0)
Law = dict[tuple[int, ...], float]
States = dict[bytes, float]


@dataclass(frozen=True, slots=True)
class Loop:
    """One composition and its settings. The sampling of a lower level may differ from the target's:
    losslessness must not care.
    """

    drafter: str = "model"  # none | model | ngram | both | stubborn | wrong | perfect
    # none | retrieval | streaming | itself (the middle level is the target with full context)
    middle: str = "retrieval"
    gamma: int = 2
    middle_gamma: int = 1
    length: str = "fixed"  # fixed | gain
    temperature: float = 1.0
    top_p: float = 1.0
    penalty: float = 1.0
    eos: frozenset[int] = frozenset()
    stop: tuple[int, ...] = ()  # a passage that ends the answer
    draft_sampling: dict[str, float] = field(default_factory=dict)  # what differs at level 0
    middle_sampling: dict[str, float] = field(default_factory=dict)  # what differs at the middle level
    refresh_every: int = 8
    prompt: tuple[int, ...] = PROMPT
    model_drafter: type[ModelDrafter] = ModelDrafter  # mutants put subclasses here
    verified_drafter: type[VerifiedDrafter] = VerifiedDrafter
    decoder: type[Decoder] = Decoder
    cache: type[ToyCache] = ToyCache
    policy: Callable[[], DraftLength] | None = None

    def build(self, branches: Branches, target: ToyModel) -> Decoder:
        """The decoder with its caches, the prompt not yet read."""
        full = self.cache()
        top = self._sampling({})
        middle_sampling, draft_sampling = (
            self._sampling(self.middle_sampling),
            self._sampling(self.draft_sampling),
        )
        drafter, refresh = self._level_zero(target, draft_sampling, branches), None
        if self.middle != "none":
            below = {"retrieval": ToyRetrieval(full), "streaming": ToyStreaming(), "itself": ToyPrivate()}[
                self.middle
            ]
            drafter = self.verified_drafter(
                drafter,
                target,
                below,
                middle_sampling,
                branches,
                gamma=self.middle_gamma,
                length=self._length(),
                eos_ids=self.eos,
            )
            refresh = (
                RetrievalRefresh(full, below, every=self.refresh_every)
                if self.middle == "retrieval"
                else None
            )
        return self.decoder(
            drafter,
            target,
            full,
            top,
            branches,
            gamma=self.gamma,
            eos_ids=self.eos,
            refresh=refresh,
            clock=zero,
        )

    def _sampling(self, different: dict[str, float]) -> Sampling:
        same = {"temperature": self.temperature, "top_p": self.top_p, "repetition_penalty": self.penalty}
        return Sampling(**{**same, **different}, answer_start=len(self.prompt))

    def _length(self) -> DraftLength:
        if self.policy is not None:
            return self.policy()
        return (
            FixedLength() if self.length == "fixed" else ExpectedGain(Costs(verify=3.0, row=0.3, middle=1.0))
        )

    def _drafted(
        self, model: ToyModel, cache: ToyCache, sampling: Sampling, branches: Branches
    ) -> ModelDrafter:
        return self.model_drafter(model, cache, sampling, branches, length=self._length())

    def _level_zero(self, target: ToyModel, sampling: Sampling, branches: Branches) -> Drafter:
        draft = ToyModel(77, vocab=target.vocab, like=target)
        return {
            "none": EmptyDrafter,
            "model": lambda: self._drafted(draft, ToyStreaming(), sampling, branches),
            "perfect": lambda: self._drafted(target, ToyCache(), sampling, branches),
            "ngram": lambda: NgramDrafter(longest=2, shortest=1),
            "both": lambda: FirstDrafter(
                NgramDrafter(longest=2, shortest=2), self._drafted(draft, ToyStreaming(), sampling, branches)
            ),
            "stubborn": lambda: StubbornDrafter(target.vocab),
            "wrong": lambda: WrongDrafter(target, branches),
        }[self.drafter]()


def zero() -> float:
    """A clock for whom time does not pass: the loop must not look at it."""
    return 0.0


def exact_law(
    loop: Loop,
    *,
    horizon: int = 3,
    beyond: int = 0,
    turn: Sequence[int] = (),
    seed: int = 11,
    vocab: int = 3,
    disk: SnapshotStore | None = None,
) -> Law:
    """The law of the first `horizon` tokens. `beyond` lets rounds run past the horizon; `turn` are tokens
    that a user then says, after which `horizon - 1` more are generated by the same caches (the law is that of
    both answers together); or, with `disk`, by new ones and a full cache that was saved there and loaded."""
    branches, target = Branches(), ToyModel(seed, vocab=vocab)
    still: dict[int, Any] = {id(branches): branches, id(target): target}
    decoder = loop.build(branches, target)
    states = {_freeze((decoder, list(loop.prompt), len(loop.prompt), EndsWith(loop.stop)), still): 1.0}

    def reopened(decoder: Decoder, committed: Sequence[int]) -> Decoder:
        return decoder if disk is None else _from_disk(decoder, loop.build(branches, target), committed, disk)

    done = _answer(states, branches, still, loop, horizon, beyond)
    if turn:
        done = _answer(
            _with_turn(done, turn, loop, still, reopened), branches, still, loop, horizon - 1, beyond
        )
    law: Law = {}
    for blob, weight in done.items():
        _, committed, *_ = _thaw(blob, still)
        answer = tuple(committed[len(loop.prompt) :])
        law[answer] = law.get(answer, 0.0) + weight
    return law


def _answer(
    states: States, branches: Branches, still: dict[int, Any], loop: Loop, horizon: int, beyond: int
) -> States:
    """Every state in which an answer ends, with its probability. A state is (decoder with all it owns,
    tokens, start of the answer, what ends it)."""
    done: States = {}
    while states:
        blob, weight = states.popitem()
        for share, after, ended in _round(blob, branches, still, loop, horizon, beyond):
            into = done if ended else states
            into[after] = into.get(after, 0.0) + weight * share
    return done


def _with_turn(
    states: States,
    turn: Sequence[int],
    loop: Loop,
    still: dict[int, Any],
    reopened: Callable[[Decoder, Sequence[int]], Decoder],
) -> States:
    """The same states after the user has said `turn`. The caches are as the answer left them, or as
    `reopened` makes them.
    """
    after: States = {}
    for blob, weight in states.items():
        decoder, committed, *_ = _thaw(blob, still)
        decoder = reopened(decoder, committed)
        committed.extend(turn)
        key = _freeze((decoder, committed, len(committed), EndsWith(loop.stop)), still)
        after[key] = after.get(key, 0.0) + weight
    return after


def _from_disk(used: Decoder, fresh: Decoder, committed: Sequence[int], disk: SnapshotStore) -> Decoder:
    """`fresh` with what `used` had in its full cache, by way of files. A few of the newest tokens may be
    missing there.
    """
    ids = committed[: used.cache.length]
    assert disk.save("book", ids, StoredRows(used.cache))
    held = max([0, *disk.load("book", ids, StoredRows(fresh.cache), start=0)])
    assert held == fresh.cache.length >= len(committed) - 32, f"{held} of {len(ids)} tokens came back"
    return fresh


def _round(
    blob: bytes, branches: Branches, still: dict[int, Any], loop: Loop, horizon: int, beyond: int
) -> Iterator[tuple[float, bytes, bool]]:
    """(probability, state after, whether the answer ended) of each way one round can go."""

    def play() -> tuple[bytes, bool]:
        decoder, committed, begun, ends = _thaw(blob, still)
        left = horizon - (len(committed) - begun)
        result = decoder.round(committed, most=left + beyond, ends=ends)
        committed.extend(result.tokens[:left])
        return _freeze((decoder, committed, begun, ends), still), result.ended or len(
            committed
        ) - begun >= horizon

    for weight, (after, ended) in branches.runs(play):
        yield weight, after, ended


def plain_law(
    loop: Loop, *, horizon: int = 3, turn: Sequence[int] = (), seed: int = 11, vocab: int = 3
) -> Law:
    """The same law of plain decoding, by the oracle."""
    target = ToyModel(seed, vocab=vocab)
    settings = {
        "temperature": loop.temperature,
        "top_p": loop.top_p,
        "penalty": loop.penalty,
        "eos": loop.eos,
        "stop": loop.stop,
    }
    first = target_law(target, loop.prompt, horizon, **settings)
    if not turn:
        return first
    assert loop.penalty == 1.0, "the oracle's penalty knows one answer only"
    both: Law = {}
    for answer, weight in first.items():
        for second, share in target_law(
            target, (*loop.prompt, *answer, *turn), horizon - 1, **settings
        ).items():
            key = (*answer, *turn, *second)
            both[key] = both.get(key, 0.0) + weight * share
    return both


def distance(law: Law, other: Law) -> float:
    """The largest difference of any sequence's probability."""
    return max(abs(law.get(key, 0.0) - other.get(key, 0.0)) for key in law.keys() | other.keys())


def _freeze(state: object, still: dict[int, Any]) -> bytes:
    """The whole state as bytes, but for the objects `still`, which never change: equal bytes are equal
    states.
    """
    out = io.BytesIO()
    pickler = _Pickler(out, protocol=5)
    pickler.still = still
    pickler.dump(state)
    return out.getvalue()


def _thaw(blob: bytes, still: dict[int, Any]):
    unpickler = _Unpickler(io.BytesIO(blob))
    unpickler.still = still
    return unpickler.load()


class _Pickler(pickle.Pickler):
    still: dict[int, Any]

    def persistent_id(self, obj: object) -> int | None:
        return id(obj) if id(obj) in self.still else None


class _Unpickler(pickle.Unpickler):
    still: dict[int, Any]

    def persistent_load(self, pid: int) -> object:
        return self.still[pid]
