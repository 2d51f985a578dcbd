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
from core.backend.ranks import SINGLE, Ranks
from core.backend.shared.transfer import to_device
from core.cache.base import GraphInputs, KeyHook, KVCache, TargetKVCache
from core.model.config import ModelConfig
from core.model.delta import GatedDelta
from core.model.families import FAMILIES, LayerKind
from core.model.layer_inputs import LayerInputs
from core.model.rope import Rope, Rotation, Rotations, apply
from core.model.short_convolution import ShortConvolution

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's weights, prepared for the backend."""

    qkv: Linear  # hidden -> (heads + 2 * kv_heads) * head_dim, or what a recurrence takes
    out: Linear
    gate_up: Linear  # hidden -> 2 * intermediate
    down: Linear
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    q_norm: torch.Tensor | None = None  # [head_dim], Qwen3
    k_norm: torch.Tensor | None = None
    v_norm: torch.Tensor | None = None  # of ones, Gemma 4
    attention_end_norm: torch.Tensor | None = None  # of what attention gives, and the MLP: Gemma 3
    mlp_end_norm: torch.Tensor | None = None
    gate: Linear | None = None  # of what heads find, before `out`: Qwen3.5, LFM2
    recurrence: GatedDelta | ShortConvolution | None = None  # instead of attention
    input_gate: Linear | None = None  # hidden -> what a token brings to the layer by itself: Gemma 4 E2B
    input_out: Linear | None = None  # and back
    input_norm: torch.Tensor | None = None
    scale: float = 1.0  # of what the layer leaves: Gemma 4
    kind: LayerKind = LayerKind()

    @property
    def matrices(self) -> dict[str, Linear]:
        """Those that it has, by their names here."""
        names = ("qkv", "out", "gate_up", "down", "gate", "input_gate", "input_out")
        there = {name: getattr(self, name) for name in names}
        return {name: matrix for name, matrix in there.items() if matrix is not None}


