"""Tables of what the planner expects of large models on common cards. Computed, nothing is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from core.backend.shared.compiled import ATTENTION, COARSE, CODED_KV, PRODUCTS
from core.config import Settings
from core.errors import PlanError
from core.hardware.gpus import imagined_hardware
from core.model.gguf.size_estimates import ROUNDED
from core.model.store.catalogue import find, spelt
from core.planning.offers import plan_model
from core.planning.plan import MTP, Plan
from core.planning.planner import make_plan
from core.text.words import duration

KV_MODELS = ("LWM-Text-Chat-128K", "Meta-Llama-3.1-8B-Instruct-Q4_K_M")
KV_CARDS, KV_RAM_GIB, KV_CONTEXT = ("RTX 4090", "RTX 4080", "RTX 4070"), 64, 131_072


def kv_table() -> str:
    """What the planner expects of KV_MODELS at KV_CONTEXT with the KV cache in 16 bits, in 8, and its choice.
    Models of 16 bits as they are, and as `weights: 4` rounds them.
    """
    lines = [plan_row(["Model", "Card", "16 bits", "8 bits", "auto takes"]), plan_row(["---"] * 5)]
    for name, weights in _kv_models():
        for card in KV_CARDS:
            found = {kv: _kv_plan(name, weights, card, kv) for kv in (16, 8, None)}
            taken = "nothing" if found[None] is None else f"{found[None].kv_bits} bits"
            cells = (_named(name, weights), card, _kv_cell(found[16]), _kv_cell(found[8]), taken)
            lines.append(plan_row(cells))
    return "\n".join(lines)


def _kv_models() -> Iterator[tuple[str, int | None]]:
    """Names and what `weights` is set to."""
    for name in KV_MODELS:
        if find(name).shape.coded_weights:
            yield name, None
        else:
            yield from ((name, bits) for bits in (16, 4))


def _named(name: str, weights: int | None) -> str:
    """A model with what its weights are, where its name does not say it."""
    if weights is None:
        return name
    return f"{name}, 16-bit weights" if weights == 16 else f"{name}, rounded to {ROUNDED[weights]}"


def _kv_plan(name: str, weights: int | None, card: str, kv: int | None) -> Plan | None:
    machine = imagined_hardware(gpu=card, ram_gib=KV_RAM_GIB)
    settings = Settings(device="cuda", context_tokens=KV_CONTEXT, kv=kv, weights=weights, cpu_share="none")
    try:
        return make_plan(machine, settings, target=find(name).shape)
    except PlanError:
        return None


# models, what `weights` is set to, cards (None: 16 GB of RAM and no card), contexts, bits of the KV cache
# (None: chosen)
KERNEL_CASES = (
    ("Meta-Llama-3.1-8B-Instruct-Q4_K_M", None, KV_CARDS, KV_CONTEXT, 8),
    ("LWM-Text-Chat-128K", 4, KV_CARDS, KV_CONTEXT, 8),
    ("Qwen3-4B-Instruct-2507-Q4_K_M", None, ("RTX 4060",), 65_536, None),
    ("Qwen3-4B-Instruct-2507", 16, ("RTX 4090",), 262_144, None),
    ("Qwen3-4B-Instruct-2507-Q4_K_M", None, ("RTX 4090",), 262_144, None),
    ("Qwen3-4B-Instruct-2507-Q4_K_M", None, (None,), 32_768, None),
    ("Llama-3.2-3B-Instruct-Q4_K_M", None, (None,), 32_768, None),
)
NO_CARD_RAM_GIB = 16
# What the planner of commit b81abf2 (2026-11-22 13:31 UTC), the last before the work on cards, said of these
# models and machines, on Linux and on Windows: it knew weights and KV caches of 16 bits alone. Not computed
# here.
BEFORE = {
    ("Meta-Llama-3.1-8B-Instruct", "RTX 4090", 131_072): ("9 of 32, 78 ms", "8 of 32, 80 ms"),
    ("Qwen3-4B-Instruct-2507", "RTX 4090", 262_144): ("11 of 36, 119 ms", "10 of 36, 123 ms"),
}
REFUSED_BEFORE = ("does not fit", "does not fit")  # all others of KERNEL_CASES


def kernel_table() -> str:
    """What the planner expects of KERNEL_CASES where torch decodes codes and where the compiled kernels read
    them, those of the card or, without one, those of the CPU, on Linux and on Windows; and what it said
    BEFORE.
    """
    ways = ("before", "torch", "kernels")
    heading = ["Model", "Card", "Context", "KV cache", *(f"{way}, Linux" for way in ways)]
    lines = [plan_row([*heading, *(f"{way}, Windows" for way in ways)]), plan_row(["---"] * 10)]
    for name, weights, cards, context, kv in KERNEL_CASES:
        for card in cards:
            settings = Settings(
                device="cuda" if card else "cpu",
                context_tokens=context,
                kv=kv,
                weights=weights,
                cpu_share="none",
            )
            before = BEFORE.get((name.removesuffix("-Q4_K_M"), card, context), REFUSED_BEFORE)
            found = {
                system: [
                    _kernel_plan(name, card, system, settings, refused)
                    for refused in ((ATTENTION, COARSE, CODED_KV, PRODUCTS), ())
                ]
                for system in ("Linux", "Windows")
            }
            plans = [one for both in found.values() for one in both if one]
            widths = sorted({one.kv_bits for one in plans}, reverse=True)
            bits = " or ".join(f"{width} bits" for width in widths)
            cells = [
                cell
                for then, now in zip(before, found.values(), strict=True)
                for cell in (then, *map(_layers_cell, now))
            ]
            named = card or f"none, {NO_CARD_RAM_GIB} GB RAM"
            lines.append(plan_row([_named(name, weights), named, f"{context:,}", bits, *cells]))
    return "\n".join(lines)


def _kernel_plan(
    name: str, card: str | None, system: str, settings: Settings, refused: tuple[str, ...]
) -> Plan | None:
    machine = imagined_hardware(gpu=card, ram_gib=KV_RAM_GIB if card else NO_CARD_RAM_GIB, system=system)
    gpus = tuple(replace(gpu, refused=refused) for gpu in machine.gpus)
    machine = replace(machine, gpus=gpus) if card else replace(machine, refused=refused)
    try:
        return make_plan(machine, settings, target=find(name).shape)
    except PlanError:
        return None


def _layers_cell(found: Plan | None) -> str:
    if found is None:
        return "does not fit"
    if found.device == "cpu":
        return f"in RAM, {found.expected_tbt_ms:.0f} ms"
    return f"{found.on_chip_layers} of {found.layers}, {found.expected_tbt_ms:.0f} ms"


def _kv_cell(found: Plan | None) -> str:
    if found is None:
        return "does not fit"
    return f"{found.on_chip_layers} of {found.layers} layers on the card, {found.expected_tbt_ms:.0f} ms"


# computers, and which models hold a whole book there. A rounded one is made of its checkpoint of 16 bits,
# which brings a layer that predicts one token further; so does the file of Qwen3.8.
BOOK_CASES = (
    ("none", {"ram_gib": 16}, ("Qwen3.5-2B-Q4_K_M", "Qwen3.5-4B-Q4_K_M")),
    (
        "6 GB (RTX 4050 Laptop)",
        {"gpu": "RTX 4050 Laptop", "ram_gib": 16},
        ("Qwen3.5-2B", "gemma-4-E2B-it-Q4_K_M"),
    ),
    ("8 GB (RTX 4060)", {"gpu": "RTX 4060", "ram_gib": 32}, ("Qwen3.5-4B", "gemma-4-E4B-it-Q4_K_M")),
    ("12 GB (RTX 4070)", {"gpu": "RTX 4070", "ram_gib": 32}, ("Qwen3.5-9B", "gemma-4-12b-it-Q4_K_M")),
    ("16 GB (RTX 4080)", {"gpu": "RTX 4080", "ram_gib": 32}, ("Qwen3.5-9B", "gemma-4-12b-it-Q4_K_M")),
    ("24 GB (RTX 3090)", {"gpu": "RTX 3090", "ram_gib": 64}, ("Qwen3.8-27B",)),
    ("24 GB (RTX 4090)", {"gpu": "RTX 4090", "ram_gib": 64}, ("Qwen3.8-27B", "Qwen3.8-27B-Q4_K_M")),
)
BOOK_COLUMNS = (
    "Card",
    "Model",
    "Weights",
    "KV cache",
    "Stays on the card",
    "Drafts by",
    "Between tokens",
    "at half of MTP's acceptance",
    "plain decoding",
    "131,072 tokens read in",
)
FEW_BOOK_COLUMNS = (*BOOK_COLUMNS[:3], BOOK_COLUMNS[4], *BOOK_COLUMNS[6:8])  # for the first page
_NOT_THERE = {"Qwen3.5-4B-Q4_K_M", "gemma-4-E2B-it-Q4_K_M"}  # of these two computers the faster one alone
_DRAFTED = {
    "lookup": "lookup",
    "mtp": "lookup and MTP",
    "model": "lookup and a draft model",
    "assistant": "lookup and its assistant",
}


def book_table(columns: Collection[str] = BOOK_COLUMNS) -> str:
    """A whole book of 131,072 tokens on computers of each size, by what `plan --json` says."""
    lines = [plan_row(columns), plan_row(["---"] * len(columns))]
    for computer, parts, names in BOOK_CASES:
        for name in names:
            if columns == FEW_BOOK_COLUMNS and name in _NOT_THERE:
                continue
            cells = dict(zip(BOOK_COLUMNS, _book_row(computer, name, parts), strict=True))
            lines.append(plan_row([cells[column] for column in columns]))
    return "\n".join(lines)


def _book_row(computer: str, name: str, parts: Mapping[str, Any]) -> tuple[str, ...]:
    found, half = book_plan(name, parts), None
    if found["drafter"] == MTP:
        accepted = found["assumed_draft_acceptance"] / 2
        half = book_plan(name, parts, draft_acceptance=accepted, kv=found["kv_bits"])  # the same cache
    on_card = f"{found['on_chip_layers']} of {found['layers']} layers' cache"
    entry = find(name)
    return (
        computer,
        spelt(entry.of or entry.name),
        found["weights_format"] + (", rounded" if found["rounded"] else ""),
        f"{found['kv_bits']} bits",
        on_card if found["device"] == "cuda" else "",
        _DRAFTED[found["drafter"]] + (", two levels" if found["straight"] else ", three levels"),
        f"{found['expected_tbt_ms']:.0f} ms",
        f"{half['expected_tbt_ms']:.0f} ms" if half else "",
        f"{found['expected_plain_tbt_ms']:.0f} ms",
        duration(found["expected_prefill_s"]),
    )


def book_plan(
    name: str, parts: Mapping[str, Any], *, draft_acceptance: float | None = None, kv: int | None = None
) -> dict[str, Any]:
    """What `plan --json` says of this model on such a computer, a book of 131,072 tokens before it."""
    device = "cuda" if "gpu" in parts else "cpu"
    settings = Settings(
        device=device, context_tokens=KV_CONTEXT, assumed_draft_acceptance=draft_acceptance, kv=kv
    )
    return plan_model(imagined_hardware(**parts), settings, find(name)).plan.to_json()


def plan_row(cells: Collection[str]) -> str:
    return "| " + " | ".join(cells) + " |"
