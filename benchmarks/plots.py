"""Draws what `benchmarks/acceptance.py` saved, as SVG that follows the reader's light or dark theme.

    python -m benchmarks.plots             rewrite docs/images/acceptance-*.svg from
    benchmarks/results/acceptance.json python -m benchmarks.plots --check     exit 1 and name the pictures
    that are out of date

Nothing is measured here. Colours are those of docs/brand.md; no line is told from another by its colour
alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
RESULT = REPO / "benchmarks" / "results" / "acceptance.json"
IMAGES = REPO / "docs" / "images"
Row = Mapping[str, Any]

WIDTH, PANEL_HEIGHT, TOP, BOTTOM, LEFT, GAP = 920, 220, 84, 96, 62, 28  # pixels
LIGHT = (
    "#F8F3E8",
    "#FFFDF8",
    "#DDD2BC",
    "#17323A",
    "#4E6267",
    "#1F5560",
    "#A9561B",
    "#6B7B2C",
    "#4E6267",
    "#B3372B",
    "#8A5A12",
)
DARK = (
    "#10212A",
    "#182E37",
    "#2B434C",
    "#EDE6D8",
    "#A3B1B0",
    "#7FC4C6",
    "#E9A45B",
    "#B9CB7A",
    "#A3B1B0",
    "#F0897B",
    "#E9A45B",
)
ROLES = ("paper", "sheet", "rule", "ink", "soft", "a", "b", "c", "d", "e", "f")  # a to f: lines
# colour and dashes of each line
LOOKS = (("a", ""), ("b", "7 3"), ("c", "2 3"), ("d", "9 3 2 3"), ("e", "4 4"), ("f", "1 5"))
MARKS: tuple[Callable[[float, float], str], ...] = (
    lambda x, y: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>',
    lambda x, y: f'<rect x="{x - 3.3:.1f}" y="{y - 3.3:.1f}" width="6.6" height="6.6"/>',
    lambda x, y: f'<path d="M{x:.1f},{y - 4.4:.1f} l4.2,7.6 h-8.4 z"/>',
    lambda x, y: f'<path d="M{x:.1f},{y - 4.6:.1f} l4.6,4.6 l-4.6,4.6 l-4.6,-4.6 z"/>',
    lambda x, y: f'<path d="M{x:.1f},{y + 4.4:.1f} l4.2,-7.6 h-8.4 z"/>',
    lambda x, y: f'<rect x="{x - 4.2:.1f}" y="{y - 2:.1f}" width="8.4" height="4"/>',
)


def _style() -> str:
    """Both themes; where a viewer knows no themes the light one holds."""
    light, dark = (
        ";".join(f"--{role}:{colour}" for role, colour in zip(ROLES, colours, strict=True))
        for colours in (LIGHT, DARK)
    )
    return (
        f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        "text{fill:var(--ink);font-size:13px}.soft{fill:var(--soft)}.grid{stroke:var(--rule)}.line{fill:none;stroke-width:2}</style>"
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: lines by name over the ticks of the x axis; None where nothing was measured."""

    title: str
    ticks: tuple[str, ...]
    lines: Mapping[str, tuple[float | None, ...]]


def figure(title: str, panels: Sequence[Panel], *, x_label: str) -> str:
    """Panels side by side over one y axis, acceptance up to 1, with one legend."""
    values = [
        value for panel in panels for line in panel.lines.values() for value in line if value is not None
    ]
    low = math.floor(min(values) * 10 - 0.2) / 10
    height, width = TOP + PANEL_HEIGHT + BOTTOM, (WIDTH - LEFT - 24 - GAP * (len(panels) - 1)) / len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="t" '
        "font-family=\"system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif\">",
        f'<title id="t">{escape(title)}</title>',
        _style(),
        f'<rect width="{WIDTH}" height="{height}" rx="14" fill="var(--paper)"/>',
        f'<text x="24" y="34" style="font-size:17px;font-weight:600">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, LEFT + number * (width + GAP), width, low, labelled=number == 0)
    parts.append(
        f'<text class="soft" x="{WIDTH / 2}" y="{TOP + PANEL_HEIGHT + 42}" '
        f'text-anchor="middle">{escape(x_label)}</text>'
    )
    return "\n".join([*parts, *_legend(list(panels[0].lines), height - 22), "</svg>"]) + "\n"


def _panel(panel: Panel, left: float, width: float, low: float, *, labelled: bool) -> list[str]:
    parts = [
        f'<rect x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{PANEL_HEIGHT}" rx="8" '
        'fill="var(--sheet)"/>',
        f'<text class="soft" x="{left:.1f}" y="{TOP - 12}">{escape(panel.title)}</text>',
    ]
    for tenth in range(round(low * 10), 11, 1 if low > 0.35 else 2):
        y = _y(tenth / 10, low)
        parts.append(f'<path class="grid" d="M{left:.1f},{y:.1f} h{width:.1f}"/>')
        if labelled:
            parts.append(
                f'<text class="soft" x="{left - 10:.1f}" y="{y + 4:.1f}" '
                f'text-anchor="end">{tenth / 10:.1f}</text>'
            )
    xs = [left + width * (index + 0.5) / len(panel.ticks) for index in range(len(panel.ticks))]
    parts += [
        f'<text class="soft" x="{x:.1f}" y="{TOP + PANEL_HEIGHT + 20}" '
        f'text-anchor="middle">{escape(tick)}</text>'
        for x, tick in zip(xs, panel.ticks, strict=True)
    ]
    for number, line in enumerate(panel.lines.values()):
        points = [(x, _y(value, low)) for x, value in zip(xs, line, strict=True) if value is not None]
        parts += _drawn(number, points)
    return parts


