"""The side panel: how the answer is being made, in figures, meters and a plot. Values in, HTML out."""

from __future__ import annotations

from statistics import median

from app.render.templating import render
from core.config import PLAIN_MODES
from core.events import Acceptance, Stats, VerificationResult
from core.model.store.catalogue import title_of
from core.text.words import duration, localised, size
from core.text.words import translated as _
from core.text.words import translated_count as _n

PLOT_WIDTH, PLOT_HEIGHT = 288, 84
BARS = 12  # of the histogram
SMOOTH = 8  # rounds
PLAIN_ROUNDS = 8  # fewer say little of plain decoding
NOTHING = "–"


def mode_names() -> dict[str, str]:
    """The modes of decoding, as people read them."""
    return {
        "triforce": _("TriForce"),
        "retrieval": _("Retrieval only"),
        "draft": _("Draft model only"),
        "ngram": _("N-gram only"),
        "streaming": _("StreamingLLM draft"),
        "autoregressive": _("Plain decoding"),
        "cpu_attention": _("Attention on the CPU"),
    }


def panel_html(
    stats: Stats | None,
    *,
    live: bool,
    plan: dict | None = None,
    compared: dict | None = None,
    comparable: bool = False,
    why_not: str = "",
    comparing: int | None = None,
    left_s: float | None = None,
    summary: bool = False,
) -> str:
    """The whole live panel; without `stats` it shows what will be there. `compared`: with plain decoding, see
    app.desk.comparison; `comparing`, `left_s`: of one that runs; `why_not`: there can be none. `summary`: the
    answer is one.
    """
    shown = stats or Stats(mode="triforce")
    undecoded = stats is not None and not live and not stats.new_tokens and not stats.rounds
    mode = mode_names().get(stats.mode, stats.mode) if stats else NOTHING
    facts, levels = [*_facts(shown, mode), *_resting(shown, plan)], _levels(shown)
    proposed = _proposed(levels)
    return render(
        "panel.html",
        stats=shown,
        some=shown.new_tokens > 0,
        live=live,
        waiting=stats is None,
        undecoded=undecoded,
        summary=summary,
        levels=levels,
        undrafted=bool(levels) and not proposed and not live and shown.new_tokens > 0,
        # stored answers may have 0 where nothing was proposed to the full model
        plot=_plot(
            shown.tbt_series_ms,
            shown.acceptance_series if shown.acceptance_retrieval.evaluated else (),
            shown.rounds,
        ),
        sizes=_sizes(shown.round_sizes),
        plain=_plain(shown, compared),
        compared=compared,
        verified=(compared or {}).get("verified"),
        comparable=comparable and not live,
        why_not=why_not,
        comparing=comparing,
        left_s=left_s,
        facts=[fact for fact in facts if fact[0] == "prefill"] if undecoded else facts,
        context=_context(shown.context_used, shown.context_total),
    )


def _plain(stats: Stats, compared: dict | None) -> dict[str, object] | None:
    """Tokens per second of plain decoding on this computer: measured beside this answer, else by its own
    rounds for which nothing was proposed. `measured`: "beside" | "here"; None where neither says it.
    """
    if stats.mode in PLAIN_MODES or not stats.new_tokens:
        return None
    rate = (compared or {}).get("tokens_per_s")
    if rate:
        return {"rate": rate, "measured": "beside", "times": stats.tokens_per_s / rate}
    if stats.plain_rounds < PLAIN_ROUNDS:
        return None
    rate = 1e3 / stats.plain_tbt_ms
    return {"rate": rate, "measured": "here", "times": stats.tokens_per_s / rate}


def _sizes(counts: tuple[int, ...]) -> list[tuple[str, int, float]]:
    """The histogram of tokens per round as (size, rounds, share of the highest); sizes past the last bar are
    in it.
    """
    bars = [(str(size), count) for size, count in enumerate(counts, 1)]
    if len(bars) > BARS:
        bars = [*bars[: BARS - 1], (f"{BARS}+", sum(counts[BARS - 1 :]))]
    top = max((count for _size, count in bars), default=0)
    return [(size, count, count / top) for size, count in bars] if top else []


