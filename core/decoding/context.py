"""A conversation in the engine: one KV cache, the ids its rows stand for, and where they can be looked up."""

from __future__ import annotations

from collections.abc import Sequence

from core.cache.base import TargetKVCache
from core.cache.query_recorder import QueryRecorder
from core.decoding.ngrams import NgramIndex

_PIECE = 1024  # ids compared at once: one by one takes 20 ms in a text of 128K tokens


class Context:
    """One KV cache and the ids its rows stand for.

    The first `book_tokens` ids are the same for every question about the book `book_id`: those may come from
    disk, and go there once. A context may be without its cache, before its first answer and where the device
    had no room for it: then it holds no ids and takes no memory until the engine gives it one. One `beside`
    another, of a book, has the room on the device that is left for such.
    """

    def __init__(self, cache: TargetKVCache | None, capacity: int, *, beside: bool = False) -> None:
        # the cache itself may hold more: it rounds up to blocks
        self.cache = cache
        self.capacity, self.beside = capacity, beside
        self.ids: list[int] = []
        self.index = NgramIndex(capacity)
        self.book_id, self.book_tokens, self.saved = "", 0, True
        self.stored_while_read = False
        # keeps where the answer looks, where somebody wants to know
        self.looking: QueryRecorder | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its KV cache."""
        return self.cache.nbytes if self.cache is not None else 0

    def belongs_to(self, book_id: str, book_tokens: int, *, stored_while_read: bool = True) -> None:
        """The prompt to come begins with `book_tokens` ids of this book, which go to disk in idle time and,
        if `stored_while_read`, as soon as they are read.
        """
        self.book_id, self.book_tokens, self.saved = book_id, book_tokens, not book_tokens
        self.stored_while_read = stored_while_read

    def keep_prefix_of(self, ids: Sequence[int]) -> int:
        """Rolls back to the longest common prefix with `ids` that the cache can go back to, leaving at least
        the newest token to be fed. Returns its length.
        """
        common = _common(self.ids, list(ids), min(self.cache.length, len(ids) - 1))
        common = self.cache.resumable(common)
        self.cache.rollback(common)
        del self.ids[common:]
        self.index.forget(common)
        return common

    def hold(self, ids: Sequence[int]) -> None:
        """The rows that were added to the cache stand for what `ids` have behind the ids held so far."""
        self.ids.extend(ids[len(self.ids) : self.cache.length])
        self.index.follow(self.ids)

    def drop_what_is_cut(self) -> None:
        """Rolls back to where the cache can go on, as where rows of a text were loaded in part."""
        length = self.cache.resumable(self.cache.length)
        self.cache.rollback(length)
        self.keep_what_is_held()

    def keep_what_is_held(self) -> None:
        """The ids end where the cache's rows do."""
        del self.ids[self.cache.length :]
        self.index.forget(self.cache.length)

    def close(self) -> None:
        """Frees the memory. What it held is lost."""
        self.cache = None
        self.ids.clear()
        self.index.forget(0)
        if self.looking is not None:
            self.looking.forget()


def _common(held: Sequence[int], ids: Sequence[int], most: int) -> int:
    """How many of the first `most` ids are the same in both."""
    pieces = (range(start, min(start + _PIECE, most)) for start in range(0, most, _PIECE))
    for piece in pieces:
        if held[piece.start : piece.stop] != ids[piece.start : piece.stop]:
            return next(i for i in piece if held[i] != ids[i])
    return most
