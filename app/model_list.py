"""The list of models and the download as HTML: values in, HTML out. All names and texts are escaped here."""

from __future__ import annotations

from html import escape

from app.models import Fetching, Model
from app.views import bar_html
from core.planning.wording import size

SHOWN = 4  # more are one click away


def models_html(models: tuple[Model, ...], *, current: str) -> str:
    """What can be chosen here; empty where there is nothing to choose."""
    if not models:
        return ""
    fitting = [model for model in models if model.fits]
    first = [model for at, model in enumerate(fitting) if at < SHOWN or model.here or model.name == current]
    more = [model for model in fitting if model not in first]
    rest = [model for model in models if not model.fits]
    return (
        f'<div class="models"><h2>Models</h2><ul>{_rows(first, current)}</ul>{_folded("more", more, current)}'
        f"{_folded('do not fit this computer', rest, current)}</div>"
    )


def _folded(words: str, models: list[Model], current: str) -> str:
    if not models:
        return ""
    return f"<details><summary>{len(models)} {words}</summary><ul>{_rows(models, current)}</ul></details>"


def _rows(models: list[Model], current: str) -> str:
    return "".join(_row(model, model.name == current) for model in models)


def _row(model: Model, current: bool) -> str:
    facts = [model.licence, model.languages]
    if model.fits:
        facts += [f"{model.context_tokens:,} tokens", f"about {model.tbt_ms:.0f} ms per token, computed"]
    labels = "" if model.chat else '<em class="tag">not tuned for chat</em>'
    if model.gated and not model.here:
        labels += '<em class="tag">licence to accept first</em>'
    reason = f"<small>{escape(model.reason)}</small>" if model.reason else ""
    return (
        f'<li class="model {"model-current" if current else ""}"><b>{escape(model.name)}</b>{labels}'
        f"<small>{escape(' · '.join(fact for fact in facts if fact))}</small>{reason}{_button(model, current)}</li>"
    )


def _button(model: Model, current: bool) -> str:
    if current:
        return '<span class="tag tag-live">in use</span>'
    if not model.fits:
        return ""
    act, words = ("use-model", "Use") if model.here else ("fetch-model", f"Download {size(model.bytes)}")
    return (
        f'<button type="button" class="quiet-button" data-act="{act}" data-name="{escape(model.name)}" '
        f'aria-label="{words}: {escape(model.name)}">{words}</button>'
    )


def fetching_html(fetching: Fetching | None) -> str:
    """The download: how far it is, and what can be done about it."""
    if fetching is None:
        return ""
    name, share = escape(fetching.name), fetching.fraction
    again = (
        f'<button type="button" class="quiet-button" data-act="fetch-model" data-name="{name}">Go on</button>'
    )
    if fetching.state == "failed":
        return (
            '<div class="fetching" '
            f'role="alert"><b>{name}</b><span>{escape(fetching.error)}</span>{again}</div>'
        )
    paused = fetching.state == "paused"
    button = (
        again
        if paused
        else '<button type="button" class="quiet-button" data-act="pause-model">Pause</button>'
    )
    words = "Paused" if paused else fetching.stage
    percent = "" if share is None else f" {share:.0%}"
    # what is paused does not go on
    bar = bar_html(0.0 if paused and share is None else share, "Download")
    return f'<div class="fetching"><b>{name}</b><span>{escape(words)}{percent}</span>{bar}{button}</div>'
