"""The page in Gradio: where things stand and which action each of them is. Shows a Desk through a Page."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from app import views
from app.handlers import Desk
from app.page import REGIONS, Page
from app.stats_panel import mode_names
from core.ask import Ask

log = logging.getLogger(__name__)
TICK_S = 0.06  # at most 17 updates a second; the newest state wins
# a silent generator would not notice that its page is gone, nor the page that it is
KEEP_ALIVE_S = 4.0
PRIVATE = {"api_visibility": "private", "show_progress": "hidden", "queue": True, "concurrency_limit": None}
WHOLE, AUTO = 0, "auto"
WHOLE_NUMBERS = ("max_new_tokens", "seed")
SAMPLING = ("temperature", "top_p", "repetition_penalty")
# ticked: the three above are left to the model's catalogue entry
SUITS = "suits_model"
FITS = [("Automatic", "auto"), ("Whole, or refuse", "whole"), ("In parts", "sections")]
BUS = "window.triforce.connect((data) => trigger('act', data), upload);"
TOPBAR = """<div class="topbar-tools"><div class="switch" role="group" aria-label="Colours">
<button type="button" data-theme-choice="light" aria-label="Light" title="Light">☀</button>
<button type="button" data-theme-choice="system" aria-label="Like the system" title="Like the system">◐</button>
<button type="button" data-theme-choice="dark" aria-label="Dark" title="Dark">☾</button></div>
<button type="button" class="tool" data-toggle="settings" aria-expanded="false" aria-controls="settings">Settings</button>
<button type="button" class="tool tool-quit" data-quit>Quit</button></div>"""
QUESTIONS = ("Who are the main characters?", "What is the most important moment?", "How does it end?")
SUGGESTIONS = (
    '<div class="suggestions"><span>or ask</span>'
    + "".join(
        f'<button type="button" data-act="suggest" data-text="{text}">{text}</button>' for text in QUESTIONS
    )
    + "</div>"
)
HERO = """<div class="hero"><h2>Ask the <em>whole</em> book.</h2>
<button type="button" class="drop drop-hero" data-drop><svg viewBox="0 0 64 64" aria-hidden="true">
<path d="M32 44V12M20 24l12-12 12 12M10 42v10h44V42"/></svg><b>Drop a PDF, EPUB or TXT</b>
<span>or click to choose a file</span></button>
<ul class="promises"><li><b>Nothing left out</b>You see what is read before it is read, and what is not.</li>
<li><b>Nothing guessed</b>Drafts are checked by the full model, token by token.</li>
<li><b>Nothing leaves this computer</b>No account, no cloud, no tracking.</li></ul></div>"""
DROP_SMALL = """<button type="button" class="drop drop-small" data-drop><b>Add a book</b>
<span>drop a PDF, EPUB or TXT</span></button>"""
TABS = """<div class="tabs" role="tablist">
<button type="button" role="tab" id="tab-live" aria-selected="true" aria-controls="pane-live" data-tab="live">Live</button>
<button type="button" role="tab" id="tab-reader" aria-selected="false" aria-controls="pane-reader" data-tab="reader">Book
</button></div>"""
TALK_BAR = f"""<div class="talkbar">
<label class="levels-switch"><input type="checkbox" data-levels> Colour tokens by level</label>
<span class="legend" aria-label="Levels">{views.legend_html()}</span><span class="spring"></span>
<button type="button" data-act="new">New conversation</button><a href="/export" download data-export>Export</a>
<button type="button" data-act="clear" data-confirm="Delete this conversation?">Clear</button></div>"""


def build(desk: Desk, page: Page, *, defaults: dict[str, Any], max_file_mb: int) -> gr.Blocks:
    """The page. `defaults` are the values of the settings drawer by name (see `_settings`)."""
    with gr.Blocks(
        title="TriForce Chat",
        fill_width=True,
        fill_height=True,
        analytics_enabled=False,
        delete_cache=(600, 600),
    ) as blocks:
        regions: dict[str, gr.HTML] = {}

        def region(name: str) -> None:
            regions[name] = gr.HTML("", elem_id=name, js_on_load=None, apply_default_css=False)

        def fixed(html: str, name: str) -> None:
            gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)

        with gr.Row(elem_id="topbar"):
            region("header")
            fixed(TOPBAR, "topbar-tools")
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="left", min_width=0):
                fixed(DROP_SMALL, "drop-small")
                region("library")
                region("fetching")
                region("models")
            with gr.Column(elem_id="middle", min_width=0):
                region("notice")
                with gr.Column(elem_id="scroller", min_width=0):
                    fixed(HERO, "hero")
                    region("stage")
                    choices = _choices(defaults.get("fit", AUTO))
                    fixed(SUGGESTIONS, "suggestions")
                    fixed(TALK_BAR, "talkbar")
                    region("turns")
                    region("live")
                    region("progress")
                password, unlock = _password(region)
                question, send = _composer()
            with gr.Column(elem_id="right", min_width=0):
                fixed(TABS, "tabs")
                with gr.Column(elem_id="pane-live", min_width=0):
                    region("panel")
                    region("plan")
                with gr.Column(elem_id="pane-reader", min_width=0):
                    region("reader")
        settings = _settings(defaults)
        regions["spoken"] = gr.HTML("", elem_id="spoken", js_on_load=None, apply_default_css=False)
        pulse = gr.HTML("", elem_id="pulse", js_on_load=None, apply_default_css=False)
        bus = gr.HTML("", elem_id="bus", js_on_load=BUS, apply_default_css=False)
        fixed(f'<div id="limits" data-max-mb="{max_file_mb}"></div>', "limits-box")

        wishes = [choices["first"], choices["last"], choices["fit"], *settings.values()]
        _wire(
            blocks,
            desk,
            page,
            regions=regions,
            choices=choices,
            wishes=wishes,
            names=list(settings),
            question=question,
            send=send,
            password=password,
            unlock=unlock,
            bus=bus,
            pulse=pulse,
        )
    return blocks


def _choices(start_fit: str) -> dict[str, gr.components.Component]:
    with gr.Row(elem_id="choices"):
        first = gr.Dropdown(
            [("Beginning", WHOLE)], value=WHOLE, label="From", elem_id="first-chapter", min_width=120
        )
        last = gr.Dropdown([("End", WHOLE)], value=WHOLE, label="To", elem_id="last-chapter", min_width=120)
        fit = gr.Dropdown(
            FITS, value=start_fit, label="Reading", elem_id="fit", min_width=120, filterable=False
        )
        summarize = gr.Button("Summarize", variant="primary", elem_id="summarize", min_width=150)
    return {"first": first, "last": last, "fit": fit, "summarize": summarize}


def _password(region: Callable[[str], None]) -> tuple[gr.Textbox, gr.Button]:
    with gr.Column(elem_id="password-box", min_width=0):
        region("locked")
        with gr.Row():
            password = gr.Textbox(
                type="password", label="Password", elem_id="password", scale=4, max_length=200
            )
            unlock = gr.Button("Open", variant="primary", elem_id="unlock", min_width=90)
    return password, unlock


def _composer() -> tuple[gr.Textbox, gr.Button]:
    with gr.Row(elem_id="composer"):
        question = gr.Textbox(
            placeholder="Ask about the book…",
            show_label=False,
            label="Question",
            lines=1,
            max_lines=6,
            elem_id="question",
            container=False,
            scale=8,
            max_length=20_000,
        )
        send = gr.Button("Ask", variant="primary", elem_id="send", min_width=84)
        gr.HTML(
            '<button type="button" class="stop" data-act="stop">Stop <kbd>Esc</kbd></button>',
            elem_id="stop",
            js_on_load=None,
            apply_default_css=False,
        )
    return question, send


def _settings(defaults: dict[str, Any]) -> dict[str, gr.components.Component]:
    """The drawer. The keys are the names the engine knows the values by."""
    with gr.Column(elem_id="settings", min_width=0):
        gr.HTML(
            '<div class="drawer-head"><h2>Settings</h2><button type="button" class="ghost" '
            'data-toggle="settings" '
            'aria-label="Close settings">✕</button></div>',
            elem_id="settings-head",
            js_on_load=None,
            apply_default_css=False,
        )
        own = any(defaults.get(name) is not None for name in SAMPLING)
        suits = gr.Checkbox(
            not own,
            label="Sampling that suits the model",
            info="As the model was found to write best.",
            elem_id="suits-model",
        )
        with gr.Column(visible=own, min_width=0, elem_id="sampling") as sliders:
            sampling = _sampling(defaults)
        suits.change(lambda on: gr.Column(visible=not on), suits, sliders, **PRIVATE)
        return {
            SUITS: suits,
            **sampling,
            "max_new_tokens": gr.Slider(
                16, 4096, value=defaults.get("max_new_tokens", 512), step=16, label="Longest answer (tokens)"
            ),
            "mode": gr.Dropdown(
                [(name, key) for key, name in mode_names().items()],
                value=defaults.get("mode", "triforce"),
                label="Decoding",
                info="Every mode gives the same text distribution; they differ in speed.",
                filterable=False,
            ),
            "seed": gr.Number(
                value=defaults.get("seed") or 0,
                precision=0,
                label="Seed",
                minimum=0,
                maximum=2**31 - 1,
                info="0: another answer every time. Any other number repeats its answer.",
            ),
        }


def _sampling(defaults: dict[str, Any]) -> dict[str, gr.Slider]:
    def start(name: str, otherwise: float) -> float:
        return otherwise if defaults.get(name) is None else defaults[name]

    return {
        "temperature": gr.Slider(
            0,
            1.5,
            value=start("temperature", 0.3),
            step=0.05,
            label="Temperature",
            info="0 always takes the most likely token.",
        ),
        "top_p": gr.Slider(
            0.05,
            1,
            value=start("top_p", 0.9),
            step=0.05,
            label="Top-p",
            info="Draws only from the most likely tokens that together reach this share.",
        ),
        "repetition_penalty": gr.Slider(
            1,
            1.5,
            value=start("repetition_penalty", 1.1),
            step=0.01,
            label="Repetition penalty",
            info="Above 1, words already used become less likely.",
        ),
    }


def _wire(
    blocks: gr.Blocks,
    desk: Desk,
    page: Page,
    *,
    regions: dict[str, gr.HTML],
    choices: dict,
    wishes: list,
    names: list[str],
    question: gr.Textbox,
    send: gr.Button,
    password: gr.Textbox,
    unlock: gr.Button,
    bus: gr.HTML,
    pulse: gr.HTML,
) -> None:
    def wish(values: tuple) -> Ask:
        return make_wish(values[:3], dict(zip(names, values[3:], strict=True)), desk)

    def ask(text: str, *values: Any) -> str:
        return "" if desk.ask(text or "", wish(values)) else text

    def summarize(*values: Any) -> None:
        desk.summarize(wish(values))

    def act(event: gr.EventData, *values: Any) -> None:
        dispatch(desk, event._data or {}, wish(values))

    def give(text: str) -> str:
        desk.intake.give_password(text or "")
        return ""

    gr.on([question.submit, send.click], ask, [question, *wishes], question, trigger_mode="once", **PRIVATE)
    choices["summarize"].click(summarize, wishes, None, trigger_mode="once", **PRIVATE)
    gr.on([password.submit, unlock.click], give, password, password, trigger_mode="once", **PRIVATE)
    bus.act(act, wishes, None, trigger_mode="multiple", **PRIVATE)

    async def watch() -> AsyncIterator[list]:
        async for changes in changed_regions(desk, page):
            yield changes

    blocks.load(
        watch,
        None,
        [*(regions[name] for name in REGIONS), choices["first"], choices["last"], pulse],
        **PRIVATE,
    )


async def changed_regions(desk: Desk, page: Page) -> AsyncIterator[list]:
    """Forever: the page's regions as they change, unchanged ones skipped. One per open page."""
    shown: dict[str, str] = {}
    book_id, seen, quiet, pulse = None, None, 0.0, 0
    while True:
        signature = page.signature()
        if signature == seen and quiet < KEEP_ALIVE_S:
            quiet += TICK_S
            await asyncio.sleep(TICK_S)
            continue
        seen, quiet, pulse = signature, 0.0, pulse + 1
        try:
            new = await asyncio.to_thread(page.render)
        # the page's boundary: one bad state must not end its updates for good
        except Exception:
            log.exception("the page could not be rendered")
            new = shown
        outputs: list = [new[name] if new.get(name) != shown.get(name) else gr.skip() for name in REGIONS]
        chapters = [gr.skip(), gr.skip()] if desk.book_id == book_id else _chapter_choices(desk)
        shown, book_id = new, desk.book_id
        yield [*outputs, *chapters, f'<i data-pulse="{pulse}"></i>']
        await asyncio.sleep(TICK_S)


