"""Several answers to one prompt as rows of one batch: one pass gives the next token of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from core.cache.base import TargetKVCache
from core.cache.branches import Branches
from core.decoding.decoder import Ends
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel
from core.request import Params


@dataclass(slots=True)
class AnswerBranch:
    """One answer under way. `log_probability`: of its tokens at temperature 1 and without a penalty, in
    nats. `reason`: None | stop | length.
    """

    params: Params
    ends: Ends
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    reason: str | None = None


def grow_branches(
    model: LlamaModel,
    trunk: TargetKVCache,
    ids: Sequence[int],
    branches: Sequence[AnswerBranch],
    *,
    eos_ids: frozenset[int],
) -> Iterator[int]:
    """Goes on with every branch behind `ids`, all of which but the newest `trunk` holds, until each has
    ended; yields how many have not after each pass. Each draws with its own seed, as plain decoding would.
    Where the trunk does not lie wholly on the device, one after another.
    """
    assert trunk.length == len(ids) - 1, (trunk.length, len(ids))
    if trunk.in_place() is not None:
        steps = max(one.params.max_new_tokens for one in branches)
        cache = Branches(trunk, model.backend, len(branches), steps)
        yield from _grown(model, cache, ids, branches, eos_ids)
        return
    for one in branches:
        yield from _grown(model, trunk, ids, [one], eos_ids)
        trunk.rollback(len(ids) - 1)


def _grown(
    model: LlamaModel,
    cache: Branches | TargetKVCache,
    ids: Sequence[int],
    branches: Sequence[AnswerBranch],
    eos_ids: frozenset[int],
) -> Iterator[int]:
    distributions = [_distribution(one.params, len(ids)) for one in branches]
    running = list(range(len(branches)))
    while running:
        logits = model.forward([(branches[at].tokens or ids)[-1] for at in running], cache)
        levels = logits.log_softmax(-1)
        for row, at in enumerate(running):
            draw, sampling = distributions[at]
            distribution = sampling.probs(logits[row : row + 1], [*ids, *branches[at].tokens])
            token = draw(distribution[0])
            drawn, level = model.ranks.numbers(token, levels[row].index_select(0, token))
            _take(branches[at], int(drawn), level, eos_ids)
        going = [row for row, at in enumerate(running) if branches[at].reason is None]
        if going and len(going) < len(running):
            cache.keep(going)
        running = [running[row] for row in going]
        yield len(running)


def _distribution(params: Params, start: int) -> tuple[Callable[[torch.Tensor], torch.Tensor], Sampling]:
    sampling = Sampling(params.temperature, params.top_p, params.repetition_penalty, start)
    return SeededRandomness(params.seed).draw, sampling


def _take(branch: AnswerBranch, token: int, level: float, eos_ids: frozenset[int]) -> None:
    """The branch's next token and its log-probability."""
    branch.tokens.append(token)
    branch.log_probability += level
    if token in eos_ids or branch.ends(token):
        branch.reason = "stop"
    elif len(branch.tokens) >= branch.params.max_new_tokens:
        branch.reason = "length"
