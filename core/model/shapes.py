"""The shape of a Llama-family model and what follows from it by arithmetic: bytes per weight and token,
FLOPs. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import UserError
from core.model.families import (
    FAMILIES,
    FULL,
    DeltaSizes,
    delta_sizes,
    layer_kinds,
    require_family,
    text_config,
)
from core.text.words import translated as _

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
DELTA_CHUNK = 64  # tokens of a gated delta rule that are computed together in a prefill
CODED_ROWS = "int8"  # of a KV cache: codes


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
    return {
        "layers": int(config["num_hidden_layers"]),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": int(config.get("head_dim") or hidden // heads),
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
    stateful: int = 0  # layers that keep a state of a fixed size instead of keys and values,
    delta: DeltaSizes | None = None  # and what they measure
    # of weights in codes: their format ("Q4_K_M"), the bits of most of its codes, how many weights stay codes
    # in memory, and what those take there
    format: str = ""
    code_bits: int = 16
    coded_weights: int = 0
    coded_bytes: int = 0
    checkpoint_bytes: int = 0  # of the checkpoint of 16 bits that the codes are made of, if they are

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
                windowed=sum(bool(kind.window) for kind in kinds),
                window=max((kind.window for kind in kinds), default=0),
                stateful=sum(kind.stateful for kind in kinds),
                delta=delta_sizes(config),
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
    def full_layers(self) -> int:
        """Layers in which a token sees every token before it."""
        return self.layers - self.windowed - self.stateful

    @property
    def rotations(self) -> int:
        """How many tables of rotations it has: windows have one of their own."""
        return 2 if self.windowed else 1

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention projections, with those of its gate."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.hidden * ((3 if FAMILIES[self.family].gated else 2) * q + 2 * kv)

    @property
    def delta_parameters(self) -> int:
        """Weights of one layer's gated delta rule: what makes its rows, the gate, the output."""
        return 0 if self.delta is None else self.hidden * (self.delta.width + 2 * self.delta.values)

    @property
    def layers_parameters(self) -> int:
        """Weights of all layers: attention or another rule, gated MLP, two norms or four."""
        norms = 4 if FAMILIES[self.family].sandwiched else 2
        attending = (self.layers - self.stateful) * self.attention_parameters
        rest = self.layers * (norms * self.hidden + 3 * self.hidden * self.intermediate)
        return attending + self.stateful * self.delta_parameters + rest

    @property
    def parameters(self) -> int:
        """All weights; tied embeddings count once."""
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers_parameters + embeddings + self.hidden

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all weights."""
        return self.coded_bytes + (self.parameters - self.coded_weights) * DTYPE_BYTES[dtype]

    def decoded(self) -> ModelShape:
        """The same model with all its weights in numbers."""
        return replace(self, coded_weights=0, coded_bytes=0)

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
        return self.weight_bytes("bfloat16") + self.checkpoint_bytes

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
        """Bytes of K and V of so many tokens in all layers with a window."""
        return self.windowed * tokens * self.kv_bytes_per_token_layer(rows)

    @property
    def state_bytes(self) -> int:
        """Bytes of one state of all layers that have one, in numbers of 32 bits."""
        return 0 if self.delta is None else self.stateful * self.delta.state * DTYPE_BYTES["float32"]

    def waiting_bytes(self, dtype: str, tokens: int) -> int:
        """Bytes of so many tokens that wait behind the states until they are final."""
        return 0 if self.delta is None else self.stateful * tokens * self.delta.width * DTYPE_BYTES[dtype]

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
    def delta_flops_per_token(self) -> int:
        """FLOPs of the gated delta rules, chunked, for one token: products within a chunk, and with the
        state.
        """
        if self.delta is None:
            return 0
        keys, values = self.delta.key_dim, self.delta.value_dim
        inside = DELTA_CHUNK * (5 * keys + 3 * values)
        return self.stateful * self.delta.value_heads * (inside + 8 * keys * values)

    def attention_flops(self, rows: int, past_tokens: int) -> int:
        """FLOPs of `rows` new rows attending to `past_tokens` and, causally, to each other."""
        pairs = self.full_layers * (rows * past_tokens + rows * (rows + 1) // 2)
        # of windows all rows but the first see a whole one
        growing = max(0, min(rows, self.window - past_tokens))
        seen = growing * past_tokens + growing * (growing + 1) // 2 + (rows - growing) * self.window
        return 4 * (pairs + self.windowed * seen) * self.heads * self.head_dim


def _head_tokens(config: Mapping[str, Any]) -> int:
    """Rows of the output matrix: the vocabulary, or the part of it that a trained draft speaks."""
    draft = config.get("draft")
    return int(draft["head_tokens"] if isinstance(draft, Mapping) else config["vocab_size"])


def _rope_kind(config: Mapping[str, Any]) -> str | None:
    """The RoPE scaling's name in either spelling of transformers configs, or None."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if isinstance(scaling, Mapping):  # in windows nothing is scaled
        scaling = scaling.get(FULL, scaling)
    return scaling.get("rope_type") or scaling.get("type") if isinstance(scaling, Mapping) else None
