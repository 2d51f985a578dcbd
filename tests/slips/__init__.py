"""Slips for tests/mutation.py: one plausible mistake each, in a place whose tests must notice it, by rooms: a
module each. Add yours with the code that you add; `text` stands once in its file.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.slips.slip import Slip

__all__ = ["SLIPS", "Slip"]
_ROOMS = (import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__) if one.name != "slip")
SLIPS: tuple[Slip, ...] = tuple(slip for room in _ROOMS for slip in room.SLIPS)
