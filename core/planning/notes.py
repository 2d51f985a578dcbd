"""What people should know about a plan, in plain words. Text only; decides nothing."""

from __future__ import annotations

from core.backend.shared.compiled import COARSE, CODED_KV, DELTA, HEAD_DIMS, PRODUCTS
from core.config import PLAIN_MODES, Settings
from core.hardware.facts import Gpu, Hardware
from core.model.shapes import ModelShape
from core.planning.budget import KV_PAGEABLE, MODEL_FILES, SNAPSHOTS
from core.planning.costs import serves
from core.planning.fitting import is_old
from core.planning.plan import ASSISTANT, AUTO_CONTEXT, MTP, Plan
from core.planning.tuned import SPECULATION, Tuned
from core.text.words import joined_sentences, listed_texts, size
from core.text.words import marked as N_
from core.text.words import translated as _

OLD_CARD = N_(
    "This card knows no bfloat16: models made for that run in float16, whose largest number is 65,504. Some "
    "overflow, and their answers are nonsense. Flash attention is not for it either; reading is slower."
)


def notes_for(
    plan: Plan, hardware: Hardware, settings: Settings, *, gpu: Gpu | None, target: ModelShape
) -> tuple[str, ...]:
    """One sentence or two about each choice. `gpu`: the one that the plan is for."""
    found = (
        _where(plan, gpu),
        _refused(plan, hardware, gpu, target),
        _rounded(plan, settings),
        _weights(plan, gpu),
        _context(plan, settings, target),
        _kv(plan),
        _kv_format(plan, settings, target, gpu),
        _states(plan, target, gpu),
        _ranks(plan),
        _bus(plan, gpu),
        _pageable(plan, hardware),
        _draft(plan, settings),
        _levels(plan, settings, target),
        _speed(plan, settings),
        _cpu_share(plan, settings),
        _cpu_attention(plan, settings),
        _snapshots(plan, target),
        _files(plan, hardware),
        _gpus_left(plan, hardware, gpu),
    )
    return tuple(note for note in found if note)


def _where(plan: Plan, gpu: Gpu | None) -> str:
    if gpu is None:
        said = _("Runs on the CPU with {threads} threads in {dtype}.")
        if plan.computes != plan.dtype:
            said = _("Runs on the CPU with {threads} threads in {computes}, from numbers held in {dtype}.")
        return said.format(threads=plan.threads, dtype=plan.dtype, computes=plan.computes)
    said = [_("Runs on {gpu} in {dtype}.").format(gpu=gpu.name, dtype=plan.dtype)]
    if not gpu.known:
        guessed = _("This GPU is not in the table: its memory bandwidth and TFLOP/s are cautious guesses.")
        said.append(guessed)
    if is_old(gpu):
        said.append(_(OLD_CARD))
    return joined_sentences(*said)


def _refused(plan: Plan, hardware: Hardware, gpu: Gpu | None, target: ModelShape) -> str:
    refused = set(hardware.refused) - (set() if target.state_bytes else {DELTA})
    if gpu is not None or not refused:
        return ""
    if refused == {COARSE}:
        if plan.weights_kernel != "codes":
            return ""  # numbers are multiplied exactly in every pass
        return _(
            "The compiled kernel for drafts does not work on this computer: they are computed as exactly as "
            "answers, and the times are those it takes."
        )
    return _(
        "A compiled kernel does not work on this computer: torch does its work, and the times are those it "
        "takes."
    )


def _rounded(plan: Plan, settings: Settings) -> str:
    if not plan.rounded or settings.weights is not None:
        return ""
    said = _(
        "The weights are rounded to {bits} bits ({format}), once: in 16 this model does not fit, its KV "
        "cache leaves the card, or a word takes much longer. Answers are exact for these weights, which are "
        "another model than the checkpoint; weights: 16 keeps it as it is."
    )
    return said.format(bits=plan.weights_bits, format=plan.weights_format)


