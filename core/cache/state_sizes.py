"""How much of layers with a state is kept, for who keeps it and who plans its memory. No torch."""

ROWS_WAITING = 64  # tokens behind a state that may wait until they are final; where more do, room is made
RECENT_STATES = 4  # copies of states kept where segments of a prefill began and ended, the newest
