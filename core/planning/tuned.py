"""What `tune` measured of one model on one machine, as frozen values, and when they may be used. Knows
nothing of files or of measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.config import Settings
from core.hardware.facts import Hardware
from core.text.words import translated as _

Times = tuple[tuple[int, float], ...]  # (rows, milliseconds) of a pass, ascending
SPECULATION = ("retrieval_budget", "retrieval_chunk", "gamma", "middle_gamma")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The values that were faster than the plan's own, what they rest on, and for what they were measured.

    `stale`: why they must not be used any more, in words that follow "because"; "" while they may.
    """

    machine: str  # see machine_of
    model: str
    folder: str  # of the model, and the fingerprint of what was in it
    fingerprint: str
    version: str  # see core.planning.stored_facts
    date: str
    device: str
    dtype: str
    kernel: str
    threads: int
    context_tokens: int
    on_chip_layers: int
    draft_model: str | None  # or Plan.MTP
    retrieval_budget: int
    retrieval_chunk: int
    gamma: int
    middle_gamma: int
    acceptance: float  # of the middle level by the full cache
    draft_acceptance: float  # of level 0 by the middle level
    verify_ms: Times  # over the full cache at `context_tokens`
    middle_ms: Times
    draft_ms: float  # one pass of the draft model; 0 without one
    tbt_ms: float  # in a run of the same minute,
    default_tbt_ms: float  # and that of the plan without these values
    stale: str = ""
    plain: bool = False  # the fastest in that minute was plain decoding; `tbt_ms` is its time then
    kv_rows: str = ""  # see Plan; "": of `dtype`, as all were once
    cpu_share: float = 0.0  # see Plan: what was measured had these
    cpu_share_plain: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Tuned:
        """What `to_json` wrote. Raises TypeError or ValueError for anything else."""
        times = {
            name: tuple((int(rows), float(ms)) for rows, ms in values[name])
            for name in ("verify_ms", "middle_ms")
        }
        return cls(**{**values, **times})

    def is_for(self, model: str, device: str, context_tokens: int) -> bool:
        """Whether it speaks of this model behind a context of this size at all."""
        return (self.model, self.device, bucket(self.context_tokens)) == (
            model,
            device,
            bucket(context_tokens),
        )

    def into(self, settings: Settings) -> Settings:
        """The settings with these values where the user left the choice to us."""
        return replace(
            settings, **{name: getattr(self, name) for name in SPECULATION if getattr(settings, name) is None}
        )

    def verify_s(self, rows: int) -> float:
        """Time of a pass over the full cache."""
        return interpolated_ms(self.verify_ms, rows) / 1e3

    def middle_s(self, rows: int) -> float:
        """Time of a pass over the retrieval cache."""
        return interpolated_ms(self.middle_ms, rows) / 1e3

    def unfit(self, machine: str, settings: Settings, *, dtype: str, threads: int) -> str:
        """Why it cannot be used here and now, in words that follow "because"; "" when it can."""
        if self.machine != machine:
            return _("they were measured on another machine")
        if (self.dtype, self.threads) != (dtype, threads):
            return _("they are for {dtype} with {threads} threads").format(
                dtype=self.dtype, threads=self.threads
            )
        for name in ("retrieval_budget", "retrieval_chunk"):
            if getattr(settings, name) not in (None, getattr(self, name)):
                return _("{setting} is set in the settings").format(setting=name)
        if settings.cpu_share == "none" and (self.cpu_share or self.cpu_share_plain):
            return _("{setting} is set in the settings").format(setting="cpu_share")
        return self.stale


def machine_of(hardware: Hardware) -> str:
    """What decides how fast this machine is."""
    gpus = "".join(f", {gpu.name}" for gpu in hardware.gpus)
    return f"{hardware.system}, {hardware.cpu_name}, {hardware.physical_cores} cores{gpus}"


def bucket(context_tokens: int) -> int:
    """Contexts of like size: the least power of two that is not below."""
    return 1 << (context_tokens - 1).bit_length()


def newest(found: Sequence[Tuned], model: str, device: str, context_tokens: int) -> Tuned | None:
    """The latest of those that speak of this model, device and size."""
    return max(
        (one for one in found if one.is_for(model, device, context_tokens)),
        key=lambda one: one.date,
        default=None,
    )


def interpolated_ms(times: Times, rows: int) -> float:
    """Milliseconds for so many rows: on the line between its neighbours, in proportion beyond the last."""
    below = max((one for one in times if one[0] <= rows), default=times[0])
    above = min((one for one in times if one[0] >= rows), default=None)
    if above is None:
        return below[1] * rows / below[0]
    if above[0] == below[0]:
        return above[1]
    return below[1] + (rows - below[0]) / (above[0] - below[0]) * (above[1] - below[1])