class LlamaModel:
    """A decoder-only model bound to a backend. It holds weights only, so any caches may use it in turn.

    One of several `ranks` holds some KV heads and MLP columns of every layer: `config`, `layers` and the
    caches are of these.
    """

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
        ranks: Ranks = SINGLE,
        inputs: LayerInputs | None = None,
    ) -> None:
        self.config, self.backend, self.rope, self.ranks = config, backend, rope, ranks
        self.inputs = inputs  # what tokens bring to each layer by themselves
        self.embedding = embedding  # [vocab, hidden]
        self._layers, self._norm, self._head = layers, norm, head
        unsaid = torch.tensor(config.suppressed, device=backend.device)
        self._unsaid = unsaid if config.suppressed else None  # int64
        self._activation = ACTIVATIONS[FAMILIES[config.family].activation]
        sizes = {"heads": config.heads, "kv_heads": config.kv_heads, "head_dim": config.head_dim}
        # the compiled pass through all layers has one rotation for all of them, no gates, and no sums between
        # them
        whole = config.alike and ranks.size == 1 and all(layer.gate is None for layer in layers)
        self._in_one = backend.in_one(layers, norm, **sizes, eps=config.norm_eps) if whole else None

    @property
    def head(self) -> Linear:
        """Its output matrix, hidden -> vocab."""
        return self._head

    @property
    def recordable(self) -> bool:
        """Whether a pass is the device's alone: nothing is looked up in host memory."""
        return self.inputs is None

    @property
    def drafting(self) -> LlamaModel:
        """The same weights for passes whose tokens the target verifies: few rows as quickly as the backend
        can, which may round them. This one, where it has nothing quicker.
        """
        return self._coarse or self  # not kept: who holds himself is not gone when he is let go

    @cached_property
    def _coarse(self) -> LlamaModel | None:
        parts = [layer.matrices for layer in self._layers]
        found = self.backend.coarse([one for part in parts for one in part.values()] + [self._head])
        if found is None:
            return None
        *found, head = found
        left = iter(found)
        layers = [
            replace(layer, **{name: next(left) for name in part})
            for layer, part in zip(self._layers, parts, strict=True)
        ]
        return LlamaModel(
            self.config,
            self.backend,
            embedding=self.embedding,
            layers=layers,
            norm=self._norm,
            head=head,
            rope=self.rope,
            ranks=self.ranks,
            inputs=self.inputs,
        )

    def forward(self, ids: Sequence[int] | torch.Tensor, cache: KVCache | GraphInputs) -> torch.Tensor:
        """Feeds `ids` [n] behind what `cache` holds and advances it. Returns logits fp32 [n, vocab]."""
        return self.logits(self.rows(ids, cache))

    def rows(self, ids: Sequence[int] | torch.Tensor, cache: KVCache | GraphInputs) -> torch.Tensor:
        """Likewise the rows [n, hidden] that the head takes."""
        x = self.embed(ids)
        inputs = self.inputs.of(ids, x) if self.inputs is not None else None
        return self.through(x, cache, inputs)

    def through(
        self, x: torch.Tensor, cache: KVCache | GraphInputs, inputs: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What all layers and the last norm make of embedded rows [n, hidden], which it takes for itself: the
        rows that the head takes, of the same shape. The cache is advanced. `inputs`: see LayerInputs.
        """
        n = x.shape[0]
        rotations = self.rope.at(cache.positions(n))
        found = self._at_once(x, rotations, cache)
        if found is None:
            for index, layer in enumerate(self._layers):
                rotation, own = rotations[layer.kind.rope], _of_layer(inputs, index)
                self._layer(index, layer, x, rotation, cache, offset=0, own=own)
            self.ranks.agree()
            found = self.rms(x, self._norm)
        cache.advance(n)
        return found

    def embed(self, ids: Sequence[int] | torch.Tensor) -> torch.Tensor:
        """Rows [n, hidden] of tokens [n], as the first layer takes them."""
        x = self.embedding[to_device(ids, self.backend.device)].to(self.backend.dtype)
        if FAMILIES[self.config.family].embedding_scaled:
            x.mul_(self.config.hidden**0.5)  # rows of their own, as all sources give them
        return x

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Of rows [n, hidden] behind the last norm, fp32 [n, vocab]. What is never said has none in every
        mode, so all of them have one law.
        """
        found, bound = self._head(x).float(), self.config.logit_bound
        if bound:
            found = torch.tanh(found / bound) * bound
        return found if self._unsaid is None else found.index_fill_(-1, self._unsaid, -torch.inf)

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

        Within a segment every layer takes all its chunks while its keys and values are on the device. Layers
        that only read what others hold leave nothing, and are not computed.
        `should_stop` is asked between layers; finished segments are committed and stay, an unfinished one
        leaves no trace. `tap` observes the very last chunk.
        """
        for start in range(0, len(ids), segment_tokens):
            segment = ids[start : start + segment_tokens]
            last = start + segment_tokens >= len(ids)
            for layers_done in self._segment(segment, cache, chunk_tokens, tap if last else None):
                if should_stop():
                    return
                yield start + len(segment) * layers_done // self.config.storing
            cache.advance(len(segment))
            cache.commit(cache.length)

    def _segment(
        self, ids: Sequence[int], cache: TargetKVCache, chunk_tokens: int, tap: KeyHook | None
    ) -> Iterator[int]:
        x = self.embed(ids)
        rotations = self.rope.at(cache.positions(len(ids)))
        cache.begin_segment()
        chunks = [slice(start, start + chunk_tokens) for start in range(0, len(ids), chunk_tokens)]
        inputs = [self._inputs_of(ids[chunk], x[chunk]) for chunk in chunks]
        for index, layer in enumerate(self._layers[: self.config.storing]):
            feed = self._hold if index in cache.swept_layers else self._layer
            rotation = rotations[layer.kind.rope]
            for chunk, own in zip(chunks, inputs, strict=True):
                # the tap scores by itself: no sums, as an observer of short passes may have asked for
                cache.observer, cache.observed_chunk = tap if chunk is chunks[-1] else None, None
                how = {"offset": chunk.start, "own": _of_layer(own, index)}
                feed(index, layer, x[chunk], rotation.of(chunk), cache, **how)
            cache.observer = None
            if index in cache.swept_layers:
                for chunk, own in zip(chunks, inputs, strict=True):
                    how = {"offset": chunk.start, "own": _of_layer(own, index)}
                    self._take(index, layer, x[chunk], cache, **how)
            self.ranks.agree()
            yield index + 1

    def _inputs_of(self, ids: Sequence[int], x: torch.Tensor) -> torch.Tensor | None:
        """Of a chunk, to the layers that a prefill computes."""
        return None if self.inputs is None else self.inputs.of(ids, x, layers=self.config.storing)

    def _hold(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        rotation: Rotation,
        cache: TargetKVCache,
        *,
        offset: int,
        own: torch.Tensor | None,
    ) -> None:
        """The first half of a layer whose attention waits for all chunks; `own` is the second half's."""
        self.ranks.attempt(
            lambda: cache.attend_later(
                index, *self._heads(layer, self.rms(x, layer.attention_norm), rotation, cache), offset=offset
            )
        )

    def _take(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        cache: TargetKVCache,
        *,
        offset: int,
        own: torch.Tensor | None,
    ) -> None:
        """The second half."""

        def mixed() -> torch.Tensor:
            found = cache.attended(index, offset, x.shape[0]).flatten(1)
            return self._gated_heads(layer, self.rms(x, layer.attention_norm), found, torch.sigmoid)

        self._add_attention(layer, x, mixed)
        self._add_mlp(layer, x, own)

    def _layer(
        self,
        index: int,
        layer: Layer,
        x: torch.Tensor,
        rotation: Rotation,
        cache: KVCache | GraphInputs,
        *,
        offset: int,
        own: torch.Tensor | None,
    ) -> None:
        """Adds to x [n, hidden] in place: so a chunk's work space is empty again after each half, and one
        piece of memory serves all of them. `own` [n, width]: what the tokens bring to this layer.
        """
        self._add_attention(layer, x, lambda: self._mixed(index, layer, x, rotation, cache, offset=offset))
        self._add_mlp(layer, x, own)

    def _add_attention(self, layer: Layer, x: torch.Tensor, mixed: Callable[[], torch.Tensor]) -> None:
        found = self.ranks.summed(lambda: layer.out(mixed()), x)
        if layer.attention_end_norm is not None:
            found = self.rms(found, layer.attention_end_norm)
        x.add_(found)

    def _add_mlp(self, layer: Layer, x: torch.Tensor, own: torch.Tensor | None) -> None:
        found = self.ranks.summed(lambda: layer.down(self._inner(layer, x)), x)
        if layer.mlp_end_norm is not None:
            found = self.rms(found, layer.mlp_end_norm)
        x.add_(found)
        if own is not None:
            gated = self._activation(layer.input_gate(x)).mul_(own)
            x.add_(self.rms(layer.input_out(gated), layer.input_norm))
        if layer.scale != 1:
            x.mul_(layer.scale)

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
        normed = self.rms(x, layer.attention_norm)
        if (own := layer.recurrence) is not None:
            found = cache.recur(index, own.rows(layer.qkv(normed)), own, offset=offset)
            if own.norm is not None:
                found = self.rms(found, own.norm)
            return self._gated_heads(layer, normed, found.flatten(1), own.opened)
        if layer.kind.reads >= 0:
            q = self._queries(layer, normed, rotation)
            return cache.attend_again(layer.kind.reads, q, offset=offset).reshape(x.shape[0], -1)
        found = cache.attend(index, *self._heads(layer, normed, rotation, cache), offset=offset)
        return self._gated_heads(layer, normed, found.reshape(x.shape[0], -1), torch.sigmoid)

    def _gated_heads(
        self, layer: Layer, normed: torch.Tensor, found: torch.Tensor, function: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        """What the heads `found` [n, heads * head_dim], times a function of the gate where there is one.
        `normed` [n, hidden]: what came into the layer.
        """
        if layer.gate is None:
            return found
        gate = function(layer.gate(normed).float())
        return (found * gate).to(found.dtype)

    def _heads(
        self, layer: Layer, normed: torch.Tensor, rotation: Rotation, cache: KVCache | GraphInputs
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of `normed` [n, hidden], queries [n, heads, head_dim], rotated and scaled as the layer's kind says,
        keys [n, kv_heads, head_dim] as the cache wants them, and values.
        """
        q_heads, (kv_heads, head_dim) = self.config.heads, self.config.heads_of(layer.kind)
        heads = layer.qkv(normed).view(normed.shape[0], -1, head_dim)
        if layer.q_norm is not None:
            heads = self._normed(layer, heads, kv_heads)
        rotated_heads = q_heads if cache.rotates_on_read else q_heads + kv_heads
        rotated = heads[:, :rotated_heads]
        if layer.kind.rotated:
            rotated = apply(rotated, rotation.cos, rotation.sin)
        q = rotated[:, :q_heads]
        if layer.kind.scaled:
            q = q * rotation.scale
        k = heads[:, q_heads : q_heads + kv_heads] if cache.rotates_on_read else rotated[:, q_heads:]
        return q, k, heads[:, q_heads + kv_heads :]

    def _queries(self, layer: Layer, normed: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Likewise of a layer that has these alone."""
        heads = layer.qkv(normed).view(normed.shape[0], self.config.heads, -1)
        return apply(self.rms(heads, layer.q_norm), rotation.cos, rotation.sin)

    def _normed(self, layer: Layer, heads: torch.Tensor, kv_heads: int) -> torch.Tensor:
        """Heads [n, heads + 2 * kv_heads, head_dim] with their norms, of which the last kv_heads may lack:
        then values are made of what becomes keys.
        """
        q, *kv = heads.split(
            (self.config.heads, *[kv_heads] * (1 if layer.kind.keys_as_values else 2)), dim=1
        )
        v = kv[-1] if layer.v_norm is None else self.rms(kv[-1], layer.v_norm)
        return torch.cat((self.rms(q, layer.q_norm), self.rms(kv[0], layer.k_norm), v), dim=1)

    def _inner(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        """The MLP's inner rows, [n, intermediate]."""
        gate, up = layer.gate_up(self.rms(x, layer.mlp_norm)).chunk(2, dim=-1)
        return self._activation(gate).mul_(up)

    def rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Rows [n, width] by their root mean square, times `weight` [width]."""
        return self.backend.rms_norm(x, weight, self.config.norm_eps)


def _of_layer(inputs: torch.Tensor | None, layer: int) -> torch.Tensor | None:
    """Of what tokens bring to all layers [n, layers, width], what they bring to one [n, width]."""
    return None if inputs is None else inputs[:, layer]
