"""The one rule that makes speculation lossless, used at every level. Distributions in, verdict out; the
device is waited for once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.backend.shared.transfer import on_device, to_device
from core.decoding.randomness import Randomness


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens with the distributions they were drawn from. `probs` [g, vocab]; None means every
    distribution is certain of its token.

    `levels` names, per token, who proposed it. `accepted` and `evaluated` count the level below, if the draft
    came from one; `past_middle`: it is the lowest level's own, for the full model to verify.
    """

    tokens: tuple[int, ...] = ()
    probs: torch.Tensor | None = None
    levels: tuple[str, ...] = ()
    accepted: int = 0
    evaluated: int = 0
    past_middle: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first `accepted` draft tokens stand; `token` follows them (residual after a rejection, bonus
    otherwise).

    `confidence` of each of them, where logits were given: its probability at temperature 1.
    """

    accepted: int
    evaluated: int
    token: int
    confidence: tuple[float, ...] = ()


def verify(
    draft: Draft, target_probs: torch.Tensor, randomness: Randomness, *, logits: torch.Tensor | None = None
) -> Verdict:
    """Speculative sampling: the emitted tokens follow the target's distribution exactly, whatever the draft.

    target_probs [g + 1, vocab]: row i is the target's distribution after i draft tokens. Token i is accepted
    with probability min(1, p/q); at the first rejection a token is drawn from norm(max(p - q, 0)); when all
    are accepted a bonus token comes from the last row. `logits` [g + 1, vocab] are those of the target, for
    the confidence. A device is waited for once, when all is computed. Source:
    https://arxiv.org/abs/2211.17192 algorithm 1, https://arxiv.org/abs/2302.01318 theorem 1.
    """
    g = len(draft.tokens)
    assert target_probs.shape[0] == g + 1, (
        f"{g} draft tokens need {g + 1} target rows, got {target_probs.shape[0]}"
    )
    if g == 0:
        return Verdict(0, 0, *sample_token(target_probs[0], randomness, logits))
    # p: target, q: draft
    tokens = to_device(draft.tokens, target_probs.device)  # [g]
    p = _entries(target_probs, tokens)
    q = torch.ones_like(p) if draft.probs is None else _entries(draft.probs, tokens)
    accepted = randomness.first_rejection((p / q).clamp_(max=1.0))
    distribution = (
        _distribution_behind_unseen(accepted, draft, tokens, target_probs)
        if on_device(accepted)
        else _distribution_behind(int(accepted), draft, target_probs)
    )
    token = randomness.draw(distribution)
    sure = () if logits is None else _confidence(logits, tokens, accepted, token)
    stood, drawn, *rest = randomness.numbers(accepted, token, q, *sure)
    assert all(chance > 0 for chance in rest[:g]), (
        f"a draft token has probability 0 under its own distribution: {rest[:g]}"
    )
    n = int(stood)
    return Verdict(n, min(n + 1, g), int(drawn), () if logits is None else (*rest[g : g + n], rest[-1]))


def sample_token(
    distribution: torch.Tensor, randomness: Randomness, logits: torch.Tensor | None = None
) -> tuple[int, tuple[float, ...]]:
    """A token by its distribution [vocab] alone, and where its logits [1, vocab] are given its probability at
    temperature 1; one read.
    """
    token = randomness.draw(distribution)
    drawn, *sure = randomness.numbers(
        token, *([] if logits is None else [torch.softmax(logits, -1)[0].gather(0, token)])
    )
    return int(drawn), tuple(sure)


def _entries(table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """table[i, tokens[i]] [g] of a table [g or more, vocab]."""
    return table[: len(tokens)].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def _distribution_behind(accepted: int, draft: Draft, target_probs: torch.Tensor) -> torch.Tensor:
    """The distribution [vocab] of the token after the accepted ones: the last row, or norm(max(p - q, 0)) at
    the first rejection.
    """
    p = target_probs[accepted]
    if accepted == len(draft.tokens):
        return p
    if draft.probs is None:
        residual = p.clone()
        residual[draft.tokens[accepted]] = 0.0
    else:
        residual = (p - draft.probs[accepted]).clamp_(min=0.0)
    total = residual.sum()
    # p <= q everywhere means p = q, where a rejection has probability 0: only rounding leads here
    return residual.div_(total) if total > 0 else p


def _distribution_behind_unseen(
    accepted: torch.Tensor, draft: Draft, tokens: torch.Tensor, target_probs: torch.Tensor
) -> torch.Tensor:
    """The same with `accepted` [1] on a device that is not asked for it: q is taken times 0 where all were
    accepted.
    """
    p = target_probs.index_select(0, accepted).squeeze(0)
    at, rejected = accepted.clamp(max=len(tokens) - 1), (accepted < len(tokens)).to(p.dtype)
    if draft.probs is None:
        token = tokens.index_select(0, at)
        residual = p.scatter(0, token, p.gather(0, token) * (1.0 - rejected))
    else:
        residual = torch.addcmul(p, draft.probs.index_select(0, at).squeeze(0), rejected, value=-1.0).clamp_(
            min=0.0
        )
    total = residual.sum(0, keepdim=True)
    # only rounding leads here: p, as above
    nothing = (total == 0).to(p.dtype)
    return residual.addcmul_(p, nothing).div_(total + nothing)


def _confidence(
    logits: torch.Tensor, tokens: torch.Tensor, accepted: torch.Tensor, token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities at temperature 1: those of the accepted tokens (of all drafted, where it is not known
    which), and [1] of `token`.
    """
    n = len(tokens) if on_device(accepted) else int(accepted)
    probs = torch.softmax(logits[: n + 1], -1)
    return _entries(probs, tokens[:n]), probs.index_select(0, accepted).squeeze(0).gather(0, token)
