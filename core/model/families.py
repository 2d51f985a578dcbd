"""The families of models that run here: what sets each apart, and of which kind its layers are. No torch.

A checkpoint goes by its `model_type` in config.json, a GGUF by its `general.architecture`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import UserError
from core.model.mixer_sizes import ConvolutionSizes, DeltaSizes, StateSizes
from core.text.words import translated as _


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What one layer computes with queries and keys."""

    rotated: bool = True  # by RoPE; False: their position is told by what they see alone
    scaled: bool = False  # queries grow with their position: see core.model.rope
    window: int = 0  # a token sees so many, itself among them; 0: all before it
    rope: str = ""  # which of several rotations, by its key in rope_parameters
    # a gated delta rule or a short convolution: a state instead of keys and values; not in repr, which is
    # part of what is on disk
    stateful: bool = field(default=False, repr=False)
    kv_heads: int = field(default=0, repr=False)  # 0: as many, and of such a size, as the model's others
    head_dim: int = field(default=0, repr=False)
    keys_as_values: bool = field(default=False, repr=False)  # what becomes keys is normed to values, too
    # the layer whose keys and values it attends to, having none; -1: it has its own
    reads: int = field(default=-1, repr=False)
    intermediate: int = field(default=0, repr=False)  # of its MLP; 0: as the model's others


LayerKinds = tuple[LayerKind, ...]
# in layer_types
FULL, SLIDING, LINEAR, CONVOLUTION = "full_attention", "sliding_attention", "linear_attention", "conv"


def _alike(config: Mapping[str, Any]) -> LayerKinds:
    return (LayerKind(),) * int(config["num_hidden_layers"])


def _scaled(config: Mapping[str, Any]) -> LayerKinds:
    """Ministral 3: every layer, where the configuration says by how much."""
    parameters = config.get("rope_parameters") or {}
    scaled = bool(parameters.get("llama_4_scaling_beta"))
    if scaled and int(parameters["original_max_position_embeddings"]) < 1:
        raise ValueError("original_max_position_embeddings is below 1")
    return (LayerKind(scaled=scaled),) * int(config["num_hidden_layers"])


def _partly_rotated(config: Mapping[str, Any]) -> LayerKinds:
    """SmolLM3: a flag for each layer, or every so many layers one that is not rotated."""
    layers = int(config["num_hidden_layers"])
    flags = config.get("no_rope_layers")  # 1: rotated
    if flags is None:
        every = int(config.get("no_rope_layer_interval", 4))
        flags = [(layer + 1) % every != 0 for layer in range(layers)]
    if not isinstance(flags, Sequence) or len(flags) < layers:
        raise ValueError(f"no_rope_layers is no list of {layers} flags")
    return tuple(LayerKind(rotated=bool(flag)) for flag in flags[:layers])


def _sliding(config: Mapping[str, Any]) -> LayerKinds:
    """Gemma 3: a window and a rotation of its own in most layers, by list or all but every so many."""
    if config.get("use_bidirectional_attention"):
        raise ValueError("use_bidirectional_attention is set")
    layers, window = int(config["num_hidden_layers"]), int(config["sliding_window"])
    if window < 2:
        raise ValueError(f"sliding_window is {window}")
    types = config.get("layer_types")
    if types is None:
        every = int(config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6)
        types = [FULL if (layer + 1) % every == 0 else SLIDING for layer in range(layers)]
    if FULL not in types:
        raise ValueError("every layer has a window")
    kinds = {FULL: LayerKind(rope=FULL), SLIDING: LayerKind(window=window, rope=SLIDING)}
    return tuple(kinds[one] for one in types)


def _two_sizes(config: Mapping[str, Any]) -> LayerKinds:
    """Gemma 4: as Gemma 3, with heads of another number and size in a window, and values that may be made of
    what becomes keys where there is none.
    """
    if config.get("use_bidirectional_attention") == "all":
        raise ValueError("use_bidirectional_attention is 'all'")
    _require_layer_inputs(config)
    own = {"kv_heads": int(config["num_key_value_heads"]), "head_dim": int(config["head_dim"])}
    alike = bool(config.get("attention_k_eq_v"))
    found = _sliding({**config, "use_bidirectional_attention": None})
    if found[-1].window:
        raise ValueError("the last layer has a window")
    found = tuple(replace(one, **own) if one.window else replace(one, keys_as_values=alike) for one in found)
    return _shared(config, found)


