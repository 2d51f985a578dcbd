"""The part of a model's weights that one of several ranks computes with: whole KV heads with their queries,
and as many columns of the MLP. Knows nothing of processes.

Rows of q, k, v, gate and up, and the columns of o and down that belong to them, so that a rank needs no
other's numbers before the sum behind attention and that behind the MLP (https://arxiv.org/abs/1909.08053
section 3). Norms, embedding and output matrix are whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from core.backend.shared.quantized import CHUNK, SPAN, QuantizedMatrix
from core.errors import UserError
from core.model.config import ModelConfig
from core.model.gguf.weights import GgufWeights
from core.model.undivided import why_undivided
from core.model.weight_shapes import WeightReader
from core.text.words import translated as _

_OF_HEADS, _OF_MLP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
_BEHIND_HEADS, _BEHIND_MLP = "o_proj", "down_proj"


@dataclass(frozen=True, slots=True)
class Share:
    """What rank `rank` of `size` has of a model."""

    rank: int
    size: int

    def config(self, whole: ModelConfig) -> ModelConfig:
        """The model as this rank computes it. Raises UserError where its heads do not divide."""
        kinds = {
            "stateful": whole.states is not None,
            "shared": whole.storing < whole.layers or whole.input_width > 0,
        }
        why = why_undivided(whole.name, whole.kv_heads, self.size, **kinds)
        if why:
            raise UserError(why)
        kinds = tuple(replace(one, kv_heads=one.kv_heads // self.size) for one in whole.kinds)
        own = {"heads": whole.heads // self.size, "kv_heads": whole.kv_heads // self.size}
        return replace(whole, **own, kinds=kinds)

    def of_heads(self, width: int) -> slice:
        """Of `width` rows or columns, head by head."""
        each = width // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def of_mlp(self, width: int) -> slice:
        """Of the MLP's `width` columns: as even as blocks of codes allow, which are not cut."""
        unit = next((one for one in (SPAN, CHUNK) if width >= one * self.size), 1)
        first, end = (width * at // self.size // unit * unit for at in (self.rank, self.rank + 1))
        return slice(first, width if self.rank + 1 == self.size else end)


class SplitWeights:
    """Named weights of `whole`, of those that are split a rank's share. Of a checkpoint or a GGUF."""

    def __init__(self, whole: WeightReader, share: Share, model: str) -> None:
        self.whole, self._share, self._model = whole, share, model

    def __contains__(self, name: str) -> bool:
        # what is added behind a sum is added once
        twice = name.endswith((f"{_BEHIND_HEADS}.bias", f"{_BEHIND_MLP}.bias")) and self._share.rank > 0
        return not twice and name in self.whole

    def tensor(self, name: str) -> torch.Tensor:
        """See WeightReader."""
        found = self.whole.tensor(name)
        rows, columns = self._cut(name, found.shape[0], found.shape[-1])
        found = found[rows]
        return found if columns is None else found[:, columns].contiguous()

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightReader."""
        whole = self.whole.shape(name)
        rows, columns = self._cut(name, whole[0], whole[-1])
        sizes = [len(range(*rows.indices(whole[0]))), *whole[1:]]
        if columns is not None:
            sizes[-1] = columns.stop - columns.start
        return tuple(sizes)

    def place(self, name: str) -> tuple[Path, str]:
        """See WeightReader."""
        return self.whole.place(name)

    def keeps_codes(self, stem: str) -> bool:
        """See GgufWeights."""
        return isinstance(self.whole, GgufWeights) and self.whole.keeps_codes(stem)

    def planes(self, stem: str) -> QuantizedMatrix:
        """See GgufWeights. Raises UserError where a share would end within a block of codes."""
        found = self.whole.planes(stem)
        rows, columns = self._cut(f"{stem}.weight", found.rows, found.columns)
        if columns is None:
            return found.picked(rows)
        if any(edge % found.block_columns for edge in (columns.start, columns.stop)):
            said = _(
                "{model} cannot be divided among {cards} graphics cards: {wanted} columns of {name} would be "
                "one card's, and its codes come in blocks of {block}. Name one card in devices, or choose a "
                "file with weights of another format."
            )
            wanted = columns.stop - columns.start
            raise UserError(
                said.format(
                    model=self._model,
                    cards=self._share.size,
                    wanted=wanted,
                    name=stem,
                    block=found.block_columns,
                )
            )
        return found.between(columns.start, columns.stop)

    def _cut(self, name: str, rows: int, columns: int) -> tuple[slice, slice | None]:
        """Which rows and columns of a weight are this rank's; None: all columns."""
        part, kind = name.split(".")[-2:]  # of a layer's scalar, neither is anything that is cut
        if part in _OF_HEADS:
            return self._share.of_heads(rows), None
        if part in _OF_MLP:
            return self._share.of_mlp(rows), None
        if kind == "weight" and part == _BEHIND_HEADS:
            return slice(None), self._share.of_heads(columns)
        if kind == "weight" and part == _BEHIND_MLP:
            return slice(None), self._share.of_mlp(columns)
        return slice(None), None


def of_gguf(weights: object) -> bool:
    """Whether a reader's weights, or those that it splits, are a GGUF's."""
    return isinstance(weights.whole if isinstance(weights, SplitWeights) else weights, GgufWeights)
