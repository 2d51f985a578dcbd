"""How far the draft's distribution is from the target's: the loss that is minimised and the acceptance that
is wanted. Knows nothing of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.training.network import DraftNetwork
from core.training.shards import TEACHER_TEMPERATURES, TargetProbs

_TINY = 1e-6
_PIECE = 1024  # rows of logits held at a time


@dataclass(frozen=True, slots=True)
class DraftAgreement:
    """Means over tokens, within the draft's vocabulary. `overlap` at each of TEACHER_TEMPERATURES is the
    chance that a drafted token stands, sum of min(p, q), counted over the target's likeliest tokens only;
    `greedy` the share of tokens both find likeliest.
    """

    loss: float
    overlap: tuple[float, ...]
    greedy: float


def loss(network: DraftNetwork, distributions: TargetProbs, dice: torch.Generator) -> torch.Tensor:
    """Mean KL(target || draft) over all tokens, each at one of TEACHER_TEMPERATURES drawn by `dice`: a
    scalar, fp32.
    """
    hidden = network(distributions.ids).flatten(0, 1)
    choice = torch.randint(len(TEACHER_TEMPERATURES), hidden.shape[:1], generator=dice).to(hidden.device)
    temperature = torch.tensor(TEACHER_TEMPERATURES, device=hidden.device)[choice].unsqueeze(-1)
    p, p_rest = _target(
        distributions.logits.flatten(0, 1),
        distributions.rest.flatten(0, 1).gather(-1, choice.unsqueeze(-1)),
        temperature,
    )
    log_q = _draft(network, hidden, distributions.top.flatten(0, 1), temperature)
    return _kl(p, p_rest, log_q)


@torch.no_grad()
def agreement(network: DraftNetwork, distributions: TargetProbs) -> DraftAgreement:
    """How well the draft does on texts that it may not have seen."""
    hidden = network(distributions.ids).flatten(0, 1)
    top = distributions.top.flatten(0, 1)
    losses, overlaps = [], []
    for index, temperature in enumerate(TEACHER_TEMPERATURES):
        heat = torch.full((len(hidden), 1), temperature, device=hidden.device)
        p, p_rest = _target(
            distributions.logits.flatten(0, 1), distributions.rest.flatten(0, 1)[:, index : index + 1], heat
        )
        parts = zip(hidden.split(_PIECE), top.split(_PIECE), heat.split(_PIECE), strict=True)
        log_q = torch.cat([_draft(network, *part) for part in parts])
        overlaps.append(float(torch.minimum(p, log_q.exp()).sum(-1).mean()))
        losses.append(float(_kl(p, p_rest, log_q)))
    best = torch.cat([network.logits(part).argmax(-1) for part in hidden.split(_PIECE)])
    return DraftAgreement(
        sum(losses) / len(losses), tuple(overlaps), float((best == top[:, 0]).float().mean())
    )


def _kl(p: torch.Tensor, p_rest: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Mean KL(p || q), p: target, q: draft; everything outside the stored tokens is one more outcome."""
    q_rest = (1.0 - log_q.exp().sum(-1, keepdim=True)).clamp(min=_TINY)
    inside = (p * (p.clamp(min=_TINY).log() - log_q)).sum(-1, keepdim=True)
    return (inside + p_rest * (p_rest.clamp(min=_TINY).log() - q_rest.log())).mean()


def _target(
    logits: torch.Tensor, rest: torch.Tensor, temperature: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The stored distributions at `temperature` [n, 1]: p [n, kept] of the likeliest tokens and of the rest
    [n, 1].
    """
    rest = rest.float()
    return torch.softmax(logits.float() / temperature, -1) * (1.0 - rest), rest


def _draft(
    network: DraftNetwork, hidden: torch.Tensor, top: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """The draft's log-probabilities [n, kept] of the tokens `top`."""
    scaled = network.logits(hidden).float() / temperature
    return scaled.gather(-1, top.long()) - torch.logsumexp(scaled, -1, keepdim=True)
