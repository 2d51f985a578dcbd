"""Logits to the distribution a token is sampled from. Applied alike at every level, so that q is what was
really sampled from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from core.backend.shared.transfer import on_device, to_device
from core.decoding.randomness import ONE, cumulative

_PENALTY_WINDOW = 256
_FAR = 4096  # times less probable than the first: a nucleus seldom reaches so far


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature, nucleus and repetition penalty. Temperature 0 is greedy: a distribution with all mass on
    the largest logit.

    The penalty looks at the newest 256 tokens from `answer_start` on: the book's own words are not held
    against the answer. Raises ValueError for settings outside temperature >= 0, 0 < top_p <= 1,
    repetition_penalty >= 1.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    answer_start: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.repetition_penalty < 1:
            raise ValueError(
                f"temperature >= 0, 0 < top_p <= 1 and repetition_penalty >= 1 are needed, got {self}"
            )

    def probs(
        self, logits: torch.Tensor, history: Sequence[int], drafted: Sequence[int] = ()
    ) -> torch.Tensor:
        """Distributions fp32 [n, vocab] from logits [n, vocab]. Row i follows `history` and the first i of
        `drafted` (n - 1 or more of them).

        `logits` is not changed. The penalty divides positive and multiplies negative logits of tokens seen
        before (https://arxiv.org/abs/1909.05858 section 4.1), per position, from the tokens before that
        position only.
        """
        if self.repetition_penalty != 1.0:
            logits = self._penalised(logits, history, drafted)
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, _largest(logits), 1.0)
        scaled = logits if self.temperature == 1 else logits / self.temperature
        return torch.softmax(scaled, -1) if self.top_p == 1 else self._nucleus(scaled)

    def _penalised(
        self, logits: torch.Tensor, history: Sequence[int], drafted: Sequence[int]
    ) -> torch.Tensor:
        n = logits.shape[0]
        tail = history[max(self.answer_start, len(history) - _PENALTY_WINDOW) :]
        first = 0 if tail else 1  # the first row may have nothing before it
        if first == n:
            return logits
        seen = [*tail, *drafted[: n - 1]]
        width = min(_PENALTY_WINDOW, len(seen))
        # a window that is not full starts at the first token: filling it up with that one changes nothing
        padded = [seen[0]] * (width - len(tail) - first) + seen
        windows = to_device(padded, logits.device).unfold(0, width, 1)  # [n - first, width]
        penalised = logits.clone()  # a few hundred entries of it change
        old = logits[first:].gather(-1, windows)
        penalised[first:].scatter_(
            -1, windows, torch.where(old > 0, old / self.repetition_penalty, old * self.repetition_penalty)
        )
        return penalised

    def _nucleus(self, scaled: torch.Tensor) -> torch.Tensor:
        """The smallest set of most probable tokens whose mass reaches top_p
        (https://arxiv.org/abs/1904.09751), renormalised.
        """
        probs = torch.softmax(scaled, -1)
        if not on_device(probs):
            return self._nucleus_on_host(probs)
        top, order = probs.sort(dim=-1, descending=True, stable=True)
        # the mass before them suffices
        top[:, 1:].masked_fill_(cumulative(top)[:, :-1] >= int(self.top_p * ONE), 0.0)
        return torch.zeros_like(probs).scatter_(-1, order, top / top.sum(-1, keepdim=True))

    def _nucleus_on_host(self, probs: torch.Tensor) -> torch.Tensor:
        """The same row by row, with only some tokens sorted, and by NumPy: at a hundred tokens torch's
        operations take longer to call than to do.
        """
        distributions = torch.zeros_like(probs)
        for row, distribution in zip(probs.numpy(), distributions.numpy(), strict=True):
            kept = self._most_probable(row)
            distribution[kept] = row[kept] / row[kept].sum()
        return distributions

    def _most_probable(self, row: np.ndarray) -> np.ndarray:
        """The tokens of the nucleus of probabilities [vocab], the most probable first.

        If those above some probability have the mass, the nucleus lies among them. Tokens of at most (1 -
        top_p) / vocab hold less than 1 - top_p together, so it always lies among the others.
        """
        for least in (row.max() / _FAR, (1 - self.top_p) / len(row)):
            among = np.flatnonzero(row > least)
            order = among[np.argsort(-row[among], kind="stable")]
            mass = cumulative(torch.from_numpy(row[order])).numpy()
            last = int(np.searchsorted(mass, int(self.top_p * ONE)))
            if last < len(order):
                break
        return order[: last + 1]


def _largest(logits: torch.Tensor) -> torch.Tensor:
    """The first index [n, 1] of each row's largest logit, by way of blocks: torch's own search is four times
    as slow on a CPU.
    """
    n, vocab = logits.shape
    width = math.gcd(vocab, 256)
    blocks = logits.view(n, -1, width)
    block = blocks.amax(-1).argmax(-1, keepdim=True)  # [n, 1]
    inside = blocks.gather(1, block.unsqueeze(-1).expand(-1, -1, width)).squeeze(1).argmax(-1, keepdim=True)
    return block * width + inside
