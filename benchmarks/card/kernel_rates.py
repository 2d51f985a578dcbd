"""How fast a card's attention, products and layers with a state are by themselves: few rows over keys that no
cache of the card holds, matrices in every format, and states, each in one recording.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from core.backend.base import Backend
from core.backend.shared.delta_example import ExampleSizes, example_layer
from core.backend.shared.kv_rows import CODES, as_rows, row_width
from core.backend.shared.quantized_example import KINDS, Kind, example
from core.cache.windows import attend_window
from core.model.delta import GatedDelta
from core.model.mixer_sizes import DeltaSizes
from core.text.words import GB

ROWS = (1, 4, 9, 16, 17, 33)
COLD_BYTES = 512 << 20  # that are read in turns: more than the second cache of any card
_BLOCK = 512  # tokens of a block of keys
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class TimedSizes:
    """What is timed: attention as of one layer over so many tokens, and square matrices. `heads`: of a layer,
    its KV heads and their size, as of Llama 3, Qwen3.5 and Gemma 4; `window`: heads likewise, as of Gemma 3,
    and the tokens that a row sees; `states`: key heads and value heads of 128 numbers, as of Qwen3.5-2B, 9B
    and 27B; `prefill`: rows of one chunk of it.
    """

    heads: tuple[tuple[int, int, int], ...] = ((32, 8, 128), (16, 4, 256), (16, 1, 512))
    window: tuple[int, int, int, int] = (8, 4, 256, 1_024)
    states: tuple[tuple[int, int], ...] = ((16, 16), (16, 32), (16, 48))
    prefill: int = 4_096
    tokens: tuple[int, ...] = (4_608, 65_536, 131_072)
    width: int = 4_096
    cold_bytes: int = COLD_BYTES


TINY = TimedSizes(
    ((4, 2, 64),), (2, 1, 64, 100), ((2, 8),), prefill=128, tokens=(600,), width=512, cold_bytes=1 << 20
)


def attention_rates(backend: Backend, sizes: TimedSizes) -> Iterator[dict[str, Any]]:
    """GB/s of keys and values, by heads, kind of rows, tokens and rows of a pass, each as soon as it is
    known; then of windows, of which each row reads its own where no kernel takes them together.
    """
    for heads, (kind, rows) in product(sizes.heads, (("numbers", backend.dtype), ("codes", CODES))):
        for tokens in sizes.tokens:
            keys, nbytes = _keys(backend, heads, tokens, rows, sizes.cold_bytes)

            def attend(q: torch.Tensor, turn: int, keys: list = keys, tokens: int = tokens) -> torch.Tensor:
                return backend.attend(q, *keys[turn], length=tokens, causal=True)

            named = {"kind": f"{kind}, {heads[2]}", "tokens": tokens}
            yield from _by_rows(backend, heads, attend, len(keys), nbytes, named)
            del keys, attend
    *heads, window = sizes.window
    tokens = window + max(ROWS)
    keys, nbytes = _keys(backend, heads, tokens, backend.dtype, sizes.cold_bytes, block=tokens)

    def in_window(q: torch.Tensor, turn: int) -> torch.Tensor:
        return attend_window(backend, q, *keys[turn], length=tokens, window=window)

    yield from _by_rows(
        backend, heads, in_window, len(keys), nbytes, {"kind": f"window, {heads[2]}", "tokens": window}
    )


def _by_rows(
    backend: Backend,
    heads: Sequence[int],
    attend: Callable[[torch.Tensor, int], torch.Tensor],
    turns: int,
    nbytes: int,
    named: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Of passes of each number of rows, `attend(q, turn)` over keys and values of so many bytes in turns."""
    for n in ROWS:
        q = torch.randn(n, heads[0], heads[2], device=backend.device).to(backend.dtype)
        found = cold_seconds(backend, partial(attend, q), turns)
        yield {**named, "rows": n, **found, **_rate(found, nbytes)}


