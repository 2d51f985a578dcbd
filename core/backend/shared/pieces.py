"""How much backends copy at a time. The planner counts these bytes, without torch."""

PIECE_TOKENS = 8192  # keys and values, in prefill
PIECE_NUMBERS = 1 << 24  # of a matrix of weights that is turned into float32
