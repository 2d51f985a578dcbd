"""Whether the compiled kernels for layers with a state serve on this card: each must be right there and be
faster than torch. That of few rows must give a row among them the bits that it gives it alone, that of many
the same bits in any number of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from core.backend.base import DeltaParts, DeltaRows, DeltaSteps
from core.backend.cuda.triton.delta import CardDelta, CardDeltaChunks
from core.backend.cuda.triton.sizes import DTYPES
from core.backend.cuda.triton.trial import LOADING, Seconds
from core.backend.shared.delta_example import ExampleSizes, delta_by_definition, example_layer, example_rows
from core.text.words import marked as N_
from core.text.words import translated as _

_ROWS = (1, 5, 20)
_TIMED_ROWS = (1, 9)
_OFF = 1e-4  # of numbers around 1; everything is fp32
_STEP_ROWS, _TIMED_STEPS = 128, 1024  # of a prefill
_STEPS_OFF = 5e-4  # likewise; products are of numbers in two parts of 8 bits


@dataclass(frozen=True, slots=True)
class TriedDelta:
    """The kernel, None where torch serves, and what the person should know of that."""

    kernel: Any
    note: str


@dataclass(frozen=True, slots=True)
class DeltaTrial:
    """Of a kernel for layers with a state: `right` and `times` ask it, and what the person is told."""

    right: Callable[..., bool]
    times: Callable[..., tuple[float, float]]
    serves: str
    refused: str

    def __call__(
        self,
        make: Callable[[], Any],
        parts: DeltaParts,
        by_torch: Callable[..., torch.Tensor],
        *,
        off: str = "",
        device: torch.device,
        dtype: torch.dtype,
        seconds: Seconds,
    ) -> TriedDelta:
        """Makes the kernel and tries it for layers as `parts`, which torch computes by `by_torch`. Whatever
        goes wrong, torch serves; `off`, where given, is why it does without a trial.
        """
        if off:
            return self._torch(off)
        if dtype not in DTYPES:
            none = _("there is no compiled one for {dtype}")
            return self._torch(none.format(dtype=str(dtype).removeprefix("torch.")))
        if not CardDelta.takes(parts):
            return self._torch(_("there is no compiled one for layers of these sizes"))
        try:
            kernel = make()
            if not self.right(kernel, parts, device, dtype):
                return self._torch(_("the compiled one computes wrongly on this card"))
            ours, theirs = self.times(kernel, parts, by_torch, device, dtype, seconds)
        except LOADING as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            return self._torch(_("the compiled one cannot be used ({reason})").format(reason=said))
        times = _("{ours:.2f} ms, torch's {theirs:.2f} ms").format(ours=1e3 * ours, theirs=1e3 * theirs)
        if ours >= theirs:
            return self._torch(_("the compiled one is not faster here ({times})").format(times=times))
        return TriedDelta(kernel, _(self.serves).format(times=times))

    def _torch(self, reason: str) -> TriedDelta:
        return TriedDelta(None, _(self.refused).format(reason=reason))


def _sizes(parts: DeltaParts) -> ExampleSizes:
    sizes = parts.sizes
    return ExampleSizes(sizes.key_heads, sizes.value_heads, sizes.key_dim, sizes.value_dim, sizes.kernel)


def _right(kernel: CardDelta, parts: DeltaParts, device: torch.device, dtype: torch.dtype) -> bool:
    """What is found and the state that is left, near the definition; NaN is wrong. And the same bits when the
    rows come one by one, into the state itself.
    """
    dice = torch.Generator().manual_seed(0)
    sizes = _sizes(parts)
    layer = example_layer(sizes, dice)
    there = example_layer(sizes, torch.Generator().manual_seed(0), device)
    for n in _ROWS:
        state, rows = example_rows(sizes, n, dice)
        rows, on_card = rows.to(dtype), state.to(device)
        target, given = torch.empty_like(on_card), rows.to(device)
        found = kernel.through(there, on_card, target, given)
        for got, want in zip((found, target), delta_by_definition(layer, state, rows), strict=True):
            if not bool(((got.cpu().double() - want).abs() <= _OFF).all()):
                return False
        for at in range(n):
            alone = kernel.through(there, on_card, on_card, given[at : at + sizes.kernel])
            if not torch.equal(alone[0], found[at]):
                return False
        if not torch.equal(on_card, target):
            return False
    return True


def _times(
    kernel: CardDelta,
    parts: DeltaParts,
    by_torch: DeltaRows,
    device: torch.device,
    dtype: torch.dtype,
    seconds: Seconds,
) -> tuple[float, float]:
    """Seconds of both for a pass of one row and one of a verification's, of one layer: so its state may lie
    in the card's cache, for both.
    """
    ours = theirs = 0.0
    for n in _TIMED_ROWS:
        state, rows = example_rows(_sizes(parts), n, torch.Generator().manual_seed(0))
        state, rows = state.to(device), rows.to(device, dtype)
        target = torch.empty_like(state)
        ours += seconds(lambda s=state, t=target, r=rows: kernel.through(parts, s, t, r))
        theirs += seconds(lambda s=state, t=target, r=rows: by_torch(s, t, r))
    return ours, theirs


def _steps_right(
    kernel: CardDeltaChunks, parts: DeltaParts, device: torch.device, dtype: torch.dtype
) -> bool:
    """Likewise of many rows; and the same bits when they come in two calls."""
    dice, sizes = torch.Generator().manual_seed(0), _sizes(parts)
    layer = example_layer(sizes, dice)
    there = example_layer(sizes, torch.Generator().manual_seed(0), device)
    state, rows = example_rows(sizes, _STEP_ROWS, dice)
    rows, own, again = rows.to(dtype), state.to(device, copy=True), state.to(device, copy=True)
    given, half = rows.to(device), _STEP_ROWS // 2
    found = kernel.through(there, own, given)
    for got, want in zip((found, own), delta_by_definition(layer, state, rows), strict=True):
        if not bool(((got.cpu().double() - want).abs() <= _STEPS_OFF).all()):
            return False
    tail = sizes.kernel - 1
    parted = [kernel.through(there, again, given[at : at + half + tail]) for at in (0, half)]
    return torch.equal(torch.cat(parted), found) and torch.equal(again, own)


def _steps_times(
    kernel: CardDeltaChunks,
    parts: DeltaParts,
    by_torch: DeltaSteps,
    device: torch.device,
    dtype: torch.dtype,
    seconds: Seconds,
) -> tuple[float, float]:
    """Seconds of both for a part of a prefill, of one layer."""
    state, rows = example_rows(_sizes(parts), _TIMED_STEPS, torch.Generator().manual_seed(0))
    state, rows = state.to(device), rows.to(device, dtype)
    ours = seconds(lambda: kernel.through(parts, state, rows))
    return ours, seconds(lambda: by_torch(state, rows))


TRIALS = {
    "rows": DeltaTrial(
        _right,
        _times,
        N_("Rows of layers with a state: the compiled kernel ({times})."),
        N_("Rows of layers with a state: torch takes them one by one, which is slow; {reason}."),
    ),
    "steps": DeltaTrial(
        _steps_right,
        _steps_times,
        N_("Prefill of layers with a state: the compiled kernels ({times})."),
        N_("Prefill of layers with a state: torch's steps of 64 tokens; {reason}."),
    ),
}
