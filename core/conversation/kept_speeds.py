"""How fast a model reads and writes on this machine, kept between processes: what is promised first behind a
restart goes by it. Knows nothing of what the figures are for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from core.hardware.measured import Measurements
from core.planning.plan import Plan

SPEEDS = "reading and writing"  # {"of": {a model and how it runs: TimeEstimate.measured}}
_MOST = 30
_MOVED = 0.1


class KeptSpeeds:
    """Those of one model as it runs by a plan. Of others the last `_MOST` are kept beside it."""

    def __init__(self, measured: Measurements, model: str, plan: Plan) -> None:
        self._measured = measured
        runs = (plan.device, *plan.devices, plan.computes, plan.weights_kernel, plan.weights_format)
        how = (*runs, plan.threads, plan.weights_bits, plan.kv_bits)
        self._name = " ".join(map(str, (model, *how)))
        self.known = self._read().get(self._name, {})

    def keep(self, speeds: Mapping[str, float]) -> None:
        """Writes down what is measured by now, where one figure is new or has moved by a tenth."""
        if all(abs(one - self.known.get(name, 0.0)) <= _MOVED * one for name, one in speeds.items()):
            return
        self.known = rounded = {name: float(f"{value:.4g}") for name, value in speeds.items()}
        others = {name: found for name, found in self._read().items() if name != self._name}
        kept = dict(list(others.items())[1 - _MOST :])
        self._measured.put(SPEEDS, {"of": {**kept, self._name: rounded}})

    def _read(self) -> dict[str, dict[str, float]]:
        """What is kept; what cannot be a speed is not."""
        kept = (self._measured.get(SPEEDS) or {}).get("of")
        found = kept.items() if isinstance(kept, dict) else ()
        return {name: _good(speeds) for name, speeds in found if isinstance(speeds, dict)}


def _good(speeds: Mapping[str, object]) -> dict[str, float]:
    return {name: one for name, one in speeds.items() if isinstance(one, float) and 0 < one < math.inf}
