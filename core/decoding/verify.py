"""The one rule that makes speculation lossless, used at every level. Pure: laws in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.decoding.randomness import Randomness


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens with the laws they were drawn from. `probs` [g, vocab]; None means every law is certain of its token.

    `levels` names, per token, who proposed it. `accepted` and `evaluated` count the level below, if the draft came from one.
    """

    tokens: tuple[int, ...] = ()
    probs: torch.Tensor | None = None
    levels: tuple[str, ...] = ()
    accepted: int = 0
    evaluated: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first `accepted` draft tokens stand; `token` follows them (residual after a rejection, bonus otherwise)."""

    accepted: int
    evaluated: int
    token: int


def verify(draft: Draft, target_probs: torch.Tensor, randomness: Randomness) -> Verdict:
    """Speculative sampling: the emitted tokens follow the target's law exactly, whatever the draft.

    target_probs [g + 1, vocab]: row i is the target's law after i draft tokens. Token i is accepted with probability min(1, p/q); at the
    first rejection a token is drawn from norm(max(p - q, 0)); when all are accepted a bonus token comes from the last row.
    Source: https://arxiv.org/abs/2211.17192 algorithm 1, https://arxiv.org/abs/2302.01318 theorem 1.
    """
    g = len(draft.tokens)
    assert target_probs.shape[0] == g + 1, f"{g} draft tokens need {g + 1} target rows, got {target_probs.shape[0]}"
    if g == 0:
        return Verdict(0, 0, randomness.draw(target_probs[0]))
    # p: target, q: draft
    tokens = torch.tensor(draft.tokens, device=target_probs.device).unsqueeze(-1)
    p = target_probs[:g].gather(-1, tokens).squeeze(-1)                     # [g]
    q = torch.ones_like(p) if draft.probs is None else draft.probs.gather(-1, tokens).squeeze(-1)
    assert bool((q > 0).all()), f"a draft token has probability 0 under its own law: {q.tolist()}"
    accepted = randomness.first_rejection((p / q).clamp_(max=1.0))
    if accepted == g:
        return Verdict(g, g, randomness.draw(target_probs[g]))
    return Verdict(accepted, accepted + 1, randomness.draw(_residual(draft, accepted, target_probs[accepted])))


def _residual(draft: Draft, index: int, p: torch.Tensor) -> torch.Tensor:
    """norm(max(p - q, 0)) [vocab] at draft position `index`."""
    if draft.probs is None:
        residual = p.clone()
        residual[draft.tokens[index]] = 0.0
    else:
        residual = (p - draft.probs[index]).clamp_(min=0.0)
    total = residual.sum()
    # p <= q everywhere means p = q, where a rejection has probability 0: only rounding leads here
    return residual / total if total > 0 else p
