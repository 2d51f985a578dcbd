"""KOReader's assistant plugins, by the requests that they send and by how they read what comes back; their
sources are named in docs/koreader.md.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request

import pytest

from app.api.request import parse_request
from tests.support.api_client import BOOK
from tests.support.fake_runtime import ANSWER, FakeRuntime, wait_until

MODEL = BOOK.partition("@")[0]
SYSTEM = {"role": "system", "content": "You are a helpful reading assistant. Answer in English."}
CONTEXT = {"role": "user", "content": "I am reading “The Lamp” by A. Keeper. I have read 40% of it."}
QUESTION = {"role": "user", "content": "Explain: The keeper lit the lamp."}
STREAMED = {"Accept": "text/event-stream"}


@pytest.fixture
def engine() -> FakeRuntime:
    made = FakeRuntime(pace=0.002, prefill_steps=5)
    made.start()
    wait_until(lambda: made.state == "ready" and made.plan is not None)
    return made


def assistant(**more: object) -> dict:
    """assistant.koplugin with the parameters of its sample: system text, context and question one after
    another, temperature and the longest answer as numbers of Lua.
    """
    return {
        "model": BOOK,
        "messages": [SYSTEM, CONTEXT, QUESTION],
        "temperature": 0.7,
        "max_tokens": 4096,
        **more,
    }


def koassistant(**more: object) -> dict:
    """koassistant.koplugin's custom provider; its own default of the longest answer."""
    return {"model": BOOK, "messages": [SYSTEM, QUESTION], "temperature": 0.7, "max_tokens": 16384, **more}


def xray() -> dict:
    """xray.koplugin's custom slot."""
    messages = [{"role": "system", "content": "Return valid JSON ONLY."}, QUESTION]
    return {
        "model": MODEL,
        "messages": messages,
        "response_format": {"type": "json_object"},
        "max_tokens": 16384,
    }


def send(address: str, key: str, body: dict, headers: dict | None = None):
    """As LuaSocket: one connection for one request, which it closes."""
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "Connection": "close, TE"}
    data = json.dumps(body).encode()
    url = f"{address}/chat/completions"
    request = urllib.request.Request(url, data=data, headers=sent | (headers or {}), method="POST")
    return urllib.request.urlopen(request, timeout=300)


def told(response) -> str:
    """A stream as both read it: lines that begin with "data: " are events, others that begin with ":" or
    "event: " are passed over, and anything else would be shown as text.
    """
    text, held = "", response.read().decode()
    for line in held.splitlines():
        if line.startswith("data: ") and line[6:].strip() != "[DONE]":
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
        elif line.strip() and not line.startswith((":", "data: ", "event: ")):
            text += line
    return text


@pytest.mark.parametrize("body", [assistant(stream=True), koassistant(stream=True)])
def test_a_streamed_answer_comes_from_the_book(address, key, engine, book, body):
    assert told(send(address, key, body, STREAMED)) == ANSWER
    asked = engine.asked[-1]
    assert asked.book.sha256 == book.sha256 and asked.params["temperature"] == 0.7
    assert "The keeper lit the lamp." in asked.question and SYSTEM["content"] in asked.question


@pytest.mark.parametrize("body", [assistant(), koassistant()])
def test_an_answer_in_one_piece_is_read_as_they_read_it(address, key, engine, body):
    made = json.load(send(address, key, body))
    assert made["choices"][0]["message"]["content"] == ANSWER
    assert not made["choices"][0]["message"].get("tool_calls")


def test_the_longest_answer_that_they_ask_for_leaves_room_for_the_book(address, key, engine):
    """16,384 tokens of 8,192: the engine said that nothing fits."""
    json.load(send(address, key, koassistant()))
    assert engine.asked[-1].params["max_new_tokens"] == engine.plan["context_tokens"] // 4
    json.load(send(address, key, koassistant(max_tokens=100)))
    assert engine.asked[-1].params["max_new_tokens"] == 100
    body = json.dumps(koassistant()).encode()
    before_it_is_known = parse_request(body, {BOOK: ""}, lambda _id: None)
    assert before_it_is_known.ask.params["max_new_tokens"] == 16384


def test_the_conversation_goes_on(address, key, engine):
    more = [SYSTEM, CONTEXT, QUESTION, {"role": "assistant", "content": ANSWER}]
    more.append({"role": "user", "content": "And then?"})
    assert told(send(address, key, assistant(messages=more, stream=True), STREAMED)) == ANSWER
    assert engine.asked[-1].question == "And then?" and engine.asked[-1].history[0].answer == ANSWER


def test_no_comment_line_of_a_long_read_becomes_text(address, key, engine, monkeypatch):
    monkeypatch.setattr("app.api.answering.TICK_S", 0.01)
    engine.prefill_steps, engine.pace = 40, 0.01
    assert told(send(address, key, assistant(stream=True), STREAMED)) == ANSWER


def test_the_list_of_models_is_theirs_to_sort(address, key):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/models", headers=headers)) as response:
        listed = json.load(response)["data"]
    assert BOOK in sorted(one["id"] for one in listed)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (xray(), "response_format"),
        (assistant(tools=[{"type": "function"}], tool_choice="auto"), "tools"),
        (assistant(reasoning_effort="none"), "reasoning_effort"),
    ],
)
def test_what_is_not_done_here_is_refused_by_its_name(address, key, body, named):
    """They show `error.message`."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        send(address, key, body)
    assert refused.value.code == 400 and named in json.load(refused.value)["error"]["message"]


def test_without_a_key_they_are_told_so(address):
    """KOAssistant sends no such header where none was typed."""
    at = http.client.HTTPConnection(address.split("/")[2], timeout=60)
    at.request(
        "POST", "/v1/chat/completions", json.dumps(koassistant()), {"Content-Type": "application/json"}
    )
    answer = at.getresponse()
    assert answer.status == 401 and "key" in json.load(answer)["error"]["message"]
