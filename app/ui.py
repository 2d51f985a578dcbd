"""The page's frame in Gradio: where things stand, the inputs, and which action each of them is.

The regions are empty here; the event stream (app.broadcast) fills them. No event uses Gradio's queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from app.actions import PAGE, SAMPLING, SUITS, WHOLE, dispatch, make_wish
from app.faults import guarded
from app.handlers import Desk
from app.open_book import as_known
from app.stats_panel import mode_names
from app.templating import render
from core.ask import Ask
from core.text.words import translated as _

# the browser sends a request and gets its answer; nobody outside the page may
DIRECT = {"queue": False, "api_visibility": "private", "show_progress": "hidden"}
BUS = """window.triforce.connect({
  act: (sent) => trigger('act', { sent }), opened: () => trigger('opened', {}), upload
});"""


@dataclass(frozen=True, slots=True)
class Controls:
    """What the page's actions read and write."""

    question: gr.Textbox
    send: gr.Button
    summarize: gr.Button
    password: gr.Textbox
    unlock: gr.Button
    first: gr.Dropdown
    last: gr.Dropdown
    length: gr.Dropdown
    settings: dict[str, gr.components.Component] = field(default_factory=dict)

    @property
    def wishes(self) -> list[gr.components.Component]:
        """The choices that go with every question, in the order `wish` takes their values."""
        return [self.first, self.last, self.length, *self.settings.values()]

    def wish(self, values: tuple, desk: Desk) -> Ask:
        """The values of `wishes` as a wish."""
        return make_wish(values[:3], dict(zip(self.settings, values[3:], strict=True)), desk)


def build(desk: Desk, *, defaults: dict[str, Any]) -> gr.Blocks:
    """The page. `defaults` are the values of the settings drawer by name (see `_settings`)."""
    with gr.Blocks(
        title="TriForce Chat",
        fill_width=True,
        fill_height=True,
        analytics_enabled=False,
        delete_cache=(600, 600),
    ) as blocks:
        _fixed("skip.html", "skip")
        with gr.Row(elem_id="topbar"):
            _region("header")
            _fixed("topbar.html", "topbar-tools")
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="left", min_width=0):
                _fixed("drop.html", "drop-small")
                for name in ("library", "fetching", "models"):
                    _region(name)
            with gr.Column(elem_id="middle", min_width=0):
                controls = _middle(defaults)
            with gr.Column(elem_id="right", min_width=0):
                _right()
        controls.settings.update(_settings(defaults))
        _fixed("spoken.html", "spoken")
        bus = gr.HTML("", elem_id="bus", js_on_load=BUS, apply_default_css=False)
        _wire(desk, controls, bus)
        # in the browser alone: Gradio overwrites what a script writes into its boxes
        blocks.load(None, None, controls.question, js="() => window.triforce.draft()", **DIRECT)
    return blocks


def _html(html: str, name: str) -> None:
    gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)


def _fixed(template: str, name: str) -> None:
    _html(render(template), name)


def _region(name: str) -> None:
    _html(f'<div class="region" data-region="{name}"></div>', name)


def _middle(defaults: dict[str, Any]) -> Controls:
    _fixed("lost.html", "lost")
    _region("notice")
    with gr.Column(elem_id="scroller", min_width=0):
        _fixed("hero.html", "hero")
        _region("stage")
        choices = _choices(defaults.get("summary_length", PAGE))
        _region("ways")
        _region("suggestions")
        _fixed("talkbar.html", "talkbar")
        _fixed("turns.html", "turns")
        _fixed("writing.html", "live")
        _region("progress")
    return Controls(**_password(), **_composer(), **choices)


def _right() -> None:
    _fixed("tabs.html", "tabs")
    with gr.Column(elem_id="pane-live", min_width=0):
        _region("panel")
        _region("plan")
    with gr.Column(elem_id="pane-reader", min_width=0):
        _fixed("reader_tools.html", "reader-tools")
        _region("found")
        _region("marks")
        _region("reader")


def _choices(start_length: str) -> dict[str, gr.components.Component]:
    lengths = [(_("A paragraph"), "paragraph"), (_("A page"), PAGE), (_("By chapters"), "chapters")]
    with gr.Row(elem_id="choices"):
        return {
            "first": gr.Dropdown(
                [(_("Beginning"), WHOLE)],
                value=WHOLE,
                label=_("From"),
                elem_id="first-chapter",
                min_width=120,
            ),
            "last": gr.Dropdown(
                [(_("End"), WHOLE)], value=WHOLE, label=_("To"), elem_id="last-chapter", min_width=120
            ),
            "length": gr.Dropdown(
                lengths,
                value=start_length,
                label=_("Summary"),
                elem_id="summary-length",
                min_width=120,
                filterable=False,
            ),
            "summarize": gr.Button(_("Summarize"), variant="primary", elem_id="summarize", min_width=150),
        }


def _password() -> dict[str, gr.components.Component]:
    with gr.Column(elem_id="password-box", min_width=0):
        _region("locked")
        with gr.Row():
            return {
                "password": gr.Textbox(
                    type="password", label=_("Password"), elem_id="password", scale=4, max_length=200
                ),
                "unlock": gr.Button(_("Open"), variant="primary", elem_id="unlock", min_width=90),
            }