def _weights(plan: Plan, gpu: Gpu | None) -> str:
    if plan.weights_kernel != "codes" or gpu is None:
        return ""
    if serves(gpu, plan.dtype, PRODUCTS):
        return _(
            "The weights stay in the codes of {format} and are multiplied as they are, by a kernel that is "
            "tried on the card first; the time is expected, not measured."
        ).format(format=plan.weights_format)
    said = _(
        "The weights stay in the codes of {format} and are decoded for every product, which is slow; "
        "how slow was not measured. As 16-bit numbers they would be faster and take more memory."
    )
    return said.format(format=plan.weights_format)


def _context(plan: Plan, settings: Settings, target: ModelShape) -> str:
    counts = {"tokens": f"{plan.context_tokens:,}", "trained": f"{target.native_context:,}"}
    if plan.context_stretch > 1:
        return _(
            "{tokens} tokens is beyond the {trained} the model was trained for; positions are stretched "
            "{times:.2g} times (YaRN), at some loss of quality."
        ).format(**counts, times=plan.context_stretch)
    if settings.context_tokens is not None or plan.context_tokens == target.native_context:
        return ""
    if plan.context_tokens == AUTO_CONTEXT:
        return _(
            "The model reads up to {trained} tokens; raise context_tokens for books beyond {tokens}."
        ).format(**counts)
    return _(
        "Memory ends the context at {tokens} of the model's {trained} tokens; longer books are read in parts."
    ).format(**counts)


def _kv(plan: Plan) -> str:
    if plan.device == "cpu":
        return ""
    if plan.on_chip_layers == plan.layers:
        return _("The whole KV cache fits in VRAM; nothing crosses the bus while decoding.")
    by_layers = _(
        "The KV cache of {on_chip} of {layers} layers stays in VRAM; the other {others} pass through "
        "{blocks} blocks of {size} once per round."
    )
    by_blocks = _(
        "As much KV cache as {on_chip} of {layers} layers have stays in VRAM, spread over all; the rest "
        "passes through {blocks} blocks of {size} once per round."
    )
    return (by_blocks if plan.residency == "blocks" else by_layers).format(
        on_chip=plan.on_chip_layers,
        layers=plan.layers,
        others=plan.layers - plan.on_chip_layers,
        blocks=plan.staging_blocks,
        size=size(plan.staging_block_bytes),
    )


def _kv_format(plan: Plan, settings: Settings, target: ModelShape, gpu: Gpu | None) -> str:
    if plan.kv_bits != 8:
        return ""
    if target.key_bias:
        return _(
            "The KV cache is kept in 8 bits, as set. This model's keys have a constant part, which 8 bits "
            "keep badly: its answers may suffer. kv: auto keeps 16."
        )
    said = _("The KV cache is kept in 8 bits; kv: 16 keeps what is computed.")
    if settings.kv is None:
        said = _(
            "The KV cache is kept in 8 bits: in 16 it does not fit, or a word takes longer. Answers are "
            "exact for this cache, which differs a little; kv: 16 keeps what is computed."
        )
    if gpu is None:
        return said
    if serves(gpu, plan.dtype, CODED_KV) and target.head_dim in HEAD_DIMS:
        reading = _(
            "A kernel that is tried on the card first reads it as it is; the time is expected, not measured."
        )
    else:
        reading = _("It is decoded piece by piece on the GPU; how fast was not measured.")
    return joined_sentences(said, reading)


def _states(plan: Plan, target: ModelShape, gpu: Gpu | None) -> str:
    if gpu is None or not target.state_bytes:
        return ""
    if serves(gpu, plan.dtype, DELTA):
        return _(
            "Layers with a state are computed by a kernel that is tried on the card first; the time is "
            "expected, not measured."
        )
    return _("Layers with a state are computed by torch, row by row; how fast was not measured.")


def _bus(plan: Plan, gpu: Gpu | None) -> str:
    if gpu is None or plan.pcie_gb_per_s is None:
        return ""
    said = _("Host to GPU: {rate:.1f} GB/s (assumed).")
    if gpu.pcie_measured:
        said = _("Host to GPU: {rate:.1f} GB/s (measured).")
    return said.format(rate=plan.pcie_gb_per_s)


