"""Plans of the catalogue's models, each made once in a process: a list of models asks for the same ones in
test after test, and a plan follows from machine, settings and sizes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.errors import PlanError
from core.hardware.facts import Hardware
from core.model.shapes import ModelShape
from core.planning.plan import Plan
from core.planning.planner import make_plan

_made: dict[tuple, Plan | PlanError] = {}


def planned_once(
    hardware: Hardware, *given: Any, alternatives: Sequence[ModelShape] = (), **named: Any
) -> Plan:
    """core.planning.planner.make_plan, remembered."""
    key = (hardware, given, tuple(alternatives), tuple(sorted(named.items(), key=lambda one: one[0])))
    if key not in _made:
        try:
            _made[key] = make_plan(hardware, *given, alternatives=alternatives, **named)
        except PlanError as error:
            _made[key] = error
    if isinstance(_made[key], PlanError):
        raise PlanError(str(_made[key]))
    return _made[key]
