"""Whether the compiled kernel serves on this card: it must be right there, and faster than the library's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from core.backend.base import ScoreRequest
from core.backend.cuda.triton.attention import DecodeAttention, Part
from core.backend.cuda.triton.sizes import CHUNK, DTYPES, HEAD_DIMS
from core.backend.shared.kv_rows import CODES, as_rows, dequantized, row_width
from core.backend.shared.reference_attention import defined
from core.errors import DeviceLost
from core.text.words import translated as _

# of shares rounded to 16 bits, for numbers around 1; sums are fp32
_OFF = {torch.bfloat16: 1.2e-2, torch.float16: 2e-3}
_LSE_OFF = 1e-3
# rows, tokens, tokens of a block: own rows in a block and over its border, tiles of every height
_SHAPES = ((1, 300, 512), (5, 400, 512), (5, 700, 256), (17, 530, 512), (33, 1000, 512))
_WINDOW = 100
_TIMED_ROWS = (1, 9)
_TIMED_BYTES = 64 << 20  # keys and values of a layer: a piece of a book's,
_COLD_BYTES = 512 << 20  # of layers in turns: more than the second cache of any card holds
LOADING = (OSError, ValueError, TypeError, AttributeError, RuntimeError)

Library = Callable[..., Part]  # as Backend.attend_part
Seconds = Callable[[Callable[[], torch.Tensor]], float]  # that something takes, on the device


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Of a model's attention."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class TriedAttention:
    """The kernel, None where the library's serves, and what the person should know of that."""

    kernel: DecodeAttention | None
    note: str


class TrialRecord(Protocol):
    """Keeps what was begun and never ended, from one start to the next."""

    def broke(self, what: str) -> bool: ...
    def begin(self, what: str) -> None: ...
    def fail(self, what: str) -> None: ...
    def end(self, what: str) -> None: ...


@contextmanager
def recorded_trial(trials: TrialRecord | None, what: str, lost: Callable[[], bool]) -> Iterator[str]:
    """Around the trial of a kernel, which a fault may end together with the process or its device. Gives the
    reason why the kernel is not to be tried, "" where it is. Raises DeviceLost.
    """
    if trials is None:
        yield ""
        return
    if trials.broke(what):
        yield _("an earlier trial of it broke the program; `launcher.py doctor --gpu --retry` tries again")
        return
    trials.begin(what)
    try:
        yield ""
    finally:
        failed = lost()
        (trials.fail if failed else trials.end)(what)
    if failed:
        raise DeviceLost(f"the device failed while this kernel was tried: {what}")


def left_out() -> AbstractContextManager[str]:
    """In place of a trial where the person wants none of ours: gives the reason."""
    return nullcontext(_("so says the setting kernels"))


def try_attention(
    make: Callable[[], DecodeAttention],
    library: Library,
    sizes: HeadSizes,
    *,
    off: str = "",
    rows: torch.dtype,
    device: torch.device,
    dtype: torch.dtype,
    seconds: Seconds,
    room_bytes: int,
) -> TriedAttention:
    """Makes the kernel for keys and values in such `rows` and tries it. Whatever goes wrong, the library's
    serves; `off`, where given, is why it does without a trial. `room_bytes`: what may be taken meanwhile.
    """
    if off:
        return _library(rows, off)
    if dtype not in DTYPES or sizes.head_dim not in HEAD_DIMS:
        none = _("there is no compiled one for heads of {head_dim} numbers in {dtype}")
        none = none.format(head_dim=sizes.head_dim, dtype=str(dtype).removeprefix("torch."))
        return _library(rows, none)
    try:
        kernel = make()
        off = _worst(kernel, sizes, rows, device, dtype)
        if not off <= 1:
            return _library(rows, _("the compiled one computes wrongly on this card"))
        ours, theirs = _times(kernel, library, sizes, rows, device, dtype, seconds, room_bytes)
    except LOADING as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return _library(rows, _("the compiled one cannot be used ({reason})").format(reason=said))
    times = _("{ours:.2f} ms, the library's {theirs:.2f} ms").format(ours=1e3 * ours, theirs=1e3 * theirs)
    if ours >= theirs:
        return _library(rows, _("the compiled one is not faster here ({times})").format(times=times))
    said = _("Attention of short passes: the compiled kernel ({times}).")
    if rows == CODES:
        said = _("Attention of short passes to an 8-bit cache: the compiled kernel ({times}).")
    return TriedAttention(kernel, said.format(times=times))


def _library(rows: torch.dtype, reason: str) -> TriedAttention:
    said = _("Attention of short passes: the library's kernel; {reason}.")
    if rows == CODES:
        said = _(
            "An 8-bit cache is decoded piece by piece for the library's kernel, which is slow; {reason}."
        )
    return TriedAttention(None, said.format(reason=reason))


