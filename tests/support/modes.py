"""The modes that grids of tests walk through."""

from __future__ import annotations

from core.config import MODES

# Where no row lies in host memory `cpu_attention` is `autoregressive` to the letter: grids leave it out, and
# tests/test_offloaded_engine.py walks through all modes where it differs.
GRID_MODES = tuple(mode for mode in MODES if mode != "cpu_attention")
