"""Known GPUs by name, and machines imagined from them. The data is gpus.yaml beside this file. No torch."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import yaml

from core.errors import UserError
from core.hardware.facts import GIB, Gpu, Hardware
from core.text.words import translated as _

DATA = Path(__file__).with_name("gpus.yaml")
# what pinned copies reach, not the nominal rate
PCIE_X16_GB_PER_S = {1: 3.0, 2: 6.0, 3: 12.0, 4: 25.0, 5: 52.0, 6: 100.0}
_OTHER_MAKERS = re.compile(r"\b(amd|radeon|rx\s?\d{3,4}|intel|arc|apple|m[1-9])\b", re.IGNORECASE)
SCREEN_BYTES = GIB // 2  # VRAM an idle desktop and the driver take
SYSTEM_BYTES = 4 * GIB  # RAM an idle desktop takes
SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "Darwin", "darwin": "Darwin"}


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One line of the table."""

    name: str
    vram_gib: float
    memory_gb_per_s: float
    tflops: float
    pcie_generation: int
    pcie_lanes: int
    compute_capability: tuple[int, int]

    @property
    def pcie_gb_per_s(self) -> float:
        """Host-to-device rate in a slot of the GPU's own generation and width."""
        return pcie_rate(self.pcie_generation, self.pcie_lanes)


def pcie_rate(generation: int, lanes: int) -> float:
    """GB/s that large pinned copies usually reach over this link."""
    return PCIE_X16_GB_PER_S.get(generation, 12.0) * lanes / 16


@lru_cache(maxsize=1)
def known_gpus() -> tuple[GpuSpec, ...]:
    """All lines of the table."""
    raw = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return tuple(GpuSpec(name, *row[:5], compute_capability=_capability(row[5])) for name, row in raw.items())


def _capability(value: float) -> tuple[int, int]:
    major, minor = f"{value:.1f}".split(".")
    return int(major), int(minor)


NOISE = frozenset(
    {
        "nvidia",
        "geforce",
        "rtx",
        "gtx",
        "gpu",
        "graphics",
        "generation",
        "pcie",
        "sxm",
        "sxm4",
        "sxm5",
        "hbm3",
        "hbm3e",
        "tesla",
        "quadro",
        "nvl",
        "gb",
        "gib",
    }
)


def _words(name: str) -> tuple[list[str], float | None]:
    """A name's telling words and the GB stated in it: "GeForce RTX 4060Ti 16GB" -> ([4060, ti], 16)."""
    text = re.sub(r"(\d{4})(ti|super)", r"\1 \2", name.lower())
    text = re.sub(r"(rtx|gtx|ti)(?=\d|super)", r"\1 ", text)
    words = [re.sub(r"^(\d{1,3})gi?b$", r"\1", word) for word in re.split(r"[^a-z0-9]+", text)]
    sizes = [word for word in words if re.fullmatch(r"\d{1,3}", word)]
    telling = sorted(word for word in words if word and word not in NOISE and word not in sizes)
    return telling, float(sizes[0]) if sizes else None


def look_up(name: str, *, vram_bytes: int | None = None) -> GpuSpec | None:
    """The table's line for a name as the driver or a person writes it; among equal names the one nearest in
    VRAM, without a size the one whose name states none.

    A laptop GPU shares the name of a desktop one and not its speed: it has a line of its own, or none.
    """
    words, stated = _words(name)
    found = [spec for spec in known_gpus() if _words(spec.name)[0] == words]
    size = vram_bytes / GIB if vram_bytes else stated
    if size is None:
        return min(found, key=lambda spec: (_words(spec.name)[1] is not None, -spec.vram_gib), default=None)
    return min(found, key=lambda spec: abs(spec.vram_gib - size), default=None)


def of_class(capability: tuple[int, int] | None, vram_bytes: int) -> GpuSpec:
    """What may be expected of a card that is not in the table: the slowest one of its generation among those
    nearest in VRAM; of the oldest generation where its own is not known, or older still.
    """
    majors = {spec.compute_capability[0] for spec in known_gpus()}
    own = capability[0] if capability else 0
    major = max((one for one in majors if one <= own), default=min(majors))
    found = [spec for spec in known_gpus() if spec.compute_capability[0] == major]
    return min(found, key=lambda spec: (round(abs(spec.vram_gib - vram_bytes / GIB)), spec.memory_gb_per_s))


def imagined_gpu(name: str, *, vram_gib: float | None = None, pcie_gb_per_s: float | None = None) -> Gpu:
    """A GPU of the table in an otherwise idle machine. Raises UserError that names the nearest GPU."""
    spec = look_up(name, vram_bytes=int(vram_gib * GIB) if vram_gib else None)
    if spec is None:
        names = {one.name.lower(): one.name for one in known_gpus()}
        near = names[difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.0)[0]]
        said = _("The GPU “{name}” is not in the table; the nearest name is {near}. Known are: {known}.")
        raise UserError(said.format(name=name, near=near, known=", ".join(one.name for one in known_gpus())))
    vram = int((vram_gib or spec.vram_gib) * GIB)
    return Gpu(
        name=spec.name,
        vram_bytes=vram,
        free_bytes=max(0, vram - SCREEN_BYTES),
        memory_gb_per_s=spec.memory_gb_per_s,
        tflops=spec.tflops,
        pcie_gb_per_s=pcie_gb_per_s or spec.pcie_gb_per_s,
        compute_capability=spec.compute_capability,
    )