def product_rates(backend: Backend, sizes: TimedSizes) -> Iterator[dict[str, Any]]:
    """GB/s of weights, by format and rows of a pass, each as soon as it is known."""
    dice = torch.Generator().manual_seed(0)
    for kind in (None, *KINDS):
        planes = None if kind is None else example(kind, dice, rows=sizes.width, columns=sizes.width)
        nbytes = sizes.width**2 * backend.dtype.itemsize if planes is None else planes.nbytes
        turns = max(1, -(-sizes.cold_bytes // nbytes))
        matrices = [_matrix(backend, sizes.width, planes) for _turn in range(turns)]
        for n in ROWS:
            x = torch.randn(n, sizes.width, device=backend.device).to(backend.dtype)

            def multiply(turn: int, x: torch.Tensor = x, matrices: list = matrices) -> torch.Tensor:
                return matrices[turn](x)

            found = cold_seconds(backend, multiply, turns)
            yield {"kind": _named(kind), "rows": n, **found, **_rate(found, nbytes)}


def state_rates(backend: Backend, sizes: TimedSizes) -> Iterator[dict[str, Any]]:
    """GB/s of states that are read and written once, by value heads and rows of a pass, each as soon as it is
    known: convolution and gates of the rows among it; and the same of a chunk of a prefill.
    """
    dice = torch.Generator().manual_seed(0)
    for key_heads, value_heads in sizes.states:
        delta = DeltaSizes(key_heads, value_heads, 128, 128, 4)
        _sizes, *factors = example_layer(ExampleSizes(key_heads, value_heads, 128, 128), dice)
        there = [one.to(backend.device) for one in factors]
        layer = GatedDelta(delta, *there, norm=torch.ones(128, device=backend.device)).served_by(backend)
        nbytes = 2 * 4 * math.prod(delta.size)
        turns = max(1, -(-sizes.cold_bytes // nbytes))
        states = torch.randn(2, turns, *delta.size, device=backend.device)
        for n in (*ROWS, sizes.prefill):
            size = delta.kernel - 1 + n, delta.width
            rows = torch.randn(size, device=backend.device).to(backend.dtype)

            def take(turn: int, layer: GatedDelta = layer, given: tuple = (states, rows)) -> torch.Tensor:
                return layer.one_by_one(*given[0][:, turn], given[1])

            def fill(turn: int, layer: GatedDelta = layer, given: tuple = (states, rows)) -> torch.Tensor:
                return layer.steps(given[0][0, turn], given[1])

            found = cold_seconds(backend, take if n in ROWS else fill, turns)
            yield {"kind": f"{value_heads} value heads", "rows": n, **found, **_rate(found, nbytes)}


def cold_seconds(backend: Backend, run: Callable[[int], torch.Tensor], turns: int) -> dict[str, Any]:
    """What each of `run(0)` to `run(turns - 1)`, over other memory in each turn, takes in one recording,
    where the device makes such; the least of a few.
    """

    def all_of_them() -> torch.Tensor:
        for turn in range(turns):
            out = run(turn)
        return out

    all_of_them()
    replay = backend.capture(all_of_them)
    least = min(_seconds(replay or all_of_them) for _time in range(_REPEATS))
    return {"microseconds": 1e6 * least / turns, "recorded": replay is not None}


def _seconds(run: Callable[[], torch.Tensor]) -> float:
    run().flatten()[0].item()
    started = time.perf_counter()
    run().flatten()[0].item()  # a number is there when all before it is done
    return time.perf_counter() - started


def _keys(
    backend: Backend,
    heads: Sequence[int],
    tokens: int,
    rows: torch.dtype,
    cold_bytes: int,
    *,
    block: int = _BLOCK,
) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], int]:
    """Random keys and values of so many layers as are cold, each [blocks, kv_heads, block, width], and the
    bytes of one's.
    """
    _heads, kv_heads, head_dim = heads
    blocks = -(-tokens // block)
    layer_bytes = 2 * blocks * kv_heads * block * row_width(head_dim, rows) * rows.itemsize

    size = (kv_heads, block, head_dim)

    def part() -> torch.Tensor:
        # block by block: the same in 32 bits takes several times as much
        made = [torch.randn(size, device=backend.device).to(backend.dtype) for _block in range(blocks)]
        return torch.stack([as_rows(one, head_dim, rows) for one in made])

    layers = max(1, -(-cold_bytes // layer_bytes))
    return [(part(), part()) for _layer in range(layers)], layer_bytes


def _matrix(backend: Backend, width: int, planes: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    if planes is None:
        return backend.linear(torch.randn(width, width, device=backend.device))
    return backend.coded([planes])


def _named(kind: Kind | None) -> str:
    return "numbers" if kind is None else f"{kind[0]} bits, groups of {kind[1]}{', steps' * kind[2]}"


def _rate(found: dict[str, Any], nbytes: int) -> dict[str, float]:
    return {"gb_per_s": nbytes / GB / (found["microseconds"] / 1e6)}
