"""What a browser's accessibility tree and colours may not show."""

from __future__ import annotations

from pathlib import Path

import pytest

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="no axe: pip install -r requirements-test.txt"
)


RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],  # what is in order is not described: it takes most of the time
}


SOURCE = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


SETTLED = """() => {
  const ending = document.getAnimations().filter((a) => a.effect?.getTiming().iterations !== Infinity);
  return Promise.allSettled(ending.map((a) => a.finished));
}"""


def problems(page) -> list[str]:
    """Rule, first element and why, for each violation; animations that end are waited for, since axe reads
    colours.
    """
    page.evaluate(SETTLED)
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(SOURCE)
    found = page.evaluate("(rules) => axe.run(rules).then((told) => told.violations)", RULES)
    return [
        f"{rule['id']}: {node['html'][:160]} ({node['failureSummary'][:300]})"
        for rule in found
        for node in rule["nodes"][:2]
    ]
