"""What passes take over the caches of a layout, by the cost model or as measured, and the draft lengths and
the processor's share that follow. Pure; knows nothing of fitting memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from core.config import Settings
from core.model.assistant_sizes import AssistantShape
from core.model.shapes import AheadShape
from core.planning import costs
from core.planning.cpu_share import LOOKED_AT, PROMISE, SharedPasses, beside_bus
from core.planning.fitting import PlanningCase
from core.planning.layout import Layout
from core.planning.tuned import Tuned


@dataclass(frozen=True, slots=True)
class Passes:
    """What speculation is made of: seconds of passes by rows and of one pass of the draft model, p and q of
    the two levels.
    """

    full: Callable[[int], float]
    verified: Callable[[int], float]  # of a draft of the retrieval cache: some are looked at
    middle: Callable[[int], float]
    draft_s: float
    straight_draft_s: float  # likewise where drafts go straight before the full cache
    p: float
    q: float
    measured: str = ""  # when
    plain: bool = False  # no drafts: measured to be slower


@dataclass(frozen=True, slots=True)
class Shares:
    """Of what lies in host memory, the CPU's: in verifications, and in plain decoding."""

    drafted: float = 0.0
    plain: float = 0.0


def computed_passes(case: PlanningCase, layout: Layout, share: float | None = 0.0) -> Passes:
    """By the cost model. `share`: the CPU's of what lies in host memory; None: in each pass the best for its
    rows.
    """
    site, draft = case.site, layout.draft
    take = partial(
        costs.pass_s, layout.target, site.dtype, speeds=site.speeds, kernel=kernel_of(case, layout)
    )
    launched = partial(_launched, case, layout)
    middle = partial(take, kv_tokens=layout.retrieval_tokens, launched=launched(layout.target.of_one_store))
    draft_s = straight_draft_s = 0.0
    if isinstance(draft, AssistantShape):
        # its passes are not recorded, and attend to the level that verifies
        own = partial(costs.pass_s, draft, site.dtype, rows=1, speeds=site.speeds, launched=launched(False))
        draft_s = own(kv_tokens=layout.retrieval_tokens)
        straight_draft_s = own(kv_tokens=layout.context, kv_rows=layout.kv_rows)
    elif draft is not None:
        # a layer of the target's own is held as the target is, and its passes are not recorded
        own = isinstance(draft, AheadShape)
        recorded = not (draft.stateful or draft.input_width or own)
        how = {"kv_tokens": layout.draft_tokens, "launched": launched(recorded)}
        how["kernel"] = kernel_of(case, layout) if own else "float"
        draft_s = straight_draft_s = costs.pass_s(draft, site.dtype, rows=1, speeds=site.speeds, **how)
    full, verified = _full(case, layout, share)
    return Passes(
        full=full,
        verified=verified,
        middle=lambda rows: middle(rows=rows, verified=True),
        draft_s=draft_s,
        straight_draft_s=straight_draft_s,
        p=case.settings.assumed_acceptance,
        q=(draft and case.settings.assumed_draft_acceptance) or costs.draft_acceptance(layout.target, draft),
    )


