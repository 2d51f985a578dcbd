"""One of the processes that compute a model on several cards is killed while the app waits for an answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.store import Store
from app.engine.client import Runtime
from app.engine.process import why_ended
from app.store.history import History
from core.config import Settings
from core.request import Request
from core.wire import RANK_LOST
from tests.support.fake_runtime import wait_until
from tests.support.tiny import oracle

SCRIPT = Path(__file__).resolve().parent.parent / "support" / "ranked_worker.py"
SECONDS = 20.0  # on a busy computer; a closed connection is noticed at once


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Runtime]:
    oracle().save_pretrained(tmp_path / "model")
    monkeypatch.setenv("RANKED_MODEL", str(tmp_path / "model"))
    made = Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))
    yield made
    made.close()


def second_rank() -> psutil.Process | None:
    """The process that a worker of this one has started for rank 1."""
    for one in psutil.Process().children(recursive=True):
        if "core.assembly.ranked" in one.cmdline():
            return one
    return None


def asked(runtime: Runtime, history: History, conversation: str, tokens: int) -> AnswerJob:
    """A question without a book, as the page puts it."""
    params = {"max_new_tokens": tokens, "mode": "autoregressive", "temperature": 0.0}
    ask = Request("Who keeps the light?", conversation_id=conversation, params=params)
    job = AnswerJob(runtime.ask(ask), history, ask, Store(), Callbacks(runtime.stop))
    job.start()
    return job


@pytest.mark.wide
def test_the_app_says_why_goes_on_and_keeps_the_conversation(runtime: Runtime, tmp_path: Path):
    """A sum that waits for a process that is gone would wait for ever, and the page with it."""
    history = History(tmp_path / "talks.db")
    conversation = history.create("").id
    job = asked(runtime, history, conversation, tokens=4)
    wait_until(lambda: not job.snapshot.running)
    first = job.snapshot.text
    assert job.snapshot.finished.stats.new_tokens == 4

    job = asked(runtime, history, conversation, tokens=300)
    wait_until(lambda: job.snapshot.text)
    killed, at = second_rank(), time.monotonic()
    killed.kill()
    wait_until(lambda: not job.snapshot.running)
    assert time.monotonic() - at < SECONDS
    assert job.snapshot.error == why_ended(f"exit code {RANK_LOST}", {})

    said = [turn.text for turn in history.turns(conversation)]
    assert first in said
    job = asked(runtime, history, conversation, tokens=4)
    wait_until(lambda: not job.snapshot.running)
    assert job.snapshot.finished.stats.new_tokens == 4
    assert second_rank().pid != killed.pid
