"""The side panel: how the answer is being made, in numbers, meters and one small plot. Values in, HTML out."""

from __future__ import annotations

from html import escape
from statistics import median

from core.events import Acceptance, Stats, Verified

PLOT_WIDTH, PLOT_HEIGHT = 288, 84
SMOOTH = 8  # rounds
LEVEL_NAMES = {
    "triforce": ("Draft → retrieval", "Retrieval → full"),
    "retrieval": ("", "Retrieval → full"),
    "draft": ("", "Draft → full"),
    "ngram": ("", "N-gram → full"),
    "streaming": ("", "Streaming → full"),
    "autoregressive": ("", ""),
}
MODES = {
    "triforce": "TriForce",
    "retrieval": "Retrieval only",
    "draft": "Draft model only",
    "ngram": "N-gram only",
    "streaming": "StreamingLLM draft",
    "autoregressive": "Plain decoding",
}


def panel_html(stats: Stats | None, *, live: bool) -> str:
    """The whole live panel; with None it shows what will be there."""
    shown = stats or Stats(mode="triforce")
    state = "Live" if live else ("Last answer" if stats else "Waiting for a question")
    head = (
        '<div class="panel-head"><h2>Decoding</h2><span class="tag '
        f'{"tag-live" if live else ""}">{state}</span></div>'
    )
    body = _speed(shown) + _levels(shown) + _tbt(shown) + _facts(shown)
    return f'<section class="stats" data-live="{int(live)}">{head}{body}</section>'


def _speed(stats: Stats) -> str:
    value = f"{stats.tokens_per_s:.1f}" if stats.new_tokens else "–"
    rounds = f"{stats.tokens_per_round:.2f}" if stats.rounds else "–"
    return (
        f'<div class="speed"><div><b id="stat-speed">{value}</b><span>tokens / second</span></div>'
        f'<div><b id="stat-round">{rounds}</b><span>tokens / round</span></div></div>'
    )


def _levels(stats: Stats) -> str:
    names = LEVEL_NAMES.get(stats.mode, LEVEL_NAMES["triforce"])
    rows = [
        _level(name, acceptance, key)
        for name, acceptance, key in (
            (names[0], stats.acceptance_draft, "draft"),
            (names[1], stats.acceptance_retrieval, "retrieval"),
        )
        if name
    ]
    if not rows:
        return (
            '<div class="levels"><h3>Acceptance</h3><p class="quiet">Plain decoding: nothing is proposed '
            "ahead.</p></div>"
        )
    return f'<div class="levels"><h3>Acceptance</h3>{"".join(rows)}</div>'


def _level(name: str, acceptance: Acceptance, key: str) -> str:
    rate = acceptance.rate
    share = "–" if rate is None else f"{rate:.0%}"
    counts = (
        "not measured yet"
        if rate is None
        else f"{acceptance.accepted:,} of {acceptance.evaluated:,} accepted"
    )
    return (
        f'<div class="level level-{key}"><div><span>{name}</span><b '
        f'id="stat-acceptance-{key}">{share}</b></div>'
        f'<div class="meter" role="img" aria-label="{name}: {share}"><i '
        f'style="width:{(rate or 0):.1%}"></i></div>'
        f"<small>{counts}</small></div>"
    )


def _tbt(stats: Stats) -> str:
    cells = "".join(
        f'<div><b id="stat-tbt-{key}">{_ms(value)}</b><span>{name}</span></div>'
        for key, name, value in (
            ("last", "last", stats.tbt_last_ms),
            ("p50", "median", stats.tbt_p50_ms),
            ("p95", "p95", stats.tbt_p95_ms),
        )
    )
    return (
        f'<div class="tbt"><h3>Time between tokens <small>ms</small></h3><div class="cells">{cells}</div>'
        f"{plot_svg(stats.tbt_series_ms, stats.acceptance_series)}</div>"
    )


def plot_svg(tbt_ms: tuple[float, ...], acceptance: tuple[float, ...]) -> str:
    """TBT (line, left scale from 0) and acceptance (dashed, 0-100%, smoothed) per round, with the same said
    in words.

    The scale ends at four times the median: one round that had to wait would flatten all others. It is cut at
    the top edge, and its height is in the words.
    """
    if len(tbt_ms) < 2:
        return '<div class="plot plot-empty">The plot appears with the first rounds.</div>'
    top = min(max(tbt_ms), 4 * median(tbt_ms)) * 1.05 or 1.0
    smooth = _smoothed(acceptance)
    words = (
        f"Time between tokens over {len(tbt_ms)} rounds: lowest {min(tbt_ms):.0f}, highest {max(tbt_ms):.0f} "
        "milliseconds."
        + (f" Acceptance: lowest {min(smooth):.0%}, highest {max(smooth):.0%}." if smooth else "")
    )
    area = _points(tbt_ms, top)
    line = f'<polyline class="line-acceptance" points="{_points(smooth, 1.0)}"/>' if len(smooth) > 1 else ""
    return (
        f'<figure class="plot"><div class="plot-top">{top:,.0f} ms</div>'
        f'<svg viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}"><polygon class="area-tbt" points="0,{PLOT_HEIGHT} {area} '
        f'{PLOT_WIDTH},{PLOT_HEIGHT}"/>'
        f'<polyline class="line-tbt" points="{area}"/>{line}</svg>'
        f'<figcaption><span class="key key-tbt">TBT, highest {max(tbt_ms):,.0f} ms</span>'
        '<span class="key key-acceptance">Acceptance, 0–100%</span></figcaption></figure>'
    )


