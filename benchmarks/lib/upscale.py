"""A small Llama in the shape of a large one: it computes the small one's function at the large one's cost.

Hidden size h becomes H by padding: the residual stream is zero beyond h, every RMS norm's weight is scaled by
sqrt(h / H) and its eps by h / H. A head's rotary pair (j, j + d / 2) moves to (j D / d, D / 2 + j D / d),
where the large shape has the same frequency, and q is scaled by sqrt(D / d) against the larger shape's
softmax scale. Query heads of one KV head stay together as far as the large groups hold them, else the KV head
is copied. So that no hardware finds zeros to skip, whatever a zero follows is random: extra heads, extra rows
of the MLP, extra layers up to their last matrices, and all columns that read the padding. The vocabulary
stays: other logits would take probability.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, from_source
from core.model.shapes import Sizes
from core.model.store.catalogue import find

_SPREAD = 0.02  # of random weights, as models are initialised


LLAMA_2_7B = replace(find("Yarn-Llama-2-7b-128k").shape, name="Llama-2-7B")
LLAMA_2_13B = replace(find("Yarn-Llama-2-13b-128k").shape, name="Llama-2-13B")
LLAMA_3_8B = replace(find("Llama-3.1-8B-Instruct").shape, name="Llama-3.1-8B")
QWEN_3_4B = replace(find("Qwen3-4B-Instruct-2507").shape, name="Qwen3-4B")


def expanded_config(
    small: ModelConfig, shape: Sizes, *, positions: int, rope_theta: float | None = None
) -> ModelConfig:
    """The large configuration. `rope_theta`, when given, replaces the small model's: longer contexts need a
    larger one.
    """
    theta = rope_theta or small.source["rope_parameters"]["rope_theta"]
    source: dict[str, Any] = {
        **small.source,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "rms_norm_eps": small.norm_eps * small.hidden / shape.hidden,
        "max_position_embeddings": positions,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }
    return from_source(source, name=f"{small.name} in {shape.name} shape", eos=sorted(small.eos_ids))


class ExpandedWeights:
    """The large model's tensors by name, made when they are asked for, on `device` in `dtype`.

    Raises ValueError when the large shape cannot hold the small model.
    """

    def __init__(
        self,
        small: ModelConfig,
        weights: Weights,
        large: ModelConfig,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._small, self._weights, self._large = small, weights, large
        self._device, self._dtype = device, dtype
        self._dice = torch.Generator(device).manual_seed(0)
        self._dims = _rotary_places(small.head_dim, large.head_dim)
        heads, kv_heads, self._kv_source = _head_places(small, large)
        self._hidden = torch.arange(small.hidden)
        self._q_rows, self._kv_rows = (
            _rows(heads, self._dims, large.head_dim),
            _rows(kv_heads, self._dims, large.head_dim),
        )
        self._q_dead = _rows(heads, _rest(self._dims, large.head_dim), large.head_dim)
        if (
            small.hidden > large.hidden
            or small.intermediate > large.intermediate
            or small.layers > large.layers
        ):
            raise ValueError(f"{small.name} does not fit into {large.name}")

    def __contains__(self, name: str) -> bool:
        return name.endswith(".weight") and "q_norm" not in name and "k_norm" not in name

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor of the large model."""
        small, large = self._small, self._large
        if name == "model.embed_tokens.weight":
            return self._placed(
                (small.vocab, large.hidden), self._given(name), cols=self._hidden, rest="zero"
            )
        if name == "lm_head.weight":
            source = "model.embed_tokens.weight" if small.tied else name
            return self._placed((small.vocab, large.hidden), self._given(source), cols=self._hidden)
        if name.endswith("norm.weight"):
            return self._norm(name)
        alive = int(name.split(".")[2]) < small.layers
        return getattr(self, "_" + name.split(".")[-2])(name, alive)

    # ---- by kind; a dead layer's tensors are random, its two last matrices zero ----------------------------

    def _norm(self, name: str) -> torch.Tensor:
        weight = self._random((self._large.hidden,)) + 1
        if name == "model.norm.weight" or int(name.split(".")[2]) < self._small.layers:
            weight[: self._small.hidden] = self._given(name) * math.sqrt(
                self._small.hidden / self._large.hidden
            )
        return weight

    def _q_proj(self, name: str, alive: bool) -> torch.Tensor:
        size = (self._large.heads * self._large.head_dim, self._large.hidden)
        if not alive:
            return self._random(size)
        weight = self._placed(
            size,
            self._given(name) * math.sqrt(self._large.head_dim / self._small.head_dim),
            self._q_rows,
            self._hidden,
        )
        weight[self._q_dead] = 0  # keys are random there
        return weight

    def _k_proj(self, name: str, alive: bool) -> torch.Tensor:
        size = (self._large.kv_heads * self._large.head_dim, self._large.hidden)
        if not alive:
            return self._random(size)
        heads = self._given(name).unflatten(0, (self._small.kv_heads, -1))[self._kv_source].flatten(0, 1)
        return self._placed(size, heads, self._kv_rows, self._hidden)

    _v_proj = _k_proj

    def _o_proj(self, name: str, alive: bool) -> torch.Tensor:
        size = (self._large.hidden, self._large.heads * self._large.head_dim)
        return self._placed(
            size, self._given(name) if alive else None, self._hidden, self._q_rows, rest="zero"
        )

    def _gate_proj(self, name: str, alive: bool) -> torch.Tensor:
        rows = torch.arange(self._small.intermediate)
        return self._placed(
            (self._large.intermediate, self._large.hidden),
            self._given(name) if alive else None,
            rows,
            self._hidden,
        )

    _up_proj = _gate_proj

    def _down_proj(self, name: str, alive: bool) -> torch.Tensor:
        cols = torch.arange(self._small.intermediate)
        size = (self._large.hidden, self._large.intermediate)
        return self._placed(size, self._given(name) if alive else None, self._hidden, cols, rest="zero")

    # ---- means ---------------------------------------------------------------------------------------------

    def _given(self, name: str) -> torch.Tensor:
        return self._weights.tensor(name).to(self._device, torch.float32)

    def _random(self, size: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(size, device=self._device, dtype=self._dtype).normal_(
            0, _SPREAD, generator=self._dice
        )

    def _placed(
        self,
        size: tuple[int, int],
        part: torch.Tensor | None,
        rows: torch.Tensor | None = None,
        cols: torch.Tensor | None = None,
        *,
        rest: str = "random",
    ) -> torch.Tensor:
        """A matrix with `part` at `rows` (None: all) and `cols`; the rest is random or zero."""
        whole = (
            self._random(size)
            if rest == "random"
            else torch.zeros(size, device=self._device, dtype=self._dtype)
        )
        if part is not None:
            rows = torch.arange(size[0]) if rows is None else rows
            whole[rows.unsqueeze(1).to(self._device), cols.to(self._device)] = part.to(self._dtype)
        return whole


def _rotary_places(small: int, large: int) -> torch.Tensor:
    """Where each dimension of a small head lies in a large one [small]: on the same frequency."""
    if large % small:
        raise ValueError(f"heads of {small} do not fit heads of {large}")
    half = torch.arange(small // 2) * (large // small)
    return torch.cat((half, large // 2 + half))


def _head_places(small: ModelConfig, large: ModelConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(query heads [small.heads] in the large model, its KV heads that are used, the small KV head that each
    of these copies).
    """
    group, room = small.heads // small.kv_heads, large.heads // large.kv_heads
    copies = -(-group // room)  # of each KV head
    if small.kv_heads * copies > large.kv_heads:
        raise ValueError(f"{small.kv_heads} KV heads in {copies} copies do not fit into {large.kv_heads}")
    query = torch.arange(small.heads)
    used = query // group * copies + query % group // room  # the KV head of each query head
    kv = torch.arange(small.kv_heads * copies)
    return used * room + query % group % room, kv, kv // copies


def _rows(heads: torch.Tensor, dims: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of a projection [heads * dims]."""
    return (heads.unsqueeze(1) * head_dim + dims).flatten()


def _rest(dims: torch.Tensor, head_dim: int) -> torch.Tensor:
    """The other dimensions of a head."""
    taken = torch.zeros(head_dim, dtype=torch.bool)
    taken[dims] = True
    return (~taken).nonzero().squeeze(-1)
