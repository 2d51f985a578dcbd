"""Whoever waits for the engine sees what it does and how long it takes, and can call it off."""

from __future__ import annotations

import pytest

from app.actions import dispatch
from app.models import chosen, remember
from app.page import Page
from core.config import Settings
from core.events import Loading
from core.model.embedded import NAME as EMBEDDED
from tests.app.fake_runtime import wait_until


def header(desk) -> str:
    return Page(desk).render()["header"][0]


def test_loading_says_what_how_far_and_how_long(desk, engine):
    engine.loading = Loading("Looking at this machine", None, 12.4)
    engine.state = "loading"
    html = header(desk)
    assert "Looking at this machine" in html and "about 12 s left" in html
    assert 'data-act="cancel-loading"' in html
    engine.loading = Loading("Loading the model", 0.25)
    html = header(desk)
    assert "25%" in html and "left" not in html, "a time that nobody knows is not made up"
    engine.state = "ready"
    assert "cancel-loading" not in header(desk)


def test_a_model_that_is_not_waited_for_gives_way_to_the_one_before(desk, engine, home):
    """Also at later starts: the model that took too long is not the chosen one any more."""
    desk.models.look_again()
    for before in (None, "Qwen3-4B-Instruct-2507"):
        remember(before)
        engine.load_s, engine.model_name = 5.0, "another"
        desk.used.use(EMBEDDED)
        wait_until(lambda: engine.state == "loading")
        assert chosen() == EMBEDDED
        dispatch(desk, {"act": "cancel-loading"})
        assert (engine.state, engine.model_name, chosen()) == ("ready", "another", before)


def test_settings_that_are_not_waited_for_wait_again(desk, engine):
    engine.model_name = engine.before = "another"
    desk.choose("gamma", "8")
    engine.load_s = 5.0
    desk.apply_settings()
    wait_until(lambda: engine.state == "loading")
    assert desk.unapplied == []
    dispatch(desk, {"act": "cancel-loading"})
    assert desk.unapplied == ["gamma"] and desk.preferences.settings.gamma == 8


@pytest.mark.parametrize("action", ["cancel-loading", "restart"])
def test_a_first_load_can_be_called_off_and_begun_again(desk, engine, action):
    engine.load_s = 0.3
    engine.start()
    dispatch(desk, {"act": "cancel-loading"})
    assert engine.state == "failed" and 'data-act="restart"' in header(desk)
    if action == "restart":
        dispatch(desk, {"act": "restart"})
        wait_until(lambda: engine.state == "ready")
    assert desk.used is not None and Settings() == desk.preferences.settings
