"""States of layers that keep no keys and values: exact behind every number of accepted rows. Knows no model.

A state cannot be cut. So it stands at the last final token, and what came behind that waits as rows: a pass
takes a copy of the state through them, and when some of them become final the state itself goes through
these, by the same steps, which gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from core.backend.base import Backend
from core.cache.base import KVShape, Recurrence
from core.cache.state_sizes import ROWS_WAITING


class KeptStates(NamedTuple):
    """States [layers, heads, ...] at token `end`, and the rows [layers, tail, width] before it, in host
    memory.
    """

    end: int
    states: torch.Tensor
    rows: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.states.nbytes + self.rows.nbytes


class LayerStates:
    """The states of `shape` at token `end`, rows that wait behind it, and before these the tail that a
    convolution sees. Numbers of layers are places among those with a state.

    Beside each state lies a second one, the tip, which the last pass left behind its rows: the next pass goes
    on from there where it follows, else the tip is made anew from the state.
    """

    def __init__(self, shape: KVShape, backend: Backend, *, room: int = ROWS_WAITING) -> None:
        self.shape, self._backend, self._room = shape.states, backend, room
        size = (len(self.shape.layers), *self.shape.size)
        self._states, self._tips = (torch.zeros(size, device=backend.device) for _ in range(2))
        self._rows = self._empty(room)
        self._recurrences: dict[int, Recurrence] = {}  # of each layer, once it was heard of
        self.reset()

    def _empty(self, room: int) -> torch.Tensor:
        """[layers, tail + room, width]"""
        size = (len(self.shape.layers), self.shape.tail + room, self.shape.width)
        with torch.inference_mode(False):  # who goes back does so outside a pass, too
            return torch.zeros(size, dtype=self._backend.dtype, device=self._backend.device)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._states.nbytes + self._tips.nbytes + self._rows.nbytes

    @property
    def oldest(self) -> int:
        """The shortest length that can be gone back to."""
        return self.end

    def reset(self) -> None:
        """As new."""
        self.end = 0
        self._states.zero_()
        self._rows[:, : self.shape.tail].zero_()
        self._forget_tips()

    def _forget_tips(self) -> None:
        self._tip_ends = [-1] * len(self.shape.layers)

    def make_room(self, kept: int, end: int) -> None:
        """Rows up to `end` will come in a short pass."""
        waiting = end - self.end
        if waiting > self._rows.shape[1] - self.shape.tail:
            old, self._rows = self._rows, self._empty(2 * waiting)
            self._rows[:, : old.shape[1]] = old

    def recur(self, place: int, rows: torch.Tensor, recurrence: Recurrence, *, start: int) -> torch.Tensor:
        """As KVCache.recur, of rows [n, width] from token `start` on, which wait until they are final."""
        self._recurrences[place] = recurrence
        first = start - self.end
        self._rows[place, self.shape.tail + first : self.shape.tail + first + len(rows)] = rows
        source, begin = self._tips[place], first
        if self._tip_ends[place] != start:
            source, begin = self._states[place], 0
        found = self._step(place, source, self._tips[place], range(begin, first + len(rows)))
        self._tip_ends[place] = start + len(rows)
        return found[first - begin :].to(rows.dtype)

    def _step(self, place: int, source: torch.Tensor, target: torch.Tensor, waiting: range) -> torch.Tensor:
        """Takes a state through some of the rows that wait."""
        rows = self._rows[place, waiting.start : waiting.stop + self.shape.tail]
        return self._recurrences[place].one_by_one(source, target, rows)

    def recur_for_good(
        self, place: int, rows: torch.Tensor, recurrence: Recurrence, *, start: int
    ) -> torch.Tensor:
        """Likewise, rows [n, width] to [n, heads, columns], in a segment of a prefill, whose rows are final:
        whole steps of many rows begin at multiples of their number, whatever the chunks are.
        """
        self._recurrences[place], state, tail = recurrence, self._states[place], self.shape.tail
        rows = torch.cat((self._rows[place, :tail], rows))
        found, at, end, size = [], start, start + len(rows) - tail, recurrence.step_rows
        while at < end:
            whole = 0 if at % size else (end - at) // size * size
            count = whole or min(end, (at // size + 1) * size) - at
            some = rows[at - start : at - start + tail + count]
            taken = recurrence.steps(state, some) if whole else recurrence.one_by_one(state, state, some)
            found.append(taken)
            at += count
        self._rows[place, :tail] = rows[len(rows) - tail :]
        return torch.cat(found).to(rows.dtype)

    def commit(self, length: int) -> None:
        """Rows below `length` are final; the others may be dropped."""
        final = length - self.end
        assert final >= 0, f"states stand at token {self.end}, not at {length}"
        if final == 0:
            return
        if all(end == length for end in self._tip_ends):
            self._states, self._tips = self._tips, self._states
            self._forget_tips()
        else:
            self._catch_up(length)
        tail = self._rows[:, final : final + self.shape.tail].clone()
        if self._rows.shape[1] > self.shape.tail + self._room:
            self._rows = self._empty(self._room)
        self._rows[:, : self.shape.tail] = tail
        self.end = length
        self._tip_ends = [end if end == length else -1 for end in self._tip_ends]

    def _catch_up(self, length: int) -> None:
        """Each state goes through the rows up to token `length`, or becomes its tip."""
        for place in range(len(self._tip_ends)):
            state = self._states[place]
            if self._tip_ends[place] == length:
                state.copy_(self._tips[place])
            else:
                self._step(place, state, state, range(length - self.end))

    def fed(self, length: int) -> None:
        """A segment ends at token `length`; its rows are in."""
        self.end = length
        self._forget_tips()

    def kept_at(self, end: int) -> KeptStates:
        """What is at token `end`, where the states stand, copied."""
        assert end == self.end, f"states stand at token {self.end}, not at {end}"
        found = []
        for part in (self._states, self._rows[:, : self.shape.tail]):
            found.append(self._backend.host_memory(part.shape, part.dtype).copy_(part))
        return KeptStates(end, *found)

    def put_back(self, kept: KeptStates) -> None:
        """As it was when they were kept."""
        self._states.copy_(kept.states)
        self._rows[:, : self.shape.tail] = kept.rows
        self.end = kept.end
        self._forget_tips()

    def follow(self, source: LayerStates, held: int, length: int) -> None:
        """Becomes what `source` is at token `length`, where its states stand."""
        assert length == source.end, f"states stand at token {source.end}, not at {length}"
        self._states.copy_(source._states)
        self._rows[:, : self.shape.tail] = source._rows[:, : self.shape.tail]
        self.end = length
        self._forget_tips()
