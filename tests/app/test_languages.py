"""The page's language: what the browser wishes, what is set, and who renders in it."""

from __future__ import annotations

import asyncio

import pytest

from app.server.languages import LanguageMiddleware, wished
from app.web.event_stream import Broadcast
from app.web.page import Page
from core.text.words import language
from core.text.words import translated as _


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


def test_requests_store_english_and_the_page_is_dressed_before_it_is_loaded():
    """What a click makes (a message, a question in the history) is kept in English: it may be shown in any
    language later.
    """
    heard, dressed = {}, []

    async def app(scope, _receive, _send):
        heard[scope["path"]] = language()

    middleware = LanguageMiddleware(app, language=wished, dress=dressed.append)
    for path in ("/", "/gradio_api/run", "/export", "/export/summaries", "/export/notes", "/goodbye"):
        headers = [(b"accept-language", b"zh-CN")]
        asyncio.run(middleware({"type": "http", "path": path, "headers": headers}, None, None))
    asked_for = dict.fromkeys(("/export", "/export/summaries", "/export/notes", "/goodbye"), "zh")
    assert heard == {"/": "en", "/gradio_api/run": "en", **asked_for}
    assert dressed == ["zh"], "by the page alone, with its wish"


def test_two_browsers_that_load_the_page_at_once_get_their_own_language():
    """The page is one that is dressed anew: the second load must not undress the first one's."""
    worn, got = [""], {}

    async def app(scope, _receive, send):
        await asyncio.sleep(0)
        got[scope["wish"]] = worn[0]
        await send({"type": "http.response.start"})

    async def send(_message):
        await asyncio.sleep(0)

    async def both() -> None:
        middleware = LanguageMiddleware(app, language=wished, dress=lambda one: worn.__setitem__(0, one))
        loads = [
            {"type": "http", "path": "/", "wish": one, "headers": [(b"accept-language", one.encode())]}
            for one in ("de", "zh", "en")
        ]
        await asyncio.gather(*(middleware(scope, None, send) for scope in loads))

    asyncio.run(both())
    assert got == {"de": "de", "zh": "zh", "en": "en"}


def test_each_tab_is_told_in_its_language(make_desk, engine):
    """All tabs were drawn in the language of the one that was loaded last."""
    desk = make_desk(engine)
    broadcast, first = Broadcast(lambda one: Page(desk, one)), {}
    desk.store.watch(broadcast.changed)

    async def tabs() -> None:
        streams = {code: broadcast.stream(code) for code in ("en", "de")}
        for code, stream in streams.items():
            await stream.__anext__()
            first[code] = await stream.__anext__()
        desk.store.say(_("Stopped by you."))
        for code, stream in streams.items():
            while "notice" not in (said := await stream.__anext__()):
                pass
            first[code] += said
            await stream.aclose()

    asyncio.run(tabs())
    broadcast.close()
    assert "Library" in first["en"] and "Bibliothek" not in first["en"] and "Stopped by you" in first["en"]
    assert (
        "Bibliothek" in first["de"] and "Library" not in first["de"] and "angehalten" in first["de"].lower()
    )


def test_what_is_set_comes_before_what_the_browser_wishes(make_desk, engine):
    desk = make_desk(engine)
    desk.preferences.choose("language", "de")
    assert "Bibliothek" in Page(desk, "zh").render()["library"][0]


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
