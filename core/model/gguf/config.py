"""What a GGUF's metadata say of its model: the values of a transformers configuration, the format's name,
and which tensor is which weight. No torch.

Keys of the metadata: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's gguf-
py/gguf/constants.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from core.errors import UserError
from core.model.families import CONVOLUTION, FAMILIES, FULL, LINEAR, SLIDING, family_of_gguf, why_no_experts
from core.model.gguf import layer_ahead
from core.model.gguf.reader import BITS, GgufFile, held_bytes
from core.model.gguf.shards import stem_of
from core.text.words import translated as _

EMBEDDING, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
OF_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
# where attention and MLP have a norm behind them, too
_SANDWICHED = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
# where some layers have a gated delta rule instead of attention; the norm before the MLP has another name
_GATED = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "post_attention_layernorm": "post_attention_norm",
}
# where some layers have a short convolution; the last norm has another name
_CONVOLVED = {
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
}
_LAST_NORM = {"lfm2": "token_embd_norm"}
# names without ".weight" in one of both
WHOLE = {
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "layer_scalar": "layer_output_scale.weight",
}
_OTHERS = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
# numbers of general.file_type: llama.cpp's include/llama.h, enum llama_ftype
_FORMATS = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}
# what YaRN is told beside its factor, and by which names checkpoints do; with both mscales alike, attention
# keeps its size
_YARN = {
    "rope.scaling.yarn_beta_fast": ("beta_fast",),
    "rope.scaling.yarn_beta_slow": ("beta_slow",),
    "rope.scaling.yarn_log_multiplier": ("mscale", "mscale_all_dim"),
    "attention.temperature_scale": ("llama_4_scaling_beta",),
}
# control tokens that end an answer, whatever else the file calls its end
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
)


def parts_of_layer(family: str) -> dict[str, str]:
    """What a layer of the family has, or may have: the GGUF's names by those of checkpoints."""
    found = OF_LAYER | _SANDWICHED if FAMILIES[family].sandwiched else OF_LAYER
    return found | (_GATED if FAMILIES[family].gated else _CONVOLVED if family == "lfm2" else {})


def gguf_name(name: str, family: str = "llama", *, ahead: int = -1) -> str:
    """The tensor that holds the weight which checkpoints of the family call `name`. `ahead`: the block of the
    layer that predicts one token further.
    """
    stem, _dot, kind = name.rpartition(".")
    if stem in layer_ahead.NAMES:
        return f"blk.{ahead}.{layer_ahead.NAMES[stem]}.{kind}"
    if name.startswith("mtp.layers.0."):
        part = stem.removeprefix("mtp.layers.0.")
        return f"blk.{ahead}.{parts_of_layer(family).get(part, part)}.{kind}"
    if stem == "model.norm" and family in _LAST_NORM:
        return f"{_LAST_NORM[family]}.{kind}"
    if stem in _OTHERS:
        return f"{_OTHERS[stem]}.{kind}"
    _model, _layers, index, own = name.split(".", 3)
    if own in WHOLE:
        return f"blk.{index}.{WHOLE[own]}"
    part = own.removesuffix(f".{kind}")
    return f"blk.{index}.{parts_of_layer(family)[part]}.{kind}"


def name_of(file: GgufFile) -> str:
    """What the model is called: its file, or, where that is named by a hash, what the file says."""
    if file.path.suffix.lower() == ".gguf":
        return stem_of(file.path)
    said = re.sub(r"[^\w.-]+", "-", str(file.metadata.get("general.name") or "")).strip("-.")[:80]
    return said or file.path.name[:24]


def format_of(file: GgufFile) -> str:
    """The format's name: what the file says it is, where its tensors agree; else the kind of most of its
    weights.
    """
    weights = Counter()
    for tensor in file.tensors.values():
        if len(tensor.shape) == 2:
            weights[tensor.kind] += math.prod(tensor.shape)
    main = weights.most_common(1)[0][0] if weights else ""
    said = _FORMATS.get(file.metadata.get("general.file_type"), "")
    return said if said.startswith(main) else main


