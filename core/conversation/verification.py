"""Re-checks an answer after the fact: every token judged by a plain pass of the target over the full cache.
Knows nothing of drafting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from core.backend.shared.kv_rows import CODES
from core.cache.base import KVCache
from core.decoding.context import Context
from core.decoding.drafters import DraftingModel
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel
from core.request import Params

ROWS = 32  # tokens judged per pass: bounds the logits in memory
# A token whose gap is no larger is a near-tie: passes of different shapes round differently. Of the largest
# gap found between passes of 1, 5 and 32 rows over real text twice, in bf16 three times; fp32, where none was
# found: twice what its largest difference allows (benchmarks/results/precision.json)
NEAR_TIE = {torch.float32: 2e-4, torch.float16: 0.03, torch.bfloat16: 0.75}
# computed in fp32 from 16 bits: none by the compiled kernels; by torch, twice the largest difference
NEAR_TIE_OF_16_BITS = 0.2
# a rounding flips a code: nine times the largest gap found in float32 over 1,024 tokens of real text
NEAR_TIE_OF_CODES = 0.32


@dataclass(frozen=True, slots=True)
class GreedyAgreement:
    """What the plain pass says of an answer. At temperature 0 a token is possible when it is the argmax, else
    when it is in the nucleus.
    """

    tokens: int
    agreed: int  # possible under the plain distribution
    near_ties: int  # not, by no more than `margin`
    mismatches: int  # not, by more: must be 0
    largest_gap: float  # in log-probability, of a token that did not agree
    margin: float
    # of the agreeing tokens under the distribution sampled from (at temperature 0: under the softmax)
    log_probability: float
    ties: tuple[int, ...] = ()  # the near-ties by number, from 0


def verify_answer(
    model: LlamaModel, context: Context, ids: Sequence[int], start: int, params: Params
) -> GreedyAgreement:
    """Re-checks the answer ids[start:], just generated in `context` with `params`, by a teacher-forced plain
    pass. `mismatches` above 0 means the answer is not plain decoding's.
    """
    context.keep_prefix_of(ids[:start])
    sampling = Sampling(params.temperature, params.top_p, params.repetition_penalty, start)
    with torch.inference_mode():
        margin = NEAR_TIE[model.backend.dtype]
        if model.backend.storage != model.backend.dtype:
            margin = max(margin, NEAR_TIE_OF_16_BITS)
        if context.cache.dtype == CODES:
            margin = max(margin, NEAR_TIE_OF_CODES)
        agreement = recheck(model, context.cache, ids, start, sampling, margin=margin)
    context.hold(ids)
    return agreement


def recheck(
    model: DraftingModel, cache: KVCache, ids: Sequence[int], start: int, sampling: Sampling, *, margin: float
) -> GreedyAgreement:
    """Judges ids[start:] given ids[:start]. Feeds `cache` what it lacks of ids[:-1], the answer's rows always
    anew.

    `cache` must hold rows of a prefix of `ids` and is left holding all but the newest token.
    """
    assert 1 <= start < len(ids), f"an answer from {start} in {len(ids)} tokens"
    cache.rollback(min(cache.length, start - 1))
    # one scale for every margin
    unscaled = replace(sampling, temperature=1.0, top_p=1.0)
    gaps: list[float] = []
    log_probability = 0.0
    while cache.length < len(ids) - 1:
        first = cache.length
        piece = ids[first : min(first + ROWS, len(ids) - 1)]
        # row i judges token first + i + 1
        logits = model.forward(piece, cache)
        cache.commit(cache.length)
        distribution = sampling.probs(logits, ids[: first + 1], piece[1:])
        surprise = unscaled.probs(logits, ids[: first + 1], piece[1:]).clamp_(min=1e-38).log_()
        for row in range(max(0, start - 1 - first), len(piece)):
            token = ids[first + row + 1]
            # what is not but has no gap is level with what is: a near-tie all the same
            possible = bool(distribution[row, token] > 0)
            gaps.append(0.0 if possible else max(gap(surprise[row], token, sampling), 1e-9))
            if possible:
                log_probability += float(
                    surprise[row, token] if sampling.temperature == 0 else distribution[row, token].log()
                )
    return GreedyAgreement(
        tokens=len(gaps),
        agreed=gaps.count(0.0),
        near_ties=sum(0 < one <= margin for one in gaps),
        mismatches=sum(one > margin for one in gaps),
        largest_gap=max(gaps),
        margin=margin,
        log_probability=log_probability,
        ties=tuple(number for number, one in enumerate(gaps) if 0 < one <= margin),
    )


def gap(log_probs: torch.Tensor, token: int, sampling: Sampling) -> float:
    """By how much log-probabilities would have to be off for `token` to be possible; 0 when it is.

    log_probs [vocab] at temperature 1, penalty applied. Greedy: the distance to the largest. Nucleus: tokens
    less than the gap above `token` may as well lie behind it, and the odds of the mass before it may be off
    by the gap; a distribution that is cut where few tokens carry much mass is decided by rounding although
    the tokens' own probabilities lie far apart.
    """
    if sampling.temperature == 0:
        return float(log_probs.max() - log_probs[token])
    above = log_probs[log_probs > log_probs[token]].double().sort(descending=True).values
    total = torch.logsumexp(log_probs.double() / sampling.temperature, -1)
    # of the first j tokens
    mass = torch.cat((above.new_zeros(1), (above / sampling.temperature - total).exp().cumsum(0)))
    mass.clamp_(max=1 - 1e-12)
    # the rest lies this close
    passed = torch.cat((above - log_probs[token], above.new_zeros(1)))
    odds = torch.logit(mass) - torch.logit(mass.new_tensor(sampling.top_p))
    return max(0.0, float(torch.maximum(passed, sampling.temperature * odds).min()))
