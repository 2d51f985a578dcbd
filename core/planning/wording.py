"""Plans and facts in plain words. Text only; decides nothing."""

from __future__ import annotations

from typing import Any

from core.config import Settings
from core.hardware.facts import Gpu, Hardware
from core.model.shapes import ModelShape
from core.planning.budget import MODEL_FILES, SNAPSHOTS
from core.planning.plan import AUTO_CONTEXT, PLACES, Plan
from core.planning.tuned import SPECULATION, Tuned


def size(amount: int) -> str:
    """Bytes for people: 68.7 GB (1e9), below one GB in MB."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def exactly(amount: int) -> str:
    """Bytes where a small difference decides: 8.07 GB."""
    return f"{amount / 1e9:.2f} GB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def snapshot_line(facts: dict[str, Any]) -> str:
    """How much is kept of books that were read, how much it may become, and where; `facts` as `doctor --json`
    has them.
    """
    books = f"{facts['books']} book" + ("" if facts["books"] == 1 else "s")
    most = (
        f"at most {size(facts['quota_bytes'])}"
        if facts["quota_bytes"]
        else "switched off by snapshot_quota_gb"
    )
    return f"{size(facts['bytes'])} of {books}, {most}, in {facts['folder']}"


def notes_for(
    plan: Plan, hardware: Hardware, gpu: Gpu | None, settings: Settings, target: ModelShape
) -> tuple[str, ...]:
    """What the user should know about a plan, one sentence or two each."""
    return tuple(
        note
        for note in (
            _where(plan, gpu),
            _context(plan, settings, target),
            _kv_note(plan),
            _bus(plan, gpu),
            _pageable(plan, hardware),
            _draft(plan, settings),
            _speed(plan, settings),
            _disk(plan, hardware, target),
            _gpus_left(hardware, gpu),
        )
        if note
    )


def _where(plan: Plan, gpu: Gpu | None) -> str:
    if gpu is None:
        return f"Runs on the CPU with {plan.threads} threads in {plan.dtype}."
    guess = (
        ""
        if gpu.known
        else " This GPU is not in the table: its memory bandwidth and TFLOP/s are cautious guesses."
    )
    return f"Runs on {gpu.name} in {plan.dtype}.{guess}"


def _context(plan: Plan, settings: Settings, target: ModelShape) -> str:
    if plan.context_stretch > 1:
        return (
            f"{plan.context_tokens:,} tokens is beyond the {target.native_context:,} the model was trained "
            "for; positions "
            f"are stretched {plan.context_stretch:.2g} times (YaRN), at some loss of quality."
        )
    if settings.context_tokens is not None or plan.context_tokens == target.native_context:
        return ""
    if plan.context_tokens == AUTO_CONTEXT:
        return (
            f"The model reads up to {target.native_context:,} tokens; raise context_tokens for books beyond "
            f"{plan.context_tokens:,}."
        )
    return (
        f"Memory ends the context at {plan.context_tokens:,} of the model's {target.native_context:,} "
        "tokens; longer "
        f"books are read in parts."
    )


def _kv_note(plan: Plan) -> str:
    if plan.device == "cpu":
        return ""
    if plan.on_chip_layers == plan.layers:
        return "The whole KV cache fits in VRAM; nothing crosses the bus while decoding."
    if plan.residency == "blocks":
        return (
            f"As much KV cache as {plan.on_chip_layers} of {plan.layers} layers have stays in VRAM, spread "
            "over all; the rest passes "
            f"through {plan.staging_blocks} blocks of {size(plan.staging_block_bytes)} once per round."
        )
    return (
        f"The KV cache of {plan.on_chip_layers} of {plan.layers} layers stays in VRAM; the other "
        f"{plan.layers - plan.on_chip_layers} pass through {plan.staging_blocks} blocks of "
        f"{size(plan.staging_block_bytes)} once per round."
    )


def _bus(plan: Plan, gpu: Gpu | None) -> str:
    if gpu is None or plan.pcie_gb_per_s is None:
        return ""
    how = "measured" if gpu.pcie_measured else "assumed"
    return f"Host to GPU: {plan.pcie_gb_per_s:.1f} GB/s ({how})."


def _pageable(plan: Plan, hardware: Hardware) -> str:
    pageable = sum(line.bytes for line in plan.budget if line.name == "KV cache, not pinned")
    if not pageable:
        return ""
    return (
        f"{hardware.system} lets about {size(hardware.pinnable_bytes)} be pinned; {size(pageable)} of the KV "
        "cache is "
        f"ordinary memory and crosses at about half the rate."
    )


def _draft(plan: Plan, settings: Settings) -> str:
    if plan.draft_model is None:
        return (
            "Drafts come from n-gram lookup in the book and the answer."
            if settings.mode in ("triforce", "ngram")
            else ""
        )
    return (
        f"{plan.draft_model} drafts, seeing the first {plan.draft_sinks} and latest {plan.draft_window} "
        "tokens."
    )


def _speed(plan: Plan, settings: Settings) -> str:
    gain = plan.expected_plain_tbt_ms / plan.expected_tbt_ms
    how = (
        "a measured"
        if plan.tuned and plan.assumed_acceptance != settings.assumed_acceptance
        else "an assumed"
    )
    base = (
        f"At {how} acceptance of {plan.assumed_acceptance:.2f} and a full context, a token takes about "
        f"{plan.expected_tbt_ms:.0f} ms"
    )
    if gain == 1:
        return base + ": no draft is expected to pay, so decoding is plain until one does."
    if gain < 1:
        return (
            f"{base} instead of {plan.expected_plain_tbt_ms:.0f} ms: set gamma to auto, plain decoding is "
            "faster here."
        )
    return f"{base} instead of {plan.expected_plain_tbt_ms:.0f} ms ({gain:.1f} times faster)."


def _disk(plan: Plan, hardware: Hardware, target: ModelShape) -> str:
    on_disk = {line.name: line.bytes for line in plan.budget if line.place == "disk"}
    files, quota, free = on_disk[MODEL_FILES], on_disk.get(SNAPSHOTS, 0), hardware.disk_free_bytes
    book = plan.context_tokens * target.kv_bytes_per_token(plan.dtype)
    notes = []
    if 0 < quota < book:
        notes.append(
            f"Of a book that fills the context {size(book)} would be kept on disk, more than the "
            f"{size(quota)} allowed "
            f"(snapshot_quota_gb), so it is read anew after a restart."
        )
    if free is not None and free < files:
        notes.append(f"The model's files take {size(files)}; {size(free)} is free in {hardware.disk_path}.")
    return " ".join(notes)


def tuning_notes(plan: Plan, settings: Settings, record: Tuned | None, unused: str) -> tuple[str, ...]:
    """Where the lengths of speculation come from, and why an earlier `tune` is not used, `unused`, if that is
    so.
    """
    own = [name for name in SPECULATION if getattr(settings, name) is not None]
    rest = [name for name in SPECULATION if name not in own]
    how = (
        f"were measured on this machine on {plan.tuned}"
        if plan.tuned
        else "follow rules; launcher.py tune measures them"
    )
    parts = [f"{', '.join(own)}: as set"] * bool(own) + [f"{', '.join(rest)} {how}"] * bool(rest)
    origin = f"Of the speculation, {'; '.join(parts)}."
    if not unused:
        return (origin,)
    return (
        origin,
        f"The values tuned on {record.date} are not used, because {unused}. launcher.py tune measures anew.",
    )


def _gpus_left(hardware: Hardware, gpu: Gpu | None) -> str:
    unused = [one.name for one in hardware.gpus if gpu is None or one.index != gpu.index]
    return f"Not used: {', '.join(unused)}." if unused else ""


# ---- the whole plan as text --------------------------------------------------------------------------------


def format_plan(plan: Plan) -> str:
    """The plan for a terminal: the choices, where each GB lives, the expectations and the notes."""
    draft = plan.draft_model or "n-gram lookup"
    lines = [
        f"{plan.model} on {plan.device} in {plan.dtype}, {plan.context_tokens:,} tokens of context",
        f"  retrieval   {plan.retrieval_budget:,} tokens in chunks of {plan.retrieval_chunk}, tail "
        f"{plan.tail_tokens}",
        f"  draft       {draft}, {plan.draft_sinks} sinks + {plan.draft_window} window",
        f"  gamma       {plan.gamma} outer, {plan.middle_gamma} middle",
        f"  prefill     segments of {plan.prefill_segment_tokens:,} in chunks of "
        f"{plan.prefill_chunk_tokens:,} tokens",
    ]
    if plan.staging_blocks:
        lines.append(
            f"  on chip     {plan.on_chip_layers} of {plan.layers} layers; {plan.staging_blocks} staging "
            "blocks of "
            f"{size(plan.staging_block_bytes)}"
        )
    for place in PLACES:
        rows = [line for line in plan.budget if line.place == place]
        if rows:
            lines += ["", f"{place}  {size(plan.bytes_in(place))}"]
            lines += [f"  {size(line.bytes):>9}  {line.name}" for line in rows]
    lines += [
        "",
        f"Expected time between tokens    {plan.expected_tbt_ms:,.0f} ms (plain decoding "
        f"{plan.expected_plain_tbt_ms:,.0f} ms)",
        f"Expected prefill, full context  {duration(plan.expected_prefill_s)}",
        "",
    ]
    return "\n".join(lines + [f"- {note}" for note in plan.notes])
