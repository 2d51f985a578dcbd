"""The blocks of a GGUF's tensors as planes of codes, and as numbers. Every weight keeps its value exactly.

The blocks: https://github.com/ggml-org/ggml, src/ggml-common.h; what is computed from them: the `gguf`
package's quants.py. Names of a block's parts are theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from core.backend.shared.quantized import CHUNK, QuantizedMatrix
from core.model.gguf.reader import KINDS

_SIZES = {name: (block, nbytes) for name, block, nbytes in KINDS.values()}
# weights that are unpacked at a time: on the way they take some bytes each
_PIECE = 1 << 20
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def floats(raw: np.ndarray, kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of `shape` that is stored as numbers, in its own dtype."""
    return torch.from_numpy(raw).view(_FLOATS[kind]).view(shape)


def planes(raw: np.ndarray, kind: str, shape: tuple[int, ...]) -> QuantizedMatrix:
    """A matrix [rows, columns] of one of core.model.gguf.reader.BITS. A row is whole blocks."""
    rows, columns = shape
    block, nbytes = _SIZES[kind]
    blocks = torch.from_numpy(raw).view(rows, columns // block, nbytes)
    step = max(1, _PIECE // columns)
    made = _MAKERS[kind](blocks[:step])
    if step >= rows:
        return made
    whole = made.with_room_for(rows)
    for first in range(0, rows, step):
        whole.put(first, _MAKERS[kind](blocks[first : first + step]))
    return whole


def _factor(part: torch.Tensor) -> torch.Tensor:
    """fp16 numbers out of two bytes of each block: [rows, blocks]."""
    return part.contiguous().view(torch.float16).view(part.shape[0], -1)


def _flat(part: torch.Tensor) -> torch.Tensor:
    """[rows, everything], in memory of its own."""
    return part.reshape(part.shape[0], -1).contiguous().clone()


def _q4_0(blocks: torch.Tensor) -> QuantizedMatrix:
    return QuantizedMatrix(4, CHUNK, _flat(blocks[..., 2:]), _factor(blocks[..., :2]), middle=8)


def _q4_1(blocks: torch.Tensor) -> QuantizedMatrix:
    d, m = _factor(blocks[..., :2]), _factor(blocks[..., 2:4])
    return QuantizedMatrix(4, CHUNK, _flat(blocks[..., 4:]), d, offset=m)


def _q5_0(blocks: torch.Tensor) -> QuantizedMatrix:
    # bit j of the word qh is the fifth of code j
    d, high = _factor(blocks[..., :2]), _flat(blocks[..., 2:6])
    return QuantizedMatrix(5, CHUNK, _flat(blocks[..., 6:]), d, high=high, middle=16)


def _q5_1(blocks: torch.Tensor) -> QuantizedMatrix:
    d, m, high = _factor(blocks[..., :2]), _factor(blocks[..., 2:4]), _flat(blocks[..., 4:8])
    return QuantizedMatrix(5, CHUNK, _flat(blocks[..., 8:]), d, high=high, offset=m)


def _q8_0(blocks: torch.Tensor) -> QuantizedMatrix:
    return QuantizedMatrix(8, CHUNK, _flat(blocks[..., 2:]).view(torch.int8), _factor(blocks[..., :2]))


def _q4_k(blocks: torch.Tensor) -> QuantizedMatrix:
    scale, minimum = _six_bit_steps(blocks[..., 4:16])
    return QuantizedMatrix(
        4,
        CHUNK,
        _by_chunks(blocks[..., 16:]),
        _factor(blocks[..., :2]),
        offset=-_factor(blocks[..., 2:4]),
        scale_steps=scale,
        offset_steps=minimum,
    )


def _q5_k(blocks: torch.Tensor) -> QuantizedMatrix:
    scale, minimum = _six_bit_steps(blocks[..., 4:16])
    # bit g of byte i of qh is the fifth of code i of group g
    high = torch.stack([_bits_together((blocks[..., 16:48] >> group) & 1, 1) for group in range(8)], dim=-2)
    return QuantizedMatrix(
        5,
        CHUNK,
        _by_chunks(blocks[..., 48:]),
        _factor(blocks[..., :2]),
        high=_flat(high),
        offset=-_factor(blocks[..., 2:4]),
        scale_steps=scale,
        offset_steps=minimum,
    )


def _q6_k(blocks: torch.Tensor) -> QuantizedMatrix:
    # ql: two halves of 64 bytes, each the low bits of 128 codes; qh: 32 bytes for each half, 2 bits of four
    # codes
    rows, num = blocks.shape[:2]
    ql, qh = blocks[..., :128].reshape(rows, num, 2, 2, 32), blocks[..., 128:192].reshape(rows, num, 2, 1, 32)
    low = torch.cat((ql & 15, ql >> 4), dim=3)  # [rows, blocks, 2, 4, 32]: codes in their order
    high = torch.cat([(qh >> shift) & 3 for shift in (0, 2, 4, 6)], dim=3)
    return QuantizedMatrix(
        6,
        CHUNK // 2,
        _flat(low[..., :16] | (low[..., 16:] << 4)),
        _factor(blocks[..., 208:210]),
        high=_flat(_bits_together(high, 2)),
        scale_steps=_flat(blocks[..., 192:208]).view(torch.int8),
        middle=32,
    )


def _by_chunks(qs: torch.Tensor) -> torch.Tensor:
    """32 bytes hold two groups of 32 codes, one in the low nibbles and one in the high: each for itself."""
    pairs = qs.reshape(*qs.shape[:2], 4, 32)
    groups = torch.stack((pairs & 15, pairs >> 4), dim=3)  # [rows, blocks, 4, 2, 32]
    return _flat(groups[..., :16] | (groups[..., 16:] << 4))


def _bits_together(values: torch.Tensor, each: int) -> torch.Tensor:
    """Small numbers of `each` bits in the last dimension, packed into bytes, the first lowest."""
    per = 8 // each
    shifts = torch.arange(0, 8, each, dtype=torch.uint8)
    grouped = values.reshape(*values.shape[:-1], -1, per) << shifts
    return grouped.sum(-1, dtype=torch.uint8)


def _six_bit_steps(scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Steps of scale and of minimum of a block's eight groups, out of 12 bytes: int8 [rows, groups] each."""
    d, m, rest = scales[..., :4], scales[..., 4:8], scales[..., 8:]
    scale = torch.cat((d & 63, (rest & 15) | ((d >> 2) & 48)), dim=-1)
    minimum = torch.cat((m & 63, (rest >> 4) | ((m >> 2) & 48)), dim=-1)
    return _flat(scale).view(torch.int8), _flat(minimum).view(torch.int8)


_MAKERS: dict[str, Callable[[torch.Tensor], QuantizedMatrix]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
