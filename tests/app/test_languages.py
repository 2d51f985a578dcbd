"""The page's language: what the browser wishes, what is set, and who renders in it."""

from __future__ import annotations

import asyncio

import pytest

from app.server.languages import LanguageMiddleware, wished
from app.store.preferences import Preferences
from app.web.page import Page
from core.config import Settings
from core.text.words import language


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("fr,en;q=0.5,zh-CN;q=0.7", "zh"),
        ("en;q=0.2, zh-Hans", "zh"),
        ("de;q=0, en", "en"),
        ("fr-CH, *;q=0.1", "en"),
        ("de;q=much,zh;q=0.1", "zh"),
    ],
)
def test_browser_wishes_a_language_that_there_is(header: str, code: str):
    assert wished(header) == code


def test_what_is_set_comes_before_what_the_browser_wishes():
    preferences = Preferences(Settings())
    preferences.wish("zh")
    assert preferences.language == "zh"
    assert Preferences(Settings(language="de")).language == "de"


def test_requests_store_english_and_the_page_is_dressed_before_it_is_loaded():
    """What a click makes (a message, a question in the history) is kept in English: it may be shown in any
    language later.
    """
    heard, dressed = {}, []

    async def app(scope, _receive, _send):
        heard[scope["path"]] = language()

    preferences = Preferences(Settings(language="de"))
    middleware = LanguageMiddleware(
        app, preferences=preferences, dress=lambda: dressed.append(preferences._wished)
    )
    for path in ("/", "/gradio_api/run", "/export", "/export/summaries", "/goodbye"):
        headers = [(b"accept-language", b"zh-CN")]
        asyncio.run(middleware({"type": "http", "path": path, "headers": headers}, None, None))
    asked_for = dict.fromkeys(("/export", "/export/summaries", "/goodbye"), "de")
    assert heard == {"/": "en", "/gradio_api/run": "en", **asked_for}
    assert dressed == ["zh"], "by the page alone, with its wish"


def test_all_regions_change_their_language_at_once(make_desk, engine):
    """A region that is kept as it was would stay English until what it shows changes."""
    desk = make_desk(engine)
    page = Page(desk)
    before = page.render()
    assert "Library" in before["library"][0]
    desk.preferences.choose("language", "de")
    after = page.render()
    assert "Bibliothek" in after["library"][0]
    assert "Library" not in after["library"][0]
    desk.preferences.choose("language", "auto")
    assert page.render()["library"] == before["library"]
