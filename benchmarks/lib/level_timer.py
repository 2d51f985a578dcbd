"""How long the passes of each level take while an answer is written: the draft's, the middle level's, and
those over the full cache.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch

from core.assembly.composition import Composer
from core.cache.base import KVCache
from core.decoding.context import Context
from core.decoding.decoder import Decoder
from core.decoding.drafters import Drafter, DraftingModel, VerifiedDrafter
from core.hardware.measured import Measurements
from core.model.llama import LlamaModel
from core.planning.plan import Plan
from core.request import Params

LEVELS = ("draft", "middle", "full")


class PassRecorder:
    """Rows and seconds of every pass by its level. `trained_draft`: level 0 of the next answer has the draft
    model.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.trained_draft = clock, False
        self.passes: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def within(self, level: str) -> AbstractContextManager:
        """What a pass runs inside of; nothing here."""
        return nullcontext()

    def summary(self) -> dict[str, dict[str, Any]]:
        """By level: passes, the median of their rows, and of their milliseconds."""
        return {
            level: {
                "passes": len(found),
                "rows": median(rows for rows, _ in found),
                "ms": 1e3 * median(s for _, s in found),
            }
            for level in LEVELS
            if (found := self.passes.get(level))
        }


class TimedModel:
    """A model, or recorded passes of one, that tells `recorder` of each pass."""

    def __init__(self, model: DraftingModel, recorder: PassRecorder, level: str) -> None:
        self._model, self._recorder, self._level = model, recorder, level

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """See DraftingModel. Returns when the device is done with it."""
        started = self._recorder.clock()
        with self._recorder.within(self._level):
            logits = self._model.forward(ids, cache)
            logits[-1, 0].item()  # reading a number waits for the device
        self._recorder.passes[self._level].append((len(ids), self._recorder.clock() - started))
        return logits


class MeasuredComposer(Composer):
    """The product's compositions, whose passes `recorder` times. The trained draft is there in the answers
    that the recorder says.
    """

    def __init__(
        self, recorder: PassRecorder, plain: Plan, plan: Plan, model: LlamaModel, draft: LlamaModel | None
    ) -> None:
        """`plain`: the plan without a draft model; `plan`: the one with it, where there is one."""
        super().__init__(plan, model, draft, clock=recorder.clock)
        self._recorder, self._plain, self._drafted_plan = recorder, plain, plan
        self._timed_draft = draft and TimedModel(draft, recorder, "draft")

    def prepare(self, measured: Measurements | None = None) -> tuple[str, ...]:
        """See Composer. What is recorded are passes without a stopwatch."""
        notes = super().prepare(measured)
        self._draft_passes = self._draft_passes and TimedModel(self._draft_passes, self._recorder, "draft")
        return notes

    def compose(self, params: Params, context: Context, answer_start: int) -> Decoder:
        """See Composer."""
        self._recorder.passes.clear()
        with_draft = self._recorder.trained_draft
        self._plan, self._draft = (
            (self._drafted_plan, self._timed_draft) if with_draft else (self._plain, None)
        )
        self._middle_store = None  # the plans differ in its size
        decoder = super().compose(params, context, answer_start)
        decoder.model = TimedModel(decoder.model, self._recorder, "full")
        return decoder

    def _middle(self, below: Drafter, model: DraftingModel, *rest: Any) -> VerifiedDrafter:
        return super()._middle(below, TimedModel(model, self._recorder, "middle"), *rest)
