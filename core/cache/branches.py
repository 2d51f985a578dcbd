"""Rows of one batch: several continuations of what one cache holds, read once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.backend.base import Backend, ScoreRequest
from core.backend.shared.merge import merge
from core.cache.base import InPlaceRows, TargetKVCache


class Branches:
    """Continuations of `trunk`, one token of each to a pass, in which this stands for the cache. `steps`: the
    most tokens of one. The trunk is read and never changed.

    A row sees the trunk and what went before it in its own continuation. What it is computed from does not
    depend on how many others there are, so it has the bits that it has alone.
    """

    rotates_on_read = False
    ready = True

    def __init__(self, trunk: TargetKVCache, backend: Backend, count: int, steps: int) -> None:
        place = trunk.in_place()
        assert place is not None, "only what lies wholly on the device is gone on with in several ways"
        self._store, self._start, self._backend = place.store, place.start, backend
        shape = place.store.shape
        size = (shape.layers, count, steps, shape.kv_heads, shape.head_dim)
        self._k, self._v = (torch.zeros(size, device=backend.device) for _ in range(2))
        self.length = self._start

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these of the continuations, in this order."""
        self._k, self._v = (part[:, list(rows)] for part in (self._k, self._v))

    def positions(self, n: int) -> torch.Tensor:
        """Rotary positions [n]: the rows stand beside each other."""
        return torch.full((n,), self.length, device=self._backend.device)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache; row i of q [n, heads, head_dim] and of k, v [n, kv_heads, head_dim] is continuation
        i's.
        """
        step = self.length - self._start
        self._k[layer, :, step], self._v[layer, :, step] = k.float(), v.float()
        return self.attend_again(layer, q)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        step = self.length - self._start
        keys, values = self._store.filled(layer, self._start)
        out, lse = self._backend.attend_part(q, keys, values, length=self._start, causal=False)
        own = _own(q.float(), self._k[layer, :, : step + 1], self._v[layer, :, : step + 1])
        return merge(out, lse, *own)[0].to(q.dtype)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache. The rows do not follow one another."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def advance(self, n: int) -> None:
        """See KVCache: every continuation has one token more."""
        self.length += 1


def _own(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [n, heads, head_dim] over k, v [n, steps, kv_heads, head_dim] of the same row, with its
    log-sum-exp [n, heads]; sums of products, as a matrix library adds in an order that depends on n.
    """
    group = q.shape[1] // k.shape[2]
    k, v = (part.repeat_interleave(group, dim=2) for part in (k, v))  # [n, steps, heads, head_dim]
    scores = (q[:, None] * k).sum(-1) * q.shape[-1] ** -0.5  # [n, steps, heads]
    lse = scores.logsumexp(1)
    return ((scores - lse[:, None]).exp()[..., None] * v).sum(1), lse
