"""The way into the page in a real browser: what its command line shows is of no use a moment later."""

from __future__ import annotations

import http.server
import threading

import pytest

from app.host.secrets import CODE_S, NAME, kept_keys
from app.host.window import direct
from core import paths
from tests.support.fake_runtime import FakeRuntime

pytestmark = pytest.mark.e2e


def test_the_page_opens_under_its_own_name_and_the_address_works_once(serve, open_page, browser):
    url = serve(FakeRuntime())
    page = open_page(url)
    host = page.evaluate("location.hostname")
    assert NAME.fullmatch(host) and page.evaluate("location.search + location.hash") == ""
    code = url.partition("#")[2].partition(".")[0]
    assert kept_keys(paths.subdir("run")).secret not in url
    stranger = browser.new_context().new_page()
    stranger.goto(url)
    stranger.wait_for_selector("h1:has-text('locked')")
    assert code not in stranger.content()
    stranger.context.close()


def test_a_browser_that_does_not_know_the_pages_name_is_shown_it_by_its_address(serve, browser):
    """Not every system resolves names below localhost."""
    page = browser.new_context().new_page()
    page.route("**/here", lambda route: route.abort())
    page.goto(serve(FakeRuntime()))
    page.wait_for_selector("body[data-connected]")
    assert page.evaluate("location.hostname + location.search") == "127.0.0.1"
    page.context.close()


def test_a_window_of_its_own_begins_at_the_pages_own_name(serve, open_page):
    """One that went there from another address would show a bar with the address."""
    url = direct(serve(FakeRuntime()))
    page = open_page(url)
    page.wait_for_selector("body[data-connected]")
    host = page.evaluate("location.hostname")
    assert NAME.fullmatch(host) and url.startswith(f"http://{host}:") and "/?k=" in url
    assert page.evaluate("location.search") == ""


def test_what_a_process_list_shows_is_of_no_use_after_a_minute(serve, open_page, browser, monkeypatch):
    """The command line of the browser is all that other users of the PC can see."""
    url = serve(FakeRuntime())
    clock = serve.server._keys._clock
    monkeypatch.setattr(serve.server._keys, "_clock", lambda: clock() + CODE_S + 1)
    late = browser.new_context().new_page()
    late.goto(url)
    late.wait_for_selector("h1:has-text('locked')")
    assert late.context.cookies() == []
    late.context.close()


def test_a_server_on_another_port_sees_no_cookie(serve, open_page):
    """Cookies know no ports: one of 127.0.0.1 went to every server of this computer."""
    seen: list[str | None] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            return

    other = http.server.HTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        page = open_page(serve(FakeRuntime()))
        tab = page.context.new_page()
        tab.goto(f"http://127.0.0.1:{other.server_port}/")
        tab.goto(f"http://localhost:{other.server_port}/")
        tab.close()
    finally:
        other.shutdown()
        other.server_close()
    assert seen and set(seen) == {None}
