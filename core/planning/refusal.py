"""Why a model does not fit, in one message: need, supply, the largest parts, and changes that were tried and
would work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.errors import PlanError
from core.model.shapes import ModelShape
from core.planning.fitting import Case, Shortfall, fits, longest
from core.planning.wording import exactly, size

USEFUL_CONTEXT = 8192  # what an offered other model should at least read at once
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


def refusal(case: Case, short: Shortfall, context: int, alternatives: Sequence[ModelShape]) -> PlanError:
    """The error that names need, supply, the biggest lines and the smallest changes that fit."""
    where = "of VRAM" if short.place == "VRAM" else "of RAM"
    biggest = sorted(short.lines, key=lambda line: line.bytes, reverse=True)[:3]
    only = "with" if case.settings.context_tokens is not None else "even with only"
    detail = ", ".join(f"{line.name} {size(line.bytes)}" for line in biggest)
    remedies = list(_remedies(case, short, context, alternatives))
    return PlanError(
        f"{case.target.name} {only} {context:,} tokens of context needs {exactly(short.needed)} {where}; "
        f"{exactly(short.available)} is free. The largest parts are: {detail}. " + _sentence(remedies)
    )


def _remedies(
    case: Case, short: Shortfall, context: int, alternatives: Sequence[ModelShape]
) -> Iterator[str]:
    """Changes that would make it fit, smallest first; each is tried before it is offered."""
    settings = case.settings
    shorter = longest(case, context)
    if shorter is not None:
        yield f"lower context_tokens to {shorter:,}"
    for figure in LAYOUT_FIGURES:
        if getattr(settings, figure) is not None and fits(
            replace(case, settings=replace(settings, **{figure: None})), context
        ):
            yield f"set {figure} to auto"
    missing = short.needed - short.available
    if short.place == "RAM":
        yield f"close other programs or add RAM ({size(missing)} more)"
    else:
        yield f"use a GPU with {size(missing)} more free VRAM"
    wanted = context if settings.context_tokens is not None else USEFUL_CONTEXT
    others = [
        shape for shape in alternatives if shape.name != case.target.name and shape.native_context >= wanted
    ]
    for shape in sorted(others, key=lambda one: one.parameters, reverse=True):
        if fits(Case(case.site, replace(settings, on_chip_layers=None), shape, None), wanted):
            yield f"choose {shape.name}, which fits with {wanted:,} tokens"
            return


def _sentence(remedies: list[str]) -> str:
    """The remedies as one sentence, with "or" before the last."""
    joined = remedies[0] if len(remedies) == 1 else ", ".join(remedies[:-1]) + ", or " + remedies[-1]
    return joined[0].upper() + joined[1:] + "."