def _worst(
    kernel: DecodeAttention, sizes: HeadSizes, rows: torch.dtype, device: torch.device, dtype: torch.dtype
) -> float:
    """The largest difference from the definition, in what is allowed; NaN is larger than everything."""
    dice, shares = torch.Generator().manual_seed(0), []
    for n, length, block_tokens in _SHAPES:
        q, k, v = _material(sizes, n, -(-length // block_tokens), block_tokens, dice)
        q = q.to(device, dtype)
        k, v = (as_rows(part.to(dtype), sizes.head_dim, rows).to(device) for part in (k, v))
        numbers_of = (
            dequantized(part, sizes.head_dim, torch.float32) if rows == CODES else part for part in (k, v)
        )
        want = defined(q, *numbers_of, length=length, causal=True)
        shares.append(_share(kernel.attend_part(q, k, v, length=length, causal=True), want, dtype))
        sums = ScoreRequest(CHUNK)
        got = kernel.attend_part(q, k, v, length=length, causal=True, sums=sums)
        # all chunks together are what the first query sees
        lse = torch.cat((sums.found.logsumexp(1)[None], got[1][1:]))
        shares.append(_share((got[0], lse), want, dtype))
        if rows == dtype and length <= block_tokens:
            shares.append(_in_window(kernel, q, k, v, length))
        # own rows first, then what comes before them
        if length - n >= block_tokens:
            whole = (length - n) // block_tokens
            own = length - whole * block_tokens
            total = kernel.attend_part(q, k[whole:], v[whole:], length=own, causal=True)
            total = kernel.attend_more(total, q, k[:whole], v[:whole], length=whole * block_tokens)
            shares.append(_share(total, want, dtype))
    return float(torch.tensor(shares).max())


def _in_window(
    kernel: DecodeAttention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int
) -> float:
    """The same of rows that see a part of the keys each."""
    got = kernel.attend_window(q, k, v, length=length, window=_WINDOW)
    ends = range(length - q.shape[0] + 1, length + 1)
    runs = [[part[:, :, max(0, end - _WINDOW) : end] for part in (k, v)] for end in ends]
    rows = zip(q.split(1), runs, strict=True)
    want = [defined(row, *run, length=run[0].shape[2], causal=False)[0] for row, run in rows]
    return float((got.cpu().double() - torch.cat(want).cpu().double()).abs().max() / _OFF[q.dtype])


def _share(got: Part, want: Part, dtype: torch.dtype) -> float:
    (out, lse), (want_out, want_lse) = ((part.cpu().double() for part in side) for side in (got, want))
    worst = (out - want_out).abs().max() / _OFF[dtype], (lse - want_lse).abs().max() / _LSE_OFF
    return float(torch.stack(worst).max())


def _times(
    kernel: DecodeAttention,
    library: Library,
    sizes: HeadSizes,
    rows: torch.dtype,
    device: torch.device,
    dtype: torch.dtype,
    seconds: Seconds,
    room_bytes: int,
) -> tuple[float, float]:
    """Seconds of both over the same keys, layer after layer, for a pass of one row and one of a
    verification's. Keys that the last call left in the card's cache would be read at another rate than a
    book's.
    """
    width = row_width(sizes.head_dim, rows)
    tokens = max(64, _TIMED_BYTES // (2 * sizes.kv_heads * width * rows.itemsize) // 64 * 64)
    size = (1, sizes.kv_heads, tokens, sizes.head_dim)

    def part() -> torch.Tensor:
        return as_rows(torch.randn(size, device=device).to(dtype), sizes.head_dim, rows)

    layer_bytes = 2 * sizes.kv_heads * tokens * width * rows.itemsize
    layers = [(part(), part()) for _layer in range(max(1, min(_COLD_BYTES, room_bytes) // layer_bytes))]
    ours = theirs = 0.0
    for n in _TIMED_ROWS:
        q = torch.randn(n, sizes.heads, sizes.head_dim, device=device).to(dtype)
        how = {"length": tokens, "causal": True}
        ours += seconds(_of_all(layers, lambda k, v, q=q, how=how: kernel.attend(q, k, v, **how)))
        theirs += seconds(_of_all(layers, lambda k, v, q=q, how=how: library(q, k, v, **how)[0].to(dtype)))
    return ours / len(layers), theirs / len(layers)


def _of_all(
    layers: Sequence[tuple[torch.Tensor, torch.Tensor]],
    attend: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        for k, v in layers:
            out = attend(k, v)
        return out

    return run


def _material(
    sizes: HeadSizes, n: int, blocks: int, block_tokens: int, dice: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = torch.randn(n, sizes.heads, sizes.head_dim, generator=dice)
    k, v = torch.randn(2, blocks, sizes.kv_heads, block_tokens, sizes.head_dim, generator=dice)
    return q, k, v