def bits_of(file: GgufFile) -> int:
    """Of most of its weights: 4, 5, 6, 8, or 16 for numbers."""
    return next((bits for kind, bits in BITS.items() if format_of(file).startswith(kind)), 16)


def bytes_in_codes(file: GgufFile, *, ahead: bool = False) -> tuple[int, int]:
    """(bytes that the model's matrices in codes take in memory, how many weights those are); `ahead`: those
    of layers that predict more than the next token. Raises KeyError, TypeError or ValueError where it lacks
    their number.
    """
    given = _Values(file.metadata, str(file.metadata.get("general.architecture", "")))
    behind = tuple(f"blk.{layer}." for layer in range(_layers(given), given.number("block_count")))
    coded = [
        tensor
        for name, tensor in file.tensors.items()
        if is_coded(file, name) and name.startswith(behind) == ahead
    ]
    sizes = [math.prod(tensor.shape) for tensor in coded]
    return sum(held_bytes(one.kind, size) for one, size in zip(coded, sizes, strict=True)), sum(sizes)


def head_bytes(file: GgufFile) -> int:
    """Bytes that the output matrix takes in memory, where it is in codes; else 0."""
    name = HEAD if HEAD in file.tensors else EMBEDDING
    tensor = file.tensors[name]
    return held_bytes(tensor.kind, math.prod(tensor.shape)) if is_coded(file, name) else 0


def is_coded(file: GgufFile, name: str) -> bool:
    """Whether the tensor is a matrix that stays codes."""
    tensor = file.tensors.get(name)
    return tensor is not None and tensor.kind in BITS and len(tensor.shape) == 2


def config_of(file: GgufFile, name: str) -> dict[str, Any]:
    """The values of config.json; of a layer alone, its model's. Raises UserError for an architecture that
    does not run here, or what is missing.
    """
    architecture = str(file.metadata.get("general.architecture", ""))
    family, is_alone = family_of_gguf(architecture, name), layer_ahead.is_layer_alone(file)
    if not is_alone:
        _require_tensors(file, EMBEDDING, gguf_name("model.norm.weight", family))
    if FAMILIES[family].two_sizes:  # else every pair of a head would turn
        _require_tensors(file, ROPE_FACTORS)
    try:
        config = _config(file, architecture, family, name)
    except (KeyError, TypeError, ValueError) as error:
        said = _("{file} does not say all of its model ({error}). Choose another file.")
        raise UserError(said.format(file=file.path, error=error)) from error
    # as many layers as it says, also where it is one of several parts
    _require_tensors(file, f"blk.{config['num_hidden_layers'] - (not is_alone)}.ffn_down.weight")
    return config


def _require_tensors(file: GgufFile, *names: str) -> None:
    for name in names:
        if name not in file.tensors:
            said = _(
                "{file} lacks “{tensor}”. If it is one of several parts, give all of them their names back, "
                "such as model-00001-of-00003.gguf; else choose another file."
            )
            raise UserError(said.format(file=file.path, tensor=name))


