"""Other sites, other names and other programs on this machine do not get through."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.host.secrets import Keys
from app.server.guard import LocalGuard, scrub_environment

PORT = 7861
KEYS = Keys("secret", "triforce-0123456789abcdef.localhost")
HOME = f"http://127.0.0.1:{PORT}"
ROUTES = ["/", "/act", "/events", "/gradio_api/upload", "/gradio_api/queue/join", "/config", "/theme.css"]


@pytest.fixture
def client():
    def hello(_request):
        return PlainTextResponse("inside")

    inside = Starlette(
        routes=[Route("/{path:path}", hello, methods=["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])]
    )
    return TestClient(LocalGuard(inside, keys=KEYS, port=PORT), base_url=HOME, follow_redirects=False)


@pytest.fixture
def visitor(client):
    """A browser that came in through the launcher's address."""
    answer = client.get(f"/?k={KEYS.code()}")
    assert answer.status_code == 200 and "inside" not in answer.text and 'url=/"' in answer.text
    assert (
        "httponly" in answer.headers["set-cookie"].lower()
        and "samesite=strict" in answer.headers["set-cookie"].lower()
    )
    return client


@pytest.mark.parametrize("path", ROUTES)
def test_nothing_answers_without_this_launchs_cookie(client, path):
    for method in ("GET", "POST"):
        assert client.request(method, path).status_code == 401
    assert client.get("/?k=wrong").status_code == 401
    assert client.get(path, headers={"cookie": f"triforce_{PORT}=wrong"}).status_code == 401
    assert client.get(path, headers={"cookie": "triforce_9=secret"}).status_code == 401, (
        "another launch's cookie"
    )


def test_a_browser_gets_the_manifest_which_it_asks_for_without_a_cookie(client):
    """Its console had an error on every page."""
    assert client.get("/manifest.json", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert client.get("/manifest.json", headers={"sec-fetch-site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1:1",
        "127.0.0.1.evil.example",
        "127.0.0.1",
        f"0.0.0.0:{PORT}",
        f"[::2]:{PORT}",
        "",
    ],
)
def test_a_foreign_host_is_refused_on_every_route(visitor, path, host):
    """A name that resolves to 127.0.0.1 would otherwise read everything (DNS rebinding)."""
    for method in ("GET", "POST"):
        assert visitor.request(method, path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:7861",
        "http://127.0.0.1:7862",
        "http://localhost:7861",
        "http://127.0.0.1:7861.evil.example",
        "",
    ],
)
def test_a_foreign_origin_is_refused_on_every_route(visitor, path, origin):
    """A multipart upload needs no preflight: any site could fill the disk."""
    for method in ("GET", "POST", "OPTIONS"):
        assert visitor.request(method, path, headers={"origin": origin}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_cross_site_requests_are_refused_but_a_link_may_show_the_page(visitor, site):
    assert visitor.post("/gradio_api/upload", headers={"sec-fetch-site": site}).status_code == 403
    assert visitor.get("/config", headers={"sec-fetch-site": site}).status_code == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert visitor.get("/", headers=link).status_code == 200
    assert visitor.post("/", headers=link).status_code == 403
    assert visitor.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_the_user_gets_in_and_the_page_cannot_be_framed(visitor, host):
    answer = visitor.get(
        "/",
        headers={
            "host": host,
            "origin": f"http://{host}",
            "sec-fetch-site": "same-origin",
            "cookie": f"other=1; triforce_{PORT}=secret",
        },
    )
    assert answer.text == "inside"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "connect-src 'self'" in answer.headers["content-security-policy"]


def test_the_apps_own_start_check_needs_no_cookie_but_the_right_host(client):
    assert client.get("/gradio_api/startup-events").status_code == 200
    assert client.get("/gradio_api/startup-events", headers={"host": "evil.example"}).status_code == 421
    assert (
        client.get("/gradio_api/startup-events", headers={"origin": "http://evil.example"}).status_code == 403
    )


def test_two_host_headers_do_not_slip_through(visitor):
    seen = []

    async def call():
        async def receive():
            return {"type": "http.request", "body": b""}

        async def send(message):
            seen.append(message)

        headers = [
            (b"host", f"127.0.0.1:{PORT}".encode()),
            (b"host", b"evil.example"),
            (b"cookie", f"triforce_{PORT}=secret".encode()),
        ]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
        await visitor.app(scope, receive, send)

    asyncio.run(call())
    assert seen[0]["status"] == 421


def test_an_upload_is_refused_while_the_data_folder_is_gone(visitor, home):
    """Gradio made one in its place."""
    assert visitor.post("/gradio_api/upload").text == "inside"
    home.rmdir()
    assert visitor.post("/gradio_api/upload").status_code == 507 and visitor.get("/").text == "inside"


def test_gradios_environment_switches_are_gone():
    """GRADIO_SHARE and GRADIO_SERVER_NAME in a user's profile would open the app to the world."""
    environ = {
        "GRADIO_SHARE": "True",
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "gradio_allowed_paths": "/",
        "PATH": "/bin",
        "GRADIO_ANALYTICS_ENABLED": "True",
        "NO_PROXY": "example.org,localhost",
    }
    scrub_environment(environ, temp_dir="/data/tmp")
    assert {name: value for name, value in environ.items() if name.upper().startswith("GRADIO_")} == {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000",
        "GRADIO_TEMP_DIR": "/data/tmp",
    }
    assert environ["PATH"] == "/bin"
    assert environ["NO_PROXY"] == "example.org,localhost,127.0.0.1,::1"
    assert "127.0.0.1" in environ["no_proxy"]


def test_names_that_the_person_added_reach_the_interface_alone():
    """A tunnel or a container has a name of its own; the page must not answer to it."""

    def hello(_request):
        return PlainTextResponse("inside")

    inside = Starlette(routes=[Route("/{path:path}", hello)])
    guard = LocalGuard(inside, keys=KEYS, port=PORT, keyed="/v1/", names=("host.docker.internal:9000",))
    client = TestClient(guard, base_url=HOME)
    named = {"host": "host.docker.internal:9000"}
    assert client.get("/v1/models", headers=named).text == "inside"
    assert client.get("/v1/models", headers={"host": "host.docker.internal:9001"}).status_code == 421
    for path in ("/", "/enter", "/healthz", f"/?k={KEYS.code()}"):
        assert client.get(path, headers=named).status_code == 421
