"""The last tab: asked about once, and what was chosen holds."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from app.host.secrets import Keys
from app.server.last_tab import LastTab
from app.server.server import Server
from app.store.preferences import Preferences
from app.web.event_stream import Broadcast
from app.web.page import Page
from core.config import Settings
from tests.support.fake_runtime import wait_until

SOON = {"gone": lambda: None, "grace_s": 0.05, "again_s": 0.05}


@pytest.fixture
def server(desk):
    made = Server(desk, Settings(port=0), keys=Keys("s" * 43, "triforce-0123456789abcdef.localhost"))
    yield made
    made.broadcast.close()


def test_the_app_ends_with_its_last_tab_where_that_is_wanted_and_not_before_its_work_is_done():
    state = {"wanted": True, "open": 0, "working": True}
    ended: list[bool] = []
    last = LastTab(
        wanted=lambda: state["wanted"],
        open_tabs=lambda: state["open"],
        working=lambda: state["working"],
        end=lambda: ended.append(True),
        grace_s=0.02,
        again_s=0.02,
    )
    last.left()
    time.sleep(0.1)
    assert not ended, "a book is still being read"
    state["working"] = False
    wait_until(lambda: ended)
    ended.clear()
    for change in ({"open": 1}, {"open": 0, "wanted": False}):
        state.update(change)
        last.left()
        time.sleep(0.08)
        assert not ended, change


@pytest.mark.parametrize("by_the_person", [True, False])
def test_a_page_that_says_goodbye_is_waited_for_and_nobody_else(server, monkeypatch, by_the_person):
    """Ended by a signal or by another program, the app is gone at once."""
    waits: list[float] = []
    monkeypatch.setattr("app.server.server.time", SimpleNamespace(sleep=waits.append))
    server._blocks = SimpleNamespace(close=lambda verbose: None)
    server.quit = by_the_person
    server.stop()
    assert bool(waits) is by_the_person


def test_a_stream_that_ends_tells_when_it_was_the_last_one():
    class Source:
        def render(self):
            return {}

        def due_s(self):
            return None

    told: list[int] = []
    broadcast = Broadcast(lambda _language: Source())
    broadcast.when_left(lambda: told.append(broadcast.listening))

    async def two_tabs() -> None:
        streams = [broadcast.stream(), broadcast.stream()]
        for stream in streams:
            await stream.__anext__()
        await streams[0].aclose()
        assert told == []
        await streams[1].aclose()

    asyncio.run(two_tabs())
    broadcast.close()
    assert told == [0]


def test_it_is_asked_until_somebody_answers_and_never_by_an_app_that_only_serves(server, desk, monkeypatch):
    monkeypatch.setattr(LastTab.__init__, "__kwdefaults__", SOON)
    page = Page(desk)
    assert page.render()["leaving"] == ("",), "`serve` goes on whatever is closed"
    server.end_with_last_tab()
    assert 'data-id="when_closed" data-value="keep"' in page.render()["leaving"][0]
    assert "data-now" not in page.render()["leaving"][0]
    server.broadcast._left()
    wait_until(lambda: desk.state.was_left)
    assert "data-now" in page.render()["leaving"][0], "it was closed before anybody answered"
    desk.preferences.choose("when_closed", "keep")
    assert page.render()["leaving"] == ("",)


def test_quitting_with_the_last_tab_ends_the_server_after_its_answer(server, desk, engine, monkeypatch):
    monkeypatch.setattr(LastTab.__init__, "__kwdefaults__", SOON)
    server.end_with_last_tab()
    desk.preferences.choose("when_closed", "quit")
    engine.pace = 0.02
    desk.questions.ask("Who?")
    server.broadcast._left()
    wait_until(server._asked.is_set)
    assert server.quit and not desk.state.busy and desk.books.turns[-1].state == "finished"


def test_what_config_yaml_says_is_not_asked(make_desk, engine):
    said = Preferences(Settings(when_closed="ask"), {"when_closed": "config.yaml"})
    desk = make_desk(engine, preferences=said)
    desk.store.update(closable=True)
    assert Page(desk).render()["leaving"] == ("",)
