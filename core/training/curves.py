"""Loss and agreement over the steps as a picture. Knows nothing of how they came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from core.paths import whole_file
from core.training.shards import TEACHER_TEMPERATURES

_SIZE, _PLOT, _LEFT, _TOP = (960, 720), (800, 250), 90, 50  # pixels
_INK, _GRID, _PAPER = "#222222", "#dddddd", "#ffffff"
_COLOURS = ("#b3541e", "#1f5f8b", "#3b7a3b", "#7a3b7a")


def draw_curves(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Two plots over `step`: the losses, and the agreement on texts kept apart. Replaces `path` whole."""
    picture = Image.new("RGB", _SIZE, _PAPER)
    pen = ImageDraw.Draw(picture)
    steps = [point["step"] for point in history]
    judged = [point["judged"] for point in history]
    losses = {
        "training": [point["loss"] for point in history],
        "kept apart": [point["loss"] for point in judged],
    }
    _plot(pen, "KL to the target, nats per token", steps, losses, top=_TOP)
    accepted = {"T = 0": [point["greedy"] for point in judged]}
    for index, temperature in enumerate(TEACHER_TEMPERATURES):
        accepted[f"T = {temperature:g}"] = [point["overlap"][index] for point in judged]
    _plot(
        pen,
        "agreement on passages kept apart, within the draft's vocabulary",
        steps,
        accepted,
        top=_TOP * 2 + _PLOT[1] + 40,
    )
    with whole_file(path) as part:
        picture.save(part, "PNG")


def draw_losses(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Two plots over the tokens read: the loss on what is learned from (`loss`, None before any step), and by
    kind on what is kept apart.
    """
    picture = Image.new("RGB", _SIZE, _PAPER)
    pen = ImageDraw.Draw(picture)
    tokens = [point["tokens"] for point in history]
    kinds = {kind: [point["judged"][kind] for point in history] for kind in history[0]["judged"]}
    learned = [point for point in history if point["loss"] is not None]
    losses, read = {"training": [point["loss"] for point in learned]}, [point["tokens"] for point in learned]
    _plot(pen, "cross entropy, nats per answer token, by tokens read", read, losses, top=_TOP)
    _plot(pen, "on texts kept apart, by kind", tokens, kinds, top=_TOP * 2 + _PLOT[1] + 40)
    with whole_file(path) as part:
        picture.save(part, "PNG")


def _plot(
    pen: ImageDraw.ImageDraw,
    title: str,
    steps: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    *,
    top: int,
) -> None:
    """One plot with its axes, from zero to the largest value."""
    font = ImageFont.load_default(15)
    width, height = _PLOT
    most, last = max(max(values) for values in lines.values()) or 1.0, max(steps)
    pen.text((_LEFT, top - 28), title, _INK, font)
    for part in range(5):
        y = top + height - height * part // 4
        pen.line((_LEFT, y, _LEFT + width, y), _GRID)
        pen.text((_LEFT - 10, y), f"{most * part / 4:.2f}", _INK, font, anchor="rm")
        pen.text(
            (_LEFT + width * part // 4, top + height + 6), f"{last * part // 4:,}", _INK, font, anchor="ma"
        )
    legend = _LEFT + width
    for colour, (name, values) in zip(_COLOURS, lines.items(), strict=False):
        points = [
            (_LEFT + width * step / last, top + height - height * value / most)
            for step, value in zip(steps, values, strict=True)
        ]
        pen.line(points, colour, 2)
        label = f"{name}: {values[-1]:.2f}"
        pen.text((legend, top - 28), label, colour, font, anchor="ra")
        legend -= pen.textlength(label, font) + 20
