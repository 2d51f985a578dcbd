"""Draws the mark from one set of coordinates as SVG, PNG (16 to 512) and ICO. Run: python
assets/build_icons.py

An open book seen from its foot: three spreads, one for each level of the hierarchy, the full one the widest,
under a reading lamp. Below 32 pixels two spreads are drawn, thicker, because three would run together.
"""

from __future__ import annotations

import argparse
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).resolve().parent / "icons"
INK, PAPER, LAMP = "#17323A", "#F8F3E8", "#E9A45B"
SIDE = 128  # the drawing's own units
SIZES = (16, 24, 32, 48, 64, 128, 256, 512)
ICO_SIZES = (16, 24, 32, 48, 64, 128, 256)
OVERSAMPLE = 8
STEPS = 24  # straight pieces per curve when drawn in pixels

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """Two facing pages: a curve from the left edge to the gutter, mirrored to the right."""

    gutter_y: float
    half_width: float
    stroke: float

    def left(self) -> tuple[Point, Point, Point, Point]:
        """The cubic curve of the left page, from its outer edge to the gutter."""
        middle, width, rise = SIDE / 2, self.half_width, self.half_width * 0.32
        outer = (middle - width, self.gutter_y - rise * 0.78)
        lifted = (outer[0] + width * 0.42, outer[1] - rise * 0.46)
        return outer, lifted, (middle - width * 0.2, self.gutter_y - rise), (middle, self.gutter_y)

    def right(self) -> tuple[Point, ...]:
        """The right page, from the gutter outwards."""
        return tuple((SIDE - x, y) for x, y in reversed(self.left()))


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything that is drawn, in units of SIDE."""

    spreads: tuple[Spread, ...]
    lamp: tuple[float, float, float]  # centre x, y, radius
    corner: float = 28.0


FULL = Mark((Spread(62, 25, 7), Spread(83, 37, 8.5), Spread(107, 49, 10)), (64, 31, 10.5))
SMALL = Mark((Spread(76, 34, 12.5), Spread(108, 49, 13.5)), (64, 31, 14.5), corner=24)


def mark_for(pixels: int) -> Mark:
    """The variant that stays legible at this size."""
    return SMALL if pixels < 32 else FULL


def svg(mark: Mark) -> str:
    """The mark as a stand-alone SVG document."""
    paths = []
    for spread in mark.spreads:
        start, *bends = (*spread.left(), *spread.right()[1:])
        points = " ".join(f"{x:g},{y:g}" for x, y in ((round(x, 2), round(y, 2)) for x, y in bends))
        paths.append(f'  <path d="M{start[0]:g},{start[1]:g} C{points}" stroke-width="{spread.stroke:g}"/>')
    x, y, radius = mark.lamp
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}" role="img" '
        'aria-label="TriForce Chat">',
        f'<rect width="{SIDE}" height="{SIDE}" rx="{mark.corner:g}" fill="{INK}"/>',
        f'<g fill="none" stroke="{PAPER}" stroke-linecap="round" stroke-linejoin="round">',
        *paths,
        "</g>",
        f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{LAMP}"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bezier(curve: tuple[Point, ...]) -> list[Point]:
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = curve
    points = []
    for step in range(STEPS + 1):
        t = step / STEPS
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points.append((a * ax + b * bx + c * cx + d * dx, a * ay + b * by + c * cy + d * dy))
    return points


def _disc(draw: ImageDraw.ImageDraw, centre: Point, radius: float, colour: str, scale: float) -> None:
    x, y, r = centre[0] * scale, centre[1] * scale, radius * scale
    draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def picture(pixels: int) -> Image.Image:
    """The mark as an RGBA picture: drawn larger, then reduced, which smooths its edges."""
    mark, scale = mark_for(pixels), pixels * OVERSAMPLE / SIDE
    image = Image.new("RGBA", (pixels * OVERSAMPLE,) * 2)
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((0, 0, image.width - 1, image.height - 1), radius=mark.corner * scale, fill=INK)
    for spread in mark.spreads:
        points = _bezier(spread.left()) + _bezier(spread.right())[1:]
        draw.line(
            [(x * scale, y * scale) for x, y in points],
            fill=PAPER,
            width=round(spread.stroke * scale),
            joint="curve",
        )
        for end in (points[0], points[-1], spread.left()[-1]):
            _disc(draw, end, spread.stroke / 2, PAPER, scale)
    _disc(draw, mark.lamp[:2], mark.lamp[2], LAMP, scale)
    return image.resize((pixels, pixels), Image.Resampling.LANCZOS)


def _png(pixels: int) -> bytes:
    out = io.BytesIO()
    picture(pixels).save(out, "PNG", optimize=True)
    return out.getvalue()


def _ico() -> bytes:
    out = io.BytesIO()
    pictures = [picture(pixels) for pixels in ICO_SIZES]
    pictures[-1].save(
        out, "ICO", sizes=[(pixels, pixels) for pixels in ICO_SIZES], append_images=pictures[:-1]
    )
    return out.getvalue()


def build() -> dict[str, bytes]:
    """Every icon file by name."""
    files = {f"triforce-chat-{pixels}.png": _png(pixels) for pixels in SIZES}
    files |= {
        "triforce-chat.svg": svg(FULL).encode(),
        "favicon.svg": svg(SMALL).encode(),
        "triforce-chat.ico": _ico(),
    }
    return files


def main() -> None:
    """Write all icons into assets/icons, or into --out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in build().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
