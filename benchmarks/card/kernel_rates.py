"""How fast a card's attention and products are by themselves: few rows over keys that no cache of the card
holds, and matrices in every format, each in one recording.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from core.backend.base import Backend
from core.backend.shared.kv_rows import CODES, as_rows, row_width
from core.backend.shared.quantized_example import KINDS, Kind, example
from core.text.words import GB

ROWS = (1, 4, 9, 16, 17, 33)
COLD_BYTES = 512 << 20  # that are read in turns: more than the second cache of any card
_BLOCK = 512  # tokens of a block of keys
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class TimedSizes:
    """What is timed: attention as of one layer over so many tokens, and square matrices."""

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    tokens: tuple[int, ...] = (4_608, 65_536, 131_072)
    width: int = 4_096
    cold_bytes: int = COLD_BYTES


TINY = TimedSizes(heads=4, kv_heads=2, head_dim=64, tokens=(600,), width=512, cold_bytes=1 << 20)


def attention_rates(backend: Backend, sizes: TimedSizes) -> Iterator[dict[str, Any]]:
    """GB/s of keys and values, by kind of rows, tokens and rows of a pass, each as soon as it is known."""
    for kind, rows in (("numbers", backend.dtype), ("codes", CODES)):
        for tokens in sizes.tokens:
            keys = _keys(backend, sizes, tokens, rows)
            nbytes = 2 * keys[0][0].nbytes
            for n in ROWS:
                q = torch.randn(n, sizes.heads, sizes.head_dim, device=backend.device).to(backend.dtype)

                def attend(turn: int, q: torch.Tensor = q, keys: list = keys, tokens: int = tokens) -> Any:
                    return backend.attend(q, *keys[turn], length=tokens, causal=True)

                found = cold_seconds(backend, attend, len(keys))
                yield {"kind": kind, "tokens": tokens, "rows": n, **found, **_rate(found, nbytes)}
            del keys


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
    backend: Backend, sizes: TimedSizes, tokens: int, rows: torch.dtype
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random keys and values of so many layers as are cold, each [blocks, kv_heads, _BLOCK, width]."""
    blocks = -(-tokens // _BLOCK)
    layer_bytes = 2 * blocks * sizes.kv_heads * _BLOCK * row_width(sizes.head_dim, rows) * rows.itemsize

    size = (sizes.kv_heads, _BLOCK, sizes.head_dim)

    def part() -> torch.Tensor:
        # block by block: the same in 32 bits takes several times as much
        made = [torch.randn(size, device=backend.device).to(backend.dtype) for _block in range(blocks)]
        return torch.stack([as_rows(block, sizes.head_dim, rows) for block in made])

    return [(part(), part()) for _layer in range(max(1, -(-sizes.cold_bytes // layer_bytes)))]


def _matrix(backend: Backend, width: int, planes: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    if planes is None:
        return backend.linear(torch.randn(width, width, device=backend.device))
    return backend.coded([planes])


def _named(kind: Kind | None) -> str:
    return "numbers" if kind is None else f"{kind[0]} bits, groups of {kind[1]}{', steps' * kind[2]}"


def _rate(found: dict[str, Any], nbytes: int) -> dict[str, float]:
    return {"gb_per_s": nbytes / GB / (found["microseconds"] / 1e6)}
