"""Drafts by what a model brings along: a layer that predicts one token further than the next, or a small
model that attends to its keys and values. Knows no weights.

Both ask for what the model made of each token, so passes are listened to; a layer's own keys and values begin
with the answer. Why so: docs/decisions/0074-drafts-that-come-along.md, and of the small model
docs/decisions/0080-gemmas-assistant.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from core.cache.base import KVCache
from core.decoding.draft_length import DraftLength, FixedLength
from core.decoding.randomness import Randomness
from core.decoding.sampling import Sampling
from core.decoding.tokens import Tokens
from core.decoding.verify import Draft, sample_token


class HeardRows:
    """What the model made of the latest tokens, in its newest passes: rows [n, hidden] behind its last norm,
    of tokens [start, end) of the conversation, at most so many.
    """

    def __init__(self, most: int) -> None:
        self._most, self.start = most, 0
        self._rows: torch.Tensor | None = None

    @property
    def end(self) -> int:
        """One past the last token."""
        return self.start if self._rows is None else self.start + self._rows.shape[0]

    def put(self, start: int, rows: torch.Tensor) -> None:
        """Rows [n, hidden] of tokens from `start` on: what was heard of these, and of later ones, was of a
        draft. Those before a gap are dropped.
        """
        held = self._rows
        if held is not None and self.start <= start <= self.end:
            rows = torch.cat((held[: start - self.start], rows))
            start = self.start
        self._rows = rows[-self._most :]
        self.start = start + rows.shape[0] - self._rows.shape[0]

    def of(self, start: int, end: int) -> torch.Tensor:
        """[end - start, hidden] of tokens [start, end), which were heard."""
        assert self._rows is not None and self.start <= start < end <= self.end, (start, end, self.start)
        return self._rows[start - self.start : end - self.start]


class ModelInTwo(Protocol):
    """A model whose rows behind the last norm can be had. See LlamaModel."""

    def rows(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """See LlamaModel."""
        ...

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """See LlamaModel."""
        ...


class HeardModel:
    """`model`, whose passes are listened to. See DraftingModel."""

    def __init__(self, model: ModelInTwo, heard: HeardRows) -> None:
        self._model, self._heard = model, heard

    def forward(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """See LlamaModel.forward."""
        start = cache.length
        rows = self._model.rows(ids, cache)
        self._heard.put(start, rows)
        return self._model.logits(rows)


class LayerAhead(Protocol):
    """What predicts one token further. See AheadHead."""

    def follow(self, ids: Sequence[int], rows: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """See AheadHead."""
        ...

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """See AheadHead."""
        ...


class SlidingCache(KVCache, Protocol):
    """A cache of sinks and a window. See StreamingKVCache."""

    slack: int  # rows that are not final yet


class _Drawn:
    """What both have: tokens are drawn one by one, while `length` finds one more pass worth it, from the rows
    that a draft is begun and gone on with.
    """

    def __init__(
        self,
        logits: Callable[[torch.Tensor], torch.Tensor],
        heard: HeardRows,
        sampling: Sampling,
        randomness: Randomness,
        length: DraftLength | None,
        level: str,
    ) -> None:
        self._logits, self._heard, self._level = logits, heard, level
        self._sampling, self._randomness = sampling, randomness
        self._length = length or FixedLength()
        self._confidence: list[float] = []  # of the proposal that is not yet verified
        self._base = 0

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        self._base, self._confidence = len(committed), []
        if not self._can_begin(committed):
            return Draft()
        tokens: list[int] = []
        distributions: list[torch.Tensor] = []
        so_far = Tokens(committed, tokens)
        row: torch.Tensor | None = None
        while self._length.more(self._confidence, gamma):
            row = self._begun(committed) if row is None else self._on_its_own(tokens[-1], row)
            logits = self._logits(row)
            distributions.append(self._sampling.probs(logits, so_far)[0])
            # whether to draw on hangs on the confidence, and the next pass is fed the token: both are read
            # here
            token, confidence = sample_token(distributions[-1], self._randomness, logits)
            tokens.append(token)
            self._confidence.extend(confidence)
        if not tokens:
            return Draft()
        return Draft(tuple(tokens), torch.stack(distributions), (self._level,) * len(tokens))

    def _can_begin(self, committed: Sequence[int]) -> bool:
        """Whether it was heard what the model made of the token before the newest."""
        newest = len(committed) - 1
        return self._heard.start < newest <= self._heard.end

    def _begun(self, committed: Sequence[int]) -> torch.Tensor:
        """The row [1, width] of the newest token."""
        raise NotImplementedError

    def _on_its_own(self, token: int, row: torch.Tensor) -> torch.Tensor:
        """That of a drafted token, of its own before that."""
        raise NotImplementedError

    def _learn(self, length: int) -> None:
        if self._confidence:
            self._length.observe(self._confidence, min(max(length - self._base, 0), len(self._confidence)))
            self._confidence = []


class AheadDrafter(_Drawn):
    """Proposes token by token, while `length` finds one more pass worth it. See Drafter.

    Row i of its cache is of token i, as the model made it, and of token i + 1. Rows that the layer made of
    its own are dropped once the draft is verified, and those of passes over a partial view once the full
    cache was passed: then exact ones take their place. Where nothing was heard of the newest token's
    forerunner, it proposes nothing. All that decides what it proposes is the past.
    """

    def __init__(
        self,
        layer: LayerAhead,
        cache: SlidingCache,
        heard: HeardRows,
        sampling: Sampling,
        randomness: Randomness,
        *,
        length: DraftLength | None = None,
        level: str = "draft",
    ) -> None:
        super().__init__(layer.logits, heard, sampling, randomness, length, level)
        self._layer, self._cache = layer, cache
        self._start = 0  # the token of the cache's first row
        self._known = 0  # up to this token rows are of what was heard,
        self._exact = 0  # and up to this one that was heard over the full cache

    def _on_its_own(self, token: int, row: torch.Tensor) -> torch.Tensor:
        """The row [1, hidden] behind a drafted token, of its own before that."""
        return self._layer.follow([token], row, self._cache)

    def _begun(self, committed: Sequence[int]) -> torch.Tensor:
        """Feeds what the cache lacks of what was heard. Returns the row [1, hidden] of the newest token."""
        end = len(committed) - 1
        self._keep(end - 1)
        begin = self._start + self._cache.length
        if begin < self._heard.start or not self._cache.length:
            self._cache.reset()
            begin = self._start = self._heard.start
        # as StreamingKVCache.missing: what is longer than any draft is final
        while end - begin > self._cache.slack // 2:
            begin = self._fed(committed, begin, begin + self._cache.slack // 2)[0]
            self._cache.commit(self._cache.length)
        self._known, rows = self._fed(committed, begin, end)
        return rows[-1:]

    def _fed(self, committed: Sequence[int], begin: int, end: int) -> tuple[int, torch.Tensor]:
        """`end`, and what the layer makes of tokens [begin, end), each with the one behind it."""
        ids = committed[begin + 1 : end + 1]
        return end, self._layer.follow(ids, self._heard.of(begin, end), self._cache)

    def rollback(self, length: int) -> None:
        """See Drafter."""
        self._learn(length)
        self._keep(min(self._known, length - 1))

    def commit(self, length: int) -> None:
        """See Drafter."""
        self._learn(length)
        self._keep(min(self._known, self._exact, length - 1))
        self._cache.commit(self._cache.length)
        self._exact = length

    def _keep(self, end: int) -> None:
        """Drops rows of tokens from `end` on; all, where those before them cannot be gone back to."""
        kept = max(0, end - self._start)
        if kept >= self._cache.length:
            return
        if kept < self._cache.oldest_rollback:
            self._cache.reset()
        else:
            self._cache.rollback(kept)


class SmallModel(Protocol):
    """Has no keys and values of its own. See Assistant."""

    def follow(self, token: int, row: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """See Assistant."""
        ...

    def onwards(self, rows: torch.Tensor) -> torch.Tensor:
        """See Assistant."""
        ...

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """See Assistant."""
        ...


class AssistantDrafter(_Drawn):
    """Proposes token by token, while `length` finds one more pass worth it. See Drafter.

    Every row is that of the newest token's place: `cache`, of the level that verifies, holds what it attends
    to, and stays as it is. Where nothing was heard of the token before the newest, it proposes nothing.
    """

    def __init__(
        self,
        assistant: SmallModel,
        cache: KVCache,
        heard: HeardRows,
        sampling: Sampling,
        randomness: Randomness,
        *,
        length: DraftLength | None = None,
        level: str = "draft",
    ) -> None:
        super().__init__(assistant.logits, heard, sampling, randomness, length, level)
        self._assistant, self._cache = assistant, cache

    def _can_begin(self, committed: Sequence[int]) -> bool:
        return super()._can_begin(committed) and self._cache.length == len(committed) - 1

    def _begun(self, committed: Sequence[int]) -> torch.Tensor:
        newest = len(committed) - 1
        return self._assistant.follow(committed[-1], self._heard.of(newest - 1, newest), self._cache)

    def _on_its_own(self, token: int, row: torch.Tensor) -> torch.Tensor:
        return self._assistant.follow(token, self._assistant.onwards(row), self._cache)

    def rollback(self, length: int) -> None:
        """See Drafter. Nothing is kept."""
        self._learn(length)

    def commit(self, length: int) -> None:
        """As rollback."""
        self._learn(length)
