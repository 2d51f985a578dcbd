"""What a GGUF's metadata say of its layers, by architecture: which kind each is, what it measures, how it
rotates. Knows no tensors, no torch.

Keys of the metadata: llama.cpp's gguf-py/gguf/constants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.model.families import CONVOLUTION, FULL, LINEAR, SLIDING

# what YaRN is told beside its factor, and by which names checkpoints do; with both mscales alike, attention
# keeps its size
_YARN = {
    "rope.scaling.yarn_beta_fast": ("beta_fast",),
    "rope.scaling.yarn_beta_slow": ("beta_slow",),
    "rope.scaling.yarn_log_multiplier": ("mscale", "mscale_all_dim"),
    "attention.temperature_scale": ("llama_4_scaling_beta",),
}


class Values:
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


def rope_of(given: Values) -> dict[str, Any]:
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


def _gemma3(given: Values) -> dict[str, Any]:
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
        "rope_parameters": {FULL: rope_of(given), SLIDING: local},
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": given.number("embedding_length") // heads if layers == 62 else head_dim,
    }


def _gemma4(given: Values) -> dict[str, Any]:
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
        **_widths(given),
        "head_dim": head_dim,
        "global_head_dim": given.number("attention.key_length"),
        "num_key_value_heads": of_kind[SLIDING].pop(),
        "num_global_key_value_heads": of_kind[FULL].pop(),
        "final_logit_softcapping": given.get("final_logit_softcapping"),
        "hidden_size_per_layer_input": given.get("embedding_length_per_layer_input") or 0,
    }


def _widths(given: Values) -> dict[str, Any]:
    """Of MLPs: those of the last layers, which share keys and values, may be twice as wide."""
    key, layers = "feed_forward_length", given.number("block_count")
    widths = given[key] if isinstance(given[key], list) else [given[key]] * layers
    shared = given.get("attention.shared_kv_layers") or 0
    doubled = widths[-1] == 2 * widths[0]
    if widths != [widths[0]] * (layers - shared) + [widths[0] * (2 if doubled else 1)] * shared:
        raise ValueError(f"{key} is {widths} beside {shared} layers that share keys and values")
    return {"intermediate_size": widths[0], "use_double_wide_mlp": doubled, "num_kv_shared_layers": shared}


def own_layers(given: Values) -> int:
    """The model's own."""
    return given.number("block_count") - (given.get("nextn_predict_layers") or 0)


def _qwen35(given: Values) -> dict[str, Any]:
    """Which layers attend, what the others measure, and which share of a head is rotated. Layers that predict
    more than the next token stand behind the model's own.
    """
    layers = own_layers(given)
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
        "rope_parameters": {**rope_of(given), "partial_rotary_factor": share},
    }


def _lfm2(given: Values) -> dict[str, Any]:
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


OWN: dict[str, Callable[[Values], dict[str, Any]]] = {
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "lfm2": _lfm2,
    "qwen3_5_text": _qwen35,
}
