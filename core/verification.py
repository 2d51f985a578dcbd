"""Re-checks an answer after the fact: every token judged by a plain pass of the target over the full cache. Knows nothing of drafting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from core.cache.base import KVCache
from core.decoding.drafters import Model
from core.decoding.sampling import Sampling

ROWS = 32                                      # tokens judged per pass: bounds the logits in memory
# log-probability by which a token may miss the law's support and count as a near-tie: passes of different shapes round differently
NEAR_TIE = {torch.float32: 1e-3, torch.float16: 0.06, torch.bfloat16: 0.5}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the plain pass says of an answer. At temperature 0 a token is possible when it is the argmax, else when it is in the nucleus."""

    tokens: int
    agreed: int                                # possible under the plain law
    near_ties: int                             # not, by no more than `margin`
    mismatches: int                            # not, by more: must be 0
    largest_gap: float                         # in log-probability, of a token that did not agree
    margin: float
    log_probability: float                     # of the agreeing tokens under the law sampled from (at temperature 0: under the softmax)

    @property
    def holds(self) -> bool:
        """No token that plain decoding could not have produced."""
        return self.mismatches == 0


def recheck(model: Model, cache: KVCache, ids: Sequence[int], start: int, sampling: Sampling, *, margin: float) -> Agreement:
    """Judges ids[start:] given ids[:start]. Feeds `cache` what it lacks of ids[:-1], the answer's rows always anew.

    `cache` must hold rows of a prefix of `ids` and is left holding all but the newest token.
    """
    assert 1 <= start < len(ids), f"an answer from {start} in {len(ids)} tokens"
    cache.rollback(min(cache.length, start - 1))
    unscaled = replace(sampling, temperature=1.0, top_p=1.0)                         # one scale for every margin
    gaps: list[float] = []
    log_probability = 0.0
    while cache.length < len(ids) - 1:
        first = cache.length
        piece = ids[first:min(first + ROWS, len(ids) - 1)]
        logits = model.forward(piece, cache)                                         # row i judges token first + i + 1
        cache.commit(cache.length)
        law = sampling.probs(logits, ids[:first + 1], piece[1:])
        surprise = unscaled.probs(logits, ids[:first + 1], piece[1:]).log()
        for row in range(max(0, start - 1 - first), len(piece)):
            token = ids[first + row + 1]
            gap = _gap(law[row], surprise[row], token)
            gaps.append(gap)
            if gap == 0:
                log_probability += float(surprise[row, token] if sampling.temperature == 0 else law[row, token].log())
    return Agreement(
        tokens=len(gaps), agreed=gaps.count(0.0), near_ties=sum(0 < gap <= margin for gap in gaps),
        mismatches=sum(gap > margin for gap in gaps), largest_gap=max(gaps), margin=margin, log_probability=log_probability,
    )


def _gap(law: torch.Tensor, log_probs: torch.Tensor, token: int) -> float:
    """How far `token` is below the least probable token that the law allows; 0 when it is allowed itself."""
    if law[token] > 0:
        return 0.0
    gap = float(log_probs[law > 0].min() - log_probs[token])
    return max(gap, 1e-9)      # level with the argmax but not chosen: a near-tie all the same
