"""What CUDA's errors mean."""

from __future__ import annotations

import torch

from core.backend.cuda.triton.driver import DriverError
from core.errors import DeviceFull

# what says that the device is full where torch's allocator does not
_FULL = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    # torch asks the management library what to say of it, which containers and WSL lack
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
)


def says_full(error: BaseException) -> bool:
    """Whether it says that the device is full. torch says it in five ways: by its allocator, by that when it
    cannot tell more, by the driver's own error, and by the libraries that could not make their handles or
    workspaces.
    """
    if isinstance(error, torch.OutOfMemoryError | DeviceFull):
        return True
    if isinstance(error, DriverError):
        return str(error) == "out of memory"
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL)