def imagined_hardware(
    *,
    gpu: str | None = None,
    vram_gib: float | None = None,
    ram_gib: float = 32.0,
    pcie_gb_per_s: float | None = None,
    system: str = "Linux",
    cores: int = 8,
    cards: int = 1,
) -> Hardware:
    """A machine that need not exist: an idle PC with so many of this GPU (or "none", None) and this much
    RAM.
    """
    known = SYSTEMS.get(system.strip().lower())
    if known is None:
        raise UserError(
            _("The system “{system}” is unknown; use Linux, Windows or macOS.").format(system=system)
        )
    gpus, problems = (), ()
    unused = _unused(gpu or "none", known)
    if unused:
        problems = (unused,)
    elif gpu is not None and gpu.strip().lower() != "none":
        one = imagined_gpu(gpu, vram_gib=vram_gib, pcie_gb_per_s=pcie_gb_per_s)
        gpus = tuple(replace(one, index=index) for index in range(cards))
    ram = int(ram_gib * GIB)
    return Hardware(
        system=known,
        cpu_name=f"an imagined CPU with {cores} cores",
        physical_cores=cores,
        logical_cores=2 * cores,
        cpu_flags=frozenset({"avx2", "fma"}),
        ram_bytes=ram,
        ram_available_bytes=max(0, ram - SYSTEM_BYTES),
        pinnable_bytes=pinnable(known, ram),
        gpus=gpus,
        problems=problems,
    )


def _unused(gpu: str, system: str) -> str:
    """Why this GPU would not be used, as a sentence; "" where it would, or where there is none."""
    if _OTHER_MAKERS.search(gpu):
        said = _(
            "{gpu} is not used: this program computes on NVIDIA cards and on the CPU. As without a card."
        )
        return said.format(gpu=gpu.strip())
    if system == "Darwin":
        return _("On a Mac the CPU computes; its graphics cores are not used.")
    return ""


def imagine(
    base: Hardware,
    *,
    gpu: str | None = None,
    vram_gib: float | None = None,
    ram_gib: float | None = None,
    pcie_gb_per_s: float | None = None,
    system: str | None = None,
    cards: int | None = None,
) -> Hardware:
    """The machine `base` with these parts exchanged; what is not given stays. Nothing given: `base` itself.

    A GPU by name replaces all of base's ("none": takes them out); without a name, VRAM and PCIe rate change
    base's own, and there are so many `cards` as its first.
    """
    if all(one is None for one in (gpu, vram_gib, ram_gib, pcie_gb_per_s, system, cards)):
        return base
    fresh = imagined_hardware(
        gpu=gpu,
        vram_gib=vram_gib,
        ram_gib=ram_gib or base.ram_bytes / GIB,
        pcie_gb_per_s=pcie_gb_per_s,
        system=system or base.system,
        cards=cards or 1,
    )
    gpus = (
        fresh.gpus if gpu is not None else tuple(_changed(one, vram_gib, pcie_gb_per_s) for one in base.gpus)
    )
    if cards and gpu is None:
        gpus = tuple(replace(gpus[0], index=index) for index in range(cards if gpus else 0))
    if not gpus and gpu is None and any(one is not None for one in (vram_gib, pcie_gb_per_s, cards)):
        raise UserError(
            _('This machine has no CUDA GPU to change; name one with --gpu, for example --gpu "RTX 4090".')
        )
    ram = (
        (fresh.ram_bytes, fresh.ram_available_bytes)
        if ram_gib
        else (base.ram_bytes, base.ram_available_bytes)
    )
    return replace(
        base,
        gpus=gpus,
        system=fresh.system,
        wsl=base.wsl and system is None,
        ram_bytes=ram[0],
        ram_available_bytes=ram[1],
        problems=fresh.problems,
        pinnable_bytes=pinnable("Windows" if base.wsl and system is None else fresh.system, ram[0]),
    )


def with_vram(hardware: Hardware, vram_gib: float) -> Hardware:
    """The machine with cards of so much memory."""
    return replace(hardware, gpus=tuple(_changed(one, vram_gib, None) for one in hardware.gpus))


def _changed(gpu: Gpu, vram_gib: float | None, pcie_gb_per_s: float | None) -> Gpu:
    if vram_gib is not None:
        vram = int(vram_gib * GIB)
        gpu = replace(gpu, vram_bytes=vram, free_bytes=max(0, vram - SCREEN_BYTES))
    return gpu if pcie_gb_per_s is None else replace(gpu, pcie_gb_per_s=pcie_gb_per_s, pcie_measured=False)


def pinnable(system: str, ram_bytes: int) -> int:
    """What a process should page-lock: two fifths of RAM on Windows (WSL counts as Windows), where about half
    is the end and torch's own small pieces must still find room; most of it on Linux.
    """
    return int(ram_bytes * (0.4 if system == "Windows" else 0.9))
