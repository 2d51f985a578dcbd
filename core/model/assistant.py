"""The small model that comes along with Gemma 4 and drafts for it. Knows no drafting.

Fed a token and what the model made of the one before, it says what comes next: from that and from the keys
and values that the model's last layer without and with a window hold. Fed its own row instead, it goes on,
from the same place. Source: transformers, models/gemma4_assistant/modeling_gemma4_assistant.py and
generation/candidate_generator.py, SinglePositionMultiTokenCandidateGenerator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core.backend.base import Backend, Linear, RowSource
from core.cache.base import KVCache
from core.model.assistant_sizes import layers_config
from core.model.borrowed_rows import BorrowedRows
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, from_source
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.model.weight_shapes import WeightReader, require_named_shapes, require_shapes

_JOINED, _ONWARDS = "pre_projection", "post_projection"
_GROUPS, _ORDER = "masked_embedding.centroids", "masked_embedding.token_ordering"


class Assistant:
    """`model` is its layers, the norm behind them and its own output matrix. `joined` [2 * target's hidden ->
    hidden] takes in a token's embedding, which is the target's, and a row of the target's; `onwards` makes
    such a row of its own.
    """

    def __init__(self, model: LlamaModel, *, target: LlamaModel, joined: Linear, onwards: Linear) -> None:
        self.model, self.config, self.backend = model, model.config, model.backend
        self._target, self._joined, self._onwards = target, joined, onwards

    @property
    def drafting(self) -> Assistant:
        """See LlamaModel.drafting."""
        own = self.model.drafting
        if own is self.model:
            return self
        return Assistant(own, target=self._target, joined=self._joined, onwards=self._onwards)

    def follow(self, token: int, row: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Its row [1, own hidden] of `token`, which stands behind all that the target's `cache` holds, from
        the row [1, hidden] of the token before it. The cache stays as it is.
        """
        joined = self._joined(torch.cat((self._target.embed([token]), row), dim=-1))
        return self.model.through(joined, BorrowedRows(cache))

    def onwards(self, rows: torch.Tensor) -> torch.Tensor:
        """What stands for the target's rows [n, hidden] of its own [n, own hidden]."""
        return self._onwards(rows)

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Of its own rows [n, own hidden], fp32 [n, vocab]."""
        return self.model.logits(rows)


class GroupedHead:
    """An output matrix of which the rows of some groups of tokens are used: of the `named` whose centroids a
    row is nearest to. The other tokens cannot be drafted.
    """

    def __init__(self, embedding: torch.Tensor, centroids: Linear, groups: torch.Tensor, named: int) -> None:
        """`embedding` [vocab, hidden]; `groups` int64 [groups, tokens of each]."""
        self._embedding, self._centroids, self._groups, self._named = embedding, centroids, groups, named

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [n, hidden] to logits fp32 [n, vocab]."""
        nearest = self._centroids(x).float().topk(self._named).indices
        ids = self._groups[nearest].flatten(1)  # [n, tokens]
        rows = self._embedding[ids].to(x.dtype)  # [n, tokens, hidden]
        found = torch.einsum("nth,nh->nt", rows, x).float()
        return found.new_full((x.shape[0], self._embedding.shape[0]), -torch.inf).scatter_(1, ids, found)


def load_assistant(folder: Path, backend: Backend, *, target: LlamaModel) -> Assistant:
    """The assistant in `folder` for `target`. Raises UserError where the folder is incomplete, or it was made
    for another model.
    """
    source = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return build_assistant(source, Weights(folder), backend, target=target, name=folder.name)


def build_assistant(
    source: Mapping[str, Any], weights: WeightReader, backend: Backend, *, target: LlamaModel, name: str
) -> Assistant:
    """The same from the values of its configuration and a reader of named weights."""
    config = _config(source, target.config, name)
    hidden, own = target.config.hidden, config.hidden
    shapes = {f"{_JOINED}.weight": (own, 2 * hidden), f"{_ONWARDS}.weight": (hidden, own)}
    require_named_shapes(shapes, weights)
    require_shapes(config, weights)
    head = partial(_grouped, source, weights, backend) if source.get("use_ordered_embeddings") else None
    # queries are turned as the keys are that they meet
    model = build_model(config, weights, backend, positions=0, rope=target.rope, head=head)
    joined, onwards = (_product(weights, backend, one) for one in (_JOINED, _ONWARDS))
    return Assistant(model, target=target, joined=joined, onwards=onwards)


def _config(source: Mapping[str, Any], target: ModelConfig, name: str) -> ModelConfig:
    """Of its layers, each of which reads the target's last of its kind that holds anything."""
    config = from_source(layers_config(source), name=name, eos=None)
    holds = {bool(kind.window): layer for layer, kind in enumerate(target.kinds[: target.storing])}
    kinds = tuple(replace(one, reads=holds[bool(one.window)], keys_as_values=False) for one in config.kinds)
    return replace(config, kinds=kinds, suppressed=target.suppressed)


def _grouped(
    source: Mapping[str, Any], weights: WeightReader, backend: Backend, embedding: RowSource
) -> GroupedHead:
    order = weights.tensor(_ORDER).long().to(backend.device)
    centroids, named = _product(weights, backend, _GROUPS), int(source["centroid_intermediate_top_k"])
    return GroupedHead(embedding, centroids, order.view(int(source["num_centroids"]), -1), named)


def _product(weights: WeightReader, backend: Backend, stem: str) -> Linear:
    return backend.linear(weights.tensor(f"{stem}.weight").to(backend.device), None)
