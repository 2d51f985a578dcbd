"""The processor's share: how long a pass takes in which the CPU attends to the oldest rows in host memory
while the bus brings the others, and the share for which both are done at once. Pure arithmetic; nothing here
was measured on a card.

The bus runs through a whole pass, ahead of the layers. A layer's question can be asked only when its queries
are there, so what the CPU takes comes behind what the card computes:

    T(share) = max(bus * (1 - share) + first block, card without host memory + questions + CPU * share)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from core.model.shapes import ModelShape
from core.planning.costs import DeviceSpeeds, StreamedKV
from core.planning.host_attention import attention_s

# a share is taken where a token is expected to take less by so much: no card has measured it
PROMISE = 1.15
# of the verifications over a retrieval cache, whose keys are looked at to select anew (core.decoding.refresh)
LOOKED_AT = 1 / 12
_STEPS = 100


def beside_bus(cpu: DeviceSpeeds, threads: int, bus: float, ranks: int = 1) -> DeviceSpeeds:
    """What is left of the CPU's speeds, its part of them beside one of so many cards, while each card's bus
    carries host memory: a core for each launches, and the bus takes `bus` bytes/s of what all cores can read.
    """
    part = max(0, threads - ranks) / threads
    kv = max(0.0, min(cpu.kv * part, cpu.kv - bus))
    return replace(cpu, kv=kv, few_attention_flops=cpu.few_attention_flops * part)


@dataclass(frozen=True, slots=True)
class SharedPasses:
    """Passes of the target over `tokens`, of which so many `layers` lie in host memory, asked for in so many
    `questions`. `take(rows=, kv_tokens=, host=)`: costs.pass_s of that cache. `cpu`: see beside_bus.
    """

    take: Callable[..., float]
    target: ModelShape
    kv_rows: str
    tokens: int
    layers: int
    questions: int
    host: StreamedKV
    device: DeviceSpeeds
    cpu: DeviceSpeeds

    def seconds(self, rows: int, share: float) -> float:
        """One pass of `rows`, of which the CPU has this share of what lies in host memory."""
        if not share:
            return self.take(rows=rows, kv_tokens=self.tokens, host=self.host)
        of_cpu = int(share * self.tokens * self.layers / self.target.full_layers)
        rest = replace(
            self.host,
            pinned_bytes=int((1 - share) * self.host.pinned_bytes),
            pageable_bytes=int((1 - share) * self.host.pageable_bytes),
        )
        by_bus = self.take(rows=rows, kv_tokens=self.tokens - of_cpu, host=rest)
        return max(by_bus, self._asked_s(rows, share))

    def best_share(self, rows: int) -> float:
        """For which bus and CPU are done at once, in whole hundredths; 0.0: there is none."""
        if not self.cpu.kv or not self.cpu.few_attention_flops:
            return 0.0
        bus = self.host.stream_s(self.device) + self.host.held_up_s(self.device)
        asked, whole = self._asked_s(rows, 0.0), self._asked_s(rows, 1.0)
        share = (bus + self.host.fill_s(self.device) - asked) / (bus + whole - asked)
        return max(0, min(_STEPS, int(share * _STEPS))) / _STEPS

    def _asked_s(self, rows: int, share: float) -> float:
        """What the card computes without host memory, and behind it the CPU's part."""
        here = self.tokens * (self.target.full_layers - self.layers) // self.target.full_layers
        tokens = share * self.tokens * self.layers / self.questions  # of each layer that is asked for
        where = {"tokens": tokens, "layers": self.questions, "cpu": self.cpu}
        on_cpu = attention_s(self.target, self.kv_rows, rows=rows, **where)
        return self.take(rows=rows, kv_tokens=here) + on_cpu
