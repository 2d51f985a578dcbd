"""An engine over several devices: this process is rank 0, and starts one more for each other rank.

`python -m core.assembly.ranked` is such a process. It reads from stdin what to load, and ends when that
closes: nothing is left behind when rank 0 is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.assembly.cache_factory import Replan
from core.assembly.engines import build_engine
from core.assembly.lead_engine import follow
from core.assembly.models import new_backend
from core.backend.base import Backend
from core.backend.cpu.threads import bound_spinning
from core.backend.cuda.nccl import nccl_group
from core.backend.ranks import ProcessRanks, gloo_group
from core.backend.shared.heap import bound_products
from core.config import Settings, use_data_dir
from core.engine import Engine
from core.errors import DiscreetFormatter, RankLost, UserError
from core.events import Progress
from core.paths import ROOT
from core.planning.plan import Plan

log = logging.getLogger(__name__)

_END_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class RankOrder:
    """What another rank loads, and in which file it meets the others."""

    rank: int
    plan: Plan
    settings: Settings
    model_dir: Path
    draft_dir: Path | None
    meeting: Path


class RankProcesses:
    """The processes of the other ranks; they end with this object."""

    def __init__(self, orders: Sequence[RankOrder], folder: Path) -> None:
        self.all = [self._started(order) for order in orders]
        self.close = weakref.finalize(self, _ended, self.all, folder)

    def watch(self, ranks: ProcessRanks) -> None:
        """Has this process notice at once when another ends, whatever it waits for."""
        for one in self.all:
            threading.Thread(target=_watched, args=(one, ranks), name="rank", daemon=True).start()

    @staticmethod
    def _started(order: RankOrder) -> subprocess.Popen[bytes]:
        # what it prints goes where this one's errors go: stdout may be the worker's pipe
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        pickle.dump(order, process.stdin)
        process.stdin.flush()
        return process


def _watched(process: subprocess.Popen[bytes], ranks: ProcessRanks) -> None:
    process.wait()
    ranks.abort()


def _ended(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    for one in processes:
        with contextlib.suppress(OSError):
            one.stdin.close()
    for one in processes:
        try:
            one.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    shutil.rmtree(folder, ignore_errors=True)


def build_ranked(
    plan: Plan,
    settings: Settings,
    model_dir: Path,
    *,
    draft_dir: Path | None = None,
    progress: Progress | None = None,
    replan: Replan | None = None,
    backend: Backend | None = None,
) -> Engine:
    """`build_engine` over the plan's devices. Raises UserError as that does, for any of them, and RankLost
    where a process ended.
    """
    folder = Path(tempfile.mkdtemp(prefix="triforce-ranks-"))
    orders = [
        RankOrder(rank, plan, settings, model_dir, draft_dir, folder / "meeting")
        for rank in range(1, len(plan.devices))
    ]
    others = RankProcesses(orders, folder)
    try:
        backend = backend or new_backend(plan, settings)
        ranks = _joined(plan, backend, folder / "meeting", 0)
        others.watch(ranks)
        engine = build_engine(
            plan,
            settings,
            model_dir,
            draft_dir=draft_dir,
            progress=progress,
            replan=replan and (lambda layers: ranks.shared(lambda: replan(layers))),
            backend=backend,
            ranks=ranks,
        )
    except BaseException:
        others.close()
        raise
    engine.others = others  # they go when it does
    return engine


def _joined(plan: Plan, backend: Backend, meeting: Path, rank: int) -> ProcessRanks:
    """This process among the plan's ranks, when all are there. On Windows, where NCCL is not, sums go through
    page-locked memory.
    """
    size = len(plan.devices)
    control = gloo_group(meeting, rank, size)
    if backend.device.type == "cuda" and sys.platform == "linux":
        data = nccl_group(meeting, rank, size)
    else:
        data = gloo_group(meeting, rank, size, name="sums")
    return ProcessRanks(control, data, out_of_memory=backend.out_of_memory)


def serve(orders: BinaryIO) -> None:
    """The process of another rank, until rank 0 is gone."""
    order: RankOrder = pickle.load(orders)
    threading.Thread(target=_leave_with, args=(orders,), name="rank 0", daemon=True).start()
    use_data_dir(order.settings)
    backend = new_backend(order.plan, order.settings, rank=order.rank)
    ranks = _joined(order.plan, backend, order.meeting, order.rank)
    engine = build_engine(
        order.plan,
        order.settings,
        order.model_dir,
        draft_dir=order.draft_dir,
        replan=lambda layers: ranks.shared(),
        backend=backend,
        ranks=ranks,
    )
    follow(engine, ranks)


def _leave_with(orders: BinaryIO) -> None:
    orders.read()
    os._exit(0)


def main() -> None:
    """The process. Its errors go to the log of rank 0."""
    said = logging.StreamHandler(sys.stderr)
    said.setFormatter(DiscreetFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[said])
    bound_spinning()
    bound_products()
    try:
        serve(sys.stdin.buffer)
    except RankLost:
        log.info("rank 0 is gone")
    except UserError as error:
        log.info("%s", error)  # rank 0 says it, too


if __name__ == "__main__":
    main()
