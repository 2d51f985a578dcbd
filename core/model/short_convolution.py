"""A gated short convolution: each channel of a token mixed with the same channel of the few before it. What
came before is all that it keeps: its state has no numbers of its own. Knows no cache.

Source: transformers, models/lfm2/modeling_lfm2.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.model.mixer_sizes import ConvolutionSizes


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """See Recurrence. A row is the product of two thirds of what the projection makes of a token; the third
    multiplies what is found.
    """

    sizes: ConvolutionSizes
    convolution: torch.Tensor  # fp32 [kernel, channels]
    norm = None  # of what is found
    step_rows = 1  # tokens know nothing of each other: any number at once has the bits of one by one

    @staticmethod
    def rows(projected: torch.Tensor) -> torch.Tensor:
        """[n, channels] of what the projection gives, [n, 2 * channels]."""
        first, second = projected.chunk(2, dim=-1)
        return first * second

    @staticmethod
    def opened(gate: torch.Tensor) -> torch.Tensor:
        """What the gate's numbers [n, channels] multiply by, likewise."""
        return gate

    def one_by_one(self, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See Recurrence: [tokens, channels]."""
        n, rows = rows.shape[0] - self.sizes.kernel + 1, rows.float()
        return convolved(rows, self.convolution, n)

    def steps(self, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See Recurrence."""
        return self.one_by_one(state, state, rows)


def convolved(rows: torch.Tensor, convolution: torch.Tensor, n: int) -> torch.Tensor:
    """Each of the last n rows [kernel - 1 + n, channels] and those before it, weighed by a convolution
    [kernel, channels], tap by tap: [n, channels].
    """
    found = rows[:n] * convolution[0]
    for tap in range(1, len(convolution)):
        found = found + rows[tap : tap + n] * convolution[tap]
    return found
