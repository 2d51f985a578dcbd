"""The weights of a GGUF under the names that checkpoints give them, read one tensor at a time."""

from __future__ import annotations

from pathlib import Path

import torch

from core.backend.shared.quantized import QuantizedMatrix
from core.errors import UserError
from core.model.families import FAMILIES, family_of_gguf
from core.model.gguf.config import ROPE_FACTORS, gguf_name, is_coded
from core.model.gguf.dequantize import floats, planes
from core.model.gguf.layer_ahead import block_ahead
from core.model.gguf.reader import BITS, GgufFile
from core.text.words import translated as _


class GgufWeights:
    """As core.model.checkpoint_weights.Weights, of one file. A matrix in codes is read as codes, or decoded
    where one asks for the tensor.

    llama.cpp keeps the rows of q and k of some architectures in another order: the two that a rotation
    turns into each other are neighbours. Here they stand in the order of checkpoints, half by half. Value
    heads of a gated delta rule stand as in the file: see core.model.value_heads.
    """

    def __init__(self, file: GgufFile, *, in_codes: bool = True) -> None:
        self._file, self._in_codes = file, in_codes
        self._architecture = file.metadata["general.architecture"]
        self._family = family_of_gguf(self._architecture, file.path.name)
        self._ahead = block_ahead(file)

    def __contains__(self, name: str) -> bool:
        # what a trained draft has beside its weights is in no GGUF
        return "." in name and self._name(name) in self._file.tensors

    def tensor(self, name: str) -> torch.Tensor:
        """The weight's numbers, of the shape that the file says. Raises UserError when the file lacks it."""
        own = self._own(name)
        info = self._file.tensors[own]
        raw = self._file.raw(own)
        if info.kind not in BITS:
            found = floats(raw, info.kind, info.shape)
        else:
            found = planes(raw, info.kind, (info.shape[0], info.shape[-1])).decoded().view(info.shape)
        order = self.order(name, info.shape[0])
        return (found if order is None else found[order]).view(self.shape(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Its sizes. Raises as `tensor`."""
        found = tuple(self._file.tensors[self._own(name)].shape)
        # of a convolution within each channel a checkpoint says that it sees one
        return (found[0], 1, *found[1:]) if name.endswith(("conv1d.weight", "conv.conv.weight")) else found

    def place(self, name: str) -> tuple[Path, str]:
        """Its file, and its name there."""
        return self._file.path, self._own(name)

    def keeps_codes(self, stem: str) -> bool:
        """Whether `planes` is to be asked for `stem`.weight, rather than `tensor`."""
        return self._in_codes and is_coded(self._file, self._name(f"{stem}.weight"))

    def planes(self, stem: str) -> QuantizedMatrix:
        """The codes of `stem`.weight. Raises UserError when the file lacks it."""
        name = f"{stem}.weight"
        own = self._own(name)
        info = self._file.tensors[own]
        found = planes(self._file.raw(own), info.kind, info.shape)
        order = self.order(name, info.shape[0])
        return found if order is None else found.picked(order)

    def frequency_factors(self) -> list[float] | None:
        """What Llama 3 divides each frequency of its rotation by; None without."""
        info = self._file.tensors.get(ROPE_FACTORS)
        if info is None:
            return None
        return floats(self._file.raw(ROPE_FACTORS), info.kind, info.shape).float().tolist()

    def _name(self, name: str) -> str:
        return gguf_name(name, self._family, ahead=self._ahead)

    def _own(self, name: str) -> str:
        own = self._name(name)
        if own not in self._file.tensors:
            said = _("{file} lacks “{tensor}”. Copy or download it again, or choose another file.")
            raise UserError(said.format(file=self._file.path, tensor=own))
        return own

    def order(self, name: str, rows: int) -> torch.Tensor | None:
        """Where each row of q and k stands that a checkpoint has, int64 [rows]; None for other weights."""
        heads = []
        for key in ("head_count", "head_count_kv"):
            given = self._file.metadata[f"{self._architecture}.attention.{key}"]
            heads.append(given[0] if isinstance(given, list) else given)
        return rows_of_halves(name, self._family, *heads, rows)


def rows_of_halves(name: str, family: str, heads: int, kv_heads: int, rows: int) -> torch.Tensor | None:
    """Where in a GGUF the rows of the checkpoint's `name` stand, int64 [rows]; None where they are in the
    same order.
    """
    part = name.split(".")[-2]
    if not FAMILIES[family].paired or part not in ("q_proj", "k_proj"):
        return None
    own = heads if part == "q_proj" else kv_heads
    return torch.arange(rows).view(own, rows // own // 2, 2).transpose(1, 2).reshape(-1)
