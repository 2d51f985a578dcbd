"""How long the passes of each level take while an answer is written: the draft's, the middle level's, and those over the full cache."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch

from core.assemble import Composer
from core.cache.base import KVCache, TargetKVCache
from core.decoding.decoder import Decoder
from core.engine import Params
from core.hardware.plan import Plan
from core.model.llama import LlamaModel

LEVELS = ("draft", "middle", "full")


class Recorder:
    """Rows and seconds of every pass by its level. `trained_draft`: level 0 of the next answer has the draft model."""

    def __init__(self) -> None:
        self.trained_draft = False
        self.full: TargetKVCache | None = None
        self.passes: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def begin(self, cache: TargetKVCache) -> None:
        """A new answer over `cache`."""
        self.full = cache
        self.passes.clear()

    def level(self, cache: KVCache) -> str:
        """Which level a pass of the target over `cache` belongs to."""
        return "full" if cache is self.full else "middle"

    def within(self, level: str) -> AbstractContextManager:
        """What a pass runs inside of; nothing here."""
        return nullcontext()

    def summary(self) -> dict[str, dict[str, Any]]:
        """By level: passes, the median of their rows, and of their milliseconds."""
        return {level: {"passes": len(found), "rows": median(rows for rows, _ in found), "ms": 1e3 * median(s for _, s in found)}
                for level in LEVELS if (found := self.passes.get(level))}


class Timed:
    """A model that tells `recorder` of its passes. `level` None: the cache decides."""

    def __init__(self, model: LlamaModel, recorder: Recorder, level: str | None = None) -> None:
        self._model, self._recorder, self._level = model, recorder, level
        self.config, self.backend, self.rope = model.config, model.backend, model.rope

    def forward(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """See LlamaModel. Returns when the device is done with it."""
        level = self._level or self._recorder.level(cache)
        started = time.perf_counter()
        with self._recorder.within(level):
            logits = self._model.forward(ids, cache)
            logits[-1, 0].item()               # reading a number waits for the device
        self._recorder.passes[level].append((len(ids), time.perf_counter() - started))
        return logits


class Measured(Composer):
    """The product's compositions, whose passes `recorder` times. The trained draft is there in the answers that the recorder says."""

    def __init__(self, recorder: Recorder, plain: Plan, plan: Plan, model: LlamaModel, draft: LlamaModel | None) -> None:
        """`plain`: the plan without a draft model; `plan`: the one with it, where there is one."""
        super().__init__(plan, Timed(model, recorder), Timed(draft, recorder, "draft") if draft else None)
        self._recorder, self._without, self._with = recorder, (plain, None), (plan, self._draft)

    def compose(self, params: Params, cache: TargetKVCache, answer_start: int) -> Decoder:
        """See Composer."""
        self._recorder.begin(cache)
        self._plan, self._draft = self._with if self._recorder.trained_draft else self._without
        return super().compose(params, cache, answer_start)
