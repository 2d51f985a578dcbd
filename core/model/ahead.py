"""A layer behind a model's own that predicts one token further than they do (multi-token prediction), as
Qwen3.5 brings it along. Knows no drafting.

It is fed what the model made of a token, behind its last norm, and the token that followed, and says what
comes after that one; fed its own rows instead, it goes on. Embedding and output matrix are the model's.
Sources: https://arxiv.org/abs/2404.19737 and https://arxiv.org/abs/2412.19437 section 2.2 (multi-token
prediction); of Qwen3.5's, vLLM, vllm/model_executor/models/qwen3_5_mtp.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.backend.base import Linear
from core.cache.base import KVCache
from core.model.llama import LlamaModel


class AheadHead:
    """`model` is the layer with the norm behind it, and the target's embedding and output matrix. `joined`
    [2 * hidden -> hidden] makes its rows of embeddings and of the target's rows, each with its norm [hidden].
    """

    def __init__(
        self, model: LlamaModel, *, joined: Linear, embedding_norm: torch.Tensor, hidden_norm: torch.Tensor
    ) -> None:
        self.model, self.config, self.rope, self.backend = model, model.config, model.rope, model.backend
        self._joined, self._norms = joined, (embedding_norm, hidden_norm)

    @property
    def drafting(self) -> AheadHead:
        """See LlamaModel.drafting."""
        if self.model.drafting is self.model:
            return self
        embedding_norm, hidden_norm = self._norms
        return AheadHead(
            self.model.drafting, joined=self._joined, embedding_norm=embedding_norm, hidden_norm=hidden_norm
        )

    def follow(self, ids: Sequence[int], rows: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Feeds tokens `ids` [n], each with the row [n, hidden] of the token before it, behind what `cache`
        holds and advances it. Returns rows [n, hidden], of which `logits` makes what follows each token.
        """
        parts = (self.model.embed(ids), rows)
        normed = [self.model.rms(part, norm) for part, norm in zip(parts, self._norms, strict=True)]
        return self.model.through(self._joined(torch.cat(normed, dim=-1)), cache)

    def forward_blindly(self, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """Logits fp32 [n, vocab] behind tokens [n] with rows of zeros, where only times are asked for."""
        x = self.model.embed(ids)
        return self.logits(self.follow(ids, torch.zeros_like(x), cache))

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Of rows [n, hidden], fp32 [n, vocab]."""
        return self.model.logits(rows)
