"""Compiled kernels through the CUDA driver's own interface: no compiler and no Triton. The one door to it.

A kernel comes as PTX, which the driver translates for its card and keeps
(https://docs.nvidia.com/cuda/cuda-driver-api). Its first line says how it is launched (build.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from core.backend.cuda.triton.sizes import ARCHIVE

_TYPES = {"u32": ctypes.c_int32, "u64": ctypes.c_int64}
_MARK = "// kernel: "

Argument = torch.Tensor | int


class DriverError(RuntimeError):
    """What the driver refused, in its own words."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's PTX. `params`: PTX types of its arguments, of which the caller gives the first `given`."""

    ptx: bytes
    entry: str
    warps: int
    shared_bytes: int
    given: int
    params: tuple[str, ...]
    source: str  # SHA-256 of what it was compiled from


def headed(ptx: str, **facts: str | int) -> str:
    """What `read_kernel` wants: PTX behind a line of what its launch needs."""
    return _MARK + json.dumps({**facts, "sha256": _digest(ptx)}, sort_keys=True) + "\n" + ptx


def read_kernel(name: str, archive: Path = ARCHIVE) -> Compiled:
    """A kernel out of an archive. Raises OSError, and ValueError where it is not as build.py wrote it."""
    try:
        with zipfile.ZipFile(archive) as kernels:
            head, _, ptx = kernels.read(name).decode("ascii").partition("\n")
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise ValueError(f"{name} in {archive.name} is damaged") from error
    facts = json.loads(head.removeprefix(_MARK)) if head.startswith(_MARK) else {}
    if facts.pop("sha256", None) != _digest(ptx):
        raise ValueError(f"{name} in {archive.name} is damaged")
    entry = re.search(r"\.entry (\w+)\(([^)]*)\)", ptx)
    return Compiled(
        ptx.encode("ascii"), entry[1], params=tuple(re.findall(r"\.param \.(\w+)", entry[2])), **facts
    )


def _digest(ptx: str) -> str:
    return hashlib.sha256(ptx.encode("ascii")).hexdigest()


class LoadedKernel:
    """A kernel on a card. Its module stays loaded as long as the process."""

    def __init__(self, driver: CudaDriver, function: ctypes.c_void_p, compiled: Compiled) -> None:
        self._driver, self._function, self._compiled = driver, function, compiled
        # what Triton adds is scratch memory that these kernels do not use
        self._unused = (0,) * (len(compiled.params) - compiled.given)
        self._held = Held(compiled)

    def __call__(self, grid: tuple[int, int, int], stream: int, arguments: Sequence[Argument]) -> None:
        """Launches it. Tensors go by address: they must live until the launch, and their memory for as long
        as torch keeps memory for a stream. Raises DriverError.
        """
        assert len(arguments) == self._compiled.given, f"{len(arguments)} of {self._compiled.given} arguments"
        numbers = [one.data_ptr() if isinstance(one, torch.Tensor) else one for one in arguments]
        self._held.set((*numbers, *self._unused))
        self._driver.launch(self._function, self._held, grid, stream)


class Held:
    """The arguments of a kernel as the driver takes them: an array of their places. Made once, since making
    it costs more than the launch; the driver copies what is in it before a launch returns. Of one thread.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._numbers = [_TYPES[kind]() for kind in compiled.params]
        self.places = (ctypes.c_void_p * len(self._numbers))(*map(ctypes.addressof, self._numbers))
        self.block = (32 * compiled.warps, 1, 1, compiled.shared_bytes)

    def set(self, numbers: Sequence[int]) -> None:
        """Puts them in their places."""
        for place, number in zip(self._numbers, numbers, strict=True):
            place.value = number


class CudaDriver:
    """`library`: the driver's, as ctypes loads it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @classmethod
    def open(cls) -> CudaDriver:
        """The driver that is installed here. Raises OSError."""
        return cls(ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1"))

    def load(self, compiled: Compiled) -> LoadedKernel:
        """For the card whose context this thread has. Raises DriverError, say for a driver that is too
        old.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._library.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(compiled.ptx)))
        name = ctypes.c_char_p(compiled.entry.encode("ascii"))
        self._check(self._library.cuModuleGetFunction(ctypes.byref(function), module, name))
        return LoadedKernel(self, function, compiled)

    def launch(self, function: ctypes.c_void_p, held: Held, grid: tuple[int, int, int], stream: int) -> None:
        """See LoadedKernel."""
        sizes = map(ctypes.c_uint, (*grid, *held.block))
        self._check(
            self._library.cuLaunchKernel(function, *sizes, ctypes.c_void_p(stream), held.places, None)
        )

    def _check(self, code: int) -> None:
        if code != 0:
            said = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(said))
            raise DriverError((said.value or b"unknown error").decode("ascii", "replace"))
