"""What the engine says of each book: how long it is, how it would be read, how long that takes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.documents.document import Document
from core.errors import UserError

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)
AGAIN_S = 30.0  # after so long a look at a card that failed asks for it again

# a book and its text, the model, how far it may be read, and what of it was chosen
Key = tuple[str, int, str, int | None, tuple[tuple[str, Any], ...]]


class BookEstimates:
    """The cards, asked for in the background and kept. Thread-safe; `changed` is called when one has come,
    `counted` with a whole book's tokens.

    One that failed is asked for again: at the next look after AGAIN_S, and after the engine was away.
    """

    def __init__(
        self,
        engine: Runtime,
        changed: Callable[[], None],
        *,
        counted: Callable[[str, int], None] = lambda book_id, tokens: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._changed, self._clock = engine, changed, clock
        self._counted = counted
        self._lock = threading.Lock()
        self._kept: dict[Key, dict[str, Any]] = {}
        self._failed: dict[Key, float] = {}  # when
        self._asking: set[Key] = set()
        self._outdated: set[Key] = set()

    def of(self, book: Document, spoiler_limit: int | None = None, **scope: Any) -> dict[str, Any] | None:
        """The card of `book`, or of what may be read of it, for the model that runs; None until it has
        come. `scope`: see Runtime.card.
        """
        chosen = tuple(sorted(scope.items()))
        key = (book.sha256, hash(book.text), self._engine.model_name, spoiler_limit, chosen)
        state = self._engine.state
        with self._lock:
            if state not in ("ready", "busy"):
                self._failed = dict.fromkeys(self._failed, self._clock() - AGAIN_S)
            # it may be reading this book, and measures how long that takes: what stands, stands until then
            if state == "busy":
                self._outdated.update(self._kept)
            wanted = key not in self._kept or self._clock() - self._failed.get(key, self._clock()) >= AGAIN_S
            wanted = wanted or key in self._outdated
            can = state == "ready" or state == "busy" and key not in self._outdated
            if wanted and can and key not in self._asking:
                self._asking.add(key)
                self._outdated.discard(key)
                threading.Thread(target=self._fetch, args=(key, book), name="card", daemon=True).start()
            return self._kept.get(key)

    def _fetch(self, key: Key, book: Document) -> None:
        card, failed = {}, True
        try:
            *_book, spoiler_limit, scope = key
            card, failed = self._engine.card(book, spoiler_limit, **dict(scope)), False
            if spoiler_limit is None and not scope:
                self._counted(book.sha256, card["tokens"])
        except UserError as error:
            card = {"notes": [str(error)]}
        except Exception:  # a background thread's boundary: the page goes on without the estimate
            log.exception("no estimate for the book")
        with self._lock:
            self._kept[key] = card
            self._asking.discard(key)
            self._failed.pop(key, None)
            if failed:
                self._failed[key] = self._clock()
        self._changed()