def _shared(config: Mapping[str, Any], kinds: LayerKinds) -> LayerKinds:
    """The last `num_kv_shared_layers` attend to what the last other layer of their kind holds; their MLPs may
    be twice as wide.
    """
    number = int(config.get("num_kv_shared_layers") or 0)
    storing = len(kinds) - number
    holds = {kind: layer for layer, kind in enumerate(kinds[:storing])}
    if not 0 <= number < len(kinds) or any(kind not in holds for kind in kinds):
        raise ValueError(f"num_kv_shared_layers is {number}")
    width = 2 * int(config["intermediate_size"]) if config.get("use_double_wide_mlp") else 0
    return *kinds[:storing], *(replace(one, reads=holds[one], intermediate=width) for one in kinds[storing:])


def layer_input_width(config: Mapping[str, Any]) -> int:
    """Numbers that a token brings to each layer beside what the layer before it left; 0: none."""
    if not FAMILIES[config["model_type"]].two_sizes:
        return 0
    return int(config.get("hidden_size_per_layer_input") or 0)


def _require_layer_inputs(config: Mapping[str, Any]) -> None:
    key = "vocab_size_per_layer_input"
    if layer_input_width(config) and int(config[key]) < int(config["vocab_size"]):
        raise ValueError(f"{key} is {config[key]}")


def wide_heads(config: Mapping[str, Any]) -> tuple[int, int]:
    """(KV heads, their size) of the layers that see every token, which configurations of Gemma 4 state beside
    those of the others: by keys of their own, or layer by layer as transformers writes them.
    """
    layers, types = config.get("per_layer_config"), config.get("layer_types")
    stated = {}
    if layers:
        stated = {int(layer): own for layer, own in layers.items()}[list(types).index(FULL)]
    heads = stated.get("num_key_value_heads") or (
        config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    )
    head_dim = stated.get("head_dim") or config.get("global_head_dim") or 512
    return int(heads or config["num_key_value_heads"]), int(head_dim)


def _gated_delta(config: Mapping[str, Any]) -> LayerKinds:
    """Qwen3.5: a state instead of a cache in most layers, by list or all but every so many."""
    types = config.get("layer_types")
    if types is None:
        every = int(config.get("full_attention_interval") or 4)
        types = [FULL if (layer + 1) % every == 0 else LINEAR for layer in range(_layers(config))]
    if FULL not in types:
        raise ValueError("no layer has full attention")
    kinds = {FULL: LayerKind(), LINEAR: LayerKind(rotated=False, stateful=True)}
    return tuple(kinds[one] for one in types)


def _convolved(config: Mapping[str, Any]) -> LayerKinds:
    """LFM2: a short convolution in most layers; those that attend are listed."""
    if config.get("conv_bias"):
        raise ValueError("conv_bias is set")
    _mlp_width(config)
    if config.get("layer_types") is None and config.get("full_attn_idxs") is not None:
        raise ValueError(f"full_attn_idxs is {config['full_attn_idxs']!r}")
    types = config.get("layer_types") or [FULL] * _layers(config)
    if FULL not in types:
        raise ValueError("no layer has full attention")
    kinds = {FULL: LayerKind(), CONVOLUTION: LayerKind(rotated=False, stateful=True)}
    return tuple(kinds[one] for one in types)


