"""Engines as a plan builds them, and a device that has less room than was planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from core.assembly.engines import build_engine
from core.backend.base import DeviceMemory
from core.backend.cpu.backend import CpuBackend
from core.config import Settings
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.planning.plan import Plan
from core.request import Params
from tests.support.tiny import PLAN, VOCAB

OFFLOADED = replace(PLAN, on_chip_layers=1, staging_blocks=2, staging_block_tokens=64, staging_block_bytes=1)
PROMPT = [int(token) for token in torch.randint(0, VOCAB, (150,), generator=torch.Generator().manual_seed(5))]
GREEDY = Params(temperature=0.0, top_p=1.0, max_new_tokens=16)


class OutOfMemory(RuntimeError):
    """What the small device raises."""


class SmallDevice(CpuBackend):
    """A device with memory of its own: the caches it refuses, one by one, and the attentions that fail, by
    number.
    """

    def __init__(
        self, *, free: int = 10**9, refuse: Sequence[int] = (), failures: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.free, self.refuse, self.failures = free, list(refuse), list(failures)
        self.attended = self.released = 0

    def out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, OutOfMemory) or super().out_of_memory(error)

    def memory(self) -> DeviceMemory:
        return DeviceMemory(used_bytes=10**6, free_bytes=self.free)

    def release(self) -> None:
        self.released += 1

    def copies(self) -> object:
        if self.refuse and self.refuse.pop(0):
            raise OutOfMemory("no room for a cache")
        return super().copies()

    def attend(self, *args: torch.Tensor, **more: object) -> torch.Tensor:
        self._count()
        return super().attend(*args, **more)

    def attend_part(self, *args: object, **more: object) -> tuple[torch.Tensor, torch.Tensor]:
        self._count()
        return super().attend_part(*args, **more)

    def _count(self) -> None:
        self.attended += 1
        if self.failures and self.attended == self.failures[0]:
            self.failures.pop(0)
            raise OutOfMemory("no room for a pass")


def fewer(layers: int) -> Plan:
    return replace(OFFLOADED, on_chip_layers=layers, notes=(f"{layers} layers",))


def built(
    folder: Path, plan: Plan = OFFLOADED, *, backend: CpuBackend | None = None, **settings: object
) -> Engine:
    return build_engine(
        plan,
        Settings(**{"snapshot_quota_gb": 0, "on_chip_layers": plan.on_chip_layers, **settings}),
        folder,
        replan=fewer,
        backend=backend,
    )


def answer(engine: Engine, context: Context, params: Params = GREEDY) -> tuple[list[int], Done]:
    tokens: list[int] = []
    for event in engine.generate(context, PROMPT, params):
        if isinstance(event, Done):
            return tokens, event
        if isinstance(event, Round):
            tokens.extend(event.tokens)
    raise AssertionError("generate ended without Done")
