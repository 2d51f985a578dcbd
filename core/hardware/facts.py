"""What is known about a machine, measured by the probe or imagined by the user. Frozen values only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

GIB = 1 << 30
INSTRUCTIONS = ("avx512f", "avx2", "asimd")  # by which CPUs differ in speed, the best first


@dataclass(frozen=True, slots=True)
class Gpu:
    """One CUDA GPU. Bandwidths in GB/s (1e9 bytes); `pcie_gb_per_s`: host to device, large pinned copies."""

    name: str
    vram_bytes: int
    free_bytes: int
    memory_gb_per_s: float
    tflops: float  # dense 16-bit matrix products, nominal
    pcie_gb_per_s: float
    pcie_back_gb_per_s: float | None = None  # device to host; None: not measured
    pcie_measured: bool = False  # False: nominal, or stated by the user
    # False: bandwidth and TFLOP/s are cautious guesses, not from the table
    known: bool = True
    compute_capability: tuple[int, int] | None = None
    driver: str | None = None
    index: int = 0
    refused: tuple[str, ...] = ()  # compiled kernels that were tried on it and do not serve


@dataclass(frozen=True, slots=True)
class CpuRates:
    """What so many threads of a CPU do per second, measured: GB of weights and of KV cache that are read in
    passes of few rows; thousand million operations of long products in `computes`, of products of few rows
    and of their attention.
    """

    cpu: str
    instructions: str  # the best set that was used; of INSTRUCTIONS
    threads: int
    computes: str
    weights_gb_per_s: float
    kv_gb_per_s: float
    linear_gflops: float
    few_linear_gflops: float
    few_attention_gflops: float

    def best(self, other: CpuRates) -> CpuRates:
        """Each rate the better of the two."""
        names = [one.name for one in fields(self) if one.type == "float"]
        return replace(self, **{name: max(getattr(self, name), getattr(other, name)) for name in names})


def instruction_set(flags: Collection[str]) -> str:
    """The best of INSTRUCTIONS that a CPU with these flags has; "" for none."""
    return next((one for one in INSTRUCTIONS if one in flags), "")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One machine. `pinnable_bytes`: what a process may page-lock. A disk speed of None: not measured."""

    system: str  # "Linux" | "Windows" | "Darwin"
    cpu_name: str
    physical_cores: int
    logical_cores: int
    cpu_flags: frozenset[str]
    ram_bytes: int
    ram_available_bytes: int
    pinnable_bytes: int
    gpus: tuple[Gpu, ...] = ()
    disk_path: str = ""
    disk_free_bytes: int | None = None
    disk_gb_per_s: float | None = None
    refused: tuple[str, ...] = ()  # compiled kernels of the CPU that were tried and do not serve
    cpu_rates: CpuRates | None = None  # None: not measured here
    problems: tuple[str, ...] = ()  # what was looked for and found broken, in plain words
    wsl: bool = False  # Linux inside Windows, whose driver it has

    @property
    def spills(self) -> bool:
        """Whether the system moves a card's memory into its own where it is full, and refuses nothing."""
        return self.system == "Windows" or self.wsl

    def to_json(self) -> dict[str, Any]:
        """Plain values; flags only as far as the planner looks at them."""
        return {**asdict(self), "cpu_flags": sorted(self.cpu_flags & CPU_FLAGS_OF_INTEREST)}


CPU_FLAGS_OF_INTEREST = frozenset(
    {
        "avx",
        "avx2",
        "fma",
        "avx512f",
        "avx512_bf16",
        "avx512_vnni",
        "avx_vnni",
        "amx_bf16",
        "amx_int8",
        "asimd",
        "bf16",
    }
)
