"""Decides what runs where: `make_plan(hardware, settings, target=..., draft=...) -> Plan`. Pure: no torch, no
files, no clock.

The VRAM need is what stays (weights, KV cache of the on-chip layers, retrieval cache, draft model) plus the
larger of two work spaces that never exist together, prefill's and decode's, plus the CUDA context and a
reserve. As many layers as fit keep their KV cache on the device; the others' KV cache lives in host memory,
pinned as far as the system allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from core.config import Settings
from core.errors import PlanError, UserError
from core.hardware.facts import Hardware
from core.model.gguf.size_estimates import ROUNDED, rounded_shape
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, AheadShape, ModelShape
from core.planning import costs
from core.planning.budget import disk_lines, host_lines, vram_lines
from core.planning.fitting import PlanningCase, PlanningDevice, Shortfall, fitted, of_all, site_of
from core.planning.formats import with_formats
from core.planning.host_attention import attention_s
from core.planning.layout import Layout
from core.planning.notes import beside_card, notes_for, tuning_notes
from core.planning.plan import MTP, BudgetLine, Plan
from core.planning.plan_errors import refusal
from core.planning.recommended import first_answer
from core.planning.stored_facts import NOTHING, StoredFacts
from core.planning.tuned import Tuned, machine_of, newest
from core.text.words import translated as _


def make_plan(
    hardware: Hardware,
    settings: Settings,
    *,
    target: ModelShape,
    draft: ModelShape | None = None,
    alternatives: Sequence[ModelShape] = (),
    known: StoredFacts = NOTHING,
) -> Plan:
    """The plan for `target` on this machine, where the settings leave it open on whichever of card and CPU
    answers a question about a book sooner. `alternatives` are models that a refusal may offer instead.

    Raises PlanError with what is needed, what is there, and the smallest change that fits.
    """
    _check_asked(settings, target)
    planned = partial(_planned, hardware, target=target, draft=draft, alternatives=alternatives, known=known)
    if settings.devices is not None and settings.device is None:
        settings = replace(settings, device="cuda")
    if settings.device is not None or not hardware.gpus:
        return planned(settings)
    refused = None
    plans = []
    for device in ("cuda", "cpu"):
        try:
            plans.append(planned(replace(settings, device=device)))
        except PlanError as error:
            refused = refused or error
    if not plans:
        raise refused
    found = min(plans, key=lambda one: first_answer(one).seconds)
    return found if found.device == "cuda" else replace(found, notes=(*found.notes, beside_card()))


def _planned(
    hardware: Hardware,
    settings: Settings,
    *,
    target: ModelShape,
    draft: ModelShape | None,
    alternatives: Sequence[ModelShape],
    known: StoredFacts,
) -> Plan:
    """The plan for one device."""
    if settings.weights == 16:
        target = target.decoded()
    elif settings.weights is not None and not target.coded_weights:
        target = rounded_shape(target, ROUNDED[settings.weights])
    site = site_of(hardware, settings, known=known)
    if site.ranks > 1:
        # no pass with sums between cards was recorded yet, and none measured
        settings, known = replace(settings, cuda_graphs="off"), replace(known, tuned=NOTHING.tuned)
        target = _divided(target, site.ranks)
        alternatives = [one.divided(site.ranks) for one in alternatives if one.divides(site.ranks)]
    if draft is not None and site.device == "cuda":
        draft = draft.decoded()  # as it is loaded there: its passes are many, and codes are slow
    case, context = with_formats(PlanningCase(site, settings, target, draft), _best)
    record = newest(known.tuned, target.name, case.site.device, context)
    found = _tuned(case, context, record, machine_of(hardware)) if record else ""
    unused = found if isinstance(found, str) else ""
    if not isinstance(found, Plan):
        found = _best(case, context)
    if isinstance(found, Shortfall):
        raise refusal(case, found, context, alternatives)
    notes = (
        *notes_for(found, hardware, settings, gpu=case.site.gpu, target=case.target),
        *tuning_notes(found, settings, record, unused),
    )
    return replace(found, notes=notes, fixed_gamma=settings.gamma is not None)


def _divided(target: ModelShape, ranks: int) -> ModelShape:
    try:
        return target.divided(ranks)
    except UserError as error:
        raise PlanError(str(error)) from error


def _check_asked(settings: Settings, target: ModelShape) -> None:
    context, layers = settings.context_tokens, settings.on_chip_layers
    if context is not None and context > target.longest_context:
        said = _(
            "{model} handles at most {most} tokens; {context} were asked for. Lower context_tokens to "
            "{most}, choose a model with a longer context, or read the book in parts (reading_mode: chunked)."
        )
        raise PlanError(
            said.format(model=target.name, most=f"{target.longest_context:,}", context=f"{context:,}")
        )
    bits = target.code_bits if target.coded_weights else 0  # what is not coded can be rounded
    if settings.weights is not None and settings.weights < bits:
        said = _(
            "{model} has weights of {bits} bits, and weights is {asked}. Set it to auto, or choose a GGUF of "
            "that model with fewer bits."
        )
        raise PlanError(said.format(model=target.name, bits=bits, asked=settings.weights))
    if layers is not None and layers > target.full_layers:
        said = _("{model} has {layers} layers; on_chip_layers is {asked}. Lower it or set it to auto.")
        raise PlanError(said.format(model=target.name, layers=target.full_layers, asked=layers))


def _best(case: PlanningCase, context: int) -> Plan | Shortfall:
    """The faster of drafting by model and by n-gram lookup; without a draft model where only that fits. On a
    card, where codes may be slow, also of codes and of the numbers they stand for, unless the user chose.
    """
    layouts = fitted(case, context)
    if case.site.device == "cuda" and _may_be_decoded(case):
        layouts = [*fitted(_decoded(case), context), *layouts]
    plans = [_cost(case, layout, _computed(case, layout)) for layout in layouts if isinstance(layout, Layout)]
    return min(plans, key=lambda one: one.expected_tbt_ms) if plans else layouts[-1]


def _may_be_decoded(case: PlanningCase) -> bool:
    """Of a GGUF, where nobody chose; what is rounded is so for the memory that it takes."""
    return bool(case.target.coded_weights) and case.settings.weights is None and not case.target.rounded


def _decoded(case: PlanningCase) -> PlanningCase:
    return replace(case, target=case.target.decoded())


def _tuned(case: PlanningCase, context: int, record: Tuned, machine: str) -> Plan | str:
    """The plan with the values that `tune` measured, or, to follow "because", why they cannot be used."""
    unfit = record.unfit(machine, case.settings, dtype=case.site.dtype, threads=case.site.threads)
    if unfit:
        return unfit
    tuned_case = replace(case, settings=record.into(case.settings))
    if record.kernel == "float" and case.site.device == "cuda" and _may_be_decoded(case):
        tuned_case = _decoded(tuned_case)
    layouts = [layout for layout in fitted(tuned_case, context) if isinstance(layout, Layout)]
    layout = next((one for one in layouts if _drafted_by(one.draft) == record.draft_model), None)
    if layout is None:
        return _("they are for drafts by {draft}").format(draft=record.draft_model or _("n-gram lookup"))
    if layout.kv_rows != (record.kv_rows or case.site.dtype):
        return _("they are for a KV cache of {rows}").format(rows=record.kv_rows or case.site.dtype)
    if layout.kernel != record.kernel:
        return _("they are for {kernel} kernels").format(kernel=record.kernel)
    if abs(layout.on_chip - record.on_chip_layers) > case.target.full_layers // 10:
        said = _("{now} layers fit the device now and {then} did then")
        return said.format(now=layout.on_chip, then=record.on_chip_layers)
    return _cost(tuned_case, layout, _measured(record, case.settings))


@dataclass(frozen=True, slots=True)
class _Passes:
    """What speculation is made of: seconds of passes by rows and of one pass of the draft model, p and q of
    the two levels.
    """

    full: Callable[[int], float]
    middle: Callable[[int], float]
    draft_s: float
    p: float
    q: float
    measured: str = ""  # when
    plain: bool = False  # no drafts: measured to be slower


def _computed(case: PlanningCase, layout: Layout) -> _Passes:
    """By the cost model."""
    site, draft = case.site, layout.draft
    pinned, pageable = layout.host_kv_split()
    host = costs.StreamedKV(pinned, pageable, layout.block_bytes) if pinned + pageable else None
    take = partial(costs.pass_s, layout.target, site.dtype, speeds=site.speeds, kernel=_kernel(case, layout))
    launched = partial(_launched, case, layout)
    whole = host is None and costs.recorded_whole(layout.target, site.speeds)
    full = partial(
        take, kv_rows=layout.kv_rows, kv_tokens=layout.context, host=host, launched=launched(whole)
    )
    middle = partial(take, kv_tokens=layout.retrieval_tokens, launched=launched(layout.target.of_one_store))
    draft_s = 0.0
    if draft is not None:
        # a layer of the target's own is held as the target is, and its passes are not recorded
        own = isinstance(draft, AheadShape)
        how = {"kv_tokens": layout.draft_tokens, "launched": launched(not draft.stateful and not own)}
        how["kernel"] = _kernel(case, layout) if own else "float"
        draft_s = costs.pass_s(draft, site.dtype, rows=1, speeds=site.speeds, **how)
    return _Passes(
        full=lambda rows: full(rows=rows),
        middle=lambda rows: middle(rows=rows, verified=True),
        draft_s=draft_s,
        p=case.settings.assumed_acceptance,
        q=(draft and case.settings.assumed_draft_acceptance) or costs.draft_acceptance(layout.target, draft),
    )


def _launched(case: PlanningCase, layout: Layout, recorded: bool) -> bool:
    """Whether a pass is asked for operation by operation, which a card may have to wait for: where those of
    its kind are not `recorded`, or none are.
    """
    return case.site.device == "cuda" and not (recorded and layout.graphs)


def _measured(record: Tuned, settings: Settings) -> _Passes:
    """As `tune` found them, unless the user assumes another acceptance than the program does."""
    assumed = settings.assumed_acceptance != Settings().assumed_acceptance
    return _Passes(
        full=record.verify_s,
        middle=record.middle_s,
        draft_s=record.draft_ms / 1e3,
        p=settings.assumed_acceptance if assumed else record.acceptance,
        q=record.draft_acceptance,
        measured=record.date,
        plain=record.plain and settings.gamma is None,
    )


def _speculation(settings: Settings, passes: _Passes, *, by_lookup: bool) -> costs.Speculation:
    """Draft lengths with the least time between tokens. Both are bounds: a draft stops by itself where one
    more pass does not pay, the tokens of n-gram lookup are free, and at worst decoding is plain.
    """
    found = costs.best_speculation(
        [passes.full(rows) for rows in range(1, _last(settings.gamma, costs.MAX_GAMMA))],
        [passes.middle(rows) for rows in range(1, _last(settings.middle_gamma, costs.MAX_MIDDLE_GAMMA))],
        draft_s=passes.draft_s,
        p=passes.p,
        q=passes.q,
        gamma=settings.gamma,
        middle_gamma=settings.middle_gamma or (costs.NGRAM_GAMMA if by_lookup else None),
    )
    return costs.Speculation(
        gamma=settings.gamma or max(found.gamma, costs.LEAST_GAMMA),
        middle_gamma=settings.middle_gamma or max(found.middle_gamma, costs.NGRAM_GAMMA),
        tbt_s=_token_s(settings, passes, found.tbt_s),
    )


def _straight(case: PlanningCase, passes: _Passes) -> costs.Speculation | None:
    """Two levels, of a model whose layers mostly keep a state: these cost its middle pass what they cost a
    full one. None where three were measured, or lengths or draft levels are the user's.
    """
    settings = case.settings
    chosen = settings.gamma or settings.middle_gamma or settings.mode != "triforce"
    if not case.target.stateful or chosen or passes.measured:
        return None
    rows = range(1, costs.MAX_MIDDLE_GAMMA + 2)
    return costs.straight_speculation([passes.full(n) for n in rows], draft_s=passes.draft_s, q=passes.q)


def _token_s(settings: Settings, passes: _Passes, drafted_s: float) -> float:
    """Time between tokens: drafting, unless plain decoding is as fast and the user left the choice to us."""
    if passes.plain:
        return passes.full(1)
    return drafted_s if settings.gamma else min(drafted_s, passes.full(1))


def _budget(site: PlanningDevice, layout: Layout) -> tuple[BudgetLine, ...]:
    on_device = vram_lines(layout, site.vram_reserve) if site.device == "cuda" else ()
    host = of_all(host_lines(layout, site.ram_reserve), site.ranks)
    return *on_device, *host, *disk_lines(layout, site.snapshot_quota)


def _cost(case: PlanningCase, layout: Layout, passes: _Passes) -> Plan:
    """The plan for a layout that fits: its lengths and expected times."""
    site, settings = case.site, case.settings
    target, draft = layout.target, layout.draft
    lengths = _speculation(settings, passes, by_lookup=draft is None)
    two = _straight(case, passes)
    if is_straight := two is not None and two.tbt_s < lengths.tbt_s:
        lengths = replace(two, middle_gamma=lengths.middle_gamma)
    reading = partial(_reading_s, case, layout)
    parts, rest = divmod(costs.BOOK_TOKENS, layout.context)
    offloaded = layout.on_chip < target.full_layers
    is_own = isinstance(draft, AheadShape)
    return Plan(
        model=target.name,
        device=site.device,
        dtype=site.dtype,
        computes=site.computes,
        context_tokens=layout.context,
        context_stretch=max(1.0, layout.context / target.native_context),
        layers=target.full_layers,
        on_chip_layers=layout.on_chip,
        retrieval_budget=layout.retrieval_budget,
        retrieval_chunk=layout.retrieval_chunk,
        tail_tokens=layout.tail,
        draft_model=None if is_own else draft and draft.name,
        draft_sinks=layout.draft_sinks,
        draft_window=layout.draft_window,
        gamma=lengths.gamma,
        middle_gamma=lengths.middle_gamma,
        prefill_segment_tokens=layout.segment,
        prefill_chunk_tokens=layout.chunk,
        beside_tokens=layout.beside,
        swept_prefill=layout.swept and offloaded,
        staging_blocks=layout.blocks if offloaded else 0,
        staging_block_bytes=layout.block_bytes if offloaded else 0,
        staging_block_tokens=layout.block_tokens if offloaded else 0,
        threads=site.threads,
        weights_kernel=layout.kernel,
        weights_bits=target.code_bits if target.coded_weights else 8 * DTYPE_BYTES[site.dtype],
        weights_format=target.format,
        rounded=target.rounded,
        kv_bits=8 if layout.kv_rows == CODED_ROWS else 8 * DTYPE_BYTES[site.dtype],
        expected_tbt_ms=round(lengths.tbt_s * 1e3, 3),
        expected_plain_tbt_ms=round(passes.full(1) * 1e3, 3),
        expected_middle_ms=round(passes.middle(1) * 1e3, 3),
        expected_row_ms=round((passes.full(9) - passes.full(1)) / 8 * 1e3, 3),
        expected_prefill_s=round(reading(layout.context), 3),
        expected_passage_s=round(reading(costs.PASSAGE_TOKENS), 3),
        expected_passage_tbt_ms=round(_short_pass_s(case, layout) * 1e3, 3),
        expected_book_s=round(parts * reading(layout.context) + (reading(rest) if rest else 0.0), 3),
        expected_draft_ms=round(passes.draft_s * 1e3, 3),
        assumed_acceptance=round(passes.p, 4),
        tuned=passes.measured,
        plain=passes.plain,
        straight=is_straight,
        drafter=MTP if is_own else "lookup" if draft is None else "model",
        assumed_draft_acceptance=round(passes.q, 4),
        pcie_gb_per_s=site.gpu.pcie_gb_per_s if site.gpu and offloaded else None,
        budget=_budget(site, layout),
        notes=(),
        residency=settings.kv_residency,
        gpu_index=site.gpu.index if site.gpu else 0,
        devices=site.devices,
        page_lock_bytes=site.pinnable * site.ranks if site.gpu else None,
        keep_free_bytes=site.vram_reserve if site.spills else None,
        cuda_graphs=settings.cuda_graphs if site.device == "cuda" else "off",
        expected_cpu_attention_ms=_cpu_attention_ms(case, layout),
    )


def _cpu_attention_ms(case: PlanningCase, layout: Layout) -> float | None:
    """A token of plain decoding whose attention to host memory is the CPU's, for which the card waits."""
    site, target, away = case.site, layout.target, layout.host_layers
    if site.cpu is None or not away:
        return None
    on_card_s = costs.pass_s(
        target,
        site.dtype,
        rows=1,
        kv_tokens=layout.context * layout.on_chip // target.full_layers,
        speeds=site.speeds,
        kernel=_kernel(case, layout),
        kv_rows=layout.kv_rows,
    )
    where = {"tokens": layout.context, "layers": away, "cpu": site.cpu}
    return round((on_card_s + attention_s(target, layout.kv_rows, rows=1, **where)) * 1e3, 3)


