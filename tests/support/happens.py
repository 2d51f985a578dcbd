"""Finds work on a card that nothing orders: two accesses to the same bytes, one of them a write, of which
neither is known to happen before the other.

Every operation is seen with the bytes it reads and writes. One that touches host memory alone is the host's,
one asked for while a stream is current is the stream's; what orders them are the clocks of the stand-in for
torch.cuda. Giving memory back counts as a write of the one who may use it next: of the host for host memory,
of the computation's stream for the device's, as torch's allocator has it.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.fake_cuda import FakeCuda, Timeline

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Access:
    """One operation's bytes of one storage."""

    who: Timeline
    step: int
    write: bool
    ranges: tuple[Range, ...]
    what: str

    def meets(self, ranges: Sequence[Range]) -> bool:
        """Whether any byte is the same."""
        return any(a < d and c < b for a, b in self.ranges for c, d in ranges)

    def within(self, ranges: Sequence[Range]) -> bool:
        """Whether all its bytes are among these."""
        return all(any(c <= a and b <= d for c, d in ranges) for a, b in self.ranges)


class Races(TorchDispatchMode):
    """Active while a program runs on `cuda`. `found`: each race in words."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self._cuda, self._main = cuda, cuda.host
        self._host: set[int] = set()
        self._seen: dict[int, list[Access]] = {}
        self.found: list[str] = []
        self.accesses = 0

    def is_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """From now on this is the host's memory."""
        storage = tensor.untyped_storage()
        self._host.add(storage._cdata)
        self._watch(storage)
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        schema = func._schema
        made = [one for one in tree_leaves(out) if _counts(one)]
        if any(result.alias_info and not result.alias_info.is_write for result in schema.returns):
            return out  # a view
        reads, writes = [], []
        for place, argument in enumerate(schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            tensors = [one for one in tree_leaves(value) if _counts(one)]
            (writes if argument.alias_info and argument.alias_info.is_write else reads).extend(tensors)
        given = {one.untyped_storage()._cdata for one in (*reads, *writes)}
        if "empty" not in func.__name__:
            writes += [one for one in made if one.untyped_storage()._cdata not in given]
        self._happened(reads, writes, func.__name__)
        return out

    def _happened(self, reads: list[torch.Tensor], writes: list[torch.Tensor], what: str) -> None:
        if not reads and not writes:
            return
        on_host = [one.untyped_storage()._cdata in self._host for one in (*reads, *writes)]
        beside = self._cuda.host is not self._main  # a thread that computes on the host alone
        by_host = (any(on_host) or beside) and self._cuda.current is self._cuda.compute
        who = self._cuda.host if by_host else self._cuda.current
        step = who.step() if by_host else who.launch()
        for tensors, write in ((reads, False), (writes, True)):
            for tensor in tensors:
                storage = tensor.untyped_storage()
                self._watch(storage)
                self._access(storage._cdata, Access(who, step, write, _ranges(tensor), what))

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._seen:
            self._seen[key] = []
            weakref.finalize(storage, self._gone, key, storage.nbytes()).atexit = False

    def _gone(self, key: int, nbytes: int) -> None:
        by_host = key in self._host or self._cuda.host is not self._main
        who = self._cuda.host if by_host else self._cuda.compute
        step = who.step() if by_host else who.launch()
        self._access(key, Access(who, step, True, ((0, nbytes),), "given back"))
        self._host.discard(key)
        del self._seen[key]

    def _access(self, key: int, new: Access) -> None:
        self.accesses += 1
        kept = []
        for old in self._seen[key]:
            ordered = old.who is new.who or new.who.knows(old.who, old.step)
            if (new.write or old.write) and not ordered and old.meets(new.ranges):
                self._report(old, new)
            # what is overwritten in order, or read again by the same, needs no watching any more: whoever
            # does not know of the earlier one does not know of this
            passed = (new.write and ordered) or (old.who is new.who and not old.write)
            if not (passed and old.within(new.ranges)):
                kept.append(old)
        self._seen[key] = [*kept, new]

    def _report(self, old: Access, new: Access) -> None:
        lines = [
            f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
            for frame in traceback.extract_stack()
            if "/core/" in frame.filename
        ]
        self.found.append(
            f"{new.what} by {new.who.name} {'writes' if new.write else 'reads'} what {old.what} by "
            f"{old.who.name} {'writes' if old.write else 'reads'}, unordered ({' < '.join(lines[-3:])})"
        )


def _counts(value: object) -> bool:
    """Keys, values, as numbers or codes, and what is computed of them; indices are the host's own and never
    shared.
    """
    codes = (torch.int8, torch.uint8)
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.dtype in codes)


def _ranges(tensor: torch.Tensor) -> tuple[Range, ...]:
    """The bytes of a view, in runs."""
    size, start = tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    runs = [(start, start + size)]
    for extent, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if extent == 0:
            return ()
        if stride == 0 or extent == 1:
            continue
        length = runs[-1][1] - runs[0][0]
        if len(runs) == 1 and length == stride * size:
            runs = [(runs[0][0], runs[0][0] + extent * stride * size)]
        else:
            runs = [(a + i * stride * size, b + i * stride * size) for i in range(extent) for a, b in runs]
    return tuple(runs)
