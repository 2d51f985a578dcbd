"""Passes that verify, recorded over a full cache that lies on the device as a whole. Knows nothing of
decoding.

Of such a cache everything that differs between two passes of one number of rows is data: ids, positions, and
the slots that rows go to, which say how far attention reads. So a recording serves any length. It launches
the kernels that the pass itself launches, over the same rows, and is held to the same bits: which of the two
ran changes nothing that a seed gives, and there is nothing to be timed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch

from core.backend.base import Replay
from core.backend.shared.transfer import to_device
from core.cache.base import TargetKVCache
from core.cache.whole import WholeKVCache
from core.model.llama import LlamaModel
from core.text.words import translated as _

log = logging.getLogger(__name__)

OFTEN = 4  # passes of one number of rows over one cache before it is recorded, which takes as long as six
MOST_BYTES = 32 << 20  # of what recordings keep: logits, and queries for who watches


class RecordedRows:
    """A pass of `n` rows, recorded over the memory of `cache` one place behind its next row and with other
    ids than any: so the first replay tells whether it goes by what is written in memory.
    """

    def __init__(self, model: LlamaModel, cache: WholeKVCache, n: int) -> None:
        self._ids = torch.zeros(n, dtype=torch.long, device=model.backend.device)
        self._rows = cache.fixed(n)
        position, slot = cache.place()
        self._rows.place(position + 1, slot + 1)
        # None: cannot be recorded
        self.replay: Replay | None = model.backend.capture(lambda: model.forward(self._ids, self._rows))

    def logits(self, ids: Sequence[int], cache: WholeKVCache) -> torch.Tensor:
        """Of tokens `ids` [n] behind the cache's last row, whose rows it writes; fp32 [n, vocab]."""
        self._ids.copy_(to_device(ids, self._ids.device))
        self._rows.place(*cache.place())
        return self.replay().clone()  # the next replay writes where this one did

    def forward(self, ids: Sequence[int], cache: WholeKVCache) -> torch.Tensor:
        """See LlamaModel.forward. Who watches is shown every layer, as if it were computed now."""
        logits = self.logits(ids, cache)
        if cache.witness is not None:
            for layer, q in self._rows.queries.items():
                cache.witness(layer, q, cache.length)
        cache.advance(len(ids))
        return logits


@dataclass(slots=True)
class _Met:
    """How often passes of one number of rows were asked for over one cache, and what replays them."""

    times: int = 0
    recorded: RecordedRows | None = None


class RecordedVerification:
    """`model`, with passes replayed that come often over a full cache of one block on the device; all others
    are computed as ever, and so are those of more than `most_rows` rows and those that a selection observes.

    A cache's recordings go with it. Before one is used it must give the bits of the pass that is due, at
    another place and with other ids than it was recorded with. Where one cannot be made, or does not, none is
    any more: `reason` then says why.
    """

    def __init__(self, model: LlamaModel, *, most_rows: int, most_bytes: int = MOST_BYTES) -> None:
        self._model, self._most_rows, self._most_bytes = model, most_rows, most_bytes
        self._caches: WeakKeyDictionary[WholeKVCache, dict[int, _Met]] = WeakKeyDictionary()
        self.reason = ""

    def rows(self, cache: WholeKVCache) -> tuple[int, ...]:
        """The numbers of rows whose passes over this cache are replayed."""
        return tuple(n for n, met in self._caches.get(cache, {}).items() if met.recorded is not None)

    def refusal(self, cache: TargetKVCache) -> str:
        """Why passes over such a cache are not replayed, "" where they may be."""
        if self.reason:
            return self.reason
        if not cache.of_one_block:
            return _("its rows do not lie in one piece of the card's memory")
        config = self._model.config
        sizes = config.heads, config.kv_heads, config.head_dim
        return self._model.backend.long_unrecorded(*sizes, rows=cache.dtype)

    def forward(self, ids: Sequence[int], cache: TargetKVCache) -> torch.Tensor:
        """See LlamaModel.forward."""
        n = len(ids)
        if n > self._most_rows or self.refusal(cache) or cache.observer is not None:
            return self._model.forward(ids, cache)
        met = self._caches.setdefault(cache, {}).setdefault(n, _Met())
        if met.recorded is not None:
            return met.recorded.forward(ids, cache)
        met.times += 1
        if met.times < OFTEN or not self._has_room(n, cache):
            return self._model.forward(ids, cache)
        return self._tried(ids, cache, met)

    def _has_room(self, n: int, cache: WholeKVCache) -> bool:
        """Whether a recording of so many rows may be kept, and the cache holds the rows that it is made
        over.
        """
        kept = sum(rows for one in self._caches for rows in self.rows(one))
        return (kept + n) * self._row_bytes <= self._most_bytes and cache.length + 1 + n <= cache.capacity

    @property
    def _row_bytes(self) -> int:
        """That a recording keeps for each row: logits, and every layer's queries and keys."""
        config = self._model.config
        heads = (config.heads + config.kv_heads) * config.head_dim * self._model.backend.dtype.itemsize
        return torch.float32.itemsize * config.vocab + config.layers * heads

    def _tried(self, ids: Sequence[int], cache: WholeKVCache, met: _Met) -> torch.Tensor:
        """The pass as ever, beside a recording of it, which is kept if both say the same."""
        recorded = RecordedRows(self._model, cache, len(ids))
        if recorded.replay is None:
            self._stop(_("the card could not record one"))
            return self._model.forward(ids, cache)
        replayed = recorded.logits(ids, cache)  # first: it must write its own rows
        logits = self._model.forward(ids, cache)
        if torch.equal(replayed, logits):
            met.recorded = recorded
        else:
            self._stop(_("a recorded one of {rows} rows gave other numbers").format(rows=len(ids)))
        return logits

    def _stop(self, reason: str) -> None:
        log.warning("passes that verify are launched operation by operation: %s", reason)
        self.reason = reason
        self._caches.clear()
