"""calibre's language-model panel (its provider "OpenAI compatible"), by the requests that it sends and by how
it reads what comes back: https://github.com/kovidgoyal/calibre/tree/master/src/calibre/ai/openai_compatible
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.api_client import BOOK
from tests.support.fake_runtime import ANSWER, FakeRuntime, wait_until

READING = "I am currently reading the book: The Lamp by A. Keeper. "
ASKED = [
    {"role": "system", "content": f"{READING}I have some questions about content from this book."},
    {"role": "user", "content": "Explain the following text in simple language. The keeper lit the lamp."},
]


@pytest.fixture
def engine() -> FakeRuntime:
    made = FakeRuntime(pace=0.002, prefill_steps=5)
    made.start()
    wait_until(lambda: made.state == "ready")
    return made


def sent(address: str, key: str, messages: list[dict]) -> urllib.request.Request:
    """A question as the panel sends it: a stream, with the temperature that it has at first."""
    body = {"model": BOOK, "messages": messages, "stream": True, "temperature": 0.7}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    return urllib.request.Request(f"{address}/chat/completions", data=data, headers=headers, method="POST")


def events(response) -> Iterator[dict]:
    """A stream as the panel reads it: lines up to an empty one are one event, and only one that begins with
    "data: " is read.
    """
    held = ""
    for line in (raw.decode("utf-8") for raw in response):
        if line.strip():
            held += line
            continue
        if held.startswith("data: ") and held[6:].strip() != "[DONE]":
            yield json.loads(held[6:])
        held = ""


def told(response) -> str:
    return "".join(
        choice["delta"].get("content") or "" for one in events(response) for choice in one.get("choices", ())
    )


def test_its_list_of_models_has_every_book(address, key):
    request = urllib.request.Request(f"{address}/models", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=300) as response:
        listed = json.load(response)["data"]
    assert BOOK in [one["id"] for one in listed] and all(one["owned_by"] for one in listed)


def test_selected_words_are_answered_from_the_book(address, key, engine, book):
    with urllib.request.urlopen(sent(address, key, ASKED), timeout=300) as response:
        assert told(response) == ANSWER
    asked = engine.asked[-1]
    assert asked.book.sha256 == book.sha256 and "The keeper lit the lamp." in asked.question
    assert READING in f"{asked.instructions} {asked.question}"


def test_the_conversation_goes_on(address, key, engine):
    more = [*ASKED, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And then?"}]
    with urllib.request.urlopen(sent(address, key, more), timeout=300) as response:
        assert told(response) == ANSWER
    assert engine.asked[-1].question == "And then?" and engine.asked[-1].history[0].answer == ANSWER


def test_no_piece_is_lost_to_the_comment_lines_of_a_long_read(address, key, engine, monkeypatch):
    """A comment line right above a piece would take that with it."""
    monkeypatch.setattr("app.api.answering.TICK_S", 0.01)
    engine.prefill_steps, engine.pace = 60, 0.01
    with urllib.request.urlopen(sent(address, key, ASKED), timeout=300) as response:
        assert told(response) == ANSWER


def test_a_wrong_key_says_what_to_do(address):
    """The panel shows `error.message`."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(sent(address, "tfc-wrong", ASKED), timeout=300)
    assert refused.value.code == 401 and json.load(refused.value)["error"]["message"]
