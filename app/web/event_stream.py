"""The page's regions as an event stream, for any number of browsers: rendered once for each language that one
of them is in, sent where they changed.

Nothing runs while nothing changes: one thread sleeps on a condition until it is told of a change and somebody
listens. A listener holds the newest state alone, so a slow one skips what it missed and holds up nobody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

log = logging.getLogger(__name__)
FRAME_S = 0.05  # at most 20 updates a second; the newest state wins
KEEP_ALIVE_S = 15.0  # a comment, so that a connection nobody reads any more is noticed
RETRY_MS = 1000  # a browser joins again by itself
# a region's HTML in blocks, of which only the changed last ones are sent
Regions = dict[str, tuple[str, ...]]


class StateSource(Protocol):
    """What is shown: app.web.page.Page."""

    def render(self) -> Regions: ...
    def due_s(self) -> float | None:
        """Seconds until the page looks different though nothing happens; None when it will not."""


class Broadcast:
    """Tells its listeners what of their source has changed. `changed` may be called from any thread."""

    def __init__(self, source: Callable[[str], StateSource], edition: Callable[[], str] = lambda: "") -> None:
        """`source`: what is shown in a language. `edition`: what a page was loaded with beside its regions;
        when it changes, pages load anew.
        """
        self._token, self._edition = secrets.token_hex(8), edition
        self._make = source
        self._sources: dict[str, StateSource] = {}  # of the languages that somebody listens in
        self._left: Callable[[], None] = lambda: None
        self._bell = threading.Condition(threading.Lock())
        self._changed = self._closed = False
        self._listeners: set[StreamListener] = set()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    @property
    def launch(self) -> str:
        """Names what a page was loaded with: one of an earlier launch or edition loads itself anew."""
        return self._token + self._edition()

    @property
    def listening(self) -> int:
        """How many streams are open."""
        return len(self._listeners)

    def when_left(self, told: Callable[[], None]) -> None:
        """`told` is called when the last listener has gone."""
        self._left = told

    def changed(self) -> None:
        """Takes notice; never waits for a listener."""
        with self._bell:
            self._changed = True
            if self._listeners:
                self._bell.notify()

    async def stream(self, language: str = "en") -> AsyncIterator[str]:
        """One tab's events: the whole state, then what changes. Ends with `close` or `hang_up`."""
        listener = StreamListener(asyncio.get_running_loop(), language)
        with self._bell:
            if self._closed:
                return
            self._listeners.add(listener)
            self._changed = True
            self._bell.notify()
        try:
            yield f"retry: {RETRY_MS}\n\n"
            async for change in listener.changes():
                yield (
                    f"data: {json.dumps({'launch': self.launch, 'regions': change})}\n\n"
                    if change
                    else ":\n\n"
                )
        finally:
            with self._bell:
                self._listeners.discard(listener)
                alone = not self._listeners and not self._closed
            if alone:
                self._left()

    def hang_up(self) -> None:
        """Ends the open streams; a browser that is still there joins again."""
        with self._bell:
            for listener in self._listeners:
                listener.take(None)

    def close(self) -> None:
        """Ends the open streams for good."""
        with self._bell:
            self._closed = True
            self._bell.notify()
        self.hang_up()
        self._thread.join()

    # --- the thread

    def _run(self) -> None:
        while self._wait():
            began = time.monotonic()
            with self._bell:
                spoken = {listener.language for listener in self._listeners}
            self._sources = {one: self._sources.get(one) or self._make(one) for one in spoken}
            for language, source in self._sources.items():
                self._show(language, source)
            time.sleep(max(0.0, FRAME_S - (time.monotonic() - began)))

    def _show(self, language: str, source: StateSource) -> None:
        try:
            regions = source.render()
        # the page's boundary: one bad state must not end its updates for good
        except Exception:
            log.exception("the page could not be rendered")
            return
        with self._bell:
            for listener in self._listeners:
                if listener.language == language:
                    listener.take(regions)

    def _wait(self) -> bool:
        """Until there is something to show and somebody to show it to; False at the end."""
        due = (source.due_s() for source in self._sources.values())
        due_s = min((one for one in due if one is not None), default=None)
        with self._bell:
            self._bell.wait_for(lambda: self._closed or self._listeners)
            self._bell.wait_for(lambda: self._closed or self._changed, due_s)
            self._changed = False
            return not self._closed


class StreamListener:
    """One open stream: the newest state, and what was sent. `take` is called by the thread that renders."""

    def __init__(self, loop: asyncio.AbstractEventLoop, language: str) -> None:
        self._loop, self.language = loop, language
        self._news = asyncio.Event()
        self._newest: Regions | None = {}

    def take(self, regions: Regions | None) -> None:
        """The newest state; None ends the stream."""
        if self._newest is not None:
            self._newest = regions
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # the server has ended
                log.debug("a stream was open to the end")

    async def changes(self) -> AsyncIterator[dict[str, list]]:
        """What `difference` finds as it comes; empty when it is time for a sign of life."""
        sent: Regions = {}
        while True:
            try:
                await asyncio.wait_for(self._news.wait(), KEEP_ALIVE_S)
            except asyncio.TimeoutError:
                yield {}
                continue
            self._news.clear()
            newest = self._newest
            if newest is None:
                return
            if change := difference(sent, newest):
                yield change
            sent = newest


def difference(old: Regions, new: Regions) -> dict[str, list]:
    """{region: [blocks that stay, HTML of each block after them]} of the regions that are not the same."""
    found: dict[str, list] = {}
    for name, blocks in new.items():
        before = old.get(name)
        if before is blocks or before == blocks:
            continue
        same = 0
        for one, other in zip(before or (), blocks, strict=False):
            if one != other:
                break
            same += 1
        found[name] = [same, *blocks[same:]]
    return found
