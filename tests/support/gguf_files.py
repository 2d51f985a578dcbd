"""GGUF files of tiny models, written by the `gguf` package as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import quantize

from core.model.families import FAMILIES, text_config, usual_name
from core.model.gguf.config import ROPE_FACTORS, gguf_name

# all printable letters, as GPT-2 spells bytes, and a few words
LETTERS = [chr(one) for one in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


def write_gguf(
    path: Path,
    oracle: torch.nn.Module,
    kinds: dict[str, str] | str = "Q8_0",
    *,
    metadata: dict[str, Any] | None = None,
    factors: list[float] | None = None,
    tensors_of_part: int = 0,
    control: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
    template: str = CHATML,
    unsaid: Sequence[int] = (),
) -> Path:
    """The transformers model `oracle` as a GGUF: matrices of the kind that the last part of their name
    says, norms and biases as F32. A kind that the package cannot quantise gets random blocks. With
    `tensors_of_part` it is in parts, and the first one's path is given. `control`: its control tokens; the
    first begins a text, the last ends one. `unsaid`: tokens that are suppressed.
    """
    config = oracle.config
    family = FAMILIES[config.model_type]
    writer = gguf.GGUFWriter(path, family.gguf, split_max_tensors=tensors_of_part)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    ahead = any(name.startswith("mtp.") for name in oracle.state_dict())
    writer.add_block_count(config.num_hidden_layers + ahead)
    if ahead:
        writer.add_nextn_predict_layers(1)
    inner = text_config(config.to_dict())["intermediate_size"]
    if config.to_dict().get("use_double_wide_mlp"):
        shared = config.num_kv_shared_layers
        inner = [inner] * (config.num_hidden_layers - shared) + [2 * inner] * shared
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    if family.two_sizes:
        factors = _two_sizes(writer, config)
    else:
        kv_heads = config.num_key_value_heads
        if config.model_type == "lfm2":
            kv_heads = [0 if one == "conv" else kv_heads for one in config.layer_types]
            writer.add_shortconv_l_cache(config.conv_L_cache)
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(text_config(config.to_dict())["rms_norm_eps"])
    rope = config.rope_parameters
    if config.model_type in ("gemma3_text", "gemma4_text"):
        writer.add_sliding_window(config.sliding_window)
        rope = rope["full_attention"]
        if rope["rope_type"] == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
    if family.gated:
        _delta(writer, config)
    writer.add_rope_freq_base(rope["rope_theta"])
    _yarn(writer, rope)
    _tokenizer(writer, config.vocab_size, control, template)
    if unsaid:
        writer.add_array("tokenizer.ggml.suppress_tokens", unsaid)
    for key, value in (metadata or {}).items():
        add = {
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            bool: writer.add_bool,
        }
        add[type(value)](key, value)
    if factors is not None:
        writer.add_tensor(ROPE_FACTORS, np.array(factors, dtype=np.float32))
    for number, (name, value) in enumerate(oracle.state_dict().items()):
        name = usual_name(name)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = value.detach().float()
        if family.gated:
            value = tiled_heads(name, value, config)
        if "conv.conv" in name:
            value = value.squeeze(1)
        if family.shifted and "norm" in name and "linear_attn" not in name:
            value = value + 1
        if family.paired:
            value = _as_llama_cpp(name, value, config)
        kind = kinds if isinstance(kinds, str) else kinds.get(name.split(".")[-2], kinds[""])
        _add(
            writer,
            gguf_name(name, config.model_type, ahead=config.num_hidden_layers),
            value.numpy(),
            kind if value.ndim == 2 and "conv1d" not in name and "conv.conv" not in name else "F32",
            number,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(iter(sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))), path)


def _two_sizes(writer: gguf.GGUFWriter, config: Any) -> list[float]:
    """What llama.cpp's converter writes of heads of two sizes; returns divisors of frequencies."""
    wide, narrow = (config.per_layer_config[one] for one in ("full_attention", "sliding_attention"))
    sliding = [one == "sliding_attention" for one in config.layer_types]
    kv_heads = [narrow.num_key_value_heads if one else wide.num_key_value_heads for one in sliding]
    writer.add_head_count_kv(kv_heads)
    writer.add_sliding_window_pattern(sliding)
    writer.add_key_length(wide.head_dim)
    writer.add_value_length(wide.head_dim)
    writer.add_key_length_swa(narrow.head_dim)
    writer.add_value_length_swa(narrow.head_dim)
    writer.add_rope_dimension_count(wide.head_dim)
    writer.add_rope_dimension_count_swa(narrow.head_dim)
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    share = config.rope_parameters["full_attention"]["partial_rotary_factor"]
    turned = int(wide.head_dim * share / 2)
    return [1.0] * turned + [1e30] * (wide.head_dim // 2 - turned)


def _delta(writer: gguf.GGUFWriter, config: Any) -> None:
    """What llama.cpp's converter writes of layers with a gated delta rule."""
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    sections = config.rope_parameters.get("mrope_section", (11, 11, 10))  # llama.cpp asks for them
    writer.add_rope_dimension_sections([*sections, 0])
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_num_value_heads * config.linear_value_head_dim)