def _pageable(plan: Plan, hardware: Hardware) -> str:
    pageable = sum(line.bytes for line in plan.budget if line.name == KV_PAGEABLE)
    if not pageable:
        return ""
    return _(
        "{system} lets about {pinnable} be pinned; {pageable} of the KV cache is ordinary memory and "
        "crosses at about half the rate."
    ).format(system=hardware.system, pinnable=size(hardware.pinnable_bytes), pageable=size(pageable))


def _draft(plan: Plan, settings: Settings) -> str:
    if plan.drafter == ASSISTANT and not plan.plain:
        said = _(
            "Where n-gram lookup finds nothing, {draft} drafts from the model's own keys and values: "
            "{rate:.2f} of its tokens are assumed to stand behind a long text."
        )
        return said.format(draft=plan.draft_model, rate=plan.assumed_draft_acceptance)
    if plan.draft_model is not None and not plan.plain:
        return _("{draft} drafts, seeing the first {sinks} and latest {window} tokens.").format(
            draft=plan.draft_model, sinks=plan.draft_sinks, window=plan.draft_window
        )
    if plan.drafter == MTP and settings.mode in ("triforce", "draft") and not plan.plain:
        said = _(
            "Where n-gram lookup finds nothing, a layer of the model's own that predicts one token further "
            "(MTP) drafts: {rate:.2f} of its tokens are assumed to stand behind a long text."
        )
        return said.format(rate=plan.assumed_draft_acceptance)
    if settings.mode in ("triforce", "ngram") and not plan.plain:
        return _("Drafts come from n-gram lookup in the book and the answer.")
    return ""


def _levels(plan: Plan, settings: Settings, target: ModelShape) -> str:
    """Why two levels or three, of a model in which that is not as a matter of course."""
    full, middle = plan.verification_ms, plan.expected_middle_ms
    drafts = plan.straight or plan.expected_tbt_ms < full
    if not target.stateful or settings.mode != "triforce" or plan.plain or not drafts:
        return ""
    said = _(
        "Three levels: most layers keep a state, which a pass over the retrieval cache has to compute, too, "
        "but it takes {middle:.0f} ms, and one over the whole cache {full:.0f}."
    )
    if plan.straight:
        said = _(
            "Two levels: most layers keep a state, which a pass over the retrieval cache has to compute, "
            "too. It would take {middle:.0f} ms, and one over the whole cache takes {full:.0f}: drafts go "
            "straight before that."
        )
    return said.format(middle=middle, full=full)


def _speed(plan: Plan, settings: Settings) -> str:
    said = _(
        "At an assumed acceptance of {rate:.2f} and a full context, a token takes about {ms:.0f} ms{than}."
    )
    if plan.tuned and plan.assumed_acceptance != settings.assumed_acceptance:
        said = _(
            "At a measured acceptance of {rate:.2f} and a full context, a token takes about {ms:.0f} "
            "ms{than}."
        )
    if plan.plain:
        said = _(
            "Plain decoding, about {ms:.0f} ms a token: measured on this machine to be faster than drafts."
        )
        return said.format(ms=plan.expected_plain_tbt_ms)
    gain = plan.expected_plain_tbt_ms / plan.expected_tbt_ms
    if gain == 1:
        than = _(": no draft is expected to pay, so decoding is plain until one does")
    elif gain < 1:
        than = _(" instead of {plain:.0f} ms: set gamma to auto, plain decoding is faster here")
    else:
        than = _(" instead of {plain:.0f} ms ({gain:.1f} times faster)")
    than = than.format(plain=plan.expected_plain_tbt_ms, gain=gain)
    return said.format(rate=plan.assumed_acceptance, ms=plan.expected_tbt_ms, than=than)


