"""One round of speculative decoding, the same for every mode: propose, one pass, verify, commit. Knows
nothing of text or prompts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.cache.base import KeyHook, TargetKVCache
from core.decoding.drafters import Drafter, DraftingModel, next_logits
from core.decoding.randomness import Randomness
from core.decoding.sampling import Sampling
from core.decoding.verify import verify
from core.events import Acceptance, RoundStats


@dataclass(frozen=True, slots=True)
class Round:
    """What one round emitted. `levels` names each token's proposer; `bytes_moved` of keys and values went
    from host memory to the device.
    """

    tokens: tuple[int, ...]
    levels: tuple[str, ...]
    acceptance_draft: Acceptance
    acceptance_retrieval: Acceptance
    seconds: float
    bytes_moved: int = 0
    peak_memory_bytes: int = 0  # so far; the engine says it
    ended: bool = False  # the answer is complete with the last of `tokens`

    @property
    def stats(self) -> RoundStats:
        """Its figures."""
        return RoundStats(
            len(self.tokens),
            self.seconds,
            self.acceptance_draft,
            self.acceptance_retrieval,
            self.bytes_moved,
            self.peak_memory_bytes,
        )


class Refresh(Protocol):
    """Renews what the drafter looks at. Called outside the round's decisions, so any choice keeps exactness.

    `tap` is to be shown the end of a prefill that precedes the first round.
    """

    @property
    def tap(self) -> KeyHook | None: ...
    def before_round(self) -> None: ...
    def after_round(self, acceptance: Acceptance) -> None: ...


# told of every token of the answer in order; True: the answer ends with it
Ends = Callable[[int], bool]


def never(token: int) -> bool:
    """For answers that only an end-of-sequence token ends."""
    return False


class NoRefresh:
    """For compositions without a retrieval cache."""

    tap = None

    def before_round(self) -> None:
        """Nothing to prepare."""

    def after_round(self, acceptance: Acceptance) -> None:
        """Nothing to renew."""


class Decoder:
    """A drafter, a model and the full cache. TriForce is this class around a VerifiedDrafter; plain decoding
    is it around none.
    """

    def __init__(
        self,
        drafter: Drafter,
        model: DraftingModel,
        cache: TargetKVCache,
        sampling: Sampling,
        randomness: Randomness,
        *,
        gamma: int,
        eos_ids: frozenset[int] = frozenset(),
        refresh: Refresh | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.drafter, self.model, self.cache = drafter, model, cache
        self.sampling, self.randomness, self.gamma, self.eos_ids = sampling, randomness, gamma, eos_ids
        self.refresh = refresh or NoRefresh()
        self._clock = clock

    def round(self, committed: Sequence[int], *, most: int, ends: Ends = never) -> Round:
        """Emits between 1 and `most` tokens that follow `committed`. The last of them is the first
        end-of-sequence token or the first at which `ends` says so: the answer is cut as a function of what
        plain decoding could have said, so its distribution is cut plain decoding's.

        All of `committed` but its newest token may be in the cache already; what is missing is fed in the
        same pass.
        """
        started, moved = self._clock(), self.cache.bytes_moved
        self.refresh.before_round()
        draft = self.drafter.propose(committed, min(self.gamma, most - 1))
        logits = next_logits(self.model, self.cache, committed, draft.tokens)
        probs = self.sampling.probs(logits, committed, draft.tokens)
        verdict = verify(draft, probs, self.randomness)
        tokens = (*draft.tokens[: verdict.accepted], verdict.token)
        end, ended = self._end(tokens[:most], ends)
        # what was accepted behind the end is no part of the conversation; the newest token is always left to
        # be fed
        kept = len(committed) + min(verdict.accepted, end - 1)
        self.cache.commit(kept)
        self.drafter.commit(kept)
        inner = Acceptance(draft.accepted, draft.evaluated)
        outer = Acceptance(verdict.accepted, verdict.evaluated)
        if draft.past_middle:
            outer, inner = inner, outer
        self.refresh.after_round(outer)
        return Round(
            tokens=tokens[:end],
            levels=(*draft.levels[: verdict.accepted], "target")[:end],
            acceptance_draft=inner,
            acceptance_retrieval=outer,
            seconds=self._clock() - started,
            bytes_moved=self.cache.bytes_moved - moved,
            ended=ended,
        )

    def _end(self, tokens: Sequence[int], ends: Ends) -> tuple[int, bool]:
        """How many of `tokens` are part of the answer, and whether it is complete with them."""
        for index, token in enumerate(tokens):
            if token in self.eos_ids or ends(token):
                return index + 1, True
        return len(tokens), False