def _chapter_choices(desk: Desk) -> list:
    book = desk.book
    titles = [
        (f"{number}. {section.title}", number)
        for number, section in enumerate(book.chapters if book else (), start=1)
    ]
    return [
        gr.Dropdown(choices=[("Beginning", WHOLE), *titles], value=WHOLE),
        gr.Dropdown(choices=[("End", WHOLE), *titles], value=WHOLE),
    ]


def make_wish(choice: tuple, params: dict[str, Any], desk: Desk) -> Ask:
    """The choices of the page as an Ask; `choice` is (first chapter or 0, last chapter or 0, fit)."""
    first, last, fit = choice
    book = desk.book
    count = len(book.chapters) if book else 0
    chapters = None
    if count and (first or last):
        left, right = int(first or 1), int(last or count)
        chapters = (min(left, right), max(left, right))
    left_open = (SUITS, *SAMPLING) if params.get(SUITS) else (SUITS,)
    params = {name: value for name, value in params.items() if name not in left_open}
    whole = {
        name: int(value) if name in WHOLE_NUMBERS else value
        for name, value in params.items()
        if value is not None
    }
    whole["seed"] = whole.get("seed") or 1 + secrets.randbelow(2**31 - 1)
    return Ask(chapters=chapters, fit=fit or AUTO, params=whole)