def _config(file: GgufFile, architecture: str, family: str, name: str) -> dict[str, Any]:
    given = _Values(file.metadata, architecture)
    heads, hidden = given.number("attention.head_count"), given.number("embedding_length")
    head_dim = given.get("attention.key_length") or given.get("rope.dimension_count") or hidden // heads
    partly = () if FAMILIES[family].gated else ("rope.dimension_count",)
    for key in ("attention.value_length", *partly):
        if given.get(key) not in (None, head_dim):
            said = _(
                "{model} has {key} {value} beside heads of {size}, which does not run here. Choose another "
                "model."
            )
            raise UserError(said.format(model=name, key=key, value=given.get(key), size=head_dim))
    if given.get("expert_count"):
        raise UserError(why_no_experts(name))
    window = given.get("attention.sliding_window")
    own = _OWN.get(family, lambda given: {})(given)
    if FAMILIES[family].two_sizes:
        own["attention_k_eq_v"] = f"blk.{own['layer_types'].index(FULL)}.attn_v.weight" not in file.tensors
    if FAMILIES[family].gated:
        own["mtp_num_hidden_layers"] = int(layer_ahead.block_ahead(file) == own["num_hidden_layers"])
    return {
        "architectures": [FAMILIES[family].architecture],
        "model_type": family,
        "vocab_size": _vocabulary(file),
        "hidden_size": hidden,
        "num_hidden_layers": given.number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": own.get("num_key_value_heads")
        or given.number("attention.head_count_kv", sparse=family == "lfm2"),
        "head_dim": head_dim,
        "intermediate_size": given.number("feed_forward_length"),
        "rms_norm_eps": given["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": given.number("context_length"),
        "hidden_act": FAMILIES[family].activation,
        "tie_word_embeddings": HEAD not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "sliding_window": window or None,
        "use_sliding_window": bool(window),
        "rope_parameters": _rope(given),
        **own,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _ends(file.metadata),
        "dtype": "bfloat16",
    }


def _vocabulary(file: GgufFile) -> int:
    """Rows of its embedding; a layer alone may lack that. Raises KeyError."""
    held = file.tensors.get(EMBEDDING)
    return held.shape[0] if held else len(file.metadata["tokenizer.ggml.tokens"])


class _Values:
    """Metadata of the architecture, by the rest of their names."""

    def __init__(self, metadata: dict[str, Any], architecture: str) -> None:
        self._metadata, self._architecture = metadata, architecture

    def get(self, key: str) -> Any:
        return self._metadata.get(f"{self._architecture}.{key}")

    def __getitem__(self, key: str) -> Any:
        return self._metadata[f"{self._architecture}.{key}"]

    def number(self, key: str, *, sparse: bool = False) -> int:
        """A positive whole number; of a list, what all its members are, or, `sparse`, all but those that are
        0. Raises KeyError, TypeError or ValueError.
        """
        value = self[key]
        layers = self.get("block_count")
        if isinstance(value, list) and len(value) != layers:
            raise ValueError(f"{key} has {len(value)} members for {layers} layers")
        of_layers = set(value) - ({0} if sparse else set()) if isinstance(value, list) else {value}
        if len(of_layers) != 1:
            raise ValueError(f"{key} differs from layer to layer")
        found = of_layers.pop()
        if not isinstance(found, int) or found <= 0:
            raise ValueError(f"{key} is {found!r}")
        return found


def _rope(given: _Values) -> dict[str, Any]:
    """rope_parameters. Factors of single frequencies (Llama 3) are a tensor: see core.model.gguf.weights."""
    found = {"rope_type": "default", "rope_theta": given.get("rope.freq_base") or 10_000.0}
    kind, factor = given.get("rope.scaling.type") or "none", given.get("rope.scaling.factor")
    if given.get("rope.scale_linear"):  # how files before 2023-11 say it
        kind, factor = "linear", given.get("rope.scale_linear")
    if kind == "none" or factor in (None, 0, 1):
        return found
    if kind not in ("linear", "yarn"):
        raise ValueError(f"rope.scaling.type is {kind}")
    found |= {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        found["original_max_position_embeddings"] = given["rope.scaling.original_context_length"]
        for key, names in _YARN.items():
            if given.get(key) is not None:
                found |= dict.fromkeys(names, given.get(key))
    return found


def _gemma3(given: _Values) -> dict[str, Any]:
    """Which layers have a window, their rotation, and by what queries are scaled: constants of llama.cpp
    (src/models/gemma3.cpp) where the file does not say them.
    """
    layers = given.number("block_count")
    key = "attention.sliding_window_pattern"
    pattern = given.get(key)
    if not isinstance(pattern, list):
        every = 6 if pattern is None else given.number(key)
        pattern = [(layer + 1) % every != 0 for layer in range(layers)]
    if len(pattern) != layers:
        raise ValueError(f"{key} has {len(pattern)} members for {layers} layers")
    local = {"rope_type": "default", "rope_theta": given.get("rope.freq_base_swa") or 10_000.0}
    heads, head_dim = given.number("attention.head_count"), given.get("attention.key_length")
    return {
        "layer_types": [SLIDING if has_window else FULL for has_window in pattern],
        "sliding_window": given.number("attention.sliding_window"),
        "rope_parameters": {FULL: _rope(given), SLIDING: local},
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": given.number("embedding_length") // heads if layers == 62 else head_dim,
    }


def _gemma4(given: _Values) -> dict[str, Any]:
    """As Gemma 3, with heads of another number and size in a window; which frequencies turn is a tensor: see
    core.model.gguf.weights.
    """
    found = _gemma3(given)
    del found["query_pre_attn_scalar"]
    head_dim = given.number("attention.key_length_swa")
    for key in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if given.get(key) not in (None, head_dim):
            raise ValueError(f"{key} is {given.get(key)} beside heads of {head_dim}")
    key, layers = "attention.head_count_kv", given.number("block_count")
    heads = given[key] if isinstance(given[key], list) else [given[key]] * layers
    if len(heads) != layers:
        raise ValueError(f"{key} has {len(heads)} members for {layers} layers")
    of_kind = {
        kind: {one for one, own in zip(heads, found["layer_types"], strict=True) if own == kind}
        for kind in (FULL, SLIDING)
    }
    if any(len(numbers) != 1 or min(numbers) < 1 for numbers in of_kind.values()):
        raise ValueError(f"{key} is {heads}")
    return {
        **found,
        "head_dim": head_dim,
        "global_head_dim": given.number("attention.key_length"),
        "num_key_value_heads": of_kind[SLIDING].pop(),
        "num_global_key_value_heads": of_kind[FULL].pop(),
        "final_logit_softcapping": given.get("final_logit_softcapping"),
        "num_kv_shared_layers": given.get("attention.shared_kv_layers") or 0,
        "hidden_size_per_layer_input": given.get("embedding_length_per_layer_input") or 0,
    }


def _layers(given: _Values) -> int:
    """The model's own."""
    return given.number("block_count") - (given.get("nextn_predict_layers") or 0)


def _qwen35(given: _Values) -> dict[str, Any]:
    """Which layers attend, what the others measure, and which share of a head is rotated. Layers that predict
    more than the next token stand behind the model's own.
    """
    layers = _layers(given)
    every, value_heads = given.number("full_attention_interval"), given.number("ssm.time_step_rank")
    values = given.number("ssm.inner_size")
    if values % value_heads:
        raise ValueError(f"ssm.inner_size is {values} beside {value_heads} heads")
    share = given.number("rope.dimension_count") / given.number("attention.key_length")
    return {
        "num_hidden_layers": layers,
        "layer_types": [FULL if (layer + 1) % every == 0 else LINEAR for layer in range(layers)],
        "linear_num_key_heads": given.number("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": given.number("ssm.state_size"),
        "linear_value_head_dim": values // value_heads,
        "linear_conv_kernel_dim": given.number("ssm.conv_kernel"),
        "rope_parameters": {**_rope(given), "partial_rotary_factor": share},
    }


def _lfm2(given: _Values) -> dict[str, Any]:
    """Which layers attend: those with heads of keys and values. The others have a short convolution."""
    heads = given["attention.head_count_kv"]
    if not isinstance(heads, list):
        raise ValueError(f"attention.head_count_kv is {heads!r}, no list")
    return {
        "layer_types": [FULL if one else CONVOLUTION for one in heads],
        "conv_L_cache": given.number("shortconv.l_cache"),
        "norm_eps": given["attention.layer_norm_rms_epsilon"],
        "block_auto_adjust_ff_dim": False,
    }


_OWN: dict[str, Callable[[_Values], dict[str, Any]]] = {
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "lfm2": _lfm2,
    "qwen3_5_text": _qwen35,
}


def _ends(metadata: dict[str, Any]) -> list[int]:
    """The tokens that end an answer."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    named = {metadata.get(f"tokenizer.ggml.{key}") for key in keys} - {None}
    tokens, kinds = metadata.get("tokenizer.ggml.tokens", ()), metadata.get("tokenizer.ggml.token_type", ())
    pairs = enumerate(zip(tokens, kinds, strict=False))
    # 3: a control token; 4: added by somebody, as converters marked these before
    control = {index for index, (token, kind) in pairs if kind in (3, 4) and token in _ENDS}
    return sorted(named | control)