def _cpu_share(plan: Plan, settings: Settings) -> str:
    drafts = settings.mode not in PLAIN_MODES and not plan.plain
    share = plan.cpu_share if drafts else plan.cpu_share_plain
    if not share or settings.mode == "cpu_attention":
        return ""
    if plan.expected_unshared_tbt_ms is None:
        return _(
            "The CPU attends to {share:.0%} of what lies in host memory while the bus brings the rest, as "
            "when this was tuned; cpu_share: none leaves all of it to the card."
        ).format(share=share)
    without, ms = plan.expected_unshared_plain_ms, plan.expected_plain_tbt_ms
    if drafts:
        without, ms = plan.expected_unshared_tbt_ms, plan.expected_tbt_ms
    return _(
        "The CPU attends to {share:.0%} of what lies in host memory while the bus brings the rest: a token "
        "is expected to take {ms:,.0f} ms, and {without:,.0f} without. No card has measured it; cpu_share: "
        "none leaves all of it to the card."
    ).format(share=share, ms=ms, without=without)


def _cpu_attention(plan: Plan, settings: Settings) -> str:
    if settings.mode != "cpu_attention":
        return ""
    if plan.expected_cpu_attention_ms is None:
        return _(
            "Mode cpu_attention is plain decoding here: no part of the KV cache lies in host memory beside a "
            "card."
        )
    said = _(
        "Mode cpu_attention: the CPU attends to what lies in host memory, as in the baseline that TriForce "
        "was compared with. A token then takes about {ms:.0f} ms; the time is expected, not measured."
    )
    return said.format(ms=plan.expected_cpu_attention_ms)


def _snapshots(plan: Plan, target: ModelShape) -> str:
    quota = sum(line.bytes for line in plan.budget if line.name == SNAPSHOTS)
    book = plan.context_tokens * target.kv_bytes_per_token(plan.kv_rows)
    if not 0 < quota < book:
        return ""
    return _(
        "Of a book that fills the context {book} would be kept on disk, more than the {quota} allowed "
        "(snapshot_quota_gb), so it is read anew after a restart."
    ).format(book=size(book), quota=size(quota))


def _files(plan: Plan, hardware: Hardware) -> str:
    needed = sum(line.bytes for line in plan.budget if line.name == MODEL_FILES)
    free = hardware.disk_free_bytes
    if free is None or free >= needed:
        return ""
    said = _("The model's files take {needed}; {free} is free in {folder}.")
    return said.format(needed=size(needed), free=size(free), folder=hardware.disk_path)


def _gpus_left(plan: Plan, hardware: Hardware, gpu: Gpu | None) -> str:
    used = plan.devices or ((gpu.index,) if gpu is not None else ())
    unused = [one.name for one in hardware.gpus if one.index not in used]
    return _("Not used: {names}.").format(names=", ".join(unused)) if unused else ""


def _ranks(plan: Plan) -> str:
    if not plan.devices:
        return ""
    return _(
        "The model is divided among {cards} cards: each has the same share of every layer and its own part "
        "of the KV cache, and what is said of VRAM is said of one of them. No time was measured on several "
        "cards, and each card's bus was measured alone. Books are not kept on disk meanwhile, where the "
        "model looked is not shown, and verify does nothing."
    ).format(cards=len(plan.devices))


def beside_card() -> str:
    """Why the CPU computes where there is a card and nobody chose."""
    return _(
        "The CPU computes: the model does not fit the card, or answers there later. device: cuda uses the "
        "card all the same."
    )


def tuning_notes(plan: Plan, settings: Settings, record: Tuned | None, unused: str) -> tuple[str, ...]:
    """Where the lengths of speculation come from, and why an earlier `tune` is not used, `unused`, if that
    is so.
    """
    own = [name for name in SPECULATION if getattr(settings, name) is not None]
    rest = [name for name in SPECULATION if name not in own]
    ruled = _("{names} follow rules; launcher.py tune measures them")
    measured = _("{names} were measured on this machine on {date}")
    parts = []
    if own:
        parts.append(_("{names}: as set").format(names=", ".join(own)))
    if rest:
        parts.append((measured if plan.tuned else ruled).format(names=", ".join(rest), date=plan.tuned))
    origin = _("Of the speculation, {parts}.").format(parts=listed_texts(parts, "; "))
    if not unused:
        return (origin,)
    why = _("The values tuned on {date} are not used, because {reason}. launcher.py tune measures anew.")
    return origin, why.format(date=record.date, reason=unused)
