"""Host memory for a book on a card takes a while to be made ready: that is told from its allocation, through
the engine's process, to the page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.desk.answer_job import AnswerJob, Callbacks
from app.desk.store import Store
from app.engine.client import Runtime
from app.store.history import History
from app.web.regions import progress_html
from core.config import Settings
from core.events import Finished, Preparing
from core.request import Request
from tests.support.fake_runtime import wait_until

SCRIPT = Path(__file__).resolve().parent.parent / "support" / "card_worker.py"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("CARD_TOUCH_S", "0.3")
    made = Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))
    yield made
    made.close()


def asked(runtime: Runtime, history: History, changed: Callable[[AnswerJob], None]) -> AnswerJob:
    """A question without a book, as the page puts it."""
    params = {"max_new_tokens": 4, "mode": "autoregressive"}
    ask = Request("Who keeps the light?", conversation_id=history.create("").id, params=params)
    store = Store()
    job = AnswerJob(runtime.ask(ask), history, ask, store, Callbacks(runtime.stop))
    store.watch(lambda: changed(job))
    job.start()
    return job


@pytest.mark.wide
def test_memory_that_is_made_ready_is_seen_on_the_page_and_can_be_called_off(
    runtime: Runtime, tmp_path: Path
):
    """Thirty silent seconds look like a program that hangs. What is ready stays ready: asked again, it goes
    on from there, and a third question waits for nothing.
    """
    history, seen, first = History(tmp_path / "talks.db"), [], []

    def look(job: AnswerJob) -> None:
        if job.snapshot.phase == "preparing":
            seen.append((job.snapshot.preparing, progress_html(job.snapshot)))
            if not first:
                first.append(job)
                job.stop()

    job = asked(runtime, history, look)
    wait_until(lambda: not job.snapshot.running)
    assert job.snapshot.finished.reason == "user" and job.snapshot.text == ""
    begun, html = seen[0]
    assert 0 < begun.done_bytes < begun.total_bytes
    assert 'data-act="stop"' in html
    far = f"{begun.done_bytes / 1e3:.0f} KB of {begun.total_bytes / 1e3:.0f} KB"
    assert far in html.replace("\N{NO-BREAK SPACE}", " ") and "left" in html
    assert seen[-1][0].done_bytes <= 2 * begun.done_bytes, "it went on for long after the stop"
    known = seen[-1][0].done_bytes
    seen.clear()
    job = asked(runtime, history, look)
    wait_until(lambda: not job.snapshot.running)
    assert isinstance(job.snapshot.finished, Finished) and job.snapshot.finished.stats.new_tokens == 4
    counted = [one.done_bytes for one, _ in seen]
    assert counted[0] > known and counted == sorted(counted) and counted[-1] == begun.total_bytes
    seen.clear()
    job = asked(runtime, history, look)
    wait_until(lambda: not job.snapshot.running)
    assert not seen and job.snapshot.finished.stats.new_tokens == 4


def test_it_survives_the_wire():
    from core.wire import from_line, pack, to_line, unpack

    event = Preparing(12 * 10**9, 60 * 10**9, 20.0)
    assert unpack(from_line(to_line({"event": pack(event)}))["event"]) == event