def tiled_heads(name: str, value: torch.Tensor, config: Any, *, back: bool = False) -> torch.Tensor:
    """A weight as llama.cpp's converter leaves it: the value heads of a key head apart, the decay computed;
    or what such a weight was.
    """
    if "linear_attn" not in name or "norm" in name:
        return value
    if "A_log" in name:
        value = (-value).log() if back else -value.exp()
    if "conv1d" in name:
        value = value[:, None] if back else value.squeeze(1)
    if "out_proj" in name:
        return _tiled_rows(value.T, config, config.linear_value_head_dim, back).T.contiguous()
    rows = config.linear_value_head_dim if any(one in name for one in ("qkv", "_z", "conv1d")) else 1
    before = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    before = before if "qkv" in name or "conv1d" in name else 0
    return torch.cat((value[:before], _tiled_rows(value[before:], config, rows, back)))


def _tiled_rows(value: torch.Tensor, config: Any, rows: int, back: bool) -> torch.Tensor:
    keys = config.linear_num_key_heads
    shared = config.linear_num_value_heads // keys
    sizes = (shared, keys) if back else (keys, shared)
    return value.reshape(*sizes, rows, *value.shape[1:]).transpose(0, 1).reshape(value.shape)


def _yarn(writer: gguf.GGUFWriter, rope: dict[str, Any]) -> None:
    """As llama.cpp's converter writes what Ministral 3 says of YaRN, and of queries that grow."""
    if "llama_4_scaling_beta" not in rope:
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def _tokenizer(writer: gguf.GGUFWriter, vocab: int, control: Sequence[str], template: str) -> None:
    """Letters, a few merges, and control tokens at the end."""
    plain = vocab - len(control)
    merged = ["\u0120t", "he", "\u0120the"]
    tokens = (LETTERS + merged)[:plain]
    tokens += [f"word{number}" for number in range(plain - len(tokens))] + list(control)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * plain + [3] * len(control))
    writer.add_token_merges(["\u0120 t", "h e", "\u0120t he"])
    writer.add_bos_token_id(plain)
    writer.add_eos_token_id(vocab - 1)
    writer.add_chat_template(template)


def _as_llama_cpp(name: str, value: torch.Tensor, config: Any) -> torch.Tensor:
    """q and k with the rows of a rotated pair beside each other, as convert_hf_to_gguf.py writes them."""
    part = name.split(".")[-2]
    if part not in ("q_proj", "k_proj"):
        return value
    heads = config.num_attention_heads if part == "q_proj" else config.num_key_value_heads
    return (
        value.view(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
        .swapaxes(1, 2)
        .reshape(value.shape)
    )


def _add(writer: gguf.GGUFWriter, name: str, value: np.ndarray, kind: str, number: int) -> None:
    number_kind = gguf.GGMLQuantizationType[kind]
    if kind in ("F32", "F16"):
        writer.add_tensor(name, value.astype(np.float32 if kind == "F32" else np.float16))
        return
    try:
        packed = quantize(value, number_kind)
    except NotImplementedError:
        packed = _random(value.shape, kind, number)
    writer.add_tensor(name, packed, raw_dtype=number_kind)


def _random(shape: tuple[int, int], kind: str, seed: int) -> np.ndarray:
    """Blocks of any codes and steps whose weights are of the size that a tiny model's are."""
    from tests.support.gguf_blocks import random_blocks

    found = random_blocks(kind, rows=shape[0], columns=shape[1], seed=seed, scale=_SCALE[kind])
    return found.reshape(shape[0], -1)


_SCALE = {"Q4_K": 1.5e-4, "Q5_K": 8e-5, "Q6_K": 6e-5}
