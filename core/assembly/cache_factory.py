"""The target model's caches on a device with so much room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from core import paths
from core.backend.ranks import SINGLE, Ranks
from core.cache.base import TargetKVCache
from core.cache.full import FullKVCache
from core.cache.layered import LayeredKVCache, with_side
from core.cache.offloaded import OffloadedKVCache, host_pieces
from core.cache.segment import SegmentSizes
from core.config import Settings
from core.hardware.measured import PAGE_LOCKED, Measurements
from core.model.llama import LlamaModel
from core.planning.budget import (
    CONTEXT,
    DRAFT_MODEL,
    KEPT_FREE,
    KV_BEFORE,
    KV_DECODED,
    PROGRAM,
    WEIGHTS,
    WORK_DECODE,
    WORK_PREFILL,
)
from core.planning.layout import (
    OVERRUN,
    WINDOW_ROOM,
    held_tokens,
    multiple,
    spare_rows,
    sweep_step,
    swept_tokens,
)
from core.planning.plan import Plan
from core.text.words import GB
from core.text.words import translated as _

log = logging.getLogger(__name__)

Replan = Callable[[int], Plan]
_LOADED = (WEIGHTS, DRAFT_MODEL)  # budget lines of what is there after loading,
_NOT_OURS = (CONTEXT, PROGRAM, KEPT_FREE, KV_BEFORE)  # and of what no cache of a book may take
_WORK = (WORK_PREFILL, WORK_DECODE, KV_DECODED)
# measured: smaller blocks cost more to join, larger ones leave more of the last one empty
_CPU_BLOCK_TOKENS = 512


class CacheFactory:
    """Makes the target model's caches, and plans anew when the device has less room than planned. Of several
    ranks, which have planned alike, each makes the cache of its heads, or none does.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        model: LlamaModel,
        replan: Replan | None = None,
        ranks: Ranks = SINGLE,
    ) -> None:
        self._ranks = ranks
        self.plan = plan
        self._given_layers = settings.on_chip_layers is not None
        self._model, self._backend = model, model.backend
        self._replan = replan

    def new_cache(self, capacity: int) -> TargetKVCache:
        """An empty cache for `capacity` tokens and a draft behind them, and room on the device for what will
        be computed with it. Raises the backend's `out_of_memory`.
        """
        return self._ranks.all_or_none(lambda: self._ready(self._new_cache(capacity, self.plan)))

    def cache_beside(self, capacity: int) -> TargetKVCache:
        """As `new_cache`, beside a book's: on the device what has its line in the budget, nothing of a longer
        one. Raises the backend's `out_of_memory`, UserError where host memory does not hold it.
        """
        apart, layers = self.plan, self.plan.layers
        if capacity > self.plan.beside_tokens:
            layers = 0
            if apart.staging_blocks == 0 and self._replan is not None and not self._whole:
                apart = self._replan(0)
        return self._ranks.all_or_none(lambda: self._ready(self._new_cache(capacity, apart, layers)))

    @property
    def _whole(self) -> bool:
        """Whether a cache is on the device or nowhere: several layers read what one holds."""
        return self._model.config.storing < self._model.config.layers

    def _ready(self, cache: TargetKVCache) -> TargetKVCache:
        self._backend.reserve(sum(line.bytes for line in self.plan.budget if line.name in _WORK))
        # the next plan counts on no more
        if (limit := self._backend.page_locked_limit) is not None:
            Measurements(paths.data_dir()).put(PAGE_LOCKED, {"bytes": limit})
        return cache

    def host_memory(self, capacity: int) -> Iterator[tuple[int, int]]:
        """Makes ready what `new_cache` will take of host memory, piece by piece: bytes that are ready, of how
        many. Raises MemoryError.
        """
        sizes = self._away(capacity, self.plan)
        if sizes is None:
            return
        pieces = host_pieces(self._model.config.kv_shape.of_full, capacity + OVERRUN, **sizes)
        for done in self._backend.make_ready(pieces):
            yield done, sum(pieces)

    def _new_cache(self, capacity: int, plan: Plan, layers: int | None = None) -> TargetKVCache:
        """`layers` stay on the device; None: as many as have room in the plan's."""
        shape, tokens = self._model.config.kv_shape, capacity + OVERRUN
        sizes = self._away(capacity, plan, layers)
        if sizes is None:
            block_tokens = multiple(
                _CPU_BLOCK_TOKENS if plan.device == "cpu" else tokens, plan.retrieval_chunk
            )
            how = {"block_tokens": block_tokens, "dtype": kv_type(plan)}
            return with_side(
                shape, FullKVCache(shape.of_full, tokens, self._backend, **how), room=WINDOW_ROOM
            )
        how = {"staging_blocks": plan.staging_blocks, "swept": self._swept(tokens, plan)}
        return with_side(
            shape, OffloadedKVCache(shape.of_full, tokens, self._backend, **sizes, **how), room=WINDOW_ROOM
        )

    def _away(self, capacity: int, plan: Plan, layers: int | None = None) -> dict[str, Any] | None:
        """What decides how much of a cache lies in host memory; None where nothing does."""
        if layers is None:
            layers = self._layers_that_fit(capacity + OVERRUN)
        if plan.staging_blocks == 0 or layers == plan.layers:
            return None
        held, block_tokens = held_tokens(capacity, plan.staging_block_tokens, plan.retrieval_chunk)
        by_blocks = plan.residency == "blocks"
        return {
            "block_tokens": block_tokens,
            "resident_layers": plan.layers if by_blocks else layers,
            "resident_blocks": held // block_tokens * layers // plan.layers if by_blocks else None,
            "fresh_tokens": slack(plan),
            "dtype": kv_type(plan),
        }

    def _swept(self, tokens: int, plan: Plan) -> SegmentSizes | None:
        """How a prefill of a cache for so many tokens is swept; None where it is not, or where two whole
        layers take no more.
        """
        if not plan.swept_prefill:
            return None
        held, size = held_tokens(tokens - OVERRUN, plan.staging_block_tokens, plan.retrieval_chunk)
        segment = min(plan.prefill_segment_tokens, held)
        if swept_tokens(segment, size, plan.staging_blocks, plan.retrieval_chunk) >= 2 * held:
            return None
        return SegmentSizes(segment, self._model.config.heads, sweep_step(plan.retrieval_chunk))

    def _layers_that_fit(self, tokens: int) -> int:
        """The plan's on-chip layers are for its whole context: of a shorter one the same room holds more,
        unless the user gave a number.
        """
        if self._given_layers:
            return self.plan.on_chip_layers
        return min(
            self.plan.layers, self.plan.on_chip_layers * max(tokens, self.plan.context_tokens) // tokens
        )

    def give_way(self) -> Plan | None:
        """Plans with a quarter fewer on-chip layers, at least one. Returns the plan, whose last note says so;
        None without any left.
        """
        layers = self.plan.on_chip_layers
        if layers == 0 or self._replan is None or self._whole:
            return None
        found = self._replan(layers - max(1, layers // 4))
        note = _(
            "The GPU had less free memory than planned: the KV cache of {layers} layers stays there now."
        ).format(layers=found.on_chip_layers)
        self.plan = replace(found, notes=(*found.notes, note))
        log.warning(note)
        return self.plan

    def shrink(self, cache: TargetKVCache) -> bool:
        """Takes as many layers of this cache off the device as the plan that gave way says, and keeps what
        was read. False: that is not possible. Raises the backend's `out_of_memory`.
        """
        if isinstance(cache, LayeredKVCache):
            cache = cache.full
        if not isinstance(cache, OffloadedKVCache) or cache.layers_on_device is None:
            return False
        layers = min(cache.layers_on_device, self._layers_that_fit(cache.capacity))
        swept = self._swept(cache.capacity, self.plan)
        self._ranks.all_or_none(lambda: cache.keep_on_device(layers, swept=swept))
        return True

    def compare(self) -> None:
        """Logs what the weights take against what was planned, and gives way before anything breaks when the
        rest will not fit.
        """
        place = "VRAM" if self.plan.device == "cuda" else "RAM"
        while True:
            memory, lines = self._backend.memory(), [line for line in self.plan.budget if line.place == place]
            loaded = sum(line.bytes for line in lines if line.name in _LOADED)
            wanted = sum(line.bytes for line in lines if line.name not in (*_LOADED, *_NOT_OURS))
            log.info(
                "%s: %.2f GB planned for what is loaded, %.2f in use; %.2f GB to come, %.2f free",
                place,
                loaded / GB,
                memory.used_bytes / GB,
                wanted / GB,
                memory.free_bytes / GB,
            )
            if place == "RAM" or not self._ranks.any(wanted > memory.free_bytes) or self.give_way() is None:
                return


def kv_type(plan: Plan) -> torch.dtype:
    """Of the rows of the full KV cache."""
    return getattr(torch, plan.kv_rows)


def slack(plan: Plan) -> int:
    """Rows that speculation may take on top of a cache."""
    return spare_rows(plan.gamma, plan.middle_gamma)
