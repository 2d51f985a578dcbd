"""Keeps KV caches of texts that were read while memory allows: going back to one costs no prefill."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable

from core.decoding.context import Context

log = logging.getLogger(__name__)


class ContextShelf:
    """Contexts by key, least recently used first. At least one exists at a time, whatever the allowance says.

    A context that has to go is handed to the next text when it is large enough (its system text stays in the
    cache), else closed. A passing one, of a passage, goes before any other and sends none but its like away:
    what was read of a book in hours must not give way to a page of it. So there may be one more of them than
    the allowance holds: `make(tokens, beside=True)` makes it where a book's is kept, and what is made so goes
    when a book's is taken, and is never a book's.
    """

    def __init__(self, make: Callable[..., Context], *, allowance_bytes: int) -> None:
        self._make = make
        self._allowance_bytes = allowance_bytes
        self._shelf: OrderedDict[Hashable, tuple[Context, int]] = OrderedDict()
        self._passing: set[Hashable] = set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._shelf

    @property
    def nbytes(self) -> int:
        """Memory of all contexts kept."""
        return sum(context.nbytes for context, _ in self._shelf.values())

    @property
    def contexts(self) -> list[Context]:
        """All contexts kept."""
        return [context for context, _ in self._shelf.values()]

    def held_tokens(self, key: Hashable) -> int:
        """How many tokens the context of `key` holds; 0 without one."""
        return len(self._shelf[key][0].ids) if key in self._shelf else 0

    def take(
        self, key: tuple[Hashable, ...], needed_tokens: int, *, spare_tokens: int = 0, passing: bool = False
    ) -> Context:
        """The context of `key`, holding what it held, with room for `needed_tokens`.

        Where there is none that large, one is made with `spare_tokens` more: beside it, if that one stays and
        this is a passing one.
        """
        if not passing:
            self._drop_beside()
        kept = key in self._shelf and key not in self._passing
        if key in self._shelf and self._shelf[key][1] >= needed_tokens:
            self._shelf.move_to_end(key)
            if not passing:
                self._passing.discard(key)
            return self._shelf[key][0]
        if passing and kept:
            beside = (*key, "beside")
            return self.take(beside, needed_tokens, spare_tokens=spare_tokens, passing=True)
        self.drop(key)
        capacity = needed_tokens + spare_tokens
        self._shelf[key] = self._make_room(capacity, passing=passing) or self._made(capacity, passing=passing)
        if passing:
            self._passing.add(key)
        return self._shelf[key][0]

    def drop(self, key: Hashable) -> None:
        """Close the context of `key`, if there is one."""
        context, _ = self._shelf.pop(key, (None, 0))
        self._passing.discard(key)
        if context is not None:
            context.close()

    def drop_book(self, book_id: str) -> None:
        """Close the contexts whose keys begin with `book_id`."""
        for key in [key for key in self._shelf if key[0] == book_id]:
            self.drop(key)

    def close(self) -> None:
        """Close all of them."""
        while self._shelf:
            self.drop(next(iter(self._shelf)))

    def _made(self, capacity: int, *, passing: bool) -> tuple[Context, int]:
        beside = passing and any(key not in self._passing for key in self._shelf)
        return self._make(capacity, beside=beside), capacity

    def _drop_beside(self) -> None:
        for key in [key for key, (context, _) in self._shelf.items() if context.beside]:
            self.drop(key)

    def _make_room(self, capacity_tokens: int, *, passing: bool) -> tuple[Context, int] | None:
        """Let the oldest go until a new context fits the allowance; the last one let go is returned when it
        can be reused.
        """
        needed = capacity_tokens * self._bytes_per_token()
        while self.nbytes + needed > self._allowance_bytes and (key := self._oldest(passing)) is not None:
            context, capacity = self._shelf.pop(key)
            self._passing.discard(key)
            if capacity >= capacity_tokens and (
                not self._shelf or self.nbytes + context.nbytes <= self._allowance_bytes
            ):
                return context, capacity
            log.info("closing the context of %s", key)
            context.close()
        return None

    def _oldest(self, passing: bool) -> Hashable | None:
        """What goes next: the passing ones first, and nothing else for one of them."""
        first = next((key for key in self._shelf if key in self._passing), None)
        return first if first is not None or passing else next(iter(self._shelf), None)

    def _bytes_per_token(self) -> float:
        return max((context.nbytes / capacity for context, capacity in self._shelf.values()), default=0.0)