def _levels(stats: Stats) -> list[tuple[str, str, Acceptance]]:
    """(key, name, acceptance) of each level that proposes."""
    one_level = {
        "retrieval": _("Retrieval → full"),
        "draft": _("Draft → full"),
        "ngram": _("N-gram → full"),
        "streaming": _("Streaming → full"),
    }
    if stats.mode in PLAIN_MODES:
        return []
    if stats.mode in one_level:
        return [("retrieval", one_level[stats.mode], stats.acceptance_retrieval)]
    return [
        ("draft", _("Draft → retrieval"), stats.acceptance_draft),
        ("retrieval", _("Retrieval → full"), stats.acceptance_retrieval),
    ]


def _proposed(levels: list[tuple[str, str, Acceptance]]) -> bool:
    """Whether any level has proposed a token."""
    return any(acceptance.evaluated for _key, _name, acceptance in levels)


def _facts(stats: Stats, mode: str) -> list[tuple[str, str, str]]:
    """(key, name, value) of each figure that is known; the mode by its name."""
    some = stats.new_tokens > 0
    facts = [
        ("ttft", _("First token after"), _wait(stats.ttft_s) if some else NOTHING),
        ("prefill", _("Prefill"), _prefill(stats)),
        ("new", _("New tokens"), localised(f"{stats.new_tokens:,}") if some else NOTHING),
        *_work(stats),
        ("wait", _("Longest wait"), _wait(stats.longest_wait_ms / 1000) if some else NOTHING),
        ("mode", _("Mode"), mode),
    ]
    if stats.verified is not None:
        facts.append(("verified", _("Plain decoding agrees"), _verified(stats.verified)))
    if stats.bytes_moved:
        facts.append(("moved", _("Moved over the bus"), _moved(stats)))
    elif some:
        facts.append(("moved", _("Moved over the bus"), _("nothing")))
    if stats.peak_memory_bytes:
        facts.append(("memory", _("Memory peak"), size(stats.peak_memory_bytes)))
    return facts


def _resting(stats: Stats, plan: dict | None) -> list[tuple[str, str, str]]:
    """Why the retrieval level hardly proposes: it would read all there is (core.decoding.draft_length)."""
    budget, read = (plan or {}).get("retrieval_budget", 0), stats.context_used - stats.new_tokens
    if stats.mode != "triforce" or not stats.new_tokens or read > budget:
        return []
    return [("rests", _("Retrieval level"), _("rests: its budget holds all of the text"))]


def _work(stats: Stats) -> list[tuple[str, str, str]]:
    """What was written beside the answer that is given."""
    if stats.answers < 2:
        return []
    words = _("{tokens} tokens in {count} tries").format(
        tokens=f"{stats.all_tokens:,}", count=f"{stats.answers:,}"
    )
    return [("work", _("Written in all"), localised(words))]


def _moved(stats: Stats) -> str:
    """For all that was written, of which the answer that is given may be a part."""
    tokens = stats.all_tokens if stats.answers > 1 else stats.new_tokens
    if not tokens:
        return size(stats.bytes_moved)
    each = size(round(stats.bytes_moved / tokens))
    return _("{all}, {each} a token").format(all=size(stats.bytes_moved), each=each)


def _wait(seconds: float) -> str:
    return localised(f"{seconds * 1000:.0f} ms") if seconds < 0.9995 else duration(seconds)


def _prefill(stats: Stats) -> str:
    if not stats.prompt_tokens:
        return NOTHING
    fresh = stats.prompt_tokens - stats.reused_tokens
    said = [_n("{count} token", "{count} tokens", fresh).format(count=f"{fresh:,}")]
    if stats.reused_tokens:
        said.append(_("{count} reused").format(count=f"{stats.reused_tokens:,}"))
    if stats.reused_tokens and stats.snapshot_tokens:
        said.append(_("{count} of them from disk").format(count=f"{stats.snapshot_tokens:,}"))
    return ", ".join(said)


def _verified(verified: VerificationResult) -> str:
    said = _("{agreed} of {tokens} tokens").format(
        agreed=f"{verified.agreed:,}", tokens=f"{verified.tokens:,}"
    )
    if not verified.near_ties:
        return said
    ties = _n("{count} near-tie", "{count} near-ties", verified.near_ties)
    return f"{said}, {ties.format(count=f'{verified.near_ties:,}')}"


