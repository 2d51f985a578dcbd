"""The settings drawer of the page."""

from __future__ import annotations

import gradio as gr
import pytest

from app.ui import SUITS, _settings
from core.ask import Params
from core.config import Settings, override


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0, "top_p": 0.01, "repetition_penalty": 1, "max_new_tokens": 1, "seed": 0},
        {"temperature": 2, "top_p": 1, "repetition_penalty": 2, "max_new_tokens": 131_072, "seed": 2**40},
    ],
)
def test_every_value_that_config_allows_can_be_sent_by_the_page(given):
    """Gradio refuses a value outside its slider: no question could be asked with such a config.yaml."""
    settings = override(Settings(), given)
    with gr.Blocks():
        drawer = _settings({name: getattr(settings, name) for name in given})
    sent = {name: one.preprocess(one.value) for name, one in drawer.items() if name != SUITS}
    assert {name: getattr(Params(**sent), name) for name in given} == given
