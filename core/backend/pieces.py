"""How much backends copy at a time, and how long a row of codes is. The planner counts these bytes, without
torch.
"""

PIECE_TOKENS = 8192  # keys and values, in prefill
PIECE_NUMBERS = 1 << 24  # of a matrix of weights that is turned into float32

_WHOLE = 16  # bytes that a row of codes ends at a multiple of
_FACTOR = 4


def coded_row_bytes(head_dim: int) -> int:
    """Bytes of a row of `head_dim` 8-bit codes and their factor (core.backend.kv_rows)."""
    return -(-(head_dim + _FACTOR) // _WHOLE) * _WHOLE