def _smoothed(values: tuple[float, ...]) -> tuple[float, ...]:
    """The mean over the last rounds: a round of one token is accepted wholly or not at all."""
    return tuple(
        sum(values[max(0, at - SMOOTH + 1) : at + 1]) / len(values[max(0, at - SMOOTH + 1) : at + 1])
        for at in range(len(values))
    )


def _points(values: tuple[float, ...], top: float) -> str:
    step = PLOT_WIDTH / (len(values) - 1)
    usable = PLOT_HEIGHT - 4
    return " ".join(
        f"{index * step:.1f},{2 + usable * (1 - min(max(value / top, 0.0), 1.0)):.1f}"
        for index, value in enumerate(values)
    )


def _facts(stats: Stats) -> str:
    some = stats.new_tokens > 0
    facts = [
        ("ttft", "First token after", _seconds(stats.ttft_s) if some else "–"),
        ("prefill", "Prefill", _prefill(stats)),
        ("new", "New tokens", f"{stats.new_tokens:,}" if some else "–"),
        ("wait", "Longest wait", f"{_ms(stats.longest_wait_ms)} ms" if some else "–"),
        ("mode", "Mode", MODES.get(stats.mode, stats.mode)),
    ]
    if stats.verified is not None:
        facts.append(("verified", "Plain decoding agrees", _verified(stats.verified)))
    if stats.bytes_moved:
        facts.append(("moved", "Moved over the bus", size(stats.bytes_moved)))
    if stats.peak_memory_bytes:
        facts.append(("memory", "Memory peak", size(stats.peak_memory_bytes)))
    rows = "".join(
        f'<div><dt>{name}</dt><dd id="stat-{key}">{escape(value)}</dd></div>' for key, name, value in facts
    )
    return f'<dl class="facts">{rows}</dl>{context_html(stats.context_used, stats.context_total)}'


def _verified(verified: Verified) -> str:
    ties = {0: "", 1: ", 1 near-tie"}.get(verified.near_ties, f", {verified.near_ties:,} near-ties")
    return f"{verified.agreed:,} of {verified.tokens:,} tokens{ties}"


def _prefill(stats: Stats) -> str:
    if not stats.prompt_tokens:
        return "–"
    fresh = stats.prompt_tokens - stats.reused_tokens
    where = f", {stats.snapshot_tokens:,} of them from disk" if stats.snapshot_tokens else ""
    return f"{fresh:,} tokens" + (f", {stats.reused_tokens:,} reused{where}" if stats.reused_tokens else "")


def context_html(used: int, total: int) -> str:
    """The meter of the context: used and free tokens."""
    if not total:
        return ""
    share = min(used / total, 1.0)
    tone = "bad" if share > 0.95 else "warn" if share > 0.8 else "good"
    numbers = f"{used:,} used · {max(total - used, 0):,} free"
    return (
        f'<div class="context"><div><h3>Context</h3><span id="stat-context">{numbers}</span></div>'
        f'<div class="meter meter-{tone}" role="meter" aria-label="Context used" aria-valuemin="0" '
        f'aria-valuemax="{total}" '
        f'aria-valuenow="{used}"><i style="width:{share:.1%}"></i></div></div>'
    )


def plan_html(plan: dict | None, *, model: str = "") -> str:
    """What runs where: model, on-chip layers, every part of the memory budget, and the planner's notes."""
    if not plan:
        return (
            '<section class="plan"><h2>Plan</h2><p class="quiet">The plan appears when the engine has '
            "started.</p></section>"
        )
    facts = [("Model", model or str(plan.get("model", "")))]
    if plan.get("device"):
        device = {"cpu": "CPU", "cuda": "GPU"}.get(plan["device"], str(plan["device"]))
        facts.append(("Runs on", " · ".join(part for part in (device, plan.get("dtype")) if part)))
    if plan.get("layers"):
        facts.append(("On-chip layers", f"{plan.get('on_chip_layers', 0)} of {plan['layers']}"))
    if plan.get("context_tokens"):
        facts.append(("Context", f"{plan['context_tokens']:,} tokens"))
    if plan.get("retrieval_budget"):
        facts.append(("Retrieval budget", f"{plan['retrieval_budget']:,} tokens"))
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in plan.get("notes", ()))
    return (
        f'<section class="plan"><h2>Plan</h2><dl class="facts">{rows}</dl>{_budget(plan.get("budget", ()))}'
        f"{f'<ul class=notes>{notes}</ul>' if notes else ''}</section>"
    )


def _budget(lines: list | tuple) -> str:
    """Where each GB lives: one bar per place, one row per part."""
    places: dict[str, list[tuple[str, int]]] = {}
    for line in lines:
        name, count, place = (line["name"], line["bytes"], line["place"]) if isinstance(line, dict) else line
        places.setdefault(str(place), []).append((str(name), int(count)))
    out = []
    for place, parts in places.items():
        total = sum(count for _, count in parts) or 1
        bar = "".join(
            f'<i style="width:{count / total:.1%}" title="{escape(name)}"></i>' for name, count in parts
        )
        rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{size(count)}</dd></div>" for name, count in parts)
        out.append(
            f'<div class="place"><div><h3>{escape(place)}</h3><span>{size(total)}</span></div>'
            f'<div class="stack" aria-hidden="true">{bar}</div><dl class="facts">{rows}</dl></div>'
        )
    return "".join(out)


def size(count: int) -> str:
    """Bytes for reading, in binary units."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _ms(value: float) -> str:
    if not value:
        return "–"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return (
        f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 90 else f"{value / 60:.1f} min"
    )