def _drawn(number: int, points: Sequence[tuple[float, float]]) -> list[str]:
    colour, dashes = LOOKS[number % len(LOOKS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline class="line" stroke="var(--{colour})" stroke-dasharray="{dashes}" points="{path}"/>',
        f'<g fill="var(--{colour})">{"".join(MARKS[number % len(MARKS)](x, y) for x, y in points)}</g>',
    ]


def _legend(names: Sequence[str], y: float) -> list[str]:
    parts, x = [], 24.0
    for number, name in enumerate(names):
        parts += _drawn(number, [(x, y - 4), (x + 34, y - 4)])
        parts.append(f'<text x="{x + 42:.1f}" y="{y:.1f}">{escape(name)}</text>')
        x += 42 + 7.4 * len(name) + 26
    return parts


def _y(value: float, low: float) -> float:
    return TOP + PANEL_HEIGHT * (1 - (value - low) / (1 - low))


# ---- what is drawn -----------------------------------------------------------------------------------------

NAMES = {
    "mass": "attention mass",
    "mean_key": "mean keys",
    "streaming": "newest chunks (StreamingLLM)",
    "h2o": "heavy hitters (H2O)",
}
DEFAULT = {"policy": "mass", "chunk": 8, "refresh": "every 8 or on drop", "temperature": 0.6}


def pictures(rows: Sequence[Row]) -> dict[str, str]:
    """SVG by file name."""

    def by(varied: str, values: Sequence[Any], name: Callable[[Any], str], title: str) -> str:
        return figure(
            title,
            [_over_budgets(rows, context, varied, values, name) for context in _contexts(rows)],
            x_label="retrieval budget, tokens",
        )

    refreshes = ["never", "on drop", "every 8", "every 8 or on drop", "every 4", "every round"]
    return {
        "acceptance-selection.svg": by(
            "policy", list(NAMES), NAMES.get, "Acceptance of the retrieval level by selection, T = 0.6"
        ),
        "acceptance-chunk.svg": by(
            "chunk",
            sorted({row["chunk"] for row in rows}),
            lambda chunk: f"chunks of {chunk}",
            "Acceptance of the retrieval level by chunk, T = 0.6",
        ),
        "acceptance-temperature.svg": by(
            "temperature",
            sorted({row["temperature"] for row in rows}),
            lambda t: f"T = {t:g}",
            "Acceptance of the retrieval level by temperature",
        ),
        "acceptance-refresh.svg": figure(
            "Acceptance of the retrieval level by refresh (rounds of 8 tokens), T = 0.6",
            [
                Panel(
                    _titled(context),
                    ("never", "drop", "8", "8/drop", "4", "1"),
                    {
                        f"budget {budget:,}": tuple(
                            rate(rows, **DEFAULT | {"refresh": one}, context=context, budget=budget)
                            for one in refreshes
                        )
                        for budget in (256, 1024)
                    },
                )
                for context in _contexts(rows)
            ],
            x_label="selected anew: never, when acceptance drops, every so many rounds",
        ),
    }


def _over_budgets(
    rows: Sequence[Row], context: int, varied: str, values: Sequence[Any], name: Callable[[Any], str]
) -> Panel:
    budgets = sorted({row["budget"] for row in rows if row["context"] == context})
    return Panel(
        _titled(context),
        tuple(f"{budget:,}" for budget in budgets),
        {
            name(value): tuple(
                rate(rows, **DEFAULT | {varied: value}, context=context, budget=budget) for budget in budgets
            )
            for value in values
        },
    )


def rate(rows: Sequence[Row], **wanted: Any) -> float | None:
    """Accepted over evaluated of all rows of that description; None where there is none."""
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return sum(row["accepted"] for row in found) / sum(row["evaluated"] for row in found) if found else None


def _contexts(rows: Sequence[Row]) -> list[int]:
    return sorted({row["context"] for row in rows})


def _titled(context: int) -> str:
    return f"behind {context:,} tokens"


def main() -> int:
    """Rewrite or check the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    drawn = pictures(json.loads(RESULT.read_text(encoding="utf-8"))["details"]["rows"])
    if parser.parse_args().check:
        old = [
            name
            for name, text in drawn.items()
            if not (IMAGES / name).is_file() or (IMAGES / name).read_text(encoding="utf-8") != text
        ]
        for name in old:
            print(f"docs/images/{name} is out of date; run python -m benchmarks.plots")
        return bool(old)
    for name, text in drawn.items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