def _mlp_width(config: Mapping[str, Any]) -> int:
    """What LFM2's configuration comes to: two thirds of what it says, rounded up, unless it says otherwise.
    Raises KeyError, TypeError, ValueError or ZeroDivisionError.
    """
    width = int(config.get("block_ff_dim", config["intermediate_size"]))
    if config.get("block_auto_adjust_ff_dim", True):
        step = int(config.get("block_multiple_of", 256))
        width = int(config.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        width = -(-width // step) * step
    return width


def _lfm2(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its configuration by the names that others have; the same again of what it gave. What cannot be stays,
    and is refused with the layers.
    """
    found = {**config, "rms_norm_eps": config.get("norm_eps", 1e-5)}
    found["tie_word_embeddings"] = bool(found.pop("tie_embedding", found["tie_word_embeddings"]))
    full = config.get("full_attn_idxs")
    if config.get("layer_types") is None and isinstance(full, list):
        found["layer_types"] = [FULL if at in full else CONVOLUTION for at in range(_layers(config))]
    with suppress(KeyError, TypeError, ValueError, ZeroDivisionError):
        found["intermediate_size"] = _mlp_width(config)
        found["block_auto_adjust_ff_dim"] = False
        found.pop("block_ff_dim", None)
    return found


def _layers(config: Mapping[str, Any]) -> int:
    return int(config["num_hidden_layers"])


def state_sizes(config: Mapping[str, Any]) -> StateSizes | None:
    """Of the layers that keep a state; None in a family without such. Raises KeyError, TypeError or
    ValueError where the configuration does not say them.
    """
    if FAMILIES[config["model_type"]].kinds is _convolved:
        kernel = int(config["conv_L_cache"])
        if kernel < 2:
            raise ValueError(f"conv_L_cache is {kernel}")
        return ConvolutionSizes(int(config["hidden_size"]), kernel)
    if not FAMILIES[config["model_type"]].gated:
        return None
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    numbers = [int(config[f"linear_{name}"]) for name in names]
    if min(numbers) < 1 or numbers[1] % numbers[0]:
        raise ValueError(f"linear_num_value_heads is {numbers[1]} beside {numbers[0]} key heads")
    return DeltaSizes(*numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table."""

    architecture: str  # the class of transformers
    gguf: str  # what a GGUF calls it
    paired: bool = False  # a GGUF has the two rows of q and k that RoPE mixes beside each other
    biased: bool = False  # q, k and v have biases
    normed: bool = False  # each head of q and k is normed
    slides: bool = False  # a sliding window holds wherever one is named, and no such layer runs here
    sandwiched: bool = False  # attention and MLP have a norm behind them, too
    shifted: bool = False  # a checkpoint's norms multiply by 1 + their weights; a GGUF has the sum
    gated: bool = False  # what attention gives is multiplied by a gate; other layers have a gated delta rule
    tied_outside: bool = True  # of a checkpoint that also sees pictures, unless it says otherwise
    activation: str = "silu"
    embedding_scaled: bool = False  # by the root of their size
    # heads are of two sizes, values normed, scores not divided, each layer's output scaled, logits bounded
    two_sizes: bool = False
    kinds: Callable[[Mapping[str, Any]], LayerKinds] = _alike
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what published configurations leave out
    told: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict  # its configuration by the usual names


FAMILIES = {
    "llama": Family(architecture="LlamaForCausalLM", gguf="llama", paired=True),
    "mistral": Family(architecture="MistralForCausalLM", gguf="mistral", slides=True),
    "ministral3": Family(
        architecture="Ministral3ForCausalLM", gguf="mistral3", paired=True, slides=True, kinds=_scaled
    ),
    "qwen2": Family(architecture="Qwen2ForCausalLM", gguf="qwen2", biased=True),
    "qwen3": Family(architecture="Qwen3ForCausalLM", gguf="qwen3", normed=True),
    "qwen3_5_text": Family(
        architecture="Qwen3_5ForCausalLM",
        gguf="qwen35",
        normed=True,
        shifted=True,
        gated=True,
        tied_outside=False,
        kinds=_gated_delta,
        defaults={
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "head_dim": 256,
        },
    ),
    "gemma3_text": Family(
        architecture="Gemma3ForCausalLM",
        gguf="gemma3",
        normed=True,
        sandwiched=True,
        shifted=True,
        activation="gelu_pytorch_tanh",
        embedding_scaled=True,
        kinds=_sliding,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    "gemma4_text": Family(
        architecture="Gemma4ForCausalLM",
        gguf="gemma4",
        normed=True,
        sandwiched=True,
        two_sizes=True,
        activation="gelu_pytorch_tanh",
        embedding_scaled=True,
        kinds=_two_sizes,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_144,
            "max_position_embeddings": 131_072,
            "sliding_window": 512,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2": Family(
        architecture="Lfm2ForCausalLM",
        gguf="lfm2",
        normed=True,
        kinds=_convolved,
        told=_lfm2,
        defaults={
            "hidden_size": 2560,
            "intermediate_size": 12_288,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 65_536,
            "max_position_embeddings": 128_000,
            "tie_word_embeddings": True,
            "conv_L_cache": 3,
        },
    ),
    "smollm3": Family(architecture="SmolLM3ForCausalLM", gguf="smollm3", paired=True, kinds=_partly_rotated),
}
# the same text model by another name, and what its published configurations leave out
_ALIASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "gemma4_unified_text": (
        "gemma4_text",
        {"max_position_embeddings": 262_144, "sliding_window": 1024, "hidden_size_per_layer_input": 0},
    )
}
# what checkpoints call what Llama's do otherwise
_USUAL = {
    "language_model.": "",
    ".operator_norm.": ".input_layernorm.",
    ".ffn_norm.": ".post_attention_layernorm.",
    ".feed_forward.w1.": ".mlp.gate_proj.",
    ".feed_forward.w3.": ".mlp.up_proj.",
    ".feed_forward.w2.": ".mlp.down_proj.",
    ".self_attn.out_proj.": ".self_attn.o_proj.",
    ".self_attn.q_layernorm.": ".self_attn.q_norm.",
    ".self_attn.k_layernorm.": ".self_attn.k_norm.",
    "model.embedding_norm.": "model.norm.",
}
_BY_GGUF = {family.gguf: name for name, family in FAMILIES.items()}


def usual_name(name: str) -> str:
    """What Llama's checkpoints call the weight that another one calls `name`."""
    for own, usual in _USUAL.items():
        name = name.replace(own, usual, 1)
    return name


def is_shifted(name: str, family: str) -> bool:
    """Whether a checkpoint's weight multiplies by 1 + what it holds."""
    return FAMILIES[family].shifted and "norm" in name and "linear_attn" not in name


def require_family(family: str, model: str) -> None:
    """Raises UserError for a family that this runtime does not cover."""
    if family not in FAMILIES:
        raise UserError(why_not(family, model))


def family_of_gguf(architecture: str, model: str) -> str:
    """The family's name in FAMILIES. Raises UserError for one that this runtime does not cover."""
    if architecture not in _BY_GGUF:
        raise UserError(why_not(architecture, model))
    return _BY_GGUF[architecture]


def why_not(family: str, model: str) -> str:
    """Why a model of such a family or architecture does not run here, and what would."""
    if "moe" in family:
        return why_no_experts(model)
    said = _("{model} is of type “{family}”; only {families} run here. Choose one of the list of models.")
    return said.format(model=model, family=family or _("unknown"), families=", ".join(FAMILIES))


def why_no_experts(model: str) -> str:
    """Why a mixture of experts does not run here, and what would."""
    said = _("{model} is a mixture of experts; only dense models of {families} run here. Choose another one.")
    return said.format(model=model, families=", ".join(FAMILIES))


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a checkpoint's configuration says of its text model, which one that also sees pictures holds
    inside; the rest of such a checkpoint is not used.
    """
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return _completed(config)
    # transformers ties them, or not, unless the outer configuration says otherwise
    family = FAMILIES.get(str(inner.get("model_type", "")))
    tied = family is None or family.tied_outside
    outer = {"tie_word_embeddings": config.get("tie_word_embeddings", tied)}
    outer |= {key: config[key] for key in ("eos_token_id", "quantization_config") if config.get(key)}
    return {**_completed(inner), **outer}


def _completed(config: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(config.get("model_type", ""))
    if name in _ALIASES:
        name, defaults = _ALIASES[name]
        config = {**defaults, **config, "model_type": name}
    family = FAMILIES.get(name)
    return config if family is None else family.told({**family.defaults, **config})


def layer_kinds(config: Mapping[str, Any], model: str) -> LayerKinds:
    """The kind of each layer. Raises UserError, naming file and key, for layers that do not run here."""
    try:
        _require_known_layers(config)
        state_sizes(config)
        if FAMILIES[config["model_type"]].two_sizes:
            wide_heads(config)
        return FAMILIES[config["model_type"]].kinds(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        said = _(
            "config.json of {model} asks for layers that do not run here ({error}). Choose another model."
        )
        raise UserError(said.format(model=model, error=error)) from error


def _require_known_layers(config: Mapping[str, Any]) -> None:
    types = config.get("layer_types")
    if types is None:
        return
    if not isinstance(types, Sequence) or len(types) != int(config["num_hidden_layers"]):
        raise ValueError(f"layer_types is no list of {config['num_hidden_layers']} names")
    # a window that holds every position is full attention
    whole = (config.get("sliding_window") or 0) >= int(config.get("max_position_embeddings") or 0)
    kinds = FAMILIES[config["model_type"]].kinds
    known = {FULL} | {_gated_delta: {LINEAR}, _convolved: {CONVOLUTION}}.get(kinds, set())
    if whole or kinds in (_sliding, _two_sizes):
        known |= {SLIDING}
    for index, kind in enumerate(types):
        if kind not in known:
            raise ValueError(f"layer_types[{index}] is {kind!r}")