def _drafted_by(draft: ModelShape | None) -> str | None:
    """A draft model's name, or MTP."""
    return MTP if isinstance(draft, AheadShape) else draft and draft.name


def _reading_s(case: PlanningCase, layout: Layout, tokens: int) -> float:
    """Seconds to read so many tokens into an empty context, of which the layout's share goes to the host."""
    return costs.prefill_seconds(
        layout.target,
        case.site.dtype,
        tokens=tokens,
        segment=layout.segment,
        chunk=layout.chunk,
        speeds=case.site.speeds,
        host_bytes=int(sum(layout.host_kv_split()) * min(1.0, tokens / layout.context)),
        kernel=_kernel(case, layout),
    )


def _short_pass_s(case: PlanningCase, layout: Layout) -> float:
    """A pass of one row behind a passage: plain decoding, and nothing crosses a bus."""
    site = case.site
    kernel = _kernel(case, layout)
    return costs.pass_s(
        layout.target, site.dtype, rows=1, kv_tokens=costs.PASSAGE_TOKENS, speeds=site.speeds, kernel=kernel
    )


def _kernel(case: PlanningCase, layout: Layout) -> str:
    """By which weights are multiplied, as costs.KERNEL_SPEED names it."""
    decodes = case.site.speeds.decodes_weights
    if layout.kernel != "codes":
        return layout.kernel
    if case.site.device == "cuda":
        return "decoded" if decodes else "compiled"
    return "by torch" if decodes else "codes"


def _last(given: int | None, longest: int) -> int:
    """One past the most rows a pass may have: the proposals and the token they follow."""
    return (given or longest) + 2
