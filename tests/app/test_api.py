"""Other programs: the official client of OpenAI over a real socket, and what it is answered."""

from __future__ import annotations

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from app.api.answering import MOST_WAITING, Answering, ApiAnswers
from app.api.request import parse_request
from core.config import Settings
from tests.support.api_client import BOOK, ask, post
from tests.support.fake_runtime import ANSWER, SUMMARY, FakeRuntime, wait_until


@pytest.fixture
def engine() -> FakeRuntime:
    made = FakeRuntime(pace=0.002, prefill_steps=5)
    made.start()
    wait_until(lambda: made.state == "ready")
    return made


@pytest.fixture
def client(address, key) -> openai.OpenAI:
    return openai.OpenAI(base_url=address, api_key=key, max_retries=0, timeout=300)


# ---- the official client


def test_models_are_the_model_and_every_book(client):
    assert [one.id for one in client.models.list()] == ["smollm2-135m-instruct", BOOK]
    assert client.models.retrieve(BOOK).owned_by == "triforce-chat"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_an_answer_about_a_book_with_its_figures_and_its_evidence(client, desk, engine, book):
    engine.answer = "The keeper lit the lamp. A dragon came. “The keeper lit the lamp.”"
    made = client.chat.completions.create(
        model=BOOK,
        messages=[
            {"role": "system", "content": "Be brief."},
            *ask("Who?"),
            {"role": "assistant", "content": "He."},
            *ask("And then?"),
        ],
        temperature=0,
        top_p=0.9,
        seed=7,
        max_tokens=50,
        stop=["END"],
    )
    assert made.choices[0].message.content == engine.answer and made.choices[0].finish_reason == "stop"
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens > 0
    asked = engine.asked[-1]
    assert asked.question == "And then?" and asked.low_priority and asked.book == book
    assert [(one.question, one.answer) for one in asked.history] == [("Be brief.\n\nWho?", "He.")]
    given = {"temperature": 0.0, "top_p": 0.9, "seed": 7, "max_new_tokens": 50, "stop": ["END"]}
    given["mode"] = Settings().mode
    assert dict(asked.params) == given
    evidence = made.model_extra["triforce"]["evidence"]
    quoted = next(one for one in evidence if one["kind"] == "quoted" and one["start"] < one["end"])
    assert quoted["words"] == "The keeper lit the lamp" and quoted["chapter"] == "One"
    assert book.text[quoted["book_start"] : quoted["book_end"]] == quoted["words"]
    (dragon,) = (one for one in evidence if one["kind"] == "nothing")
    assert engine.answer[dragon["start"] : dragon["end"]] == "A dragon came."
    assert desk.history.conversations(book.sha256) == [], "what programs ask is not kept"