def dispatch(desk: Desk, data: dict[str, Any], wish: Ask) -> None:
    """One action of the page's own buttons. The data comes from a browser: unknown acts and wrong types are
    ignored.
    """
    text = {key: value for key, value in data.items() if isinstance(value, str)}
    acts: dict[str, Callable[[], object]] = {
        "upload": lambda: desk.intake.upload(text.get("path", ""), text.get("name", "book")[:200]),
        "refused": lambda: desk.intake.refuse(
            text.get("name", "The file")[:200], text.get("reason", "")[:300]
        ),
        "sample": lambda: desk.intake.sample(text.get("name", "")),
        "book": lambda: desk.select_book(text.get("id", "")),
        "forget": lambda: desk.forget_book(text.get("id", "")),
        "talk": lambda: desk.select_conversation(text.get("id", "")),
        "forget-talk": lambda: desk.forget_conversation(text.get("id", "")),
        "new": desk.new_conversation,
        "clear": desk.clear,
        "suggest": lambda: desk.ask(text.get("text", "")[:200], wish),
        "regenerate": lambda: desk.regenerate(wish),
        "stop": desk.stop,
        "cancel-opening": desk.intake.cancel,
        "read-pictures": desk.intake.read_pictures,
        "fetch-model": lambda: desk.models.fetch(text.get("name", "")),
        "pause-model": desk.models.pause,
        "use-model": lambda: desk.use_model(text.get("name", "")),
        "dismiss": desk.dismiss,
        "restart": desk.restart_engine,
        "cite": lambda: desk.show(_number(text.get("offset")), _number(text.get("length"))),
        "goto": lambda: desk.show(_number(text.get("value"))),
    }
    if action := acts.get(text.get("act", "")):
        action()


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
