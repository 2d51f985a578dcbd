"""Whether a model fits a machine, and how much of its KV cache stays on the device. Pure; knows nothing of
time or wording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.backend.shared.compiled import ATTENTION, CODED_KV, DELTA, PRODUCTS
from core.cache.disk import quota_of
from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import GIB, Gpu, Hardware
from core.model.shapes import ModelShape
from core.planning import costs
from core.planning.budget import host_lines, vram_bytes, vram_lines
from core.planning.host_attention import attending_cpu
from core.planning.layout import Layout, plan_layout
from core.planning.plan import BudgetLine
from core.planning.stored_facts import NOTHING, StoredFacts
from core.text.words import translated as _

CONTEXT_STEP = 256  # an automatic context is a multiple of this
SMALLEST_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class PlanningDevice:
    """Where a plan is to fit: the device, its speeds, and what is free after the user's overrides."""

    device: str
    dtype: str
    computes: str
    threads: int
    speeds: costs.DeviceSpeeds
    gpu: Gpu | None
    vram_free: int
    vram_reserve: int
    ram_free: int
    ram_reserve: int
    pinnable: int
    snapshot_quota: int
    spills: bool  # the system moves VRAM into RAM instead of refusing
    # cards that compute together: what is free of RAM is the share of one, and `gpu` has the least of each
    devices: tuple[int, ...] = ()
    cpu: costs.DeviceSpeeds | None = None  # beside a card: of the CPU, that attends to host memory

    @property
    def ranks(self) -> int:
        """Among how many processes a model is divided."""
        return max(1, len(self.devices))


