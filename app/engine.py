"""What the desk needs of the engine's process: app.runtime.Runtime, or a scripted one in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from core.ask import Ask
from core.documents.document import Document
from core.events import Event


class Engine(Protocol):
    """What the desk needs of app.runtime.Runtime."""

    state: str
    error: str
    loading_fraction: float | None
    plan: dict | None
    model_name: str
    context_tokens: int
    # called from any thread after a change of the above; it must only take notice
    changed: Callable[[], None]

    def start(self) -> None: ...
    def save(self, timeout_s: float) -> None: ...
    def use(self, model: str) -> None: ...
    def close(self) -> None: ...
    def card(self, book: Document) -> dict: ...
    def ask(self, ask: Ask) -> Iterator[Event]: ...
    def stop(self) -> None: ...
    def forget(self, conversation_id: str) -> None: ...
    def forget_book(self, book_id: str) -> None: ...
