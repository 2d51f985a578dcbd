"""Who proposes tokens: nobody, the book itself, a small model, or a cheaper pass of the target that has
verified a drafter of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from core.cache.base import KVCache
from core.decoding.draft_length import DraftLength, FixedLength
from core.decoding.ngrams import NgramIndex
from core.decoding.randomness import Randomness
from core.decoding.sampling import Sampling
from core.decoding.tokens import Tokens
from core.decoding.verify import Draft, sample_token, verify


class DraftingModel(Protocol):
    """What a drafter needs of a model."""

    def forward(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """See LlamaModel.forward."""
        ...


class Drafter(Protocol):
    """Proposes up to about `gamma` tokens to follow `committed`, with the distributions they were drawn from.

    `committed` belongs to the caller and grows: nobody keeps it. After a proposal was verified,
    `rollback(length)` drops what the drafter computed for tokens from `length` on, and those below are in the
    next `committed` too; `commit(length)` also makes them final.
    """

    def propose(self, committed: Sequence[int], gamma: int) -> Draft: ...
    def rollback(self, length: int) -> None: ...
    def commit(self, length: int) -> None: ...


class EmptyDrafter:
    """Proposes nothing: the decoder around it is plain decoding."""

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        return Draft()

    def rollback(self, length: int) -> None:
        """Nothing is kept."""

    def commit(self, length: int) -> None:
        """Nothing is kept."""


class NgramDrafter:
    """Proposes what followed the last few tokens at their most recent earlier occurrence in book and answer:
    as many tokens as were found there, and where `longest` were, as many as may be. q is certain.

    Source: prompt lookup decoding, https://github.com/apoorvumang/prompt-lookup-decoding. One token says
    little of the next, but a second row of a pass costs next to nothing, a fourth a third of a pass.
    """

    def __init__(self, index: NgramIndex | None = None, *, longest: int = 4, shortest: int = 1) -> None:
        """`index` may hold the beginning of the conversation already; without one it starts empty."""
        assert 1 <= shortest <= longest
        self._index = index if index is not None else NgramIndex()
        self._longest, self._shortest = longest, shortest

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        self._index.follow(committed)
        found = self._index.find(longest=self._longest, shortest=self._shortest) if gamma else None
        if found is None:
            return Draft()
        end, matched = found
        length = gamma if matched == self._longest else min(gamma, matched)
        tokens = tuple(committed[end : end + length])
        return Draft(tokens, None, ("ngram",) * len(tokens))

    def rollback(self, length: int) -> None:
        """Forgets tokens that do not stand."""
        self._index.forget(length)

    def commit(self, length: int) -> None:
        """As rollback."""
        self.rollback(length)


class ModelDrafter:
    """A model of the same vocabulary over its own cache proposes token by token, while `length` finds one
    more pass worth it.
    """

    def __init__(
        self,
        model: DraftingModel,
        cache: KVCache,
        sampling: Sampling,
        randomness: Randomness,
        *,
        length: DraftLength | None = None,
        level: str = "draft",
    ) -> None:
        self._model, self._cache, self._sampling, self._randomness, self._level = (
            model,
            cache,
            sampling,
            randomness,
            level,
        )
        self._length = length or FixedLength()
        self._confidence: list[float] = []  # of the proposal that is not yet verified
        self._base = 0

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        tokens: list[int] = []
        distributions: list[torch.Tensor] = []
        self._base, self._confidence = len(committed), []
        so_far = Tokens(committed, tokens)
        while self._length.more(self._confidence, gamma):
            logits = next_logits(self._model, self._cache, so_far)
            distributions.append(self._sampling.probs(logits, so_far)[0])
            # whether to draw on hangs on the confidence, and the next pass is fed the token: both are read
            # here
            token, confidence = sample_token(distributions[-1], self._randomness, logits)
            tokens.append(token)
            self._confidence.extend(confidence)
        return (
            Draft(tuple(tokens), torch.stack(distributions), (self._level,) * len(tokens))
            if tokens
            else Draft()
        )

    def rollback(self, length: int) -> None:
        """See Drafter. The last drawn token was never fed, so there may be less to drop than was proposed."""
        self._learn(length)
        self._cache.rollback(min(length, self._cache.length))

    def commit(self, length: int) -> None:
        """See Drafter."""
        self._learn(length)
        self._cache.commit(min(length, self._cache.length))

    def _learn(self, length: int) -> None:
        if self._confidence:
            self._length.observe(self._confidence, min(max(length - self._base, 0), len(self._confidence)))
            self._confidence = []


class FirstDrafter:
    """What the first drafter proposes, and where it has nothing to propose the second. Which of them speaks
    is a function of the past.
    """

    def __init__(self, first: Drafter, second: Drafter) -> None:
        self._drafters = (first, second)

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        first, second = self._drafters
        draft = first.propose(committed, gamma)
        return draft if draft.tokens else second.propose(committed, gamma)

    def rollback(self, length: int) -> None:
        """See Drafter."""
        for drafter in self._drafters:
            drafter.rollback(length)

    def commit(self, length: int) -> None:
        """See Drafter."""
        for drafter in self._drafters:
            drafter.commit(length)


class VerifiedDrafter:
    """The middle level: a drafter's tokens verified by the target's weights over a cheaper cache, until
    enough tokens stand.

    What it emits follows that cheaper pass's distribution exactly (the same `verify` as at the top), so the
    row it reports is the distribution its token was drawn from. A token once drawn is always submitted. Where
    a pass of its own is not expected to pay, behind a text hardly longer than its cache, the drafter's tokens
    go to the full model as they are. Which of the two is a function of the past.
    """

    def __init__(
        self,
        drafter: Drafter,
        model: DraftingModel,
        cache: KVCache,
        sampling: Sampling,
        randomness: Randomness,
        *,
        gamma: int,
        length: DraftLength,
        eos_ids: frozenset[int] = frozenset(),
        level: str = "retrieval",
    ) -> None:
        self._drafter, self._model, self._cache = drafter, model, cache
        self._sampling, self._randomness = sampling, randomness
        self._gamma, self._length, self._eos_ids, self._level = gamma, length, eos_ids, level
        self._confidence: list[float] = []
        self._base = 0

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter. The last inner round may carry the draft beyond `gamma`."""
        self._base, self._confidence = len(committed), []
        if not self._cache.ready:
            return Draft()
        tokens: list[int] = []
        distributions: list[torch.Tensor] = []
        levels: list[str] = []
        accepted = evaluated = 0
        so_far = Tokens(committed, tokens)
        while not self._eos_ids.intersection(tokens) and self._length.more(self._confidence, gamma):
            draft = self._drafter.propose(so_far, self._gamma)
            logits = next_logits(self._model, self._cache, so_far, draft.tokens)
            probs = self._sampling.probs(logits, so_far, draft.tokens)
            verdict = verify(draft, probs, self._randomness, logits=logits)
            stand = len(so_far) + verdict.accepted
            new = (*draft.tokens[: verdict.accepted], verdict.token)
            tokens.extend(new)
            distributions.append(probs[: len(new)])
            levels.extend((*draft.levels[: verdict.accepted], self._level))
            self._confidence.extend(verdict.confidence)
            accepted, evaluated = accepted + verdict.accepted, evaluated + verdict.evaluated
            self._cache.rollback(stand)
            self._drafter.rollback(stand)
        if not tokens:
            return replace(self._drafter.propose(committed, min(self._gamma, gamma)), past_middle=True)
        return Draft(tuple(tokens), torch.cat(distributions), tuple(levels), accepted, evaluated)

    def rollback(self, length: int) -> None:
        """See Drafter."""
        self._cache.rollback(min(length, self._cache.length))
        self._drafter.rollback(length)

    def commit(self, length: int) -> None:
        """See Drafter."""
        if self._confidence:
            self._length.observe(self._confidence, min(length - self._base, len(self._confidence)))
        if self._cache.ready:
            if not self._confidence:
                self._length.rested(length - self._base + 1)
            self._cache.commit(length)
        self._drafter.commit(length)


def next_logits(
    model: DraftingModel, cache: KVCache, committed: Sequence[int], drafted: Sequence[int] = ()
) -> torch.Tensor:
    """Feeds `cache` what it lacks of `committed`, then `drafted` [g]. Returns logits [g + 1, vocab]."""
    for piece in cache.missing(len(committed) - 1):
        model.forward(committed[piece.start : piece.stop], cache)
        cache.commit(cache.length)
    return model.forward([*committed[cache.length :], *drafted], cache)[-len(drafted) - 1 :]
