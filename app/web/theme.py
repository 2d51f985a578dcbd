"""Gradio's own parts in the colours of docs/brand.md, and the files the page is dressed with."""

from __future__ import annotations

import json

import gradio as gr

from app.render.templating import render
from core.paths import ROOT
from core.text.words import language

ASSETS = ROOT / "assets"
CSS = [
    ASSETS / "css" / f"{name}.css"
    for name in (
        "tokens",
        "layout",
        "conversation",
        "composing",
        "panel",
        "shelf",
        "reader",
        "names",
        "narrow",
        "aloud",
        "print",
    )
]
SCRIPTS = [
    ASSETS / "js" / f"{name}.js"
    for name in ("regions", "landmarks", "away", "app", "shelf", "reader", "aloud")
]
SANS = ("system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
# (light, dark) of the palette's names
PAPER, SHEET, WELL = ("#F8F3E8", "#10212A"), ("#FFFDF8", "#182E37"), ("#EFE7D6", "#0B1920")
RULE, INK, SOFT = ("#DDD2BC", "#2B434C"), ("#17323A", "#EDE6D8"), ("#4E6267", "#A3B1B0")
DEEP, LAMP, ON_LAMP = ("#1F5560", "#7FC4C6"), ("#A9561B", "#E9A45B"), ("#FFFFFF", "#10212A")
PARTS = {
    "body_background_fill": PAPER,
    "body_text_color": INK,
    "body_text_color_subdued": SOFT,
    "background_fill_primary": SHEET,
    "background_fill_secondary": PAPER,
    "border_color_primary": RULE,
    "border_color_accent": LAMP,
    "color_accent_soft": WELL,
    "link_text_color": DEEP,
    "block_background_fill": SHEET,
    "block_border_color": RULE,
    "block_label_text_color": SOFT,
    "block_label_background_fill": SHEET,
    "block_title_text_color": SOFT,
    "block_info_text_color": SOFT,
    "input_background_fill": WELL,
    "input_background_fill_focus": WELL,
    "input_border_color": RULE,
    "input_border_color_focus": LAMP,
    "input_placeholder_color": SOFT,
    "slider_color": LAMP,
    "checkbox_background_color_selected": LAMP,
    "checkbox_border_color_selected": LAMP,
    "checkbox_border_color": SOFT,
    "button_primary_background_fill": LAMP,
    "button_primary_background_fill_hover": LAMP,
    "button_primary_text_color": ON_LAMP,
    "button_primary_text_color_hover": ON_LAMP,
    "button_primary_border_color": LAMP,
    "button_secondary_background_fill": SHEET,
    "button_secondary_background_fill_hover": WELL,
    "button_secondary_text_color": INK,
    "button_secondary_border_color": RULE,
}


def theme() -> gr.themes.Base:
    """The palette as a Gradio theme, light and dark; system fonts, so nothing is fetched."""
    values = {name: light for name, (light, _) in PARTS.items()} | {
        f"{name}_dark": dark for name, (_, dark) in PARTS.items()
    }
    made = gr.themes.Base(font=SANS, font_mono=("ui-monospace", "Consolas", "monospace"), radius_size="lg")
    return made.set(
        block_shadow="none",
        input_shadow="none",
        input_shadow_focus="none",
        button_primary_shadow="none",
        block_border_width="0px",
        color_accent=LAMP[0],
        **values,
    )


def head(choice: str, *, launch: str, max_mb: int) -> str:
    """The page's own style and script, inline.

    `choice`: system | light | dark, until the person chooses; `launch` names this start of the app; `max_mb`
    is the largest file taken.
    """
    script = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    # not by Gradio's css option: it rewrites selectors
    style = "\n".join(path.read_text(encoding="utf-8") for path in CSS)
    known = json.dumps({"choice": choice, "language": language(), "launch": launch, "maxMb": max_mb})
    spoken, frame = json.dumps(language()), json.dumps(render("frame.html")).replace("</", "<\\/")
    return (
        f'<meta name="color-scheme" content="light dark"><style>{style}</style>'
        f"<script>document.documentElement.lang = {spoken};"
        f"Object.assign(document.documentElement.dataset, {known});const FRAME = {frame};{script}</script>"
    )