def _composer() -> dict[str, gr.components.Component]:
    with gr.Row(elem_id="composer"):
        question = gr.Textbox(
            placeholder=_("Ask about the book…"),
            show_label=False,
            label=_("Question"),
            lines=1,
            max_lines=6,
            elem_id="question",
            container=False,
            scale=8,
            max_length=20_000,
        )
        send = gr.Button(_("Ask"), variant="primary", elem_id="send", min_width=84)
        _fixed("stop.html", "stop")
    return {"question": question, "send": send}


def _settings(defaults: dict[str, Any]) -> dict[str, gr.components.Component]:
    """The drawer. The keys are the names the engine knows the values by."""
    with gr.Column(elem_id="settings", min_width=0):
        _fixed("drawer_head.html", "settings-head")
        own = any(defaults.get(name) is not None for name in SAMPLING)
        suits = gr.Checkbox(
            not own,
            label=_("Sampling that suits the model"),
            info=_("As the model was found to write best."),
            elem_id="suits-model",
        )
        with gr.Column(visible=own, min_width=0, elem_id="sampling") as sliders:
            sampling = _sampling(defaults)
        suits.change(lambda on: gr.Column(visible=not on), suits, sliders, **DIRECT)
        return {
            SUITS: suits,
            **sampling,
            "max_new_tokens": _slider(
                16,
                4096,
                value=defaults.get("max_new_tokens", 512),
                step=16,
                label=_("Longest answer (tokens)"),
            ),
            "mode": gr.Dropdown(
                [(name, key) for key, name in mode_names().items()],
                value=defaults.get("mode", "triforce"),
                label=_("Decoding"),
                info=_("Every mode gives the same text distribution; they differ in speed."),
                filterable=False,
            ),
            "seed": gr.Number(
                value=defaults.get("seed") or 0,
                precision=0,
                label=_("Seed"),
                minimum=0,
                maximum=max(2**31 - 1, defaults.get("seed") or 0),
                info=_("0: another answer every time. Any other number repeats its answer."),
            ),
        }


def _sampling(defaults: dict[str, Any]) -> dict[str, gr.Slider]:
    def start(name: str, otherwise: float) -> float:
        return otherwise if defaults.get(name) is None else defaults[name]

    return {
        "temperature": _slider(
            0,
            1.5,
            value=start("temperature", 0.3),
            step=0.05,
            label=_("Temperature"),
            info=_("0 always takes the most likely token."),
        ),
        "top_p": _slider(
            0.05,
            1,
            value=start("top_p", 0.9),
            step=0.05,
            label=_("Top-p"),
            info=_("Draws only from the most likely tokens that together reach this share."),
        ),
        "repetition_penalty": _slider(
            1,
            1.5,
            value=start("repetition_penalty", 1.1),
            step=0.01,
            label=_("Repetition penalty"),
            info=_("Above 1, words already used become less likely."),
        ),
    }


def _slider(low: float, high: float, *, value: float, **more: Any) -> gr.Slider:
    """A slider over the handy range, wider where the settings lie outside: Gradio refuses such a value."""
    return gr.Slider(min(low, value), max(high, value), value=value, **more)


def _wire(desk: Desk, controls: Controls, bus: gr.HTML) -> None:
    question, password, wishes = controls.question, controls.password, controls.wishes

    def ask(text: str, *values: Any) -> str:
        asked = guarded(lambda: desk.ask(text or "", controls.wish(values, desk)), desk.say, False)
        return "" if asked else text

    def summarize(*values: Any) -> None:
        guarded(lambda: desk.summarize(controls.wish(values, desk)), desk.say, None)

    def act(event: gr.EventData, *values: Any) -> None:
        guarded(lambda: dispatch(desk, event.sent, controls.wish(values, desk)), desk.say, None)

    def give(text: str) -> str:
        guarded(lambda: desk.intake.give_password(text or ""), desk.say, None)
        return ""

    gr.on(
        [question.submit, controls.send.click],
        ask,
        [question, *wishes],
        question,
        trigger_mode="once",
        **DIRECT,
    )
    controls.summarize.click(summarize, wishes, None, trigger_mode="once", **DIRECT)
    gr.on([password.submit, controls.unlock.click], give, password, password, trigger_mode="once", **DIRECT)
    bus.act(act, wishes, None, trigger_mode="multiple", **DIRECT)
    bus.opened(lambda: _chapters(desk), None, [controls.first, controls.last], **DIRECT)


def _chapters(desk: Desk) -> list[gr.Dropdown]:
    """The choices of chapters of the open book, as far as it may be read."""
    chapters = as_known(desk.book, desk.until).chapters if desk.book else ()
    titles = [(f"{number}. {section.title}", number) for number, section in enumerate(chapters, start=1)]
    return [gr.Dropdown(choices=[(end, WHOLE), *titles], value=WHOLE) for end in (_("Beginning"), _("End"))]
