"""Who listens sees the newest state, and only what changed of it; who does not listen costs nothing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from app.web import event_stream
from app.web.event_stream import Broadcast, difference
from tests.support.fake_runtime import wait_until


class Source:
    """A page whose regions the test sets."""

    def __init__(self) -> None:
        self.regions: dict[str, tuple[str, ...]] = {"turns": ("a",), "panel": ("1",)}
        self.rendered = 0
        self.due: float | None = None

    def render(self) -> dict[str, tuple[str, ...]]:
        self.rendered += 1
        return dict(self.regions)

    def due_s(self) -> float | None:
        return self.due


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def made(source):
    broadcast = Broadcast(lambda _language: source)
    yield broadcast
    broadcast.close()


class Reader:
    """A browser: reads the stream in a loop of its own, until it ends or is left."""

    def __init__(
        self, stream: Callable[[], AsyncIterator[str]], *, asleep: threading.Event | None = None
    ) -> None:
        """`asleep`: behind its first message it sleeps until this is set."""
        self.messages: list[dict[str, list]] = []
        self.comments = 0
        self._asleep = asleep
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read(stream)), daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    async def _read(self, stream) -> None:
        async for text in stream():
            self.comments += text.startswith(":")
            if text.startswith("data: "):
                self.messages.append(json.loads(text.removeprefix("data: "))["regions"])
            if self._asleep is not None and self.messages:
                await asyncio.to_thread(self._asleep.wait)


def test_a_listener_gets_everything_and_then_what_changed(made, source):
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    assert reader.messages == [{"turns": [0, "a"], "panel": [0, "1"]}]
    source.regions = {"turns": ("a", "b"), "panel": ("1",)}
    made.changed()
    wait_until(lambda: len(reader.messages) == 2)
    assert reader.messages[1] == {"turns": [1, "b"]}, "what stays is not sent again"


def test_nothing_runs_and_nothing_is_sent_while_nothing_changes(made, source):
    """Six percent of a core went into looking whether something had changed."""
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    time.sleep(0.4)
    assert source.rendered == 1 and len(reader.messages) == 1 and reader.comments == 0
    made.changed()
    wait_until(lambda: source.rendered == 2)
    time.sleep(0.2)
    assert len(reader.messages) == 1, "a change that shows nothing new is not sent"


def test_nothing_is_rendered_while_nobody_listens(made, source):
    made.changed()
    time.sleep(0.2)
    assert source.rendered == 0


def test_many_changes_are_few_updates_and_the_newest_wins(made, source):
    """A thousand tokens a second must not mean a thousand pages a second."""
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    began = time.monotonic()
    for number in range(400):
        source.regions = {"turns": ("a",), "panel": (str(number),)}
        made.changed()
        time.sleep(0.001)
    wait_until(lambda: reader.messages[-1] == {"panel": [0, "399"]})
    assert len(reader.messages) <= 3 + (time.monotonic() - began) / event_stream.FRAME_S


def test_a_slow_reader_skips_states_and_holds_up_nobody(made, source):
    """A tab that sleeps must not stop the answer, nor be sent an hour of it when it wakes."""
    slow, quick = Reader(made.stream, asleep=(asleep := threading.Event())), Reader(made.stream)
    wait_until(lambda: slow.messages and quick.messages and made.listening == 2)
    for number in range(10):
        source.regions = {"turns": ("a",), "panel": (str(number),)}
        made.changed()
        wait_until(lambda number=number: quick.messages[-1].get("panel") == [0, str(number)])
    assert len(slow.messages) == 1
    asleep.set()
    wait_until(lambda: slow.messages[-1].get("panel") == [0, "9"])
    assert len(slow.messages) == 2 < len(quick.messages)


def test_what_shows_with_time_is_rendered_without_a_change(made, source):
    """The pacer reveals a round's letters over the time to the next one."""
    reader = Reader(made.stream)
    source.due = 0.0
    wait_until(lambda: source.rendered >= 3)
    source.due = None
    wait_until(lambda: reader.messages)


def test_a_stream_that_broke_begins_again_with_everything(made, source):
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    made.hang_up()
    wait_until(lambda: reader.ended and made.listening == 0)
    source.regions = {"turns": ("b",), "panel": ("2",)}
    again = Reader(made.stream)
    wait_until(lambda: again.messages)
    assert again.messages == [{"turns": [0, "b"], "panel": [0, "2"]}]


def test_a_silent_stream_gives_signs_of_life(made, monkeypatch):
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    reader = Reader(made.stream)
    wait_until(lambda: reader.comments >= 2)


def test_a_state_that_cannot_be_rendered_does_not_end_the_updates(made, source, caplog):
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    whole, source.render = source.render, lambda: 1 / 0
    made.changed()
    wait_until(lambda: "could not be rendered" in caplog.text)
    source.render, source.regions = whole, {"turns": (), "panel": ("1",)}
    made.changed()
    wait_until(lambda: len(reader.messages) == 2)
    assert reader.messages[1] == {"turns": [0]}


def test_closing_ends_the_streams_and_no_other_begins(made):
    reader = Reader(made.stream)
    wait_until(lambda: reader.messages)
    made.close()
    wait_until(lambda: reader.ended)
    late = Reader(made.stream)
    wait_until(lambda: late.ended)
    assert late.messages == [] and made.listening == 0


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ((), ("a",), [0, "a"]),
        (("a", "b"), ("a", "c"), [1, "c"]),
        (("a", "b"), ("a",), [1]),
        (("a",), (), [0]),
        (("a",), ("b", "a"), [0, "b", "a"]),
    ],
)
def test_only_the_blocks_after_the_first_difference_are_sent(old, new, found):
    assert difference({"turns": old}, {"turns": new}) == {"turns": found}
    assert difference({"turns": new}, {"turns": new}) == {}
