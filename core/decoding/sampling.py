"""Logits to the law a token is sampled from. Applied alike at every level, so that q is what was really sampled from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

_PENALTY_WINDOW = 256


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature, nucleus and repetition penalty. Temperature 0 is greedy: a law with all mass on the largest logit.

    The penalty looks at the newest 256 tokens from `answer_start` on: the book's own words are not held against the answer.
    Raises ValueError for settings outside temperature >= 0, 0 < top_p <= 1, repetition_penalty >= 1.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    answer_start: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.repetition_penalty < 1:
            raise ValueError(f"temperature >= 0, 0 < top_p <= 1 and repetition_penalty >= 1 are needed, got {self}")

    def probs(self, logits: torch.Tensor, history: Sequence[int], drafted: Sequence[int] = ()) -> torch.Tensor:
        """Laws fp32 [n, vocab] from logits [n, vocab]. Row i follows `history` and the first i of `drafted` (n - 1 or more of them).

        `logits` is not changed. The penalty divides positive and multiplies negative logits of tokens seen before
        (https://arxiv.org/abs/1909.05858 section 4.1), per position, from the tokens before that position only.
        """
        if self.repetition_penalty != 1.0:
            logits = self._penalised(logits, history, drafted)
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, logits.max(-1, keepdim=True).indices, 1.0)
        scaled = logits / self.temperature
        return torch.softmax(scaled, -1) if self.top_p == 1 else self._nucleus(scaled)

    def _penalised(self, logits: torch.Tensor, history: Sequence[int], drafted: Sequence[int]) -> torch.Tensor:
        tail = [*history[max(self.answer_start, len(history) - _PENALTY_WINDOW):], *drafted]
        before = len(tail) - len(drafted)
        penalised = logits.clone()                         # a few hundred entries of it change
        for row in range(logits.shape[0]):
            window = torch.tensor(tail[max(0, before + row - _PENALTY_WINDOW):before + row], dtype=torch.long, device=logits.device)
            seen = logits[row, window]
            penalised[row, window] = torch.where(seen > 0, seen / self.repetition_penalty, seen * self.repetition_penalty)
        return penalised

    def _nucleus(self, scaled: torch.Tensor) -> torch.Tensor:
        """The smallest set of most probable tokens whose mass reaches top_p (https://arxiv.org/abs/1904.09751), renormalised.

        Tokens of at most (1 - top_p) / vocab hold less than 1 - top_p together, so the set lies among the others and only those are sorted.
        """
        probs = torch.softmax(scaled, -1)
        among = (probs > (1 - self.top_p) / probs.shape[-1]).any(0).nonzero().squeeze(-1)      # in any row: one host read
        top, order = probs[:, among].sort(-1, descending=True)
        before = top.cumsum(-1) - top
        kept = torch.where(before < self.top_p, top, torch.zeros_like(top))
        return torch.zeros_like(probs).scatter_(-1, among[order], kept / kept.sum(-1, keepdim=True))
