"""How long linear layers and attention take within passes: a backend with a stopwatch around both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from core.assembly.engines import build_engine
from core.assembly.models import new_backend
from core.backend.base import Backend, Linear
from core.backend.shared.quantized import QuantizedMatrix
from core.config import Settings
from core.engine import Engine
from core.planning.plan import Plan

PARTS = ("linear", "attention")


class Parts:
    """`backend`, with the seconds that its linear layers and its attention took since `reset`. On a GPU each
    part is waited for.
    """

    def __init__(self, backend: Backend, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._backend, self._clock = backend, clock
        self.reset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def reset(self) -> None:
        """Sets the stopwatches to zero."""
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        return _TimedLinear(self._backend.linear(weight, bias), self)

    def coded(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        return _TimedLinear(self._backend.coded(parts, bias), self)

    def attend(self, *tensors: torch.Tensor, **how: Any) -> torch.Tensor:
        """See Backend."""
        return self.timed("attention", lambda: self._backend.attend(*tensors, **how))

    def attend_part(self, *tensors: torch.Tensor, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        return self.timed("attention", lambda: self._backend.attend_part(*tensors, **how))

    def attend_more(self, *given: Any, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        return self.timed("attention", lambda: self._backend.attend_more(*given, **how))

    def timed(self, part: str, action: Callable[[], Any]) -> Any:
        """Does it by the clock of `part`."""
        self._wait()
        started = self._clock()
        found = action()
        self._wait()
        self.seconds[part] += self._clock() - started
        return found

    def _wait(self) -> None:
        if self._backend.device.type != "cpu":
            # reading a number waits for all that was asked for before it
            torch.zeros(1, device=self._backend.device).item()


def timed_engine(
    plan: Plan, settings: Settings, folder: Path, *, snapshots: Path | None = None
) -> tuple[Engine, Parts]:
    """The engine of a plan with a stopwatch. No pass is recorded and replayed: the stopwatch waits, which a
    recording cannot.
    """
    parts = Parts(new_backend(plan, settings))
    return build_engine(
        replace(plan, cuda_graphs="off"), settings, folder, backend=parts, snapshots=snapshots
    ), parts


class _TimedLinear:
    """A prepared matrix by the clock."""

    def __init__(self, inner: Linear, parts: Parts) -> None:
        self._inner, self._parts = inner, parts

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._parts.timed("linear", lambda: self._inner(x))
