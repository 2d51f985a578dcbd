"""Decides what runs where: `make_plan(hardware, settings, target=..., draft=...) -> Plan`. Pure: no torch, no
files, no clock.

The VRAM need is what stays (weights, KV cache of the on-chip layers, retrieval cache, draft model) plus the
larger of two work spaces that never exist together, prefill's and decode's, plus the CUDA context and a
reserve. As many layers as fit keep their KV cache on the device; the others' KV cache lives in host memory,
pinned as far as the system allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from core.config import Settings
from core.errors import PlanError, UserError
from core.hardware.facts import Hardware
from core.model.assistant_sizes import AssistantShape
from core.model.gguf.size_estimates import ROUNDED, rounded_shape
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, AheadShape, ModelShape
from core.planning import costs
from core.planning.budget import before_lines, disk_lines, host_lines, vram_lines
from core.planning.fitting import PlanningCase, PlanningDevice, Shortfall, fitted, of_all, site_of
from core.planning.formats import with_formats
from core.planning.host_attention import attention_s
from core.planning.layout import Layout
from core.planning.notes import beside_card, notes_for, tuning_notes
from core.planning.passes import Passes, computed_passes, kernel_of, lengths, measured_passes, promised_shares
from core.planning.plan import ASSISTANT, MTP, BudgetLine, Plan
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
        found = _best(case, context, shared=True)
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
    if target.readers and layers is not None and layers < target.full_layers:
        said = _(
            "Several layers of {model} read what one holds, so its KV cache stays on the graphics card as a "
            "whole; on_chip_layers is {asked}. Set it to auto, or lower context_tokens."
        )
        raise PlanError(said.format(model=target.name, asked=layers))
    if layers is not None and layers > target.full_layers:
        said = _("{model} has {layers} layers; on_chip_layers is {asked}. Lower it or set it to auto.")
        raise PlanError(said.format(model=target.name, layers=target.full_layers, asked=layers))


def _best(case: PlanningCase, context: int, *, shared: bool = False) -> Plan | Shortfall:
    """The faster of drafting by model and by n-gram lookup; without a draft model where only that fits. On a
    card, where codes may be slow, also of codes and of the numbers they stand for, unless the user chose.
    `shared`: with the CPU's share, which decides nothing else.
    """
    layouts = fitted(case, context)
    if case.site.device == "cuda" and _may_be_decoded(case):
        layouts = [*fitted(_decoded(case), context), *layouts]
    fit = [layout for layout in layouts if isinstance(layout, Layout)]
    if not fit:
        return layouts[-1]
    plans = [_cost(case, layout, computed_passes(case, layout)) for layout in fit]
    plan, layout = min(zip(plans, fit, strict=True), key=lambda one: one[0].expected_tbt_ms)
    return _with_share(case, layout, plan) if shared else plan


def _with_share(case: PlanningCase, layout: Layout, plan: Plan) -> Plan:
    """The plan with the CPU's share where one is promised to pay, with the times of both."""
    shares = promised_shares(case, layout)
    if not (shares.drafted or shares.plain):
        return plan
    drafted = _cost(case, layout, computed_passes(case, layout, shares.drafted))
    plain = computed_passes(case, layout, shares.plain)
    return replace(
        drafted,
        cpu_share=shares.drafted,
        cpu_share_plain=shares.plain,
        expected_plain_tbt_ms=round(plain.full(1) * 1e3, 3),
        expected_verify_ms=drafted.expected_plain_tbt_ms,
        expected_unshared_tbt_ms=plan.expected_tbt_ms,
        expected_unshared_plain_ms=plan.expected_plain_tbt_ms,
    )


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
    plan = _cost(tuned_case, layout, measured_passes(record, case.settings))
    return replace(plan, cpu_share=record.cpu_share, cpu_share_plain=record.cpu_share_plain)


def _budget(site: PlanningDevice, layout: Layout) -> tuple[BudgetLine, ...]:
    on_device = vram_lines(layout, site.vram_reserve) if site.device == "cuda" else ()
    host = of_all(host_lines(layout, site.ram_reserve), site.ranks)
    before = before_lines(layout, host, site.ram_free)
    return *on_device, *host, *before, *disk_lines(layout, site.snapshot_quota)


def _cost(case: PlanningCase, layout: Layout, passes: Passes) -> Plan:
    """The plan for a layout that fits: its lengths and expected times."""
    site, settings = case.site, case.settings
    target, draft = layout.target, layout.draft
    speculation, is_straight = lengths(case, layout, passes)
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
        gamma=speculation.gamma,
        middle_gamma=speculation.middle_gamma,
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
        expected_tbt_ms=round(speculation.tbt_s * 1e3, 3),
        expected_plain_tbt_ms=round(passes.full(1) * 1e3, 3),
        expected_middle_ms=round(passes.middle(1) * 1e3, 3),
        expected_row_ms=round((passes.full(9) - passes.full(1)) / 8 * 1e3, 3),
        expected_prefill_s=round(reading(layout.context), 3),
        expected_passage_s=round(reading(costs.PASSAGE_TOKENS), 3),
        expected_passage_tbt_ms=round(_short_pass_s(case, layout) * 1e3, 3),
        expected_book_s=round(parts * reading(layout.context) + (reading(rest) if rest else 0.0), 3),
        expected_draft_ms=round((passes.straight_draft_s if is_straight else passes.draft_s) * 1e3, 3),
        assumed_acceptance=round(passes.p, 4),
        tuned=passes.measured,
        plain=passes.plain,
        straight=is_straight,
        drafter=_drafter(draft),
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
        kernel=kernel_of(case, layout),
        kv_rows=layout.kv_rows,
    )
    where = {"tokens": layout.context, "layers": away, "cpu": site.cpu}
    return round((on_card_s + attention_s(target, layout.kv_rows, rows=1, **where)) * 1e3, 3)


def _drafter(draft: ModelShape | None) -> str:
    """See Plan.drafter."""
    if isinstance(draft, AheadShape):
        return MTP
    if isinstance(draft, AssistantShape):
        return ASSISTANT
    return "lookup" if draft is None else "model"


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
        kernel=kernel_of(case, layout),
    )


def _short_pass_s(case: PlanningCase, layout: Layout) -> float:
    """A pass of one row behind a passage: plain decoding, and nothing crosses a bus."""
    site = case.site
    kernel = kernel_of(case, layout)
    return costs.pass_s(
        layout.target, site.dtype, rows=1, kv_tokens=costs.PASSAGE_TOKENS, speeds=site.speeds, kernel=kernel
    )
