"""Where the last few tokens of a conversation stood before. Knows nothing of drafting or models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_COUNTED = 256  # newest places of one token that are looked at for what follows it
_CHECKED = 8  # newest known tokens that are compared before anything is added behind them


class NgramIndex:
    """The tokens of a conversation, four bytes each, searched by comparing: no table, so nothing to build,
    to undo or to prune, and a lookup reads half a megabyte of a book of 128K tokens (0.1 ms).
    """

    def __init__(self, capacity_tokens: int = 1024) -> None:
        self._tokens = np.empty(capacity_tokens, np.int32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes held, filled or not."""
        return self._tokens.nbytes

    def follow(self, ids: Sequence[int]) -> None:
        """Takes in what `ids` have behind the tokens it holds."""
        known = min(self._length, len(ids))
        start = max(0, known - _CHECKED)
        assert self._tokens[start:known].tolist() == list(ids[start:known]), (
            "the tokens changed and nothing was forgotten"
        )
        new = ids[known:]
        if self._length > known or not new:
            return
        if len(ids) > len(self._tokens):
            room = np.empty(2 * len(ids), np.int32)
            room[:known] = self._tokens[:known]
            self._tokens = room
        self._tokens[known : len(ids)] = new
        self._length = len(ids)

    def forget(self, length: int) -> None:
        """Drops the tokens from `length` on."""
        self._length = min(self._length, length)

    def find(self, *, longest: int, shortest: int) -> tuple[int, int] | None:
        """The index behind the most recent earlier occurrence of the last `longest` tokens, else of the last
        `longest - 1`, and so on down to `shortest`, and how many were found; None where there is none. What
        follows one token alone is what followed it most often of late.
        """
        tokens = self._tokens[: self._length]
        # indices behind earlier occurrences of the last n tokens, oldest first
        ends, found = np.arange(0), None
        for n in range(1, min(longest, self._length) + 1):
            if n == 1:
                ends = np.flatnonzero(tokens[:-1] == tokens[-1]) + 1
            else:
                ends = ends[np.searchsorted(ends, n) :]
                ends = ends[tokens[ends - n] == tokens[-n]]
            if not len(ends):
                break
            if n >= shortest:
                found = (self._usual(ends) if n == 1 else int(ends[-1])), n
        return found

    def _usual(self, ends: np.ndarray) -> int:
        """Of the newest of these places the last that the most frequent token stands at."""
        ends = ends[-_COUNTED:]
        _tokens, which, times = np.unique(self._tokens[ends], return_inverse=True, return_counts=True)
        return int(ends[np.flatnonzero(times[which] == times.max())[-1]])
