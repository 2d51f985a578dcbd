"""Everything a training run is made of, in one value: the same recipe and the same texts give the same draft.
No torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from core.errors import UserError
from core.text.words import translated as _


@dataclass(frozen=True, slots=True)
class Recipe:
    """The draft's `layers` start as the target's first ones. Lengths in tokens. Raises UserError for values
    out of range.
    """

    MAY_CHANGE: ClassVar[tuple[str, ...]] = ("tokens", "epochs")

    target: str
    layers: int = 1
    tokens: int = 400_000  # of text with the target's distributions, read or written by it
    epochs: int = 3
    head_tokens: int = 16_384
    sinks: int = 16
    window: int = 256
    prompt_tokens: int = 768
    new_tokens: int = 256
    shard_rows: int = 16
    batch_rows: int = 2
    learning_rate: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        whole = self.head_tokens >= 64 and self.head_tokens % 64 == 0
        checks = (
            (1 <= self.layers <= 4, _("layers is {layers}; one to four are useful.")),
            (whole, _("head_tokens is {head_tokens}; it must be a multiple of 64.")),
            (
                self.tokens >= self.shard_tokens,
                _("tokens is {tokens}; it must be at least {shard_tokens}, one shard."),
            ),
            (self.epochs >= 0, _("epochs is {epochs}; it must be 0 or more.")),
        )
        for fine, said in checks:
            if not fine:
                raise UserError(said.format(**asdict(self), shard_tokens=f"{self.shard_tokens:,}"))

    @property
    def shard_tokens(self) -> int:
        """Tokens of one shard."""
        return self.shard_rows * (self.prompt_tokens + self.new_tokens)

    @property
    def shards(self) -> range:
        """Numbers of the shards to train on; shard 0 is for judging."""
        return range(1, 1 + self.tokens // self.shard_tokens)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of one pass over the shards."""
        return -(-len(self.shards) * self.shard_rows // self.batch_rows)

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return self.epochs * self.steps_per_epoch
