"""In how many bits weights and KV cache are held where the settings leave it open. Pure; the formats belong
to the plan, never to a single book.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from core.model.gguf.size_estimates import ROUNDED, can_be_rounded, rounded_shape
from core.planning.fitting import PlanningCase, Shortfall, longest, smallest
from core.planning.plan import AUTO_CONTEXT, USEFUL_CONTEXT, Plan

# 16 bits with which a word takes so long give way to fewer: those of weights to ones that are so many times
# as fast, those of a KV cache, of which 8 lose next to nothing, to ones that are faster by this
_QUICK_MS = 33.0
_GIVES_WAY = ((_QUICK_MS, 2.0), (50.0, 1.3))
_KV_GIVES_WAY = 1.3
_FEW_BITS = 4  # to which a checkpoint of 16 bits is rounded without being asked

Best = Callable[[PlanningCase, int], Plan | Shortfall]  # the fastest plan of a case for a context


def with_formats(case: PlanningCase, best: Best) -> tuple[PlanningCase, int]:
    """The case with the formats of its weights and of its KV cache chosen, and the context to plan for.

    Where the settings leave it open, a checkpoint of 16 bits is rounded to four where in 16 its cache would
    leave the card, in whichever format it may be, and four are faster, or where four are so much faster that
    16 give way; and where it does not fit, or with less than a useful context. On a CPU the cache leaves
    nothing, and a checkpoint that fits is not touched.
    """
    whole = _with_kv(case, best)
    if case.settings.weights is not None or not can_be_rounded(case.target):
        return whole
    stays = _stays(best, *whole)
    if stays and (case.site.device == "cpu" or case.settings.on_chip_layers is not None):
        return whole
    few = _with_kv(replace(case, target=rounded_shape(case.target, ROUNDED[_FEW_BITS])), best)
    kept = best(*whole)
    if isinstance(kept, Shortfall) or _is_scrap(case, whole[1]):
        return few
    # what 16 bits of a cache take must not speak against 4 bits of weights
    for one in (few[0], _by_kv(few[0])[-1]):
        instead = best(one, whole[1])
        if isinstance(instead, Plan) and (_gives_way if stays else _is_slower)(kept, instead):
            return one, whole[1]
    return whole


def _is_slower(found: Plan, other: Plan) -> bool:
    return found.expected_tbt_ms > other.expected_tbt_ms


def _gives_way(sixteen: Plan, fewer: Plan) -> bool:
    """Whether 16 bits of weights take so long that fewer are worth what they lose."""
    ms = sixteen.expected_tbt_ms
    return any(ms >= slow_ms and ms >= times * fewer.expected_tbt_ms for slow_ms, times in _GIVES_WAY)


def _stays(best: Best, case: PlanningCase, context: int) -> bool:
    """Whether 16 bits leave the cache where it is read: all of it on the card, in the format that was chosen
    or in eight bits, or where the person put it; on a CPU at a useful length.
    """
    if _is_scrap(case, context):
        return False
    put = case.settings.on_chip_layers is not None
    found = [best(one, context) for one in _by_kv(case)]
    return any(isinstance(one, Plan) and (put or one.on_chip_layers == one.layers) for one in found)


def _is_scrap(case: PlanningCase, context: int) -> bool:
    """Whether memory ends the context before a book is worth reading."""
    return case.settings.context_tokens is None and context < min(USEFUL_CONTEXT, case.target.native_context)


def _by_kv(case: PlanningCase) -> list[PlanningCase]:
    """As it is, and with a KV cache of 8 bits where that is left to the program."""
    if case.settings.kv is not None or case.target.key_bias:
        return [case]
    return [case, replace(case, settings=replace(case.settings, kv=8))]


def _with_kv(case: PlanningCase, best: Best) -> tuple[PlanningCase, int]:
    """The case with the format of its KV cache chosen, and the context to plan for.

    Where the settings leave it open, 8 bits are for what is slow in 16 and faster in 8 (_KV_GIVES_WAY), and
    for what does not fit else; never where keys have a constant part, which takes the codes' steps away from
    what differs between them (benchmarks/quality/kv_quantization.py).
    """
    settings, cases = case.settings, _by_kv(case)
    limit = min(case.target.native_context, AUTO_CONTEXT)
    for one in cases:
        context = settings.context_tokens or longest(one, limit)
        found = best(one, context) if context else None
        if isinstance(found, Plan):
            break
    else:
        return cases[-1], settings.context_tokens or smallest(settings, limit)
    if one is cases[-1] or found.expected_tbt_ms < _QUICK_MS:
        return one, context
    eight = best(cases[1], context)
    faster = isinstance(eight, Plan) and found.expected_tbt_ms >= _KV_GIVES_WAY * eight.expected_tbt_ms
    return cases[faster], context
