"""The processes that compute one model together, each with a part of every layer on a device of its own.
Knows nothing of models.

Ranks run the same passes in the same order. What they exchange: the sums behind attention and MLP of every
layer, whether all of them had room for a pass, and the few numbers that the host acts on, which are those of
rank 0. Nobody decides by numbers of his own, so ranks cannot part ways over a rounding.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import distributed

from core.backend.shared.transfer import to_host
from core.errors import DeviceFull, RankLost, UserError

T = TypeVar("T")
# a question may come after days; who dies is noticed at once
PATIENCE_S = 30 * 86_400.0
_LOOPBACK = "127.0.0.1"  # nobody outside this computer can join


class Ranks(Protocol):
    """The processes as a model sees them. `rank`: this one, from 0; `size`: how many there are."""

    rank: int
    size: int

    def summed(self, part: Callable[[], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks of what `part` computes, of the shape and dtype of `like`; the same bits on
        every rank. Raises RankLost.
        """
        ...

    def attempt(self, step: Callable[[], None]) -> None:
        """Does `step`, which only this rank needs, unless its device was full since the last `agree`."""
        ...

    def agree(self) -> None:
        """Ends a pass: raises on every rank where the device of one was full meanwhile, something of which
        `Backend.out_of_memory` is true. Raises RankLost.
        """
        ...

    def any(self, here: bool) -> bool:
        """Whether it is so on one of the ranks. Raises RankLost."""
        ...

    def all_or_none(self, make: Callable[[], T]) -> T:
        """What `make` gives, where it does on every rank. Raises on all of them the UserError of one,
        something of which `Backend.out_of_memory` is true, or RankLost.
        """
        ...

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """`to_host` of rank 0's parts, on every rank. Raises RankLost."""
        ...


class SingleRank:
    """A process that computes a model alone."""

    rank, size = 0, 1

    def summed(self, part: Callable[[], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """See Ranks."""
        return part()

    def attempt(self, step: Callable[[], None]) -> None:
        """See Ranks."""
        step()

    def agree(self) -> None:
        """See Ranks. What was full has said so by itself."""

    def any(self, here: bool) -> bool:
        """See Ranks."""
        return here

    def all_or_none(self, make: Callable[[], T]) -> T:
        """See Ranks."""
        return make()

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """See Ranks."""
        return to_host(*parts)


SINGLE = SingleRank()


class ProcessRanks:
    """Ranks that are processes of this computer, by torch.distributed.

    `control` carries what the host knows, by gloo; `data` the sums: NCCL between cards on Linux, else gloo,
    which takes them through page-locked memory. `out_of_memory`: the backend's. A rank whose device is full
    in the middle of a pass goes on with zeros until all agree on it: the others wait for its sums.
    """

    def __init__(
        self,
        control: distributed.ProcessGroup,
        data: distributed.ProcessGroup,
        *,
        out_of_memory: Callable[[BaseException], bool],
    ) -> None:
        self.rank, self.size = control.rank(), control.size()
        self._control, self._data, self._out_of_memory = control, data, out_of_memory
        self._full: RuntimeError | None = None

    def summed(self, part: Callable[[], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """See Ranks."""
        found: list[torch.Tensor] = []
        self.attempt(lambda: found.append(part()))
        own = found[0].contiguous() if found else torch.zeros_like(like)
        self._wait(self._data.allreduce, [own])
        return own

    def attempt(self, step: Callable[[], None]) -> None:
        """See Ranks."""
        if self._full is not None:
            return
        try:
            step()
        except RuntimeError as error:
            if not self._out_of_memory(error):
                raise
            self._full = error

    def agree(self) -> None:
        """See Ranks."""
        own, self._full = self._full, None
        if self.any(own is not None):
            raise own or DeviceFull("the device of another rank is full")

    def any(self, here: bool) -> bool:
        """See Ranks."""
        count = torch.tensor([here], dtype=torch.int32)
        self._wait(self._control.allreduce, [count])
        return bool(count)

    def all_or_none(self, make: Callable[[], T]) -> T:
        """See Ranks."""
        found: list[T] = []
        own = ""
        try:
            self.attempt(lambda: found.append(make()))
        except UserError as error:
            own = str(error)
        said = [self._shared(own, of=rank) for rank in range(self.size)]
        if any(said):
            self._full = None
            raise UserError(next(filter(None, said)))
        self.agree()
        return found[0]

    def numbers(self, *parts: torch.Tensor) -> list[float]:
        """See Ranks. The others need not wait for their own devices."""
        own = to_host(*parts) if self.rank == 0 else [0.0] * sum(len(part) for part in parts)
        shared = torch.tensor(own, dtype=torch.float64)
        self._wait(self._control.broadcast, shared, 0)
        return shared.tolist()

    def said(self, here: bool = False) -> bool:
        """What rank 0 says, whatever it is `here`. Raises RankLost."""
        word = torch.tensor([here], dtype=torch.uint8)
        self._wait(self._control.broadcast, word, 0)
        return bool(word)

    def shared(self, make: Callable[[], Any] = lambda: None) -> Any:
        """What `make` gives on rank 0, where alone it is called; its UserError is raised on all. Raises
        RankLost.
        """
        found: Any = None
        if self.rank == 0:
            try:
                found = make()
            except UserError as error:
                found = error
        found = self._shared(found, of=0)
        if isinstance(found, UserError):
            raise found
        return found

    def abort(self) -> None:
        """From another thread: who waits for the sum of a rank that is gone waits no more. gloo notices it by
        itself; NCCL does not.
        """
        with contextlib.suppress(RuntimeError):
            self._data.abort()

    def _shared(self, value: Any, *, of: int) -> Any:
        """A value of one rank, on all."""
        data = pickle.dumps(value) if self.rank == of else b""
        size = torch.tensor([len(data)])
        self._wait(self._control.broadcast, size, of)
        carried = torch.zeros(int(size), dtype=torch.uint8)
        if self.rank == of:
            carried = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._wait(self._control.broadcast, carried, of)
        return pickle.loads(carried.numpy().tobytes())

    def _wait(self, exchange: Callable[..., distributed.Work], *what: object) -> None:
        try:
            exchange(*what).wait()
        except RuntimeError as error:
            raise RankLost(f"rank {self.rank} of {self.size} waited in vain for another") from error


def gloo_group(
    meeting: Path, rank: int, size: int, *, name: str = "control", timeout_s: float = PATIENCE_S
) -> distributed.ProcessGroup:
    """Joins the ranks that meet in the file `meeting`. Returns when all are there. Raises RankLost when they
    are not within the time.
    """
    try:
        store = distributed.PrefixStore(name, distributed.FileStore(str(meeting), size))
        options = distributed.ProcessGroupGloo._Options()
        options._devices = [distributed.ProcessGroupGloo.create_device(hostname=_LOOPBACK)]
        options._timeout = timedelta(seconds=timeout_s)
        return distributed.ProcessGroupGloo(store, rank, size, options)
    except RuntimeError as error:
        raise RankLost(f"rank {rank} of {size} met no other in {timeout_s:.0f} s") from error
