"""The whole plan, and what is kept on disk, as text for a terminal."""

from __future__ import annotations

from typing import Any

from core.model.store.catalogue import title_of
from core.planning.plan import ASSISTANT, MTP, PLACES, Plan
from core.text.words import duration, size
from core.text.words import translated as _
from core.text.words import translated_count as _n


def snapshot_line(facts: dict[str, Any]) -> str:
    """How much is kept of books that were read, how much it may become, and where; `facts` as `doctor --json`
    has them.
    """
    books = _n("{count} book", "{count} books", facts["books"]).format(count=facts["books"])
    most = _("switched off by snapshot_quota_gb")
    if facts["quota_bytes"]:
        most = _("at most {size}").format(size=size(facts["quota_bytes"]))
    said = _("{size} of {books}, {most}, in {folder}")
    return said.format(size=size(facts["bytes"]), books=books, most=most, folder=facts["folder"])


def format_plan(plan: Plan) -> str:
    """The choices, where each GB lives, the expectations and the notes."""
    return "\n".join(
        [*_choices(plan), *_budget(plan), "", *_times(plan), "", *(f"- {note}" for note in plan.notes)]
    )


def _choices(plan: Plan) -> list[str]:
    lines = [
        _("{model} on {device} in {dtype}, {context_tokens:,} tokens of context"),
        _("  exact for   {exact_for}"),
        _("  retrieval   {retrieval_budget:,} tokens in chunks of {retrieval_chunk}, tail {tail_tokens}"),
        _seen_by_draft(plan),
        _("  gamma       {gamma} outer, {middle_gamma} middle"),
        _(
            "  prefill     segments of {prefill_segment_tokens:,} in chunks of {prefill_chunk_tokens:,} "
            "tokens"
        ),
    ]
    if plan.staging_blocks:
        lines.append(
            _("  on chip     {on_chip_layers} of {layers} layers; {staging_blocks} staging blocks of {block}")
        )
    words = {"model": title_of(plan.model), "draft": _draft(plan), "block": size(plan.staging_block_bytes)}
    return [line.format(**{**plan.to_json(), **words}) for line in lines]


def _seen_by_draft(plan: Plan) -> str:
    if plan.drafter == ASSISTANT:
        return _("  draft       {draft}, over the model's own cache")
    return _("  draft       {draft}, {draft_sinks} sinks + {draft_window} window")


def _draft(plan: Plan) -> str:
    if plan.drafter == MTP:
        return _("a layer of the model's own (MTP)")
    return plan.draft_model or _("n-gram lookup")


def _budget(plan: Plan) -> list[str]:
    lines = []
    for place in PLACES:
        rows = [line for line in plan.budget if line.place == place]
        if rows:
            each = _(", each card") if plan.devices and place == "VRAM" else ""
            lines += ["", f"{_(place)}{each}  {size(plan.bytes_in(place))}"]
            lines += [f"  {size(line.bytes):>9}  {_(line.name)}" for line in rows]
    return lines


def _times(plan: Plan) -> list[str]:
    between = _("Expected time between tokens    {ms:,.0f} ms (plain decoding {plain:,.0f} ms)")
    prefill = _("Expected prefill, full context  {time}")
    on_cpu = _("Expected, attention on the CPU  {ms:,.0f} ms (mode cpu_attention)")
    beside = plan.expected_cpu_attention_ms
    alone = _("Expected without the CPU's share {ms:,.0f} ms (plain decoding {plain:,.0f} ms)")
    unshared = {"ms": plan.expected_unshared_tbt_ms, "plain": plan.expected_unshared_plain_ms}
    return [
        between.format(ms=plan.expected_tbt_ms, plain=plan.expected_plain_tbt_ms),
        *([alone.format(**unshared)] if plan.expected_unshared_tbt_ms is not None else []),
        *([on_cpu.format(ms=beside)] if beside is not None else []),
        prefill.format(time=duration(plan.expected_prefill_s)),
    ]
