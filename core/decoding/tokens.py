"""A conversation's tokens with drafted ones behind them, read in place: a draft never copies the book."""

from __future__ import annotations

from collections.abc import Sequence


class Tokens(Sequence[int]):
    """`base` followed by `tail`. Copies neither, so it costs the same over a page and over a book, and
    follows both as they grow.

    Slices are lists, without steps.
    """

    __slots__ = ("_base", "_tail")

    def __init__(self, base: Sequence[int], tail: Sequence[int]) -> None:
        self._base, self._tail = base, tail

    def __len__(self) -> int:
        return len(self._base) + len(self._tail)

    def __getitem__(self, index: int | slice) -> int | list[int]:
        border = len(self._base)
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, f"tokens are read forward, one by one, not by {step}"
            return [
                *self._base[start : min(stop, border)],
                *self._tail[max(0, start - border) : max(0, stop - border)],
            ]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._base[index] if index < border else self._tail[index - border]
