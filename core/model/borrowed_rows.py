"""What a model without keys and values of its own is given for a cache: rows that another model holds."""

from __future__ import annotations

import torch

from core.backend.base import ScoreRequest
from core.cache.base import InPlaceRows, KVCache


class BorrowedRows:
    """One query at a time, at the place behind all rows of `source`, sees these, or of a layer with a window
    the last of them. Nothing is stored, and the source is as it was. See KVCache.
    """

    rotates_on_read = False

    def __init__(self, source: KVCache) -> None:
        self._source = source

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache: [n], which is one."""
        assert n == 1, n
        return self._source.positions(n)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [1, heads, head_dim]."""
        return self._source.attend_again(layer, q, offset=offset - 1)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def advance(self, n: int) -> None:
        """See KVCache. Nothing was stored."""
