"""Two ranks over gloo as threads of this process: what they compute and exchange is as between two processes,
and starting them takes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from core.assembly.composition import Composer
from core.assembly.engines import build_engine
from core.assembly.lead_engine import follow
from core.backend.cpu.backend import CpuBackend
from core.backend.ranks import ProcessRanks, gloo_group
from core.config import Settings
from core.engine import Engine
from core.errors import UserError
from core.planning.plan import Plan
from tests.support.assembled_engines import OFFLOADED, SmallDevice, fewer

PATIENCE_S = 60.0
T = TypeVar("T")


def joined(meeting: Path, rank: int) -> ProcessRanks:
    """As one of two that meet there."""
    control, data = (gloo_group(meeting, rank, 2, name=name, timeout_s=PATIENCE_S) for name in ("c", "d"))
    return ProcessRanks(control, data, out_of_memory=SmallDevice().out_of_memory)


class TwoRanks:
    """Both of them."""

    def __init__(self, folder: Path) -> None:
        self._threads = ThreadPoolExecutor(2)
        self._ranks = list(self._threads.map(lambda rank: joined(folder / "meeting", rank), range(2)))

    def run(self, case: Callable[..., Any], *given: Any) -> list[Any]:
        """What `case(ranks, *given)` returns on either rank."""
        found = [self._threads.submit(case, ranks, *given) for ranks in self._ranks]
        return [one.result(PATIENCE_S) for one in found]

    def close(self) -> None:
        self._threads.shutdown()


def asked(
    folder: Path,
    model: Path,
    ask: Callable[[Engine], T],
    *,
    plan: Plan = OFFLOADED,
    backends: tuple[CpuBackend | None, CpuBackend | None] = (None, None),
    second_composer: Callable[..., Composer] | None = None,
) -> T:
    """What `ask` makes of rank 0's engine, which another follows. Both meet in `folder` and end after it."""

    def case(ranks: ProcessRanks) -> None:
        engine = build_engine(
            plan,
            Settings(snapshot_quota_gb=0, on_chip_layers=plan.on_chip_layers),
            model,
            replan=(lambda layers: ranks.shared(lambda: fewer(layers))),
            backend=backends[ranks.rank] or CpuBackend(),
            composer=partial(second_composer, ranks=ranks) if second_composer and ranks.rank else None,
            ranks=ranks,
        )
        with pytest.raises(UserError, match="That was all"):
            if ranks.rank == 0:
                answers.append(ask(engine))
                ranks.shared(_end)
            follow(engine, ranks)

    answers: list[T] = []
    pair = TwoRanks(folder)
    pair.run(case)
    pair.close()
    return answers[0]


def _end() -> None:
    raise UserError("That was all.")