def test_streamed_pieces_are_the_whole_answer(client, engine):
    events = list(
        client.chat.completions.create(
            model=BOOK, messages=ask(), stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(one.choices[0].delta.content or "" for one in events if one.choices)
    assert text == ANSWER and sum(bool(one.choices) for one in events) > 10
    assert events[-2].choices[0].finish_reason == "stop" and "evidence" in events[-2].model_extra["triforce"]
    assert events[-1].usage.completion_tokens > 0 and not events[-1].choices
    assert len({one.id for one in events}) == 1


def test_parts_of_a_book_that_are_told_first_are_not_the_answer(client, engine):
    engine.parts = 3
    summary = {"triforce": {"summary": "paragraph", "spoiler_limit": 1}}
    events = client.chat.completions.create(model=BOOK, messages=ask("-"), stream=True, extra_body=summary)
    assert "".join(one.choices[0].delta.content or "" for one in events) == SUMMARY
    asked = engine.asked[-1]
    assert (asked.question, asked.summary_length, asked.spoiler_limit) == (None, "paragraph", 1)


def test_one_conversation_has_one_name_and_another_has_another(client, engine):
    for text in ("Who?", "Who?", "What?"):
        client.chat.completions.create(model=BOOK, messages=ask(text))
    first, again, other = (one.conversation_id for one in engine.asked)
    assert first == again != other


def test_a_conversation_is_kept_where_that_was_asked_for_and_goes_on_there(client, desk, engine, book):
    """Else what a program asks stands nowhere."""

    def send(messages: list[dict], **more) -> str:
        made = client.chat.completions.create(model=BOOK, messages=messages, store=True, **more)
        return made.choices[0].message.content

    first = send(ask("Who?"))
    said = [*ask("Who?"), {"role": "assistant", "content": first}]
    engine.answer = "Nobody."
    send([*said, *ask("And then?")], extra_body={"triforce": {"spoiler_limit": None}})
    (talk,) = desk.history.conversations(book.sha256)
    turns = desk.history.turns(talk.id)
    assert [one.text for one in turns] == ["Who?", first, "And then?", "Nobody."]
    assert turns[1].extra["sources"] == ["Whole book"] and turns[1].extra["stats"]["mode"] == "triforce"
    send([*said, *ask("Why?")])  # a program may go back: another conversation, and the first stands
    send(ask("-"), extra_body={"triforce": {"summary": "page", "spoiler_limit": 1}})
    kept = [
        [one.text for one in desk.history.turns(one.id)] for one in desk.history.conversations(book.sha256)
    ]
    assert kept[1:] == [["Who?", first, "Why?", "Nobody."], ["Who?", first, "And then?", "Nobody."]]
    assert len(kept[0]) == 2 and kept[0][1] == SUMMARY and desk.history.conversations("") == []


def test_what_cannot_be_kept_is_answered_all_the_same_and_said(client, desk, monkeypatch):
    def full(*_args, **_named):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(desk.history, "ask", full)
    made = client.chat.completions.create(model=BOOK, messages=ask(), store=True)
    assert made.choices[0].message.content == ANSWER
    assert any("disk" in note for note in made.model_extra["triforce"]["notes"])


def test_an_engine_that_fails_is_an_error_of_the_server(client, engine):
    engine.fail = "Out of memory. Close something."
    with pytest.raises(openai.InternalServerError, match="Close something"):
        client.chat.completions.create(model=BOOK, messages=ask())
    with pytest.raises(openai.APIError, match="Close something"):
        list(client.chat.completions.create(model=BOOK, messages=ask(), stream=True))


# ---- a text in the messages

TEXT = "The keeper lit the lamp. " * 100
SENT = [
    [{"role": "system", "content": TEXT}, *ask("Who?")],
    [{"role": "user", "content": TEXT}, *ask("Who?")],
    [{"role": "user", "content": [{"type": "text", "text": one} for one in (TEXT, "Who?")]}],
    [{"role": "user", "content": f"{TEXT}\nWho?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{TEXT}\nWho?\n"}],
]


def put(messages: list[dict], names: dict[str, str] | None = None, book=None):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    return parse_request(body, names or {"m": ""}, lambda _id: book).ask


@pytest.mark.parametrize("messages", SENT)
def test_a_text_is_told_apart_from_the_question_behind_it(messages, book):
    """What was read of it is kept by its hash, so it must be the same whatever is asked."""
    first = put(messages)
    assert first.question == "Who?" and TEXT.strip() in first.text and "Who" not in first.text
    later = put([*messages, {"role": "assistant", "content": "He."}, *ask("Why?")])
    assert (later.text, later.conversation_id) == (first.text, first.conversation_id)
    assert [(one.question, one.answer) for one in later.history] == [("Who?", "He.")]
    of_book = put(messages, {"m": "a" * 64}, book)
    assert of_book.text == "" and of_book.question == first.text + first.question


@pytest.mark.parametrize(
    "messages",
    [
        ask("Who?"),
        [{"role": "system", "content": "Be brief."}, *ask("Who?\n\nAnd why?")],
        ask(TEXT),
        [*ask(TEXT), {"role": "user", "content": " "}],
    ],
)
def test_what_is_no_text_with_a_question_is_one_question(messages):
    assert put(messages).text == ""
    assert put(messages).question == "\n\n".join(one["content"].strip() for one in messages).strip()


def test_an_answer_about_a_sent_text_has_its_evidence_and_is_kept_whole(client, desk, engine):
    engine.answer = "“The keeper lit the lamp.” A dragon came."
    messages = SENT[0]
    made = client.chat.completions.create(model="smollm2-135m-instruct", messages=messages, store=True)
    quoted, dragon = made.model_extra["triforce"]["evidence"]
    text = engine.asked[-1].text
    assert quoted["kind"] == "quoted" and quoted["page"] is None
    assert text[quoted["book_start"] : quoted["book_end"]] == quoted["words"] == "The keeper lit the lamp"
    assert dragon["kind"] == "nothing"
    said = [*messages, {"role": "assistant", "content": engine.answer}, *ask("Why?")]
    client.chat.completions.create(model="smollm2-135m-instruct", messages=said, store=True)
    (talk,) = desk.history.conversations("")
    turns = [one.text for one in desk.history.turns(talk.id)]
    assert turns == [f"{TEXT}\n\nWho?", engine.answer, "Why?", engine.answer]
    assert [one.title for one in desk.library.entries()] == ["The Lamp"], "it is no book of the shelf"


# ---- a long read


def test_a_long_read_is_never_silent_and_ends_with_its_client(address, key, engine):
    engine.prefill_steps, engine.pace = 10_000, 0.01
    body = {"model": BOOK, "messages": ask(), "stream": True}
    with httpx.stream(
        "POST", f"{address}/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}
    ) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith(": read "))
        assert engine.state == "busy"
    wait_until(lambda: engine.state == "ready")


@pytest.mark.wide
def test_the_official_clients_time_out_does_not_start_a_long_read_anew(address, key, engine):
    """Its time-out is that of silence: while the book is read there are comment lines."""
    engine.prefill_steps, engine.pace = 100, 0.05
    hasty = openai.OpenAI(base_url=address, api_key=key, max_retries=3, timeout=2.5)
    started = time.monotonic()
    events = hasty.chat.completions.create(model=BOOK, messages=ask(), stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in events) == ANSWER
    assert time.monotonic() - started > 4 and len(engine.asked) == 1


def test_a_client_that_goes_away_ends_its_answer_also_in_the_middle_of_words(address, key, engine):
    """Where nothing is streamed, only a pause in the text was taken to look whether anybody still listens."""
    engine.prefill_steps, engine.pace, engine.answer = 1, 0.05, "word " * 4000
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{address}/chat/completions",
            json={"model": BOOK, "messages": ask()},
            headers={"Authorization": f"Bearer {key}"},
            timeout=1,
        )
    wait_until(lambda: engine.state == "ready")


