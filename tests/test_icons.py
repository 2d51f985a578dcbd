"""The icons: every size is there, drawn from the geometry that the SVG holds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from PIL import Image

ASSETS = Path(__file__).resolve().parent.parent / "assets"
ICONS = ASSETS / "icons"

_spec = importlib.util.spec_from_file_location("build_icons", ASSETS / "build_icons.py")
assert _spec and _spec.loader
icons = sys.modules["build_icons"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(icons)


@pytest.mark.parametrize(("name", "mark"), [("triforce-chat.svg", icons.FULL), ("favicon.svg", icons.SMALL)])
def test_committed_svg_is_the_geometry(name, mark):
    """A mark redrawn without rebuilding its files."""
    assert (ICONS / name).read_text(encoding="utf-8") == icons.svg(mark)


@pytest.mark.parametrize("pixels", icons.SIZES)
def test_png_is_the_geometry(pixels):
    """A stale size; edges may differ a little between versions of the renderer."""
    with Image.open(ICONS / f"triforce-chat-{pixels}.png") as kept:
        assert kept.size == (pixels, pixels)
        drawn = icons.picture(pixels)
        pairs = zip(kept.convert("RGBA").tobytes(), drawn.tobytes(), strict=True)
    assert sum(abs(a - b) > 24 for a, b in pairs) <= 0.01 * 4 * pixels * pixels


def test_ico_holds_every_size_windows_asks_for():
    """Windows picks by size; a missing one is blurred from another."""
    with Image.open(ICONS / "triforce-chat.ico") as icon:
        assert icon.ico.sizes() == {(pixels, pixels) for pixels in icons.ICO_SIZES}
