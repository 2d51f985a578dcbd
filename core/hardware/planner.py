"""Decides what runs where: `plan(hardware, settings, target=..., draft=...) -> Plan`. Pure: no torch, no files, no clock.

The VRAM need is what stays (weights, KV cache of the on-chip layers, retrieval cache, draft model) plus the larger of two work
spaces that never exist together, prefill's and decode's, plus the CUDA context and a reserve. As many layers as fit keep
their KV cache on the device; the others' KV cache lives in host memory, pinned as far as the system allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.config import Settings
from core.errors import PlanError
from core.hardware import costs
from core.hardware.budget import Layout, host_lines, lay_out, vram_lines
from core.hardware.facts import GIB, Gpu, Hardware
from core.hardware.plan import AUTO_CONTEXT, BudgetLine, Plan
from core.hardware.shapes import ModelShape
from core.hardware.wording import exactly, notes_for, size

CONTEXT_STEP = 256                 # an automatic context is a multiple of this
SMALLEST_CONTEXT = 1024
USEFUL_CONTEXT = 8192              # what an offered other model should at least read at once
LAYOUT_FIGURES = ("on_chip_layers", "retrieval_budget", "draft_window", "staging_blocks", "staging_block_mib",
                  "prefill_segment_tokens", "prefill_chunk_tokens")    # the user may set them, and set them too high


@dataclass(frozen=True, slots=True)
class Site:
    """Where a plan is to fit: the device, its speeds, and what is free after the user's overrides."""

    device: str
    dtype: str
    system: str
    threads: int
    speeds: costs.Speeds
    gpu: Gpu | None
    vram_free: int
    vram_reserve: int
    ram_free: int
    ram_reserve: int
    pinnable: int


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The place that does not hold its lines."""

    place: str
    needed: int
    available: int
    lines: tuple[BudgetLine, ...]


def plan(
    hardware: Hardware, settings: Settings, *, target: ModelShape, draft: ModelShape | None = None,
    alternatives: Sequence[ModelShape] = (),
) -> Plan:
    """The plan for `target` on this machine. `alternatives` are models that an error may offer instead.

    Raises PlanError with what is needed, what is there, and the smallest change that fits.
    """
    _check_asked(settings, target)
    site = site_of(hardware, settings)
    if settings.context_tokens is not None:
        found = _best(site, settings, target, draft, settings.context_tokens)
        if isinstance(found, Shortfall):
            raise _explain(found, site, settings, target, draft, settings.context_tokens, alternatives)
        return _finish(found, hardware, site, settings, target)
    limit = min(target.native_context, AUTO_CONTEXT)
    context = _longest(site, settings, target, draft, limit)
    if context is None:
        smallest = _smallest(settings, limit)
        short = _best(site, settings, target, draft, smallest)
        assert isinstance(short, Shortfall), "the smallest context fits and yet none was found"
        raise _explain(short, site, settings, target, draft, smallest, alternatives)
    found = _best(site, settings, target, draft, context)
    assert isinstance(found, Plan), f"{context} tokens fit and then did not"
    return _finish(found, hardware, site, settings, target)


# ---- the machine after the user's overrides -------------------------------------------------------------------------

def site_of(hardware: Hardware, settings: Settings) -> Site:
    """The device to plan for. The GPU with the most free memory, unless the user wants the CPU or there is none."""
    gpu = max(hardware.gpus, key=lambda one: (one.free_bytes, -one.index), default=None)
    if settings.device == "cuda" and gpu is None:
        problem = f" ({hardware.problems[0]})" if hardware.problems else ""
        raise PlanError(f"No usable CUDA GPU was found{problem}. Install the NVIDIA driver, or set device to auto or cpu.")
    if settings.device == "cpu":
        gpu = None
    threads = settings.threads or hardware.physical_cores
    ram_free = int(settings.ram_gib * GIB) if settings.ram_gib else hardware.ram_available_bytes
    reserve = settings.ram_reserve_gib * GIB if settings.ram_reserve_gib is not None else max(GIB, hardware.ram_bytes * 0.06)
    common = {"system": hardware.system, "threads": threads, "ram_free": ram_free, "ram_reserve": int(reserve)}
    if gpu is None:
        dtype = settings.dtype or _cpu_dtype(hardware)
        return Site(device="cpu", dtype=dtype, speeds=costs.cpu_speeds(hardware, threads, dtype), gpu=None, vram_free=0,
                    vram_reserve=0, pinnable=0, **common)
    gpu = _overridden(gpu, settings)
    vram_reserve = settings.vram_reserve_gib
    if vram_reserve is None:
        vram_reserve = 1.5 if hardware.system == "Windows" else 1.0    # Windows spills into system memory instead of failing
    vram_free = int(settings.vram_gib * GIB) if settings.vram_gib else gpu.free_bytes
    return Site(device="cuda", dtype=settings.dtype or _gpu_dtype(gpu), speeds=costs.gpu_speeds(gpu), gpu=gpu,
                vram_free=vram_free, vram_reserve=int(vram_reserve * GIB),
                pinnable=min(hardware.pinnable_bytes, ram_free), **common)


def _overridden(gpu: Gpu, settings: Settings) -> Gpu:
    stated = {"pcie_gb_per_s": settings.pcie_gb_per_s, "memory_gb_per_s": settings.vram_gb_per_s, "tflops": settings.tflops}
    return replace(gpu, **{name: value for name, value in stated.items() if value is not None})


def _cpu_dtype(hardware: Hardware) -> str:
    """bfloat16 only where the CPU multiplies it natively; elsewhere it is emulated and slower than float32."""
    return "bfloat16" if hardware.cpu_flags & {"avx512_bf16", "amx_bf16"} else "float32"


def _gpu_dtype(gpu: Gpu) -> str:
    old = gpu.compute_capability is not None and gpu.compute_capability < (8, 0)
    return "float16" if old else "bfloat16"


# ---- one context on one machine ---------------------------------------------------------------------------------------

def _best(
    site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, context: int,
) -> Plan | Shortfall:
    """The faster of drafting by model and by n-gram lookup; without a draft model where only that fits."""
    fitted = _fitted(site, settings, target, draft, context)
    plans = [_cost(site, settings, layout) for layout in fitted if isinstance(layout, Layout)]
    return min(plans, key=lambda one: one.expected_tbt_ms) if plans else fitted[-1]


def _fits(site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, context: int) -> bool:
    """Whether `_best` finds a plan; costs nothing."""
    return any(isinstance(layout, Layout) for layout in _fitted(site, settings, target, draft, context))


def _fitted(
    site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, context: int,
) -> list[Layout | Shortfall]:
    """The layout with the draft model and, unless the user named one, without: each fitted, or where it breaks."""
    free_choice = draft is not None and settings.draft_model is None
    drafts = (draft, None) if free_choice else (draft,)
    return [_fit(site, settings, lay_out(site.device, site.dtype, settings, target=target, draft=one, context=context))
            for one in drafts]


def _fit(site: Site, settings: Settings, layout: Layout) -> Layout | Shortfall:
    """`layout` with the most on-chip layers that fit, prefill in smaller segments where that is what it takes."""
    if site.device == "cpu":
        return _with_host(site, replace(layout, on_chip=_given_layers(settings, layout)))
    if _fits_vram(site, option := replace(layout, on_chip=_given_layers(settings, layout))):
        return _with_host(site, option)
    if settings.on_chip_layers is None:
        option = _most_resident(site, layout)
        if option is not None:
            return _with_host(site, option)
        option = replace(layout, on_chip=0)
    # smaller segments only below the least resident plan: so more VRAM never makes anything slower
    for segment, chunk in layout.smaller_prefills():
        option = replace(option, segment=segment, chunk=chunk)
        if _fits_vram(site, option):
            return _with_host(site, option)
    lines = vram_lines(option, site.vram_reserve)
    return Shortfall("VRAM", _total(lines), site.vram_free, lines)


def _given_layers(settings: Settings, layout: Layout) -> int:
    return layout.target.layers if settings.on_chip_layers is None else settings.on_chip_layers


def _fits_vram(site: Site, layout: Layout) -> bool:
    return _total(vram_lines(layout, site.vram_reserve)) <= site.vram_free


def _most_resident(site: Site, layout: Layout) -> Layout | None:
    """The most on-chip layers short of all that fit, by halving: below all of them, each one more needs no less VRAM."""
    low, high = -1, layout.target.layers          # low fits (or is none), high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits_vram(site, replace(layout, on_chip=middle)) else (low, middle)
    return replace(layout, on_chip=low) if low >= 0 else None


def _with_host(site: Site, layout: Layout) -> Layout | Shortfall:
    layout = replace(layout, pinnable=site.pinnable)
    lines = host_lines(layout, site.ram_reserve)
    needed = _total(lines)
    return layout if needed <= site.ram_free else Shortfall("RAM", needed, site.ram_free, lines)


def _total(lines: Sequence[BudgetLine]) -> int:
    return sum(line.bytes for line in lines)


def _cost(site: Site, settings: Settings, layout: Layout) -> Plan:
    """Draft lengths and expected times for a layout that fits."""
    target, draft, context, speeds = layout.target, layout.draft, layout.context, site.speeds
    pinned, pageable = layout.host_kv_split()
    host = costs.HostKV(pinned, pageable, layout.block_bytes) if pinned + pageable else None

    def full(rows: int) -> float:
        return costs.pass_s(target, site.dtype, rows=rows, kv_tokens=context, speeds=speeds, host=host)

    def middle(rows: int) -> float:
        return costs.pass_s(target, site.dtype, rows=rows, kv_tokens=layout.retrieval_tokens, speeds=speeds,
                            kernel=layout.kernel)

    draft_s = 0.0
    if draft is not None:
        draft_s = costs.pass_s(draft, site.dtype, rows=1, kv_tokens=layout.draft_tokens, speeds=speeds)
    lengths = costs.best_speculation(
        [full(rows) for rows in range(1, _last(settings.gamma, costs.MAX_GAMMA))],
        [middle(rows) for rows in range(1, _last(settings.middle_gamma, costs.MAX_MIDDLE_GAMMA))],
        draft_s=draft_s, p=settings.assumed_acceptance, q=costs.draft_acceptance(target, draft),
        gamma=settings.gamma, middle_gamma=settings.middle_gamma,
    )
    prefill = costs.prefill_s(target, site.dtype, tokens=context, segment=layout.segment, speeds=speeds,
                              host_bytes=pinned + pageable)
    budget = (*vram_lines(layout, site.vram_reserve), *host_lines(layout, site.ram_reserve)) if site.device == "cuda" else (
        host_lines(layout, site.ram_reserve))
    offloaded = layout.on_chip < target.layers
    return Plan(
        model=target.name, device=site.device, dtype=site.dtype, context_tokens=context,
        context_stretch=max(1.0, context / target.native_context), layers=target.layers, on_chip_layers=layout.on_chip,
        retrieval_budget=layout.retrieval_budget, retrieval_chunk=layout.retrieval_chunk, tail_tokens=layout.tail,
        draft_model=draft.name if draft is not None else None, draft_sinks=layout.draft_sinks,
        draft_window=layout.draft_window, gamma=lengths.gamma, middle_gamma=lengths.middle_gamma,
        prefill_segment_tokens=layout.segment, prefill_chunk_tokens=layout.chunk,
        staging_blocks=layout.blocks if offloaded else 0, staging_block_bytes=layout.block_bytes if offloaded else 0,
        staging_block_tokens=layout.block_tokens if offloaded else 0,
        threads=site.threads, weights_kernel=layout.kernel, expected_tbt_ms=round(lengths.tbt_s * 1e3, 3),
        expected_plain_tbt_ms=round(full(1) * 1e3, 3), expected_prefill_s=round(prefill, 3),
        assumed_acceptance=settings.assumed_acceptance,
        pcie_gb_per_s=site.gpu.pcie_gb_per_s if site.gpu and offloaded else None, budget=budget, notes=(),
    )


def _last(given: int | None, longest: int) -> int:
    """One past the most rows a pass may have: the proposals and the token they follow."""
    return (given or longest) + 2


def _finish(found: Plan, hardware: Hardware, site: Site, settings: Settings, target: ModelShape) -> Plan:
    return replace(found, notes=notes_for(found, hardware, site.gpu, settings, target))


# ---- what is possible, and saying it ----------------------------------------------------------------------------------

def _check_asked(settings: Settings, target: ModelShape) -> None:
    context, layers = settings.context_tokens, settings.on_chip_layers
    if context is not None and context > target.longest_context:
        raise PlanError(
            f"{target.name} handles at most {target.longest_context:,} tokens; {context:,} were asked for. Lower "
            f"context_tokens to {target.longest_context:,}, choose a model with a longer context, or read the book in parts "
            f"(fit: sections)."
        )
    if layers is not None and layers > target.layers:
        raise PlanError(f"{target.name} has {target.layers} layers; on_chip_layers is {layers}. Lower it or set it to auto.")


def _longest(site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, limit: int) -> int | None:
    """The longest context up to `limit` that fits, in steps; None where not even the smallest does."""
    return _largest(lambda context: _fits(site, settings, target, draft, context), limit,
                    smallest=_smallest(settings, limit))


def _smallest(settings: Settings, limit: int) -> int:
    """The least context worth planning for: an answer and some room for what it is about."""
    return min(limit, max(SMALLEST_CONTEXT, settings.max_new_tokens + CONTEXT_STEP))


def _largest(fits: Callable[[int], bool], limit: int, *, smallest: int) -> int | None:
    """The largest value in smallest..limit for which `fits` holds, on the grid of steps; fitting is monotone."""
    if fits(limit):
        return limit
    low, high = smallest // CONTEXT_STEP, limit // CONTEXT_STEP        # low may fail, high has failed or is above
    if not fits(smallest):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * CONTEXT_STEP) else (low, middle)
    return max(low * CONTEXT_STEP, smallest)


def _explain(
    short: Shortfall, site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, context: int,
    alternatives: Sequence[ModelShape],
) -> PlanError:
    """The error that names need, supply, the biggest lines and the smallest changes that fit."""
    where = "of VRAM" if short.place == "VRAM" else "of RAM"
    biggest = sorted(short.lines, key=lambda line: line.bytes, reverse=True)[:3]
    only = "with" if settings.context_tokens is not None else "even with only"
    detail = ", ".join(f"{line.name} {size(line.bytes)}" for line in biggest)
    remedies = list(_remedies(short, site, settings, target, draft, context, alternatives))
    return PlanError(
        f"{target.name} {only} {context:,} tokens of context needs {exactly(short.needed)} {where}; "
        f"{exactly(short.available)} is free. The largest parts are: {detail}. " + _sentence(remedies)
    )


def _remedies(
    short: Shortfall, site: Site, settings: Settings, target: ModelShape, draft: ModelShape | None, context: int,
    alternatives: Sequence[ModelShape],
) -> Iterator[str]:
    """Changes that would make it fit, smallest first; each is tried before it is offered."""
    shorter = _longest(site, settings, target, draft, context)
    if shorter is not None:
        yield f"lower context_tokens to {shorter:,}"
    for figure in LAYOUT_FIGURES:
        if getattr(settings, figure) is not None and _fits(site, replace(settings, **{figure: None}), target, draft, context):
            yield f"set {figure} to auto"
    missing = short.needed - short.available
    if short.place == "RAM":
        yield f"close other programs or add RAM ({size(missing)} more)"
    else:
        yield f"use a GPU with {size(missing)} more free VRAM"
    wanted = context if settings.context_tokens is not None else USEFUL_CONTEXT
    others = [shape for shape in alternatives if shape.name != target.name and shape.native_context >= wanted]
    for shape in sorted(others, key=lambda one: one.parameters, reverse=True):
        if _fits(site, replace(settings, on_chip_layers=None), shape, None, wanted):
            yield f"choose {shape.name}, which fits with {wanted:,} tokens"
            return


def _sentence(remedies: list[str]) -> str:
    """'Lower A, B or C.' """
    joined = remedies[0] if len(remedies) == 1 else ", ".join(remedies[:-1]) + ", or " + remedies[-1]
    return joined[0].upper() + joined[1:] + "."
