"""The shape of a Llama-family model and what follows from it by arithmetic: bytes per weight and token,
FLOPs. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from core.errors import UserError
from core.model.families import (
    FAMILIES,
    FULL,
    layer_input_width,
    layer_kinds,
    require_family,
    state_sizes,
    text_config,
    wide_heads,
)
from core.model.mixer_sizes import StateSizes
from core.model.undivided import why_undivided
from core.text.words import translated as _

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CODED_ROWS = "int8"  # of a KV cache: codes
_DIVIDED = ("heads", "kv_heads", "window_heads", "intermediate")  # among several devices


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the matrices of one decoder-only model measure, but for the vocabulary."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int


def sizes_in(config: Mapping[str, Any]) -> dict[str, int]:
    """The fields of Sizes from a transformers configuration. Raises KeyError, TypeError or ValueError where
    it lacks one.
    """
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or hidden // heads)
    if FAMILIES[config["model_type"]].two_sizes:
        kv_heads, head_dim = wide_heads(config)
    return {
        "layers": int(config["num_hidden_layers"]),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate": int(config["intermediate_size"]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape(Sizes):
    """A model as the planner sees it. `native_context`: as trained; `longest_context`: stretched."""

    vocab: int
    native_context: int
    longest_context: int
    tied: bool = False  # input and output embeddings are one matrix
    family: str = "llama"
    attention_bias: bool = False  # as its configuration says, where its family leaves that open
    windowed: int = 0  # layers in which a token sees the last `window` tokens alone
    window: int = 0
    window_heads: int = 0  # KV heads of these layers and their size, where they are not those of the others
    window_dim: int = 0
    keys_as_values: bool = False  # the layers that see every token have no projection of values
    # the last layers, which attend to what others hold: how many, how many of these have a window, and the
    # width of their MLPs; 0: that of the others
    readers: int = 0
    windowed_readers: int = 0
    reader_intermediate: int = 0
    # numbers that a token brings to each layer by itself, and rows of the table that they come from, in host
    # memory: 16 bits each, or so many bytes where they are in codes
    input_width: int = 0
    input_vocab: int = 0
    table_bytes: int = 0
    stateful: int = 0  # layers that keep a state of a fixed size instead of keys and values,
    states: StateSizes | None = None  # and what such a layer measures
    # of weights in codes: their format ("Q4_K_M"), the bits of most of its codes, how many weights stay codes
    # in memory, and what those take there
    format: str = ""
    code_bits: int = 16
    coded_weights: int = 0
    coded_bytes: int = 0
    checkpoint_bytes: int = 0  # of the checkpoint of 16 bits that the codes are made of, if they are
    ahead: int = 0  # layers behind the model's own that predict one token further; one can be used,
    ahead_weights: int = 0  # of whose weights so many are in codes,
    ahead_bytes: int = 0  # which take so much
    head_bytes: int = 0  # of the output matrix, where it is in codes
    ranks: int = 1  # among how many devices it is divided: the sizes are those of one

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any], *, name: str = "", stretch: float = 4.0) -> ModelShape:
        """The shape in a transformers config.json. Raises UserError for a model that cannot run here."""
        config = text_config(config)
        family = str(config.get("model_type", ""))
        require_family(family, name or _("The model in this folder"))
        kinds = layer_kinds(config, name or _("the model"))
        try:
            native = int(config["max_position_embeddings"])
            scaled = _rope_kind(config) not in (None, "default")
            return cls(
                name=name,
                **sizes_in(config),
                vocab=_head_tokens(config),
                native_context=native,
                longest_context=native if scaled else int(native * stretch),
                tied=bool(config.get("tie_word_embeddings", False)),
                family=family,
                attention_bias=bool(config.get("attention_bias", False)),
                windowed=sum(bool(kind.window) and kind.reads < 0 for kind in kinds),
                readers=sum(kind.reads >= 0 for kind in kinds),
                windowed_readers=sum(bool(kind.window) and kind.reads >= 0 for kind in kinds),
                reader_intermediate=max(kind.intermediate for kind in kinds),
                input_width=layer_input_width(config),
                input_vocab=_input_vocab(config),
                window=max((kind.window for kind in kinds), default=0),
                window_heads=max((kind.kv_heads for kind in kinds), default=0),
                window_dim=max((kind.head_dim for kind in kinds), default=0),
                keys_as_values=any(kind.keys_as_values for kind in kinds),
                stateful=sum(kind.stateful for kind in kinds),
                states=state_sizes(config),
                ahead=int(config.get("mtp_num_hidden_layers") or 0),
            )
        except (KeyError, TypeError, ValueError) as error:
            said = _("config.json of {model} is incomplete ({error}). Download it again.")
            raise UserError(said.format(model=name or _("the model"), error=error)) from error

    @property
    def key_bias(self) -> bool:
        """Every key has a constant part, which may be many times as large as the rest of it."""
        return FAMILIES[self.family].biased or self.attention_bias

    # ---- memory --------------------------------------------------------------------------------------------

    @property
    def of_one_store(self) -> bool:
        """Whether all layers see every token, so that a cache holds their rows alike."""
        return not self.windowed and not self.stateful

    @property
    def full_layers(self) -> int:
        """Layers that hold every token and see it."""
        return self.layers - self.readers - self.windowed - self.stateful

    @property
    def storing(self) -> ModelShape:
        """The model without the layers that attend to what others hold: what a prefill computes."""
        return _storing(self) if self.readers else self

    @property
    def host_bytes(self) -> int:
        """Bytes of the table that tokens look up, in host memory whatever the device."""
        return self.table_bytes or self.table_weights * DTYPE_BYTES["bfloat16"]

    @property
    def table_weights(self) -> int:
        """Its weights."""
        return self.input_vocab * self.layers * self.input_width

    @property
    def rotation_width(self) -> int:
        """Numbers of one position in its tables of cosines: windows have one of their own."""
        return self.head_dim + (self.of_windows.head_dim if self.windowed else 0)

    @property
    def of_windows(self) -> ModelShape:
        """The model with the heads of its layers with a window."""
        return _with_window_heads(self) if self.window_dim else self

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention projections, with those of its gate; of one that sees every token,
        where they differ.
        """
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        projections = 1 if self.keys_as_values else 2
        return self.hidden * ((3 if FAMILIES[self.family].gated else 2) * q + projections * kv)

    @property
    def state_parameters(self) -> int:
        """Weights of one layer that keeps a state, but for its MLP."""
        return 0 if self.states is None else self.states.parameters(self.hidden)

    @property
    def layers_parameters(self) -> int:
        """Weights of all layers: attention or another rule, gated MLP, two norms or four."""
        return _layers_parameters(self)

    @property
    def parameters(self) -> int:
        """All weights but the table in host memory; tied embeddings count once."""
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers_parameters + embeddings + self.hidden

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all these weights."""
        return self.coded_bytes + (self.parameters - self.coded_weights) * DTYPE_BYTES[dtype]

    def decoded(self) -> ModelShape:
        """The same model with all its weights in numbers."""
        none = {"coded_weights": 0, "coded_bytes": 0, "ahead_weights": 0, "ahead_bytes": 0, "head_bytes": 0}
        return replace(self, **none)

    @property
    def layer_ahead(self) -> AheadShape | None:
        """Of the layer that predicts one token further, where it can draft."""
        if self.ahead != 1 or not FAMILIES[self.family].gated:
            return None
        return _layer_ahead(self)

    def divided(self, ranks: int) -> ModelShape:
        """What one of so many devices holds: whole KV heads with their queries, as many columns of the MLP;
        embeddings whole. Raises UserError where that cannot be.
        """
        if not self.divides(ranks):
            raise UserError(why_undivided(self.name, self.kv_heads, ranks, **self._undivided))
        part = replace(
            self,
            heads=self.heads // ranks,
            kv_heads=self.kv_heads // ranks,
            window_heads=self.window_heads // ranks,
            intermediate=-(-self.intermediate // ranks),
            ranks=ranks,
        )
        share = part.parameters / self.parameters
        coded, nbytes = int(self.coded_weights * share), int(self.coded_bytes * share)
        return replace(part, coded_weights=coded, coded_bytes=nbytes)

    def divides(self, ranks: int) -> bool:
        """Whether so many devices can."""
        return not why_undivided(self.name, self.kv_heads, ranks, **self._undivided)

    @property
    def _undivided(self) -> dict[str, bool]:
        return {"stateful": self.stateful > 0, "shared": self.readers > 0 or self.input_width > 0}

    def _whole_parameters(self) -> int:
        sizes = {name: self.ranks * getattr(self, name) for name in _DIVIDED}
        return replace(self, ranks=1, **sizes).parameters

    def capped(self, tokens: int) -> ModelShape:
        """The same model with a context of so many tokens at most."""
        native, longest = min(self.native_context, tokens), min(self.longest_context, tokens)
        return replace(self, native_context=native, longest_context=longest)

    @property
    def rounded(self) -> bool:
        """Whether the program itself makes the codes, of a checkpoint of 16 bits."""
        return self.checkpoint_bytes > 0

    @property
    def file_bytes(self) -> int:
        """Bytes of the files: codes and what they are made of, or 16-bit weights, whatever is computed in."""
        weights = self.weight_bytes("bfloat16")
        if self.ranks > 1:
            weights = weights * self._whole_parameters() // self.parameters
        return weights + self.host_bytes + self.checkpoint_bytes

    def pass_bytes(self, dtype: str) -> int:
        """Bytes of weights one forward pass reads: everything but the input embedding's other rows."""
        read = self.layers_parameters + self.vocab * self.hidden
        if (
            self.coded_weights
        ):  # the share of what is held, exact but for formats that differ between matrices
            return self.weight_bytes(dtype) * read // self.parameters
        return read * DTYPE_BYTES[dtype]

    def kv_bytes_per_token_layer(self, rows: str) -> int:
        """Bytes of K and V that one token leaves in one layer; type of the rows: see
        core.backend.shared.kv_rows.
        """
        # of codes: a byte each and a factor of four, up to the next 16
        coded = (self.head_dim + 4 + 15) // 16 * 16
        row = coded if rows == CODED_ROWS else self.head_dim * DTYPE_BYTES[rows]
        return 2 * self.kv_heads * row

    def kv_bytes_per_token(self, rows: str) -> int:
        """Bytes of K and V that one token leaves in all layers that see every token."""
        return self.full_layers * self.kv_bytes_per_token_layer(rows)

    def window_bytes(self, rows: str, tokens: int) -> int:
        """Bytes of K and V of so many tokens in all layers that hold a window."""
        return self.windowed * tokens * self.of_windows.kv_bytes_per_token_layer(rows)

    def read_bytes_per_token(self, rows: str) -> int:
        """Bytes of K and V of one token that a pass reads: some layers read what others hold."""
        reading = self.full_layers + self.readers - self.windowed_readers
        return reading * self.kv_bytes_per_token_layer(rows)

    def window_read_bytes(self, rows: str, tokens: int) -> int:
        """Likewise of so many tokens in windows."""
        reading = self.windowed + self.windowed_readers
        return reading * tokens * self.of_windows.kv_bytes_per_token_layer(rows)

    @property
    def state_bytes(self) -> int:
        """Bytes of one state of all layers that have one, in numbers of 32 bits."""
        numbers = 0 if self.states is None else math.prod(self.states.size)
        return self.stateful * numbers * DTYPE_BYTES["float32"]

    def waiting_bytes(self, dtype: str, tokens: int) -> int:
        """Bytes of so many tokens that wait behind the states until they are final."""
        width = 0 if self.states is None else self.states.width
        return self.stateful * tokens * width * DTYPE_BYTES[dtype]

    # ---- work ----------------------------------------------------------------------------------------------

    @property
    def linear_flops_per_token(self) -> int:
        """FLOPs of the layers' matrix products for one token, without the output head."""
        return 2 * self.layers_parameters

    @property
    def head_flops_per_token(self) -> int:
        """FLOPs of the output head for one token."""
        return 2 * self.hidden * self.vocab

    @property
    def state_flops_per_token(self) -> int:
        """FLOPs of one token in the layers that keep a state, their matrices apart."""
        return 0 if self.states is None else self.stateful * self.states.flops

    def attention_flops(self, rows: int, past_tokens: int) -> int:
        """FLOPs of `rows` new rows attending to `past_tokens` and, causally, to each other."""
        seeing_all = self.full_layers + self.readers - self.windowed_readers
        pairs = seeing_all * (rows * past_tokens + rows * (rows + 1) // 2)
        # of windows all rows but the first see a whole one
        growing = max(0, min(rows, self.window - past_tokens))
        seen = growing * past_tokens + growing * (growing + 1) // 2 + (rows - growing) * self.window
        in_windows = (self.windowed + self.windowed_readers) * seen * self.of_windows.head_dim
        return 4 * self.heads * (pairs * self.head_dim + in_windows)


# a plan asks for these some hundred times


@lru_cache(maxsize=256)
def _with_window_heads(shape: ModelShape) -> ModelShape:
    return replace(shape, kv_heads=shape.window_heads, head_dim=shape.window_dim, keys_as_values=False)


@lru_cache(maxsize=256)
def _layers_parameters(shape: ModelShape) -> int:
    norms = 4 if FAMILIES[shape.family].sandwiched else 2
    attending = shape.full_layers * shape.attention_parameters
    attending += shape.windowed * shape.of_windows.attention_parameters
    # queries and what is behind heads, alone
    of_heads = (shape.readers - shape.windowed_readers) * shape.head_dim
    of_heads += shape.windowed_readers * shape.of_windows.head_dim
    attending += 2 * shape.hidden * shape.heads * of_heads
    inner = (shape.layers - shape.readers) * shape.intermediate
    inner += shape.readers * (shape.reader_intermediate or shape.intermediate)
    rest = shape.layers * norms * shape.hidden + 3 * shape.hidden * inner
    return attending + shape.stateful * shape.state_parameters + rest + _inputs_parameters(shape)


def _inputs_parameters(shape: ModelShape) -> int:
    """Of what makes the inputs that tokens bring to layers, but for the table, and takes them in."""
    width = shape.input_width
    if not width:
        return 0
    return shape.layers * (3 * shape.hidden * width + shape.hidden) + width


@lru_cache(maxsize=256)
def _storing(shape: ModelShape) -> ModelShape:
    none = {"readers": 0, "windowed_readers": 0, "reader_intermediate": 0}
    part = replace(shape, layers=shape.layers - shape.readers, **none)
    share = part.parameters / shape.parameters
    coded = {"coded_weights": int(shape.coded_weights * share), "coded_bytes": int(shape.coded_bytes * share)}
    return replace(part, **coded)


@lru_cache(maxsize=256)
def _layer_ahead(shape: ModelShape) -> AheadShape:
    given = {one.name: getattr(shape, one.name) for one in fields(shape)}
    own = {"layers": 1, "stateful": 0, "states": None, "ahead": 0, "checkpoint_bytes": 0}
    codes = {"coded_weights": shape.ahead_weights, "coded_bytes": shape.ahead_bytes}
    return AheadShape(**(given | own | codes))


class AheadShape(ModelShape):
    """The layer that predicts one token further, with its norms and the matrix that joins an embedding with
    what the model made of a token. Embedding and output matrix are the model's.
    """

    @property
    def layers_parameters(self) -> int:
        """See ModelShape."""
        own = ModelShape.layers_parameters.fget(self)
        return own + 2 * self.hidden * self.hidden + 2 * self.hidden

    @property
    def parameters(self) -> int:
        """See ModelShape. Without what is the model's."""
        return self.layers_parameters + self.hidden

    @property
    def file_bytes(self) -> int:
        """See ModelShape. They lie in the model's files."""
        return self.weight_bytes("bfloat16")

    def pass_bytes(self, dtype: str) -> int:
        """See ModelShape."""
        head = self.head_bytes or self.vocab * self.hidden * DTYPE_BYTES[dtype]
        return self.weight_bytes(dtype) + head


def _head_tokens(config: Mapping[str, Any]) -> int:
    """Rows of the output matrix: the vocabulary, or the part of it that a trained draft speaks."""
    draft = config.get("draft")
    return int(draft["head_tokens"] if isinstance(draft, Mapping) else config["vocab_size"])


def _input_vocab(config: Mapping[str, Any]) -> int:
    return int(config["vocab_size_per_layer_input"]) if layer_input_width(config) else 0


def _rope_kind(config: Mapping[str, Any]) -> str | None:
    """The RoPE scaling's name in either spelling of transformers configs, or None."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if isinstance(scaling, Mapping):  # in windows nothing is scaled
        scaling = scaling.get(FULL, scaling)
    return scaling.get("rope_type") or scaling.get("type") if isinstance(scaling, Mapping) else None