def _context(used: int, total: int) -> dict[str, object] | None:
    if not total:
        return None
    share = min(used / total, 1.0)
    tone = "bad" if share > 0.95 else "warn" if share > 0.8 else "good"
    return {"free": max(total - used, 0), "share": share, "tone": tone}


# --- the plot


def _plot(
    tbt_ms: tuple[float, ...], acceptance: tuple[float | None, ...], rounds: int
) -> dict[str, object] | None:
    """TBT and smoothed acceptance per round as points of plot.html; None before there are two rounds.

    The scale ends at four times the median: one round that had to wait would flatten all others. It is cut at
    the top edge, and its height is in the words.
    """
    if len(tbt_ms) < 2:
        return None
    top = min(max(tbt_ms), 4 * median(tbt_ms)) * 1.05 or 1.0
    smooth = _smoothed(acceptance)
    shares = list(smooth.values())
    return {
        "width": PLOT_WIDTH,
        "height": PLOT_HEIGHT,
        "top_ms": top,
        "rounds": max(rounds, len(tbt_ms)),
        "lowest_ms": min(tbt_ms),
        "highest_ms": max(tbt_ms),
        "tbt": _points(dict(enumerate(tbt_ms)), len(tbt_ms), top),
        "acceptance": _points(smooth, len(acceptance), 1.0) if len(smooth) > 1 else "",
        "lowest_acceptance": min(shares, default=0.0),
        "highest_acceptance": max(shares, default=0.0),
    }


def _smoothed(values: tuple[float | None, ...]) -> dict[int, float]:
    """The mean over the last rounds for which something was proposed, by round: one of one token is accepted
    wholly or not at all.
    """
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    latest = {at: known[max(0, nth - SMOOTH + 1) : nth + 1] for nth, (at, _value) in enumerate(known)}
    return {at: sum(value for _at, value in window) / len(window) for at, window in latest.items()}


def _points(values: dict[int, float], count: int, top: float) -> str:
    """Those of `count` rounds that have a value, by number."""
    step = PLOT_WIDTH / (count - 1)
    usable = PLOT_HEIGHT - 4
    return " ".join(
        f"{index * step:.1f},{2 + usable * (1 - min(max(value / top, 0.0), 1.0)):.1f}"
        for index, value in values.items()
    )


# --- the plan


def plan_html(plan: dict | None, *, model: str = "") -> str:
    """What runs where: model, on-chip layers, every part of the memory budget, and the planner's notes."""
    plan = plan or {}
    return render(
        "plan.html",
        facts=_plan_facts(plan, model) if plan else [],
        places=_places(plan.get("budget", ())),
        notes=plan.get("notes", ()),
    )


def _plan_facts(plan: dict, model: str) -> list[tuple[str, str]]:
    facts = [(_("Model"), title_of(model or str(plan.get("model", ""))))]
    if plan.get("exact_for"):
        facts.append((_("Exact for"), plan["exact_for"]))
    if plan.get("device"):
        device = {"cpu": _("CPU"), "cuda": _("GPU")}.get(plan["device"], str(plan["device"]))
        facts.append((_("Runs on"), " · ".join(part for part in (device, plan.get("dtype")) if part)))
    if plan.get("layers") and plan.get("device") != "cpu":
        here = _("{resident} of {layers}").format(
            resident=plan.get("on_chip_layers", 0), layers=plan["layers"]
        )
        facts.append((_("On-chip layers"), here))
    for name, key in ((_("Context"), "context_tokens"), (_("Retrieval budget"), "retrieval_budget")):
        if count := plan.get(key):
            facts.append((name, _n("{count} token", "{count} tokens", count).format(count=f"{count:,}")))
    return facts


def _places(budget: list | tuple) -> list[tuple[str, int, list[tuple[str, int]]]]:
    """Where each GB lives: (place, bytes, its parts)."""
    places: dict[str, list[tuple[str, int]]] = {}
    for line in budget:
        places.setdefault(line["place"], []).append((line["name"], line["bytes"]))
    return [(place, sum(count for _name, count in parts), parts) for place, parts in places.items()]
