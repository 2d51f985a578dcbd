"""The Llama family's forward pass, once for target and draft. The cache owns positions and attention; nothing
here knows its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
import torch.nn.functional as F

from core.backend.base import Backend, Linear, RowSource
from core.backend.shared.transfer import to_device
from core.cache.base import GraphInputs, KeyHook, KVCache, TargetKVCache
from core.model.config import ModelConfig
from core.model.delta import GatedDelta
from core.model.families import FAMILIES, LayerKind
from core.model.rope import Rope, Rotation, Rotations, apply

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's weights, prepared for the backend."""

    qkv: Linear  # hidden -> (heads + 2 * kv_heads) * head_dim, or what a gated delta rule takes
    out: Linear
    gate_up: Linear  # hidden -> 2 * intermediate
    down: Linear
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    q_norm: torch.Tensor | None = None  # [head_dim], Qwen3
    k_norm: torch.Tensor | None = None
    attention_end_norm: torch.Tensor | None = None  # of what attention gives, and the MLP: Gemma 3
    mlp_end_norm: torch.Tensor | None = None
    gate: Linear | None = None  # of what heads find, before `out`: Qwen3.5
    delta: GatedDelta | None = None  # instead of attention
    kind: LayerKind = LayerKind()


class LlamaModel:
    """A decoder-only model bound to a backend. It holds weights only, so any caches may use it in turn."""

    def __init__(
        self,
        config: ModelConfig,
        backend: Backend,
        *,
        embedding: RowSource,
        layers: Sequence[Layer],
        norm: torch.Tensor,
        head: Linear,
        rope: Rope,
    ) -> None:
        self.config, self.backend, self.rope = config, backend, rope
        self.embedding = embedding  # [vocab, hidden]
        self._layers, self._norm, self._head = layers, norm, head
        self._activation = ACTIVATIONS[FAMILIES[config.family].activation]
        sizes = {"heads": config.heads, "kv_heads": config.kv_heads, "head_dim": config.head_dim}
        # the compiled pass through all layers has one rotation for all of them
        self._in_one = backend.in_one(layers, norm, **sizes, eps=config.norm_eps) if config.alike else None

    @property
    def drafting(self) -> LlamaModel:
        """The same weights for passes whose tokens the target verifies: few rows as quickly as the backend
        can, which may round them. This one, where it has nothing quicker.
        """
        return self._coarse or self  # not kept: who holds himself is not gone when he is let go

    @cached_property
    def _coarse(self) -> LlamaModel | None:
        names = ("qkv", "out", "gate_up", "down", *(("gate",) if self._layers[0].gate is not None else ()))
        matrices = [getattr(layer, name) for layer in self._layers for name in names]
        found = self.backend.coarse([*matrices, self._head])
        if found is None:
            return None
        *found, head = found
        of_layers = (found[start : start + len(names)] for start in range(0, len(found), len(names)))
        layers = [
            replace(layer, **dict(zip(names, own, strict=True)))
            for layer, own in zip(self._layers, of_layers, strict=True)
        ]
        return LlamaModel(
            self.config,
            self.backend,
            embedding=self.embedding,
            layers=layers,
            norm=self._norm,
            head=head,
            rope=self.rope,
        )

    def forward(self, ids: Sequence[int] | torch.Tensor, cache: KVCache | GraphInputs) -> torch.Tensor:
        """Feeds `ids` [n] behind what `cache` holds and advances it. Returns logits fp32 [n, vocab]."""
        x = self._embed(ids)  # [n, hidden]
        rotations = self.rope.at(cache.positions(len(ids)))
        found = self._at_once(x, rotations, cache)
        if found is None:
            for index, layer in enumerate(self._layers):
                self._layer(index, layer, x, rotations[layer.kind.rope], cache, offset=0)
            found = self._rms(x, self._norm)
        cache.advance(len(ids))
        return self._head(found).float()

    def _at_once(
        self, x: torch.Tensor, rotations: Rotations, cache: KVCache | GraphInputs
    ) -> torch.Tensor | None:
        """What the head takes, [n, hidden], where backend and cache let all layers be one call."""
        place = cache.in_place() if self._in_one is not None else None
        if place is None:
            return None
        store, (cos, sin, _scale) = place.store, rotations[""]
        found = self._in_one(x, cos, sin, store.k, store.v, place.start, place.sums)
        if found is None:
            return None
        cache.passed(found[1].to(self.backend.dtype), place.sums)
        return found[0]

    def prefill(
        self,
        ids: Sequence[int],
        cache: TargetKVCache,
        *,
        segment_tokens: int,
        chunk_tokens: int,
        should_stop: Callable[[], bool],
        tap: KeyHook | None = None,
    ) -> Iterator[int]:
        """Feeds `ids` without computing logits, in segments, layer-major within each, yielding the equivalent
        tokens done.

        Within a segment every layer takes all its chunks while its keys and values are on the device.
        `should_stop` is asked between layers; finished segments are committed and stay, an unfinished one
        leaves no trace. `tap` observes the very last chunk.
        """
        for start in range(0, len(ids), segment_tokens):
            segment = ids[start : start + segment_tokens]
            last = start + segment_tokens >= len(ids)
            for layers_done in self._segment(segment, cache, chunk_tokens, tap if last else None):
                if should_stop():
                    return
                yield start + len(segment) * layers_done // len(self._layers)
            cache.advance(len(segment))
            cache.commit(cache.length)

    def _segment(
        self, ids: Sequence[int], cache: TargetKVCache, chunk_tokens: int, tap: KeyHook | None
    ) -> Iterator[int]:
        x = self._embed(ids)
        rotations = self.rope.at(cache.positions(len(ids)))
        cache.begin_segment()
        chunks = [slice(start, start + chunk_tokens) for start in range(0, len(ids), chunk_tokens)]
        for index, layer in enumerate(self._layers):
            feed = self._hold if index in cache.swept_layers else self._layer
            rotation = rotations[layer.kind.rope]
            for chunk in chunks:
                # the tap scores by itself: no sums, as an observer of short passes may have asked for
                cache.observer, cache.observed_chunk = tap if chunk is chunks[-1] else None, None
                feed(index, layer, x[chunk], rotation.of(chunk), cache, offset=chunk.start)
            cache.observer = None
            if index in cache.swept_layers:
                for chunk in chunks:
                    self._take(index, layer, x[chunk], cache, offset=chunk.start)
            yield index + 1

    def _hold(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        rotation: Rotation,
        cache: TargetKVCache,
        *,
        offset: int,
    ) -> None:
        """The first half of a layer whose attention waits for all chunks."""
        cache.attend_later(index, *self._heads(layer, x, rotation, cache), offset=offset)

    def _take(self, index: int, layer: Layer, x: torch.Tensor, cache: TargetKVCache, *, offset: int) -> None:
        """The second half."""
        found = cache.attended(index, offset, x.shape[0]).flatten(1)
        self._add_attention(layer, x, self._gated_heads(layer, x, found, torch.sigmoid))
        self._add_mlp(layer, x)

    def _layer(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        rotation: Rotation,
        cache: KVCache | GraphInputs,
        *,
        offset: int,
    ) -> None:
        """Adds to x [n, hidden] in place: so a chunk's work space is empty again after each half, and one
        piece of memory serves all of them.
        """
        self._add_attention(layer, x, self._mixed(index, layer, x, rotation, cache, offset=offset))
        self._add_mlp(layer, x)

    def _add_attention(self, layer: Layer, x: torch.Tensor, mixed: torch.Tensor) -> None:
        found = layer.out(mixed)
        if layer.attention_end_norm is not None:
            found = self._rms(found, layer.attention_end_norm)
        x.add_(found)

    def _add_mlp(self, layer: Layer, x: torch.Tensor) -> None:
        found = layer.down(self._inner(layer, x))
        if layer.mlp_end_norm is not None:
            found = self._rms(found, layer.mlp_end_norm)
        x.add_(found)

    def _mixed(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        rotation: Rotation,
        cache: KVCache | GraphInputs,
        *,
        offset: int,
    ) -> torch.Tensor:
        """What the heads find, [n, heads * head_dim]. Queries, keys and values are gone when it returns: of a
        chunk of a prefill they are as large as the MLP's rows.
        """
        if layer.delta is not None:
            rows = layer.qkv(self._rms(x, layer.attention_norm))
            found = self._rms(cache.recur(index, rows, layer.delta, offset=offset), layer.delta.norm)
            return self._gated_heads(layer, x, found.flatten(1), F.silu)
        found = cache.attend(index, *self._heads(layer, x, rotation, cache), offset=offset)
        return self._gated_heads(layer, x, found.reshape(x.shape[0], -1), torch.sigmoid)

    def _gated_heads(
        self, layer: Layer, x: torch.Tensor, found: torch.Tensor, function: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        """What the heads `found` [n, heads * head_dim], times a function of the gate where there is one."""
        if layer.gate is None:
            return found
        gate = function(layer.gate(self._rms(x, layer.attention_norm)).float())
        return (found * gate).to(found.dtype)

    def _heads(
        self, layer: Layer, x: torch.Tensor, rotation: Rotation, cache: KVCache | GraphInputs
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [n, heads, head_dim], rotated and scaled as the layer's kind says, keys [n, kv_heads,
        head_dim] as the cache wants them, and values.
        """
        n, config = x.shape[0], self.config
        q_heads, kv_heads, head_dim = config.heads, config.kv_heads, config.head_dim
        heads = layer.qkv(self._rms(x, layer.attention_norm)).view(n, q_heads + 2 * kv_heads, head_dim)
        if layer.q_norm is not None:
            q, k, v = heads.split((q_heads, kv_heads, kv_heads), dim=1)
            heads = torch.cat((self._rms(q, layer.q_norm), self._rms(k, layer.k_norm), v), dim=1)
            del q, k, v
        rotated_heads = q_heads if cache.rotates_on_read else q_heads + kv_heads
        rotated = heads[:, :rotated_heads]
        if layer.kind.rotated:
            rotated = apply(rotated, rotation.cos, rotation.sin)
        q = rotated[:, :q_heads]
        if layer.kind.scaled:
            q = q * rotation.scale
        k = heads[:, q_heads : q_heads + kv_heads] if cache.rotates_on_read else rotated[:, q_heads:]
        return q, k, heads[:, q_heads + kv_heads :]

    def _inner(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        """The MLP's inner rows, [n, intermediate]."""
        gate, up = layer.gate_up(self._rms(x, layer.mlp_norm)).chunk(2, dim=-1)
        return self._activation(gate).mul_(up)

    def _embed(self, ids: Sequence[int] | torch.Tensor) -> torch.Tensor:
        x = self.embedding[to_device(ids, self.backend.device)].to(self.backend.dtype)
        if FAMILIES[self.config.family].embedding_scaled:
            x.mul_(self.config.hidden**0.5)  # rows of their own, as all sources give them
        return x

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.backend.rms_norm(x, weight, self.config.norm_eps)