def _full(
    case: PlanningCase, layout: Layout, share: float | None
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """(passes, verifications) over the full cache: see Passes."""
    take, host = _over_the_full_cache(case, layout)
    shared = shared_passes(case, layout) if share != 0.0 else None

    def alone(rows: int) -> float:
        return take(rows=rows, kv_tokens=layout.context, host=host)

    def full(rows: int) -> float:
        return shared.seconds(rows, shared.best_share(rows) if share is None else share)

    def verified(rows: int) -> float:
        return (1 - LOOKED_AT) * full(rows) + LOOKED_AT * alone(rows)

    return (alone, alone) if shared is None else (full, verified)


def _over_the_full_cache(
    case: PlanningCase, layout: Layout
) -> tuple[Callable[..., float], costs.StreamedKV | None]:
    """costs.pass_s but for rows, tokens and host memory, and what crosses the bus; None: nothing does."""
    site = case.site
    pinned, pageable = layout.host_kv_split()
    host = costs.StreamedKV(pinned, pageable, layout.block_bytes) if pinned + pageable else None
    whole = host is None and costs.recorded_whole(layout.target, site.speeds)
    take = partial(
        costs.pass_s,
        layout.target,
        site.dtype,
        speeds=site.speeds,
        kernel=kernel_of(case, layout),
        kv_rows=layout.kv_rows,
        launched=_launched(case, layout, whole),
    )
    return take, host


def shared_passes(case: PlanningCase, layout: Layout) -> SharedPasses | None:
    """None where nothing lies beside a card, or nothing is to be shared."""
    site = case.site
    take, host = _over_the_full_cache(case, layout)
    if host is None or site.cpu is None or case.settings.cpu_share == "none":
        return None
    by_blocks = case.settings.kv_residency == "blocks"
    return SharedPasses(
        take,
        target=layout.target,
        kv_rows=layout.kv_rows,
        tokens=layout.context,
        layers=layout.host_layers,
        questions=layout.target.full_layers if by_blocks else layout.host_layers,
        host=host,
        device=site.speeds,
        cpu=beside_bus(site.cpu, site.threads, site.speeds.bus, site.ranks),
    )


def promised_shares(case: PlanningCase, layout: Layout) -> Shares:
    """The shares with which a token takes least, where that is PROMISE times as fast."""
    shared = shared_passes(case, layout)
    if shared is None or not shared.best_share(1):
        return Shares()
    alone, best = computed_passes(case, layout), computed_passes(case, layout, None)
    plain = shared.best_share(1) if best.full(1) * PROMISE <= alone.full(1) else 0.0
    drafted = shared.best_share(_rows_of_best(case, layout, best))
    before_s = lengths(case, layout, alone)[0].tbt_s
    after_s = lengths(case, layout, computed_passes(case, layout, drafted))[0].tbt_s
    return Shares(drafted if after_s * PROMISE <= before_s else 0.0, plain)


def _rows_of_best(case: PlanningCase, layout: Layout, best: Passes) -> int:
    """Of the verification with which a token takes least, each having its own share."""
    three = _fastest(case.settings, best, by_lookup=layout.draft is None)
    ways = [(one.tbt_s, one.gamma + 1) for one in (three, _straight(case, layout, best)) if one is not None]
    if not case.settings.gamma:
        ways.append((best.full(1), 1))
    return min(ways)[1]


def _launched(case: PlanningCase, layout: Layout, recorded: bool) -> bool:
    """Whether a pass is asked for operation by operation, which a card may have to wait for: where those of
    its kind are not `recorded`, or none are.
    """
    return case.site.device == "cuda" and not (recorded and layout.graphs)


def measured_passes(record: Tuned, settings: Settings) -> Passes:
    """As `tune` found them, unless the user assumes another acceptance than the program does."""
    assumed = settings.assumed_acceptance != Settings().assumed_acceptance
    return Passes(
        full=record.verify_s,
        verified=record.verify_s,
        middle=record.middle_s,
        draft_s=record.draft_ms / 1e3,
        straight_draft_s=record.draft_ms / 1e3,
        p=settings.assumed_acceptance if assumed else record.acceptance,
        q=record.draft_acceptance,
        measured=record.date,
        plain=record.plain and settings.gamma is None,
    )


def lengths(case: PlanningCase, layout: Layout, passes: Passes) -> tuple[costs.Speculation, bool]:
    """Draft lengths with the least time between tokens, and whether drafts go straight before the full cache.
    Lengths are bounds: a draft stops by itself where one more pass does not pay, the tokens of n-gram lookup
    are free, and at worst decoding is plain.
    """
    settings = case.settings
    found = _fastest(settings, passes, by_lookup=layout.draft is None)
    bounds = costs.Speculation(
        gamma=settings.gamma or max(found.gamma, costs.LEAST_GAMMA),
        middle_gamma=settings.middle_gamma or max(found.middle_gamma, costs.NGRAM_GAMMA),
        tbt_s=_token_s(settings, passes, found.tbt_s),
    )
    two = _straight(case, layout, passes)
    if two is not None and two.tbt_s < bounds.tbt_s:
        return replace(two, middle_gamma=bounds.middle_gamma), True
    return bounds, False


def _fastest(settings: Settings, passes: Passes, *, by_lookup: bool) -> costs.Speculation:
    """Of three levels."""
    return costs.best_speculation(
        [passes.verified(rows) for rows in range(1, _last(settings.gamma, costs.MAX_GAMMA))],
        [passes.middle(rows) for rows in range(1, _last(settings.middle_gamma, costs.MAX_MIDDLE_GAMMA))],
        draft_s=passes.draft_s,
        p=passes.p,
        q=passes.q,
        gamma=settings.gamma,
        middle_gamma=settings.middle_gamma or (costs.NGRAM_GAMMA if by_lookup else None),
    )


def _straight(case: PlanningCase, layout: Layout, passes: Passes) -> costs.Speculation | None:
    """Two levels, of a model whose layers mostly keep a state, or that an assistant drafts for, most of whose
    layers have a window: these cost its middle pass what they cost a full one. None where three were
    measured, lengths or draft levels are the user's, or an assistant cannot attend to the full cache.
    """
    settings, assisted = case.settings, isinstance(layout.draft, AssistantShape)
    chosen = settings.gamma or settings.middle_gamma or settings.mode != "triforce"
    if not (case.target.stateful or assisted) or chosen or passes.measured:
        return None
    if assisted and layout.host_layers:
        return None
    rows = range(1, costs.MAX_MIDDLE_GAMMA + 2)
    return costs.straight_speculation(
        [passes.full(n) for n in rows], draft_s=passes.straight_draft_s, q=passes.q
    )


def _token_s(settings: Settings, passes: Passes, drafted_s: float) -> float:
    """Time between tokens: drafting, unless plain decoding is as fast and the user left the choice to us."""
    if passes.plain:
        return passes.full(1)
    return drafted_s if settings.gamma else min(drafted_s, passes.full(1))


def kernel_of(case: PlanningCase, layout: Layout) -> str:
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
