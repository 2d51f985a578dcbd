"""Matrices whose weights are held in codes of 4, 5, 6 or 8 bits, or as bf16, as products of our own read
them. Knows nothing of files.

A code stands for scale * code + offset, in fp32; every product, by whatever kernel, is with exactly that
number (or its rounding to what is computed in).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

CHUNK = 32  # codes that are packed together, the first half in the low nibbles of 16 bytes
SPAN = 256  # weights under one pair of fp16 factors, where groups have integer steps of their own


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix [rows, columns] in codes.

    A group of `group` columns shares scale and offset. They are fp16 numbers of their own, or, with
    `scale_steps`, an integer times an fp16 number that SPAN columns share. Without `offset` the code
    `middle` stands for 0. Packing: byte i of a chunk's 16 holds the low bits of code i and, above, of code
    i + 16; of 5 and 6 bits, `high` holds what is above the nibbles, 16 codes to 2 or 4 bytes, code 0
    lowest. Codes of 8 bits lie in `low` as they are, signed; so do weights of 16 bits, which are no codes.
    """

    bits: int
    group: int
    # uint8 [rows, columns / 2]; of 8 bits int8 [rows, columns], of 16 bfloat16 [rows, columns]
    low: torch.Tensor
    # float16 [rows, columns / group], or [rows, columns / SPAN] with steps; None: no codes
    scale: torch.Tensor | None = None
    high: torch.Tensor | None = None  # uint8 [rows, columns * (bits - 4) / 8]
    offset: torch.Tensor | None = None  # as scale
    scale_steps: torch.Tensor | None = None  # int8 [rows, columns / group]
    offset_steps: torch.Tensor | None = None
    middle: int = 0

    @classmethod
    def of_numbers(cls, weights: torch.Tensor) -> QuantizedMatrix:
        """A matrix bfloat16 [rows, columns] as it is."""
        assert weights.dtype == torch.bfloat16, weights.dtype
        return cls(16, CHUNK, weights.contiguous())

    @property
    def rows(self) -> int:
        """Outputs."""
        return self.low.shape[0]

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.low.shape[1] * (2 if self.bits < 8 else 1)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self._tensors().values())

    def picked(self, rows: torch.Tensor | slice) -> QuantizedMatrix:
        """Some of the rows, or all in another order: `rows` is int64 [n] or a slice. Returns n rows."""
        return replace(self, **{name: part[rows] for name, part in self._tensors().items()})

    @property
    def block_columns(self) -> int:
        """How many columns cannot be parted: they are packed together or share a factor."""
        return max(CHUNK, self.group, 0 if self.scale_steps is None else SPAN)

    def between(self, first: int, end: int) -> QuantizedMatrix:
        """Columns [first, end), both multiples of `block_columns`."""
        assert first % self.block_columns == end % self.block_columns == 0, (first, end, self.block_columns)
        found = {
            name: part[:, first * part.shape[1] // self.columns : end * part.shape[1] // self.columns]
            for name, part in self._tensors().items()
        }
        return replace(self, **{name: part.contiguous() for name, part in found.items()})

    def with_room_for(self, rows: int) -> QuantizedMatrix:
        """Of the same format and so many rows, to be `put`."""
        found = {name: part.new_empty(rows, *part.shape[1:]) for name, part in self._tensors().items()}
        return replace(self, **found)

    def put(self, first: int, rows: QuantizedMatrix) -> None:
        """Writes some rows of the same format, from row `first` on."""
        for name, part in rows._tensors().items():
            getattr(self, name)[first : first + rows.rows] = part

    def to(self, device: torch.device) -> QuantizedMatrix:
        """On another device."""
        return replace(self, **{name: part.to(device) for name, part in self._tensors().items()})

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in found.items() if isinstance(part, torch.Tensor)}

    def decoded(self) -> torch.Tensor:
        """The weights, fp32 [rows, columns]."""
        if self.scale is None:
            return self.low.float()
        scale, offset = _spread(self.scale, self.scale_steps), None
        if self.offset is not None:
            offset = _spread(self.offset, self.offset_steps)
        codes = self._codes().view(self.rows, -1, self.group)
        if offset is None:
            weights = (codes - self.middle).float().mul_(scale.unsqueeze(-1))
        else:
            weights = codes.float().mul_(scale.unsqueeze(-1)).add_(offset.unsqueeze(-1))
        return weights.view(self.rows, self.columns)

    def _codes(self) -> torch.Tensor:
        """[rows, columns], uint8 or int8."""
        if self.bits == 8:
            return self.low
        packed = self.low.view(self.rows, -1, 1, CHUNK // 2)
        codes = torch.cat((packed & 15, packed >> 4), dim=2)  # [rows, chunks, 2, 16]
        if self.high is not None:
            each = self.bits - 4
            shifts = torch.arange(0, 8, each, device=self.low.device, dtype=torch.uint8)
            bits = (self.high.unsqueeze(-1) >> shifts) & ((1 << each) - 1)
            codes = codes | (bits.view(codes.shape) << 4)
        return codes.view(self.rows, -1).view(torch.int8)


def stacked(parts: Sequence[QuantizedMatrix]) -> list[QuantizedMatrix]:
    """Neighbours of one format as one matrix above the other."""
    found: list[QuantizedMatrix] = []
    for part in parts:
        if found and _format(found[-1]) == _format(part):
            last = found.pop()._tensors()
            part = replace(
                part, **{name: torch.cat((last[name], own)) for name, own in part._tensors().items()}
            )
        found.append(part)
    return found


def _format(planes: QuantizedMatrix) -> tuple[object, ...]:
    return planes.bits, planes.group, planes.columns, planes.middle, tuple(planes._tensors())


def _spread(factor: torch.Tensor, steps: torch.Tensor | None) -> torch.Tensor:
    """Of each group, fp32 [rows, groups]."""
    if steps is None:
        return factor.float()
    per = steps.shape[1] // factor.shape[1]
    return (steps.view(*factor.shape, per).float() * factor.float().unsqueeze(-1)).view(steps.shape)
