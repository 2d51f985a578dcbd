"""How OpenMP threads wait for each other. Must run before torch is imported; imports nothing but the standard library."""

from __future__ import annotations

import os

SPIN_COUNT = "2000"


def bound_spinning() -> None:
    """Lets waiting threads sleep after about 20 microseconds; a setting of the user's own is left alone.

    A decode pass joins its threads some two hundred times. By default they spin, which is fastest on an idle machine and ruinous on a busy
    one: with one more busy process on two cores a token took 200-400 ms instead of 11 ms. Sleeping at once (OMP_WAIT_POLICY=passive)
    made it 18 ms on a busy machine and 18 ms on an idle one. With this bound it is 12 and about 35 ms.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
