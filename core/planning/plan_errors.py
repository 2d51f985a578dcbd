"""Why a model does not fit, in one message: need, supply, the largest parts, and changes that were tried and
would work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from core.errors import PlanError
from core.model.shapes import ModelShape
from core.planning.fitting import PlanningCase, Shortfall, fits_anywhere, longest
from core.planning.plan import USEFUL_CONTEXT
from core.text.words import listed_texts, size
from core.text.words import translated as _

LAYOUT_FIGURES = (
    "on_chip_layers",
    "retrieval_budget",
    "draft_window",
    "staging_blocks",
    "staging_block_mib",
    # the user may set them, and set them too high
    "prefill_segment_tokens",
    "prefill_chunk_tokens",
)


def refusal(
    case: PlanningCase, short: Shortfall, context: int, alternatives: Sequence[ModelShape]
) -> PlanError:
    """The error that names need, supply, the biggest lines and the smallest changes that fit."""
    said = _(
        "{model} even with only {tokens} tokens of context needs {needed} of {place}; {free} is free. The "
        "largest parts are: {parts}. To make it fit: {remedies}."
    )
    if case.settings.context_tokens is not None:
        said = _(
            "{model} with {tokens} tokens of context needs {needed} of {place}; {free} is free. The "
            "largest parts are: {parts}. To make it fit: {remedies}."
        )
    biggest = sorted(short.lines, key=lambda line: line.bytes, reverse=True)[:3]
    return PlanError(
        said.format(
            model=case.target.name,
            tokens=f"{context:,}",
            needed=size(short.needed),
            place=_(short.place),
            free=size(short.available),
            parts=listed_texts(listed_texts((_(line.name), size(line.bytes)), " ") for line in biggest),
            remedies=_alternatives(list(_remedies(case, short, context, alternatives))),
        )
    )


def _remedies(
    case: PlanningCase, short: Shortfall, context: int, alternatives: Sequence[ModelShape]
) -> Iterator[str]:
    """Changes that would make it fit, smallest first; each is tried before it is offered."""
    settings = case.settings
    shorter = longest(case, context)
    if shorter is not None:
        yield _("lower context_tokens to {tokens}").format(tokens=f"{shorter:,}")
    for figure in LAYOUT_FIGURES:
        if getattr(settings, figure) is None:
            continue
        if fits_anywhere(replace(case, settings=replace(settings, **{figure: None})), context):
            yield _("set {setting} to auto").format(setting=figure)
    coded = replace(case, settings=replace(settings, kv=8))
    if settings.kv == 16 and fits_anywhere(coded, context):
        yield _("set kv to 8")
    missing = size(short.needed - short.available)
    if short.place == "RAM":
        yield _("close other programs or add RAM ({size} more)").format(size=missing)
    else:
        yield _("use a GPU with {size} more free VRAM").format(size=missing)
    wanted = context if settings.context_tokens is not None else USEFUL_CONTEXT
    other = _other(case, wanted, alternatives)
    if other is not None:
        yield _("choose {model}, which fits with {tokens} tokens").format(
            model=other.name, tokens=f"{wanted:,}"
        )


def _other(case: PlanningCase, context: int, alternatives: Sequence[ModelShape]) -> ModelShape | None:
    """The largest other model that fits this context."""
    for shape in sorted(alternatives, key=lambda one: one.parameters, reverse=True):
        if shape.name == case.target.name or shape.native_context < context:
            continue
        kv = 16 if shape.key_bias else case.settings.kv  # as the planner would choose
        settings = replace(case.settings, on_chip_layers=None, kv=kv)
        if _has_room(PlanningCase(case.site, settings, shape, None), context):
            return shape
    return None


@lru_cache(1024)  # a list of models asks the same for each that does not fit
def _has_room(case: PlanningCase, context: int) -> bool:
    return fits_anywhere(case, context)


def _alternatives(remedies: list[str]) -> str:
    """The remedies in a row, with "or" before the last."""
    if len(remedies) == 1:
        return remedies[0]
    return _("{remedies}, or {last}").format(remedies=listed_texts(remedies[:-1]), last=remedies[-1])
