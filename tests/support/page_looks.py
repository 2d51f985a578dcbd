"""Whether a page looks as it should at every size: nothing beside it, cut off, covered, or too small to
press. Knows nothing of what the page shows, and nothing of axe's rules: test_accessible.py does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support.accessibility import problems

# 640 x 400 is a window of 1280 x 800 at 200 % zoom
SIZES = ((1280, 800), (1920, 1080), (900, 800), (700, 900), (390, 844), (640, 400))
IN_DARK = ((1280, 800), (390, 844))
# what is in sight wherever it is on the page
ALWAYS = (".engine i", ".topbar-tools [data-toggle=settings]", "[data-quit]", "#send, #stop button")
# what listens for a new size has heard of it when a frame was drawn at it
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
FAULTS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


SETTLED = """document.getAnimations().every((one) =>
    one.playState !== "running" || one.effect.getComputedTiming().endTime === Infinity)"""


def as_it_is() -> None:
    """Nothing is folded away."""


def at_sizes(page, sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Brings the window to one size after another, and lets the page draw itself at it."""
    for width, height in sizes:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(DRAWN)
        yield width, height


def in_both_schemes(page) -> Iterator[str]:
    """Has the page in light and in dark colours, as the system would; leaves it in light ones."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(DRAWN)
        yield scheme
    page.emulate_media(color_scheme="light")


def faults(page, seen: Iterable[str] = ()) -> list[str]:
    """What is wrong with the page as it is now; `seen`: selectors of what must be in sight."""
    return page.evaluate(FAULTS, [ALWAYS, list(seen)])


def look(
    page,
    name: str,
    *,
    seen: Iterable[str] = (),
    before: Callable[[], None] = as_it_is,
    after: Callable[[], None] = as_it_is,
) -> list[str]:
    """What is wrong with the page as it is now, size by size; its pictures go to TRIFORCE_SHOTS. `before` and
    `after` bring into sight what a size folds away, and put it away again. `seen`: see `faults`.
    """
    wrong = []
    for width, height in at_sizes(page, SIZES):
        before()
        at = f"{name} at {width} x {height}"
        wrong += [f"{at}: {line}" for line in faults(page, seen)]
        picture(page, f"{name}-{width}-light")
        if os.environ.get("TRIFORCE_SHOTS") and (width, height) in IN_DARK:
            page.emulate_media(color_scheme="dark")
            picture(page, f"{name}-{width}-dark")
            page.emulate_media(color_scheme="light")
        after()
    page.set_viewport_size({"width": SIZES[0][0], "height": SIZES[0][1]})
    return wrong


def picture(page, name: str) -> None:
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def wrong_looks(page, name: str, at_size: Callable[[], Iterable[str]]) -> list[str]:
    """What breaks the rules of accessibility in both colours and at every size, with the book's side in
    sight, and what `at_size` finds there; a picture of each.
    """
    wrong = []
    for scheme in in_both_schemes(page):
        wrong += [f"{scheme}: {line}" for line in problems(page)]
        picture(page, f"{name}-{scheme}")
    for size in at_sizes(page, SIZES):
        if page.evaluate("!document.querySelector('#right').checkVisibility()"):
            page.click(".topbar-tools [data-toggle=panel]")
        page.wait_for_function(SETTLED)  # what slides in is covered on its way
        wrong += [f"{size}: {line}" for line in (*problems(page), *at_size())]
        picture(page, f"{name}-{size[0]}")
    return wrong
