"""Where the time of a round goes: a stopwatch around the kernels of a pass, also where layers go in one call,
and around what lies between the passes.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from benchmarks.lib.level_timer import PassRecorder
from core.decoding import decoder, drafters
from core.decoding.decoder import Decoder
from core.decoding.drafters import NgramDrafter
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel

REST = "Python and the rest"
SAMPLING, LOOKUP, SELECTION = "sampling, verification", "lookup", "selecting anew"
BETWEEN = "between kernels"
DRAFT = "draft model"
# level -> its products, its attention
KERNELS = {
    "full": ("products", "attention, full cache"),
    "middle": ("middle products", "attention, retrieval cache"),
    "draft": (DRAFT, DRAFT),
}
PARTS = (*KERNELS["full"], *KERNELS["middle"], DRAFT, LOOKUP, SAMPLING, SELECTION, BETWEEN, REST)
_BETWEEN_ROUNDS = (
    (decoder, "verify", SAMPLING),
    (drafters, "verify", SAMPLING),
    (drafters, "sample_token", SAMPLING),
    (Sampling, "probs", SAMPLING),
    (NgramDrafter, "propose", LOOKUP),
    (RetrievalRefresh, "before_round", SELECTION),
    (RetrievalRefresh, "after_round", SELECTION),
)
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Stopwatch:
    """Seconds of nested parts, each without those inside it: so they add up to the whole."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._clock, self._open, self._since = clock, [], 0.0

    def enter(self, part: str) -> None:
        """From now on time is this part's."""
        now = self._clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._open.append(part)
        self._since = now

    def leave(self) -> None:
        """From now on it is again that of the part around it."""
        now = self._clock()
        self.seconds[self._open.pop()] += now - self._since
        self._since = now

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as a part."""

        def timed(*given: Any, **more: Any) -> Any:
            self.enter(part)
            try:
                return function(*given, **more)
            finally:
                self.leave()

        return timed


class RoundRecorder(PassRecorder):
    """Times rounds by part while `watching`; at other times nothing is in their way."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        self.watch = Stopwatch(clock)
        self._level: str | None = None

    def within(self, level: str) -> AbstractContextManager:
        """See PassRecorder."""
        return nullcontext() if self._level is None else self._pass(level)

    @contextmanager
    def _pass(self, level: str) -> Iterator[None]:
        self._level = level
        self.watch.enter(DRAFT if level == "draft" else BETWEEN)
        try:
            yield
        finally:
            self.watch.leave()

    @contextmanager
    def watching(self, *models: LlamaModel) -> Iterator[Stopwatch]:
        """Answers in here are timed; `models` are those whose kernels are."""
        self.watch, self._level = Stopwatch(self.clock), "full"
        with ExitStack() as held:
            held.callback(setattr, self, "_level", None)
            for owner, name, part in (*_BETWEEN_ROUNDS, (Decoder, "round", REST)):
                timed = self.watch.around(part, getattr(owner, name))
                held.enter_context(mock.patch.object(owner, name, timed))
            for model in models:
                head = mock.patch.object(model, "_head", self._kernel(0, model.head))
                held.enter_context(head)
                held.enter_context(self._inside(model))
            yield self.watch

    @contextmanager
    def _inside(self, model: LlamaModel) -> Iterator[None]:
        """The kernels that its layers call where all of them are one call."""
        call = model._in_one._call if model._in_one is not None else None
        if call is None:
            raise SystemExit(
                "This CPU takes layers one by one; there is nothing inside one call to be timed."
            )
        own = call.multiply, call.attend
        timed = [_KERNEL(self._kernel(index, _KERNEL(entry))) for index, entry in enumerate(own)]
        call.multiply, call.attend = (ctypes.cast(one, ctypes.c_void_p).value for one in timed)
        try:
            yield
        finally:
            call.multiply, call.attend = own

    def _kernel(self, index: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the part that it is in a pass of the level at work."""

        def timed(*given: Any) -> Any:
            self.watch.enter(KERNELS[self._level][index])
            found = function(*given)
            self.watch.leave()
            return found

        return timed
