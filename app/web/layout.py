"""The page's frame in Gradio: where things stand, and what is typed.

The regions are empty here; the event stream (app.web.event_stream) fills them. What buttons and choices do
goes to `/act`. No event uses Gradio's queue.
"""

from __future__ import annotations

import gradio as gr

from app.desk.assembly import AppServices
from app.errors import guarded
from app.render.templating import render
from core.text.words import marked as N_
from core.text.words import translated as _

# the browser sends a request and gets its answer; nobody outside the page may
DIRECT = {"queue": False, "api_visibility": "private", "show_progress": "hidden"}
# what stands fixed on the page: by the id of its part, the template or the words of its fields
FIXED = {
    "skip": "skip.html",
    "topbar-tools": "topbar.html",
    "drop-small": "drop.html",
    "search": "search.html",
    "pasted": "pasted.html",
    "settings-head": "drawer_head.html",
    "spoken": "spoken.html",
    "player": "player.html",
    "lost": "lost.html",
    "bring": "bringing.html",
    "hero": "hero.html",
    "talkbar": "talkbar.html",
    "again": "again.html",
    "turns": "turns.html",
    "live": "writing.html",
    "tabs": "tabs.html",
    "reader-tools": "reader_tools.html",
    "stop": "stop.html",
}
WORDS = {
    "password": {"label": N_("Password")},
    "unlock": {"value": N_("Open")},
    "question": {"placeholder": N_("Ask about the book…"), "label": N_("Question")},
    "send": {"value": N_("Ask")},
}


def build_page(parts: AppServices) -> gr.Blocks:
    """The page."""
    with gr.Blocks(
        title="TriForce Chat",
        fill_width=True,
        fill_height=True,
        analytics_enabled=False,
        delete_cache=(600, 600),
    ) as blocks:
        _fixed("skip")
        with gr.Row(elem_id="topbar"):
            _region("header")
            _fixed("topbar-tools")
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="left", min_width=0):
                _fixed("drop-small")
                _fixed("search")
                for name in ("hits", "library", "folders", "models"):
                    _region(name)
            with gr.Column(elem_id="middle", min_width=0):
                password, unlock, question, send = _middle()
            with gr.Column(elem_id="right", min_width=0):
                _right()
        with gr.Column(elem_id="settings", min_width=0):
            _fixed("settings-head")
            _region("preferences")
        _fixed("pasted")
        _fixed("spoken")
        _fixed("player")
        _region("leaving")
        _wire(parts, password, unlock, question, send)
        # in the browser alone: Gradio overwrites what a script writes into its boxes
        blocks.load(None, None, question, js="() => window.triforce.connect()", **DIRECT)
    return blocks


def _html(html: str, name: str) -> None:
    gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)


def dress(blocks: gr.Blocks, head: str) -> None:
    """Says what stands fixed on a launched page again, in the language at hand, for whoever loads it next."""
    for part in blocks.blocks.values():
        name = getattr(part, "elem_id", None)
        if name in FIXED:
            part.value = render(FIXED[name])
        for field, words in _words(name).items():
            setattr(part, field, words)
    blocks.head = head
    blocks.config = blocks.get_config_file()


def _fixed(name: str) -> None:
    _html(render(FIXED[name]), name)


def _words(name: str) -> dict[str, str]:
    return {field: _(words) for field, words in WORDS.get(name, {}).items()}


def _region(name: str) -> None:
    _html(f'<div class="region" data-region="{name}"></div>', name)


def _middle() -> tuple[gr.Textbox, gr.Button, gr.Textbox, gr.Button]:
    """Returns the password box and its button, the question box and its button."""
    _fixed("lost")
    _region("notice")
    _region("shortage")
    _region("moving")
    _fixed("bring")
    _region("fetching")
    with gr.Column(elem_id="scroller", min_width=0):
        _region("model-offer")
        _region("model-files")
        _fixed("hero")
        for name in ("stage", "choices", "ways", "asks-too", "suggestions"):
            _region(name)
        _fixed("talkbar")
        _fixed("turns")
        _fixed("live")
        _region("progress")
        _region("book-answers")
    password = _password()
    _region("queue")
    _region("crowded")
    with gr.Row(elem_id="around"):
        _region("meter")
        _fixed("again")
        _region("instructions")
    return *password, *_composer()


def _right() -> None:
    _fixed("tabs")
    with gr.Column(elem_id="pane-live", min_width=0):
        _region("panel")
        _region("plan")
    with gr.Column(elem_id="pane-reader", min_width=0):
        _fixed("reader-tools")
        with gr.Column(elem_id="folds", min_width=0):
            for name in ("found", "tree", "series", "names", "marks", "recap", "told", "aside", "way-back"):
                _region(name)
        _region("reader")


def _password() -> tuple[gr.Textbox, gr.Button]:
    with gr.Column(elem_id="password-box", min_width=0):
        _region("locked")
        with gr.Row():
            password = gr.Textbox(
                type="password", **_words("password"), elem_id="password", scale=4, max_length=200
            )
            return password, gr.Button(**_words("unlock"), variant="primary", elem_id="unlock", min_width=90)


def _composer() -> tuple[gr.Textbox, gr.Button]:
    with gr.Row(elem_id="composer"):
        question = gr.Textbox(
            **_words("question"),
            show_label=False,
            lines=1,
            max_lines=6,
            elem_id="question",
            container=False,
            scale=8,
        )
        send = gr.Button(**_words("send"), variant="primary", elem_id="send", min_width=84)
        _fixed("stop")
    return question, send


def _wire(
    parts: AppServices, password: gr.Textbox, unlock: gr.Button, question: gr.Textbox, send: gr.Button
) -> None:
    say = parts.store.say

    def ask(text: str) -> str:
        asked = guarded(lambda: parts.questions.ask(text or ""), say, False)
        return "" if asked else text

    def give(text: str) -> str:
        guarded(lambda: parts.imports.give_password(text or ""), say, None)
        return ""

    gr.on([question.submit, send.click], ask, question, question, trigger_mode="once", **DIRECT)
    gr.on([password.submit, unlock.click], give, password, password, trigger_mode="once", **DIRECT)
