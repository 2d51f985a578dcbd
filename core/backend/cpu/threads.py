"""How OpenMP threads wait for each other. Must run before torch is imported; imports nothing but the standard
library.
"""

from __future__ import annotations

import os

SPIN_COUNT = "50000"


def bound_spinning() -> None:
    """Lets waiting threads sleep after about two milliseconds; a setting of the user's own is left alone.

    A decode pass joins its threads some two hundred times, with pauses of a tenth of a millisecond between.
    Threads that sleep in the pauses are woken late: a token takes half as long again (docs/LOG.md). By
    default they spin for longer than any pause, which wastes a core after each answer. Where another program
    needs the core, spinning slows both: core/backend/cpu/thread_sharing.py sees to that.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
