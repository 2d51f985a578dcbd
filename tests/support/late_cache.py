"""A carrier between host memory and device whose copies happen as late as its marks allow, and a CPU that
answers as late: what waits for too little reads old rows.
"""

from __future__ import annotations

import torch

from core.backend.cpu.backend import CpuBackend


class LateCopies:
    """Copies pile up until a mark behind them is waited for. A target is poisoned when its copy is asked for:
    no computation may still need it. An earlier copy may: copies keep their order.
    """

    def __init__(self) -> None:
        self.bytes_to_device = self.bytes_to_host = 0
        self._asked: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._done = 0

    def to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        assert target.shape == source.shape and target.dtype == source.dtype
        self.bytes_to_device += source.nbytes
        self._ask(target, source)

    def to_host(self, target: torch.Tensor, source: torch.Tensor) -> None:
        assert target.shape == source.shape and target.dtype == source.dtype
        self.bytes_to_host += source.nbytes
        self._ask(target, source)

    def mark(self) -> int:
        return len(self._asked)

    def wait(self, mark: int) -> None:
        while self._done < mark:
            target, source = self._asked[self._done]
            target.copy_(source)
            self._done += 1

    finish = wait

    def _ask(self, target: torch.Tensor, source: torch.Tensor) -> None:
        memory = _memory(target)
        under_way = range(len(self._asked) - 1, self._done - 1, -1)
        self.wait(next((place + 1 for place in under_way if _memory(self._asked[place][1]) == memory), 0))
        target.view(torch.uint8).fill_(255)  # NaN in every kind of row
        self._asked.append((target, source))


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class LateHostAttention:
    """Attends when its part is taken, to what lies there then. With the next question the part is poison."""

    def __init__(self, backend: CpuBackend) -> None:
        self._attend_part = backend.attend_part
        self._asked: tuple[torch.Tensor, ...] | None = None
        self._part: tuple[torch.Tensor, ...] = ()
        self.questions = 0

    def ask(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int) -> None:
        for part in self._part:
            part.fill_(torch.nan)
        self._asked, self._length = (q.clone(), k, v), length
        self.questions += 1

    def part(self) -> tuple[torch.Tensor, ...]:
        found = self._attend_part(*self._asked, length=self._length, causal=False)
        self._part = tuple(part.clone() for part in found)
        return self._part

    def finish(self) -> None:
        pass


class LateBackend(CpuBackend):
    """The CPU backend with such a carrier and such a neighbour."""

    def copies(self) -> LateCopies:
        return LateCopies()

    def host_attention(self) -> LateHostAttention:
        return LateHostAttention(self)
