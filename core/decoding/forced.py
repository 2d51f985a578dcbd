"""How often the full cache would accept what retrieval caches propose, along a given text: computed from both
distributions, not counted.

A token drawn from q is accepted with probability sum over the vocabulary of min(p, q)
(https://arxiv.org/abs/2211.17192 corollary 3.6), so every position says exactly what sampling would say in
the mean, at any temperature at once. The text is given, so caches that differ in budget, chunk, policy or
refresh go side by side: each round they propose it, and one verification pass serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from core.cache.base import KeyHook, TargetKVCache
from core.cache.retrieval import RetrievalKVCache
from core.decoding.decoder import Refresh
from core.decoding.drafters import next_logits
from core.decoding.sampling import Sampling
from core.events import Acceptance
from core.model.llama import LlamaModel


class SourceStandIn:
    """Stands in for the full cache where a lane's refresh asks to observe a pass: there may be several
    lanes.
    """

    observer: KeyHook | None = None


@dataclass(frozen=True, slots=True)
class RetrievalLane:
    """A retrieval cache and its refresh; `watch` is the source that the refresh knows."""

    cache: RetrievalKVCache
    refresh: Refresh
    watch: SourceStandIn


@dataclass(frozen=True, slots=True)
class ExpectedTokens:
    """Expected tokens of rounds, summed: of `rounds` drafts so many were reached by verification and so many
    accepted.
    """

    accepted: float = 0.0
    evaluated: float = 0.0
    rounds: int = 0

    @property
    def rate(self) -> float | None:
        """Accepted / evaluated, as the panel counts it."""
        return self.accepted / self.evaluated if self.evaluated else None

    @property
    def tokens_per_round(self) -> float | None:
        """The accepted ones and the one that verification adds."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    def __add__(self, other: ExpectedTokens) -> ExpectedTokens:
        return ExpectedTokens(
            self.accepted + other.accepted, self.evaluated + other.evaluated, self.rounds + other.rounds
        )


def of_draft(probabilities: Sequence[float]) -> ExpectedTokens:
    """One draft whose tokens are accepted with these probabilities, each if all before it were."""
    reach, accepted, evaluated = 1.0, 0.0, 0.0
    for probability in probabilities:
        evaluated += reach
        reach *= probability
        accepted += reach
    return ExpectedTokens(accepted, evaluated, 1)


def probs_overlap(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    """sum(min(p, q)) of distributions [n, vocab], row by row."""
    return torch.minimum(p, q).sum(-1).clamp_(max=1.0).tolist()


def select_first(
    model: LlamaModel,
    source: TargetKVCache,
    ids: Sequence[int],
    lanes: Sequence[RetrievalLane],
    *,
    chunk_tokens: int,
) -> None:
    """Feeds `source` what it lacks of `ids` but the newest, at least the last of them, and lets every lane
    see the end of it, as it would at the end of a prefill."""
    source.rollback(source.resumable(min(source.length, len(ids) - 2)))
    rest = ids[source.length : -1]
    for _ in model.prefill(
        rest,
        source,
        segment_tokens=len(rest),
        chunk_tokens=chunk_tokens,
        should_stop=lambda: False,
        tap=_all([lane.refresh.tap for lane in lanes]),
    ):
        pass


def force(
    model: LlamaModel,
    source: TargetKVCache,
    ids: Sequence[int],
    start: int,
    lanes: Sequence[RetrievalLane],
    samplings: Sequence[Sampling],
    *,
    gamma: int,
    steered_by: int = 0,
    going_on: Callable[[], bool] = lambda: True,
) -> list[list[ExpectedTokens]]:
    """Forces ids[start:] in drafts of `gamma` tokens, for as long as `going_on` says after each. Returns
    [lane][sampling].

    `source` holds ids[:start - 1], of which the lanes have seen the end (`select_first`). The rate at
    sampling `steered_by` is what a refresh is told of. Leaves `source` where the text ends.
    """
    sums = [[ExpectedTokens()] * len(samplings) for _ in lanes]
    for so_far, drafted in _rounds(ids, start, gamma):
        for lane in lanes:
            lane.refresh.before_round()
        proposed = [next_logits(model.drafting, lane.cache, so_far, drafted[:-1]) for lane in lanes]
        source.observer = _all([lane.watch.observer for lane in lanes])
        exact = next_logits(model, source, so_far, drafted[:-1])
        source.observer = None
        source.commit(len(so_far) + len(drafted) - 1)
        distributions = [sampling.probs(exact, so_far, drafted) for sampling in samplings]
        for index, lane in enumerate(lanes):
            found = [
                of_draft(probs_overlap(p, sampling.probs(proposed[index], so_far, drafted)))
                for p, sampling in zip(distributions, samplings, strict=True)
            ]
            sums[index] = [old + new for old, new in zip(sums[index], found, strict=True)]
            lane.cache.commit(source.length)
            lane.refresh.after_round(Acceptance(found[steered_by].accepted, found[steered_by].evaluated))
        if not going_on():
            break
    return sums


def _rounds(ids: Sequence[int], start: int, gamma: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """What is committed before each round, and its draft."""
    for first in range(start, len(ids), gamma):
        yield ids[:first], ids[first : first + gamma]


def _all(observers: Sequence[KeyHook | None]) -> KeyHook | None:
    """One observer that shows everything to all of them."""
    wanted = [observer for observer in observers if observer is not None]

    def show(layer: int, q: torch.Tensor, k: torch.Tensor, **where: int) -> None:
        for observer in wanted:
            observer(layer, q, k, **where)

    return show if wanted else None
