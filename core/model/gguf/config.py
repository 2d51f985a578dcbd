"""What a GGUF's metadata say of its model: the values of a transformers configuration, the format's name,
and which tensor is which weight. No torch.

Keys of the metadata: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's gguf-
py/gguf/constants.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from core.errors import UserError
from core.model.families import FAMILIES, FULL, family_of_gguf, why_no_experts
from core.model.gguf import layer_ahead
from core.model.gguf.architectures import OWN, Values, own_layers, rope_of
from core.model.gguf.reader import BITS, GgufFile, damaged, held_bytes
from core.model.gguf.shards import stem_of
from core.text.words import translated as _

EMBEDDING, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
INPUTS_TABLE = "per_layer_token_embd.weight"
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
# what tokens bring to each layer by themselves, and what takes it in there
_LAYER_INPUTS = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_OTHERS = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}
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
    if FAMILIES[family].two_sizes:
        found = found | _LAYER_INPUTS
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
    """(bytes that the model's matrices in codes take in memory, how many weights those are), but for the
    table that stays in host memory; `ahead`: those of layers that predict more than the next token. Raises
    KeyError, TypeError or ValueError where it lacks their number.
    """
    given = Values(file.metadata, str(file.metadata.get("general.architecture", "")))
    behind = tuple(f"blk.{layer}." for layer in range(own_layers(given), given.number("block_count")))
    unused = {INPUTS_TABLE, *_unused(given)}
    coded = [
        tensor
        for name, tensor in file.tensors.items()
        if is_coded(file, name) and name.startswith(behind) == ahead and name not in unused
    ]
    sizes = [math.prod(tensor.shape) for tensor in coded]
    return sum(held_bytes(one.kind, size) for one, size in zip(coded, sizes, strict=True)), sum(sizes)


def _unused(given: Values) -> Iterator[str]:
    """Keys and values of layers that read what others hold: files have them all the same."""
    layers = given.number("block_count")
    for layer in range(layers - (given.get("attention.shared_kv_layers") or 0), layers):
        yield from (f"blk.{layer}.{part}.weight" for part in ("attn_k", "attn_v"))


def table_bytes(file: GgufFile) -> int:
    """Bytes of the table that tokens look up, where it is in codes; else 0."""
    if not is_coded(file, INPUTS_TABLE):
        return 0
    tensor = file.tensors[INPUTS_TABLE]
    return held_bytes(tensor.kind, math.prod(tensor.shape))


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
    if not architecture:
        raise damaged(file.path, _("it does not say what kind of model it is"))
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
    given = Values(file.metadata, architecture)
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
    own = OWN.get(family, lambda given: {})(given)
    if FAMILIES[family].two_sizes:
        own["attention_k_eq_v"] = f"blk.{own['layer_types'].index(FULL)}.attn_v.weight" not in file.tensors
        if own["hidden_size_per_layer_input"]:
            own["vocab_size_per_layer_input"] = file.tensors[INPUTS_TABLE].shape[0]
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
        "intermediate_size": own.get("intermediate_size") or given.number("feed_forward_length"),
        "rms_norm_eps": given["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": given.number("context_length"),
        "hidden_act": FAMILIES[family].activation,
        "tie_word_embeddings": HEAD not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "sliding_window": window or None,
        "use_sliding_window": bool(window),
        "rope_parameters": rope_of(given),
        **own,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _ends(file.metadata),
        "dtype": "bfloat16",
    }


def _vocabulary(file: GgufFile) -> int:
    """Rows of its embedding; a layer alone may lack that. Raises KeyError."""
    held = file.tensors.get(EMBEDDING)
    return held.shape[0] if held else len(file.metadata["tokenizer.ggml.tokens"])


def _ends(metadata: dict[str, Any]) -> list[int]:
    """The tokens that end an answer."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    named = {metadata.get(f"tokenizer.ggml.{key}") for key in keys} - {None}
    tokens, kinds = metadata.get("tokenizer.ggml.tokens", ()), metadata.get("tokenizer.ggml.token_type", ())
    pairs = enumerate(zip(tokens, kinds, strict=False))
    # 3: a control token; 4: added by somebody, as converters marked these before
    control = {index for index, (token, kind) in pairs if kind in (3, 4) and token in _ENDS}
    return sorted(named | control)
