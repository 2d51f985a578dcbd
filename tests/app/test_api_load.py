"""Many programs at once beside the person, over real sockets, a real engine process and a scripted engine."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from app.api.answering import MOST_WAITING
from app.api.key import ApiKey
from app.engine.client import Runtime
from core.config import Settings
from tests.support.api_client import post
from tests.support.bad_requests import BAD
from tests.support.desks import api_of
from tests.support.fake_runtime import wait_until
from tests.support.scripted_engine import SCRIPT
from tests.support.served import served

pytestmark = pytest.mark.wide


@pytest.fixture
def engine(monkeypatch) -> Runtime:
    """Its desk ends it."""
    monkeypatch.setenv("SCRIPT_SLOW", "0.002")
    made = Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))
    made.start()
    assert made.wait_ready(60)
    return made


def test_fifty_bad_requests_and_eight_at_once_lose_nothing(desk, book, tmp_path):
    """Not one answer, of a program or of the person, may be cut, mixed up with another or left out."""
    key = ApiKey(tmp_path / "api.key").renew()
    questions = [f"question {number}" for number in range(MOST_WAITING)]

    def good(question: str):
        body = {"model": "fake@the-lamp", "messages": [{"role": "user", "content": question}], "store": True}
        return post(address, key, body)

    with served(api_of(desk, tmp_path).routes()) as at:
        address = f"http://127.0.0.1:{at.port}/v1"
        with ThreadPoolExecutor(MOST_WAITING + 8) as pool:
            answers = [pool.submit(good, question) for question in questions]
            wait_until(lambda: desk.engine.state == "busy")
            assert desk.questions.ask("mine")
            refused = list(pool.map(lambda number: post(address, key, BAD[number % len(BAD)]), range(50)))
            answers = [one.result() for one in answers]
        assert desk.answers.job.join(30)
    assert len(refused) == 50 and {one.status_code for one in refused} <= {400, 404}
    assert [one.status_code for one in answers] == [200] * MOST_WAITING
    for question, answer in zip(questions, answers, strict=True):
        assert question in answer.json()["choices"][0]["message"]["content"]
    assert desk.books.turns[-1].state == "finished" and "mine" in desk.books.turns[-1].text
    kept = {desk.history.turns(one.id)[0].text for one in desk.history.conversations(book.sha256)}
    assert kept == {*questions, "mine"}


def test_a_request_that_cannot_be_answered_is_refused_and_not_tried_again(desk, tmp_path):
    """A client tries again what a server could not do: a text too long for the context cost it a minute."""
    key = ApiKey(tmp_path / "api.key").renew()
    with served(api_of(desk, tmp_path).routes()) as at:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{at.port}/v1", api_key=key, timeout=300)
        with pytest.raises(openai.BadRequestError, match="does not fit"):
            client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "long " * 2000}]
            )
        said = [{"role": "user", "content": "short"}]
        assert client.chat.completions.create(model="fake", messages=said).choices[0].message.content


@pytest.mark.timeout(300)
def test_a_book_sent_as_text_is_not_read_again_after_a_restart(make_desk, home_with_model, tmp_path):
    """The whole way, from the official client to the embedded model in a process of its own, twice."""
    key = ApiKey(tmp_path / "api.key").renew()
    text = "".join(
        f"On day {day} the water stood at {day} feet, and Mara wrote it down.\n" for day in range(40)
    )

    def asked(question: str, *before: dict) -> tuple[str, int, int]:
        """The answer, how many tokens the prompt had, and how many of them were known."""
        engine = Runtime(Settings(max_new_tokens=8, threads=1))
        engine.start()
        assert engine.wait_ready(120)
        desk = make_desk(engine)
        with served(api_of(desk, tmp_path).routes()) as at:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{at.port}/v1", api_key=key, timeout=300)
            model = next(iter(client.models.list())).id
            messages = [{"role": "system", "content": text}, *before, {"role": "user", "content": question}]
            made = client.chat.completions.create(model=model, messages=messages, temperature=0, seed=1)
        assert desk.library.entries() == []
        engine.save(30)
        desk.close()
        usage = made.usage
        known = usage.prompt_tokens_details.cached_tokens
        return made.choices[0].message.content, usage.prompt_tokens, known

    first, tokens, known = asked("Who wrote it down?")
    assert known == 0 and tokens > 600
    said = {"role": "user", "content": "Who wrote it down?"}, {"role": "assistant", "content": first}
    _second, more, known = asked("Where did the water stand?", *said)
    assert more > tokens and tokens - 60 < known < tokens, "all of the text, and nothing of the question"
