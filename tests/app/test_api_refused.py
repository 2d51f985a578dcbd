"""Other programs: what is refused of them, and the names and the key they are let in by."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import httpx
import openai
import pytest

from app.api.key import ApiKey
from app.api.request import ApiError, model_names, parse_request
from app.api.routes import MOST_BYTES
from app.store.book_entry import BookEntry
from tests.support.api_client import BOOK, ask, post
from tests.support.bad_requests import BAD
from tests.support.served import SECRET


def test_without_the_key_nothing_is_said(address, key, engine):
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": key},
        {"Cookie": f"triforce_{httpx.URL(address).port}={SECRET}"},  # the page's own
    ):
        for path in ("models", f"models/{BOOK}", "nothing"):
            answer = httpx.get(f"{address}/{path}", headers=headers)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=address, api_key="x", max_retries=0).models.list()


def test_the_key_opens_nothing_but_the_interface(address, key):
    page = httpx.get(address.removesuffix("/v1") + "/", headers={"Authorization": f"Bearer {key}"})
    assert page.status_code == 401


def test_web_pages_and_other_hosts_are_refused_though_they_had_the_key(address, key):
    url, auth = f"{address}/models", {"Authorization": f"Bearer {key}"}
    own = address.removesuffix("/v1")
    assert httpx.get(url, headers={**auth, "Origin": "http://evil.example"}).status_code == 403
    assert httpx.get(url, headers={**auth, "Origin": own}).status_code == 403
    assert httpx.get(url, headers={**auth, "Host": "evil.example"}).status_code == 421
    assert "access-control-allow-origin" not in httpx.get(url, headers=auth).headers


def test_bad_requests_are_refused_in_the_clients_own_form_and_nothing_breaks(address, key, engine):
    for body in BAD:
        answer = post(address, key, body)
        error = answer.json()["error"]
        assert answer.status_code in (400, 404), body
        assert error["type"] == "invalid_request_error" and error["message"], body
    assert engine.asked == []
    assert post(address, key, {"model": BOOK, "messages": ask()}).status_code == 200


def test_another_method_is_told_apart_from_another_address(address, key):
    auth = {"Authorization": f"Bearer {key}"}
    for method, path, served in (("DELETE", "models", "GET"), ("GET", "chat/completions", "POST")):
        answer = httpx.request(method, f"{address}/{path}", headers=auth)
        assert answer.status_code == 405 and served in answer.headers["Allow"].split(", ")
        assert answer.json()["error"]["code"] == "method_not_allowed"
        assert httpx.request(method, f"{address}/{path}").status_code == 401
    assert httpx.delete(f"{address}/nothing", headers=auth).status_code == 404
    assert httpx.head(f"{address}/models", headers=auth).status_code == 200


def test_a_request_of_too_many_bytes_is_cut_short(address, key):
    answer = post(address, key, b"x" * (MOST_BYTES + 1))
    assert answer.status_code == 413


# ---- names and keys


def test_books_of_one_title_have_names_of_their_own():
    entries = [
        BookEntry(letter * 64, title, "", "txt", 1, 1, 0.0)
        for letter, title in zip("abcd", ("The Sea", "The Sea!", "海", "…"), strict=True)
    ]
    assert model_names("Qwen3 4B", entries) == {
        "qwen3-4b": "",
        "qwen3-4b@the-sea-aaaaaa": "a" * 64,
        "qwen3-4b@the-sea-bbbbbb": "b" * 64,
        "qwen3-4b@海": "c" * 64,
        "qwen3-4b@book": "d" * 64,
    }


def test_a_book_that_has_gone_meanwhile_is_no_model(book):
    def gone(_id: str):
        raise KeyError

    body = json.dumps({"model": "m@b", "messages": ask()}).encode()
    with pytest.raises(ApiError, match="no longer") as caught:
        parse_request(body, {"m@b": "a" * 64}, gone)
    assert caught.value.status == 404
    assert parse_request(body, {"m@b": "a" * 64}, lambda _id: replace(book, title="x")).ask.params["seed"] > 0


def test_a_key_is_shown_once_kept_as_a_digest_and_can_be_renewed(tmp_path):
    file = tmp_path / "api.key"
    made = ApiKey(file)
    assert not made.fits("")
    first = made.ensure()
    assert first and made.ensure() is None and made.fits(first)
    assert first not in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
    second = ApiKey(file).renew()
    assert made.fits(second) and not made.fits(first)
    file.write_bytes(b"\xff")
    assert not made.fits(second)
