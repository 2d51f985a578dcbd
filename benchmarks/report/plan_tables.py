"""Tables of what the planner expects of large models on common cards. Computed, nothing is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from core.backend.shared.compiled import ATTENTION, COARSE, CODED_KV, PRODUCTS
from core.config import Settings
from core.errors import PlanError
from core.hardware.gpus import imagined_hardware
from core.model.gguf.size_estimates import ROUNDED
from core.model.store.catalogue import find
from core.planning.plan import Plan
from core.planning.planner import make_plan

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
    settings = Settings(device="cuda", context_tokens=KV_CONTEXT, kv=kv, weights=weights)
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
                device="cuda" if card else "cpu", context_tokens=context, kv=kv, weights=weights
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


def plan_row(cells: Collection[str]) -> str:
    return "| " + " | ".join(cells) + " |"
