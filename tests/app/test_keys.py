"""Codes are good once and for a minute; the secret survives a restart, in a file of this user alone."""

from __future__ import annotations

import os
import stat

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.host.secrets import (
    CODE_S,
    MOST_CODES,
    NAME,
    Keys,
    forget_keys,
    kept_keys,
    make_private,
    write_private,
)
from app.server.guard import LocalGuard

OWN = pytest.mark.skipif(os.name == "nt", reason="Windows keeps a profile's files private by its own rules")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def keys():
    clock = Clock()
    made = Keys("s" * 43, "triforce-0123456789abcdef.localhost", clock=clock)
    made.clock = clock
    return made


@pytest.fixture
def client(keys):
    inside = Starlette(routes=[Route("/{path:path}", lambda _request: PlainTextResponse("inside"))])
    return TestClient(LocalGuard(inside, keys=keys, port=7861), base_url="http://127.0.0.1:7861")


def test_a_code_is_good_once_and_for_a_minute(keys):
    first, second, third = keys.code(), keys.code(), keys.code()
    assert keys.redeem(first) and not keys.redeem(first) and not keys.redeem("")
    keys.clock.now = CODE_S - 1
    assert keys.redeem(second)
    keys.clock.now = CODE_S + 1
    assert not keys.redeem(third) and not keys.redeem(keys.secret)


def test_codes_that_nobody_uses_do_not_pile_up(keys):
    made = [keys.code() for _ in range(100)]
    assert sum(map(keys.redeem, made)) == MOST_CODES


def test_a_used_or_old_address_is_refused_in_words(client, keys):
    code = keys.code()
    assert client.get(f"/?k={code}").status_code == 200 and client.get("/").text == "inside"
    client.cookies.clear()
    again = client.get(f"/?k={code}")
    assert again.status_code == 401 and "launcher.py" in again.text and not again.cookies
    late = keys.code()
    keys.clock.now = CODE_S + 1
    assert client.get(f"/?k={late}").status_code == 401
    assert client.get(f"/?k={keys.secret}").status_code == 401, "the secret itself is no address"


def test_a_code_used_by_a_browser_that_is_in_already_is_used_up(client, keys):
    """It would stay good for a minute in the address bar."""
    client.get(f"/?k={keys.code()}")
    code = keys.code()
    assert client.get(f"/?k={code}").status_code == 200
    assert not keys.redeem(code)


def test_codes_are_given_to_whoever_has_the_secret_alone(client, keys):
    assert client.post("/code").status_code == 401
    assert client.post("/code", headers={"Authorization": "Bearer wrong"}).status_code == 401
    bearer = {"Authorization": f"Bearer {keys.secret}"}
    assert client.get("/code", headers=bearer).status_code == 401
    assert client.post("/code", headers={**bearer, "host": "evil.example"}).status_code == 421
    assert client.post("/code", headers={**bearer, "origin": "http://evil.example"}).status_code == 403
    code, _dot, name = client.post("/code", headers=bearer).text.partition(".")
    assert keys.redeem(code) and name == keys.name


def test_the_page_lives_on_its_own_name_and_the_way_there_holds_no_secret(client, keys):
    entry = client.get("/enter")
    assert entry.status_code == 200 and keys.secret not in entry.text
    assert client.get("/here", headers={"host": f"{keys.name}:7861"}).status_code == 204
    assert client.get("/here").status_code == 401, "any site may ask this address"
    assert "default-src 'none'" in entry.headers["content-security-policy"]
    host = {"host": f"{keys.name}:7861"}
    assert client.get("/", headers=host).status_code == 401
    assert client.get("/", headers={"host": "triforce-ffffffffffffffff.localhost:7861"}).status_code == 421


@OWN
def test_the_secret_survives_a_restart_and_is_renewed_by_quit(tmp_path):
    first = kept_keys(tmp_path)
    assert NAME.fullmatch(first.name) and len(first.secret) >= 32
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = kept_keys(tmp_path)
    assert (again.secret, again.name) == (first.secret, first.name)
    forget_keys(tmp_path)
    anew = kept_keys(tmp_path)
    assert anew.secret != first.secret and len(anew.secret) >= 32
    assert anew.name == first.name, "what a browser keeps for the page is kept under its name"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"secret": "short", "name": "x"}', '{"secret": 5}', '{"secret": "%s"}' % ("a" * 40)],
)
def test_a_damaged_file_is_replaced(tmp_path, text):
    (tmp_path / "secret.json").write_text(text)
    made = kept_keys(tmp_path)
    assert kept_keys(tmp_path).secret == made.secret and len(made.secret) >= 32


@OWN
def test_what_earlier_versions_left_readable_is_private_after_a_start(tmp_path):
    before = os.umask(0o022)
    try:
        for name in ("books", "run"):
            (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / "conversations.db").write_text("x")
        make_private(tmp_path, ("books", "run", "missing"))
        (tmp_path / "made-later.json").write_text("x")
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"books": 0o700, "run": 0o700, "conversations.db": 0o600, "made-later.json": 0o600}


@OWN
def test_a_private_file_is_never_readable_for_others(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o600