def test_a_client_that_goes_away_while_it_waits_is_never_answered(address, key, engine, monkeypatch):
    """It would be read for, minutes later, in the place of those who still wait."""
    given_up, stop = [], Answering.stop
    monkeypatch.setattr(Answering, "stop", lambda self: (stop(self), given_up.append(self)))
    engine.prefill_steps, engine.pace = 500, 0.4
    url, auth = f"{address}/chat/completions", {"Authorization": f"Bearer {key}"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, address, key, {"model": BOOK, "messages": ask("First?")})
        wait_until(lambda: engine.state == "busy")
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"model": BOOK, "messages": ask("Gone?")}, headers=auth, timeout=0.3)
        wait_until(lambda: given_up)
        engine.pace = 0.002
        assert first.result().status_code == 200
    assert post(address, key, {"model": BOOK, "messages": ask("Last?")}).status_code == 200
    assert [one.question for one in engine.asked] == ["First?", "Last?"]


def test_eight_at_once_are_answered_and_the_ninth_is_told_to_come_back(address, key, engine, monkeypatch):
    begun, begin = [], ApiAnswers.begin
    monkeypatch.setattr(
        ApiAnswers, "begin", lambda self, asked: begun.append(begin(self, asked)) or begun[-1]
    )
    engine.pace = 0.3
    body = {"model": BOOK, "messages": ask()}
    with ThreadPoolExecutor(MOST_WAITING) as pool:
        first = [pool.submit(post, address, key, body) for _ in range(MOST_WAITING)]
        wait_until(lambda: len(begun) == MOST_WAITING)
        refused = post(address, key, body)
        engine.pace = 0.001
        answers = [one.result() for one in first]
    assert refused.status_code == 429 and refused.headers["retry-after"]
    assert {one.status_code for one in answers} == {200}
    assert {one.json()["choices"][0]["message"]["content"] for one in answers} == {ANSWER}
    assert post(address, key, body).status_code == 200
