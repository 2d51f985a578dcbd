"""Two ranks over gloo as threads of this process: what they compute and exchange is as between two processes,
and starting them takes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from pathlib import Path
from threading import Thread
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
    """Both of them; they meet anew after a case that failed, since one may be where the other is not."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._meetings = folder, 0
        self._ranks: list[ProcessRanks] = []

    def run(self, case: Callable[..., Any], *given: Any) -> list[Any]:
        """What `case(ranks, *given)` returns on either rank. Raises as `both` does."""
        if not self._ranks:
            self._meetings += 1
            meeting = self._folder / f"meeting-{self._meetings}"
            self._ranks = both(lambda rank: joined(meeting, rank))
        ranks, self._ranks = self._ranks, []
        found = both(lambda rank: case(ranks[rank], *given))
        self._ranks = ranks
        return found


def both(case: Callable[[int], T], patience_s: float = PATIENCE_S) -> list[T]:
    """What `case(rank)` returns on ranks 0 and 1, each on a thread. Raises what one of them raises, at once,
    while the other may wait for it; TimeoutError where both wait for each other. Nobody waits for a thread
    that is left.
    """
    found: list[Future[T]] = [Future(), Future()]
    for rank, future in enumerate(found):
        Thread(target=_resolve, args=(future, case, rank), daemon=True).start()
    ended, left = wait(found, patience_s, FIRST_EXCEPTION)
    results = {future: future.result() for future in ended}
    if left:
        raise TimeoutError(f"{len(left)} of 2 ranks had no end within {patience_s:g} s")
    return [results[future] for future in found]


def _resolve(future: Future[T], case: Callable[[int], T], rank: int) -> None:
    try:
        future.set_result(case(rank))
    except BaseException as error:
        future.set_exception(error)


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
    TwoRanks(folder).run(case)
    return answers[0]


def _end() -> None:
    raise UserError("That was all.")
