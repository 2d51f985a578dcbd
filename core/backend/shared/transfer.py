"""What crosses between the host and the device: a few integers there without waiting, one piece back per
pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch


def on_device(tensor: torch.Tensor) -> bool:
    """Whether the host would wait for the numbers of a tensor of any shape. What is to be computed may depend
    only on others; where it would wait, more is computed instead.
    """
    return not tensor.is_cpu


def to_device(values: Sequence[int] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """int64 [n] on `device`; a tensor that is there stays. Page-locked first where that is needed: a copy
    from ordinary memory would wait for all the device computes.
    """
    if isinstance(values, torch.Tensor):
        return values.to(device, non_blocking=True)
    host = torch.tensor(values, dtype=torch.long)
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # the system lets no more be page-locked: slower, not wrong
            host = host.pin_memory()
    return host.to(device, non_blocking=True)


def to_host(*parts: torch.Tensor) -> list[float]:
    """The numbers of all `parts`, each one-dimensional and on one device. The host waits here: once per pass,
    so all that it must learn of the pass comes together. Integers below 2 ** 53 come through exactly."""
    return torch.cat([part.double() for part in parts]).cpu().tolist()
