"""A device that is not there: tensors that live on it may be computed with, and every look at their numbers
is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")  # a name that every torch build knows and no tensor of numbers has
ATEN = torch.ops.aten
COPIES = {ATEN._to_copy.default, ATEN.copy_.default}
# what a GPU cannot do without telling the host a number: values, and shapes that hang on values
READS = {
    ATEN._local_scalar_dense.default,
    ATEN.nonzero.default,
    ATEN.masked_select.default,
    ATEN.equal.default,
    ATEN.is_nonzero.default,
    ATEN._unique2.default,
    ATEN.unique_consecutive.default,
    ATEN.repeat_interleave.Tensor,
    ATEN.bincount.default,
}


class Far(torch.Tensor):
    """A tensor on the device. Its numbers are in `inner`, for FarDevice alone."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Far:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=DEVICE
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Far({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside the device")


class FarDevice(TorchDispatchMode):
    """While entered, the device. `reads` are the operations that made the host wait; operands on two devices
    and copies to it that wait are errors, as on a GPU or worse."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.passes = 0  # of models on it
        self.all_is_far = False  # ordinary tensors stand for such on the device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # in inference mode even `to` and `item` come whole
            parts = func.decompose(*args, **kwargs)
        return self._run(func, args, kwargs) if parts is NotImplemented else parts

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        from_far, to = [isinstance(tensor, Far) for tensor in tensors], kwargs.get("device")
        lands_far = (any(from_far) and to is None) if func is not ATEN.copy_.default else from_far[0]
        lands_far = lands_far or to == DEVICE
        if func in COPIES and lands_far and not from_far[-1]:  # the source comes last
            assert kwargs.get("non_blocking") or (len(args) > 2 and args[2]), (
                "a copy to the device that waits for it"
            )
        elif func not in COPIES:
            assert (
                all(from_far)
                or not any(from_far)
                or all(tensor.dim() == 0 for tensor in tensors if not isinstance(tensor, Far))
            ), f"{func} on two devices"
        leaves = func in COPIES and any(from_far) and not lands_far
        if leaves or ((any(from_far) or self.all_is_far) and (func in READS or _by_mask(func, tensors))):
            self.reads.append(str(func))
        kwargs = {name: torch.device("cpu") if name == "device" else value for name, value in kwargs.items()}
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        return tree_map(_far, out) if lands_far else out


@contextmanager
def far_away(*kinds: type) -> Iterator[FarDevice]:
    """A device on which all models of `kinds` compute: weights, caches and logits are there, and passes are
    counted.
    """
    device = FarDevice()
    with pytest.MonkeyPatch.context() as patch, device:
        for kind in kinds:
            patch.setattr(kind, "forward", _far_forward(device, kind.forward))
        yield device


def _far_forward(device: FarDevice, forward: Callable[..., torch.Tensor]) -> Callable[..., Far]:
    def far_forward(*args: Any) -> Far:
        device.passes, device.all_is_far = device.passes + 1, True
        try:
            return Far(forward(*args))
        finally:
            device.all_is_far = False

    return far_forward


def _by_mask(func: Any, tensors: Sequence[torch.Tensor]) -> bool:
    return func in (ATEN.index.Tensor, ATEN.index_put_.default) and any(
        tensor.dtype == torch.bool for tensor in tensors[1:]
    )


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Far) else value


def _far(value: Any) -> Any:
    return Far(value) if isinstance(value, torch.Tensor) else value
