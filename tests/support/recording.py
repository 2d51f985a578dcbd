"""A CPU backend that records passes as a CUDA graph does, operation by operation, so that a replay can be
compared with the eager pass.

A recording holds operations with the very tensors they had. A replay runs no Python of the model: it does the
operations again and puts what they give where they gave it. So a length or position that was a Python number
when it was recorded stays that number, and a tensor that was made anew elsewhere is not looked at. Reading a
value, or data from the host, is refused as CUDA refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.backend.base import Replay
from core.backend.cpu.backend import CpuBackend
from core.backend.shared.compiled import SHORT_PASS_ROWS

REFUSED = (
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::nonzero",
    "aten::lift_fresh",
    "aten::is_nonzero",
    "aten::_to_cpu",
)


class Recording(TorchDispatchMode):
    """The operations done while it is active, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[Callable[..., Any], tuple, dict, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name in REFUSED:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func._schema.name}")
        out = func(*args, **kwargs)
        given = {
            tensor.untyped_storage().data_ptr()
            for tensor in tree_leaves((args, kwargs))
            if isinstance(tensor, torch.Tensor)
        }
        made = [tensor for tensor in tree_leaves(out) if isinstance(tensor, torch.Tensor)]
        fresh = [tensor for tensor in made if tensor.untyped_storage().data_ptr() not in given]
        # what is neither is a view, and shows what is there
        if fresh or func._schema.is_mutable:
            self._steps.append((func, args, kwargs, made if fresh else []))
        return out

    def launch(self, run: Callable[[], None]) -> None:
        """A kernel that is no operation of torch's."""
        self._steps.append((run, (), {}, []))

    def replay(self) -> None:
        """Does them again."""
        for func, args, kwargs, made in self._steps:
            again = [
                tensor for tensor in tree_leaves(func(*args, **kwargs)) if isinstance(tensor, torch.Tensor)
            ]
            for target, tensor in zip(made, again, strict=bool(made)):
                target.copy_(tensor)


class RecordingBackend(CpuBackend):
    """Counts its recordings and replays. `full`: there is no memory left from that recording on."""

    def __init__(self, *, full: int | None = None) -> None:
        super().__init__(torch.float32)
        self.recorded = self.replayed = 0
        self._full = full

    def capture(self, run: Callable[[], torch.Tensor]) -> Replay | None:
        if self._full is not None and self.recorded >= self._full:
            return None
        run()
        with Recording() as recording:
            out = run()
        self.recorded += 1

        def replay() -> torch.Tensor:
            self.replayed += 1
            recording.replay()
            return out

        return replay


class OneAttention(RecordingBackend):
    """Attends to every row by one operation, which is told by data how far: so passes may be recorded over
    keys of any number, as on a card by the compiled kernel.
    """

    def attend(self, q, k, v, *, length, causal, sums=None):
        if q.shape[0] > SHORT_PASS_ROWS or k.shape[0] > 1:
            return super().attend(q, k, v, length=length, causal=causal)
        first = length - (q.shape[0] if causal else 1)
        return self.attend_slots(q, k[0], v[0], slots=first + torch.arange(q.shape[0]) * causal)

    def long_unrecorded(self, heads, kv_heads, head_dim, *, rows=None):
        return ""
