"""How long it takes to look up what tokens bring to each layer, in host memory. Pure arithmetic."""

from __future__ import annotations

from core.model.shapes import DTYPE_BYTES, ModelShape

# a call, and a number of a row in codes of 6 bits: few rows, which stay in a core's cache on the way, and
# many (one core with AVX2, docs/LOG.md)
_CALL_S, _NUMBER_S, _NUMBER_OF_MANY_S = 0.00006, 1.5e-9, 7e-9
_FEW = 64  # rows


def looked_up_s(shape: ModelShape, dtype: str, rows: int, *, bus: float) -> float:
    """Seconds for `rows` tokens; `bus`: bytes/s from host memory to the device."""
    if not shape.input_width:
        return 0.0
    numbers = rows * shape.layers * shape.input_width
    each = _NUMBER_S if rows <= _FEW else _NUMBER_OF_MANY_S
    return _CALL_S + numbers * (each + DTYPE_BYTES[dtype] / bus)
