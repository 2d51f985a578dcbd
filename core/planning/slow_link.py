"""Whether keys and values cross the bus as fast as planned. Arithmetic and words; knows no device."""

from __future__ import annotations

from typing import Protocol

from core.planning.plan import Plan
from core.text.words import GB
from core.text.words import translated as _

_ENOUGH_BYTES = 2 * GB  # before that a round's fixed costs decide
# times slower than planned: beyond what a busy machine or a cautious plan explains
_FAR = 3.0


class Rounds(Protocol):
    """What the rounds of an answer came to."""

    rounds: int
    decode_s: float
    bytes_moved: int


def slow_note(plan: Plan, rounds: Rounds) -> str | None:
    """What the reader should know when an answer was far slower than its memory traffic explains; else None.

    Windows does not fail when VRAM is full: it moves some into system memory, and everything crawls. The plan
    keeps some free for that.
    """
    if plan.pcie_gb_per_s is None or rounds.bytes_moved < _ENOUGH_BYTES:
        return None
    expected_s = (
        rounds.bytes_moved / (plan.pcie_gb_per_s * GB)
        + rounds.rounds * (plan.gamma + 1) * plan.expected_middle_ms / 1e3
    )
    if rounds.decode_s < _FAR * expected_s:
        return None
    cause = _(
        "Perhaps something else uses the bus, or the GPU sits in a slot with fewer lanes; `launcher.py "
        "doctor` measures it."
    )
    if plan.keep_free_bytes is not None:
        cause = _(
            "Perhaps Windows moved GPU memory into system memory: close other programs that use the GPU, or "
            "raise vram_reserve_gib."
        )
    said = _("This answer took {times:.0f} times as long as its memory traffic should take. {cause}")
    return said.format(times=rounds.decode_s / expected_s, cause=cause)