@dataclass(frozen=True, slots=True)
class PlanningCase:
    """What is to be planned: this model, and perhaps this draft model, by these settings on this site."""

    site: PlanningDevice
    settings: Settings
    target: ModelShape
    draft: ModelShape | None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The place that does not hold its lines."""

    place: str
    needed: int
    available: int
    lines: tuple[BudgetLine, ...]


# ---- the machine after the user's overrides ----------------------------------------------------------------


def site_of(hardware: Hardware, settings: Settings, *, known: StoredFacts = NOTHING) -> PlanningDevice:
    """The device to plan for: the GPU with the most free memory, unless the user wants the CPU or several."""
    cards = _chosen(hardware, settings)
    gpu, ranks = weakest(cards), max(1, len(cards))
    threads = settings.threads or hardware.physical_cores
    dtype = settings.dtype or (_gpu_dtype(gpu) if gpu else _cpu_dtype(hardware))
    computes = dtype if gpu else _cpu_computes(hardware, dtype)
    ram_free = int(settings.ram_gib * GIB) if settings.ram_gib else hardware.ram_available_bytes
    ram_reserve = max(GIB, hardware.ram_bytes * 0.06)
    if settings.ram_reserve_gib is not None:
        ram_reserve = settings.ram_reserve_gib * GIB
    quota = quota_of(
        settings.snapshot_quota_gb, free_bytes=hardware.disk_free_bytes or 0, used_bytes=known.snapshot_bytes
    )
    if ranks > 1:
        quota = 0  # shares of a book are not kept on disk
    vram_free, vram_reserve = _vram(gpu, hardware, settings) if gpu else (0, 0)
    return PlanningDevice(
        device="cuda" if gpu else "cpu",
        dtype=dtype,
        computes=computes,
        threads=threads,
        speeds=_speeds(gpu, dtype, ranks) if gpu else costs.cpu_speeds(hardware, threads, computes),
        gpu=gpu,
        vram_free=vram_free,
        vram_reserve=vram_reserve,
        ram_free=ram_free // ranks,
        ram_reserve=int(ram_reserve) // ranks,
        pinnable=min(hardware.pinnable_bytes, ram_free) // ranks if gpu else 0,
        snapshot_quota=quota,
        spills=gpu is not None and hardware.spills,
        devices=tuple(one.index for one in cards) if ranks > 1 else (),
        cpu=attending_cpu(hardware, threads, _cpu_computes(hardware), ranks) if gpu else None,
    )


def _speeds(gpu: Gpu, dtype: str, ranks: int) -> costs.DeviceSpeeds:
    speeds = costs.gpu_speeds(gpu, dtype)
    return speeds if ranks == 1 else costs.divided_speeds(speeds)


def weakest(cards: Sequence[Gpu]) -> Gpu | None:
    """A card that has of everything what each of these has; None of none."""
    if len(cards) < 2:
        return cards[0] if cards else None
    least = {
        name: min(getattr(one, name) for one in cards)
        for name in ("vram_bytes", "free_bytes", "memory_gb_per_s", "tflops", "pcie_gb_per_s")
    }
    names = Counter(one.name for one in cards)
    capabilities = [one.compute_capability for one in cards if one.compute_capability is not None]
    return replace(
        cards[0],
        name=", ".join(f"{times} × {name}" for name, times in names.items()),
        pcie_measured=all(one.pcie_measured for one in cards),
        known=all(one.known for one in cards),
        compute_capability=min(capabilities, default=None),
        refused=tuple(sorted({kernel for one in cards for kernel in one.refused})),
        **least,
    )


def _chosen(hardware: Hardware, settings: Settings) -> tuple[Gpu, ...]:
    """The GPUs to plan for, as the user describes them; (): the CPU. Raises PlanError where there is none."""
    if settings.devices is not None and settings.device != "cpu":
        return tuple(_overridden(one, settings) for one in _named(hardware, settings.devices))
    gpu = max(hardware.gpus, key=lambda one: (one.free_bytes, -one.index), default=None)
    if settings.device == "cuda" and gpu is None:
        problem = f" ({hardware.problems[0]})" if hardware.problems else ""
        said = _(
            "No usable CUDA GPU was found{problem}. Install the NVIDIA driver, or set device to auto or cpu."
        )
        raise PlanError(said.format(problem=problem))
    return () if gpu is None or settings.device == "cpu" else (_overridden(gpu, settings),)


def _named(hardware: Hardware, devices: Sequence[int]) -> list[Gpu]:
    there = {one.index: one for one in hardware.gpus}
    if missing := [one for one in devices if one not in there]:
        said = _(
            "devices names graphics card {missing}, and there is {there}. Correct it, or set it to auto."
        )
        known = ", ".join(f"{number} ({one.name})" for number, one in there.items())
        raise PlanError(said.format(missing=missing[0], there=known or _("none")))
    return [there[one] for one in devices]


def _vram(gpu: Gpu, hardware: Hardware, settings: Settings) -> tuple[int, int]:
    """(free, to be kept free) bytes."""
    free = int(settings.vram_gib * GIB) if settings.vram_gib else gpu.free_bytes
    reserve = settings.vram_reserve_gib
    if reserve is None:
        reserve = 1.5 if hardware.spills else 1.0
    return free, int(reserve * GIB)


def _overridden(gpu: Gpu, settings: Settings) -> Gpu:
    stated = {
        "pcie_gb_per_s": settings.pcie_gb_per_s,
        "memory_gb_per_s": settings.vram_gb_per_s,
        "tflops": settings.tflops,
    }
    measured = gpu.pcie_measured and settings.pcie_gb_per_s is None
    refused = (PRODUCTS, CODED_KV, DELTA) if settings.kernels == "library" else gpu.refused
    return replace(
        gpu,
        pcie_measured=measured,
        refused=refused,
        **{name: value for name, value in stated.items() if value is not None},
    )


def _cpu_dtype(hardware: Hardware) -> str:
    """16 bits where compiled kernels read them (core.backend.cpu.native), or torch computes in them: else
    each number would be converted for every pass.
    """
    compiled = all(costs.runs_native(hardware, kernel) for kernel in (ATTENTION, PRODUCTS))
    return "bfloat16" if compiled or multiplies_16_bits(hardware) else "float32"


def _cpu_computes(hardware: Hardware, dtype: str = "bfloat16") -> str:
    return dtype if multiplies_16_bits(hardware) else "float32"


def multiplies_16_bits(hardware: Hardware) -> bool:
    """Whether products of many rows are faster in bfloat16 than in float32.

    Measured on an Intel CPU with avx512_bf16 and without AMX: torch's bfloat16 products run at 0.55 to 0.7 of
    the rate of its float32 ones (docs/LOG.md). With AMX, or on AMD, nothing was measured: there bfloat16 is
    trusted to be what its unit was built for. Without such instructions it is emulated.
    """
    flags = hardware.cpu_flags
    return "amx_bf16" in flags or "avx512_bf16" in flags and "AMD" in hardware.cpu_name


def is_old(gpu: Gpu) -> bool:
    """Whether it computes no bfloat16: before the RTX 30 series."""
    return gpu.compute_capability is not None and gpu.compute_capability < (8, 0)


def _gpu_dtype(gpu: Gpu) -> str:
    return "float16" if is_old(gpu) else "bfloat16"


# ---- one context -------------------------------------------------------------------------------------------


def fitted(case: PlanningCase, context: int) -> list[Layout | Shortfall]:
    """The layouts with what may draft, and, unless the user named it, without: fitted, or where each
    breaks.
    """
    return [_fitted(case, draft, context) for draft in _drafts(case)]


def fits_anywhere(case: PlanningCase, context: int) -> bool:
    """Whether there is any layout for this context. The one with fewest models needs least."""
    options = _options(case, _drafts(case)[-1], context)
    return any(isinstance(_fit(case.site, case.settings, one), Layout) for one in options)


def _drafts(case: PlanningCase) -> tuple[ModelShape | None, ...]:
    if case.settings.draft_model is not None:
        return (case.draft,)
    return *filter(None, (case.draft, case.target.layer_ahead)), None


def _fitted(case: PlanningCase, draft: ModelShape | None, context: int) -> Layout | Shortfall:
    found = [_fit(case.site, case.settings, one) for one in _options(case, draft, context)]
    fit = [one for one in found if isinstance(one, Layout)]
    if not fit:
        return min(found, key=_missing)
    # most layers on the device, then long segments, then what comes first
    return max(fit, key=lambda one: (one.on_chip, one.segment))


def _missing(short: Shortfall) -> tuple[bool, int]:
    """What lacks RAM has a layout that the card holds; then the one that lacks least."""
    return short.place != "RAM", short.needed - short.available


def _options(case: PlanningCase, draft: ModelShape | None, context: int) -> Iterator[Layout]:
    """What may be fitted: the usual layout first, then those whose prefills stream their past."""
    site, target = case.site, case.target
    layout = plan_layout(
        site.device, site.dtype, site.computes, case.settings, target=target, draft=draft, context=context
    )
    yield layout
    yield from _swept(site, layout)


def _swept(site: PlanningDevice, layout: Layout) -> Iterator[Layout]:
    """The layout with prefills whose past streams, the longest segments first: down to where the bus is still
    hidden behind the attention, all layers being in host memory.
    """
    if site.device == "cpu" or layout.target.readers:
        return
    none = replace(layout, on_chip=0)
    pinned = none.host_kv_bytes <= site.pinnable
    least = costs.hiding_rows(layout.target, layout.kv_rows, site.speeds, pinned=pinned)
    segment = layout.segment
    while segment >= max(least, layout.chunk):
        yield replace(layout, swept=True, segment=segment)
        if layout.fixed_prefill[0]:
            return
        segment //= 2


def longest(case: PlanningCase, limit: int) -> int | None:
    """The longest context up to `limit` that fits, in steps; None where not even the smallest does."""
    return _largest(
        lambda context: fits_anywhere(case, context), limit, smallest=smallest(case.settings, limit)
    )


def smallest(settings: Settings, limit: int) -> int:
    """The least context worth planning for: an answer and some room for what it is about."""
    return min(limit, max(SMALLEST_CONTEXT, settings.max_new_tokens + CONTEXT_STEP))


def _largest(fits: Callable[[int], bool], limit: int, *, smallest: int) -> int | None:
    """The largest value in smallest..limit, in steps, for which `fits` holds; fitting is monotone."""
    if fits(limit):
        return limit
    # low may fail, high has failed or is above
    low, high = smallest // CONTEXT_STEP, limit // CONTEXT_STEP
    if not fits(smallest):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * CONTEXT_STEP) else (low, middle)
    return max(low * CONTEXT_STEP, smallest)


def _fit(site: PlanningDevice, settings: Settings, layout: Layout) -> Layout | Shortfall:
    """`layout` with the most on-chip layers that fit, with smaller prefill segments where it takes that."""
    if site.device == "cpu":
        return _with_host(site, replace(layout, on_chip=_given_layers(settings, layout)))
    if _fits_vram(site, option := replace(layout, on_chip=_given_layers(settings, layout))):
        return _with_host(site, option)
    leaves = settings.on_chip_layers is None and not layout.target.readers
    if leaves:
        option = replace(layout, on_chip=0)
    smaller = [(option.segment, option.chunk), *layout.smaller_prefills()]
    least = replace(option, segment=smaller[-1][0], chunk=smaller[-1][1])
    lines = vram_lines(least, site.vram_reserve)
    if _total(lines) > site.vram_free:  # nothing else needs less
        return Shortfall("VRAM", _total(lines), site.vram_free, lines)
    if leaves and (resident := _most_resident(site, layout)) is not None:
        return _with_host(site, resident)
    # smaller segments only below the least resident plan: so more VRAM never makes anything slower
    options = (replace(option, segment=segment, chunk=chunk) for segment, chunk in smaller[1:])
    return _with_host(site, next(one for one in options if _fits_vram(site, one)))


def _given_layers(settings: Settings, layout: Layout) -> int:
    return layout.target.full_layers if settings.on_chip_layers is None else settings.on_chip_layers


def _fits_vram(site: PlanningDevice, layout: Layout) -> bool:
    return vram_bytes(layout, site.vram_reserve) <= site.vram_free


def _most_resident(site: PlanningDevice, layout: Layout) -> Layout | None:
    """The most on-chip layers, short of all, that fit. None where not even no layer does."""
    all_but_one = replace(
        layout, on_chip=layout.target.full_layers - 1
    )  # prefill needs room for one layer less
    if _fits_vram(site, all_but_one):
        return all_but_one
    none = replace(layout, on_chip=0)
    room = site.vram_free - vram_bytes(none, site.vram_reserve)
    # below, a layer takes its KV cache and nothing else
    return replace(layout, on_chip=room // none.layer_kv_bytes) if room >= 0 else None


def _with_host(site: PlanningDevice, layout: Layout) -> Layout | Shortfall:
    layout = replace(layout, pinnable=site.pinnable)
    lines = host_lines(layout, site.ram_reserve)
    needed = _total(lines)
    if needed <= site.ram_free:
        return layout
    return Shortfall("RAM", needed * site.ranks, site.ram_free * site.ranks, of_all(lines, site.ranks))


def of_all(lines: Sequence[BudgetLine], ranks: int) -> tuple[BudgetLine, ...]:
    """Lines of the memory that the processes share, each of which needs as much."""
    return tuple(replace(line, bytes=line.bytes * ranks) for line in lines)


def _total(lines: Sequence[BudgetLine]) -> int:
    return sum(line.bytes for line in lines)
