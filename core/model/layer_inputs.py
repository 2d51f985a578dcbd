"""What a token brings to every layer by itself, beside what the layer before it left (per-layer embeddings,
Gemma 4 E2B and E4B). Knows no layers.

A row of a table, looked up by the token's number, and a product of its embedding, both of so many numbers for
each layer (transformers, models/gemma4/modeling_gemma4.py, project_per_layer_inputs). The table is as large
as half of the model and of a token one row is read, so it lies in host memory, whatever the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.backend.base import Backend, Linear
from core.backend.shared.quantized import QuantizedMatrix


class LayerInputs:
    """`table` [vocab, layers * width] in host memory, numbers or codes; `projection` hidden -> layers *
    width; `norm` [width].
    """

    def __init__(
        self,
        backend: Backend,
        *,
        table: torch.Tensor | QuantizedMatrix,
        projection: Linear,
        norm: torch.Tensor,
        eps: float,
    ) -> None:
        self._backend, self._eps = backend, eps
        self._table, self._projection, self._norm = table, projection, norm

    def of(
        self, ids: Sequence[int] | torch.Tensor, x: torch.Tensor, *, layers: int | None = None
    ) -> torch.Tensor:
        """[n, layers, width] of tokens `ids` [n], whose embeddings are `x` [n, hidden], to the first `layers`
        (None: to all).
        """
        width = self._norm.shape[0]
        projected = self._projection(x).view(x.shape[0], -1, width)[:, :layers]
        projected = projected * x.shape[1] ** -0.5
        found = self._backend.rms_norm(projected, self._norm, self._eps)
        rows = self._rows(torch.as_tensor(ids, dtype=torch.long).cpu(), found.shape[1] * width)
        return found.add_(rows.to(x.device, x.dtype).view(found.shape), alpha=width**0.5).mul_(2**-0.5)

    def _rows(self, ids: torch.Tensor, columns: int) -> torch.Tensor:
        """The first `columns` of the rows of the table, [n, columns]."""
        if isinstance(self._table, torch.Tensor):
            return self._table[:, :columns][ids]
        rows = self._table.picked(ids)
        if columns % rows.block_columns == 0:
            rows = rows.between(0, columns)
        return rows.decoded()[:, :columns]
