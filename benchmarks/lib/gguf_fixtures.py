"""GGUF files that benchmarks compare: a model's numbers in 16 bits, what llama.cpp's quantiser makes of them,
and a small model in the shape of a larger one.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.upscale import ExpandedWeights, expanded_config
from core.model.config import ModelConfig, load_config
from core.model.gguf.config import OF_LAYER, gguf_name
from core.model.gguf.dequantize import floats, planes
from core.model.gguf.folder import opened
from core.model.gguf.reader import BITS, GgufFile, read_header
from core.model.gguf.weights import GgufWeights, rows_of_halves
from core.model.gguf.writer import Metadata, Tensor, write
from core.model.lora import load_factors, merged_weight
from core.model.shapes import Sizes

# llama.cpp's include/llama.h, enum llama_ftype
FILE_TYPES = {"Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18, "Q8_0": 7}
SIXTEEN = "F16"


def quantised_by_llama_cpp(source: Path, kind: str, threads: int = 1) -> Path:
    """The 16-bit GGUF `source` as one of FILE_TYPES, beside it; made once. Raises ImportError without
    llama-cpp-python and SystemExit where its quantiser fails.
    """
    target = source.with_name(source.name.replace(SIXTEEN, kind))
    if target.is_file():
        return target
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = FILE_TYPES[kind], threads
    part = target.with_suffix(".part")
    if llama_cpp.llama_model_quantize(bytes(source), bytes(part), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp could not make {kind} of {source}.")
    return part.rename(target)


def sixteen_bits(source: Path, target: Path, adapter: Path | None = None) -> Path:
    """The model of the GGUF `source` with its matrices as 16-bit numbers, at `target`; made once. What the
    factors in the file `adapter` change is added before.
    """
    file = read_header(source)
    weights, factors = GgufWeights(file), load_factors(adapter) if adapter else {}

    def value(name: str) -> torch.Tensor:
        found, stem = weights.tensor(name), name.removesuffix(".weight")
        return merged_weight(found.half(), *factors[stem]) if stem in factors else found

    names = {gguf_name(name): name for name in weight_names(file.metadata["llama.block_count"])}
    names = {own: names[own] for own in file.tensors}
    tensors = [_tensor(own, file.tensors[own].shape) for own in names]
    return _written(
        target, Metadata.of_file(file), tensors, lambda own: value(names[own]), names, weights.order
    )


def expanded(source: Path, shape: Sizes, target: Path, *, positions: int) -> Path:
    """The llama of the GGUF `source` in a larger shape (benchmarks.lib.upscale) as 16-bit numbers, with its
    tokenizer, at `target`; made once. Raises ValueError where the shape cannot hold it.
    """
    file, small = read_header(source), load_config(opened(source))
    large = expanded_config(small, shape, positions=positions)
    weights = ExpandedWeights(
        small, GgufWeights(file), large, device=torch.device("cpu"), dtype=torch.float32
    )
    names = {gguf_name(name): name for name in [*weight_names(large.layers), "lm_head.weight"]}
    tensors = [_tensor(own, shape_of(name, large)) for own, name in names.items()]
    return _written(
        target,
        _metadata(_settings(file, large)),
        tensors,
        lambda own: weights.tensor(names[own]),
        names,
        lambda name, rows: rows_of_halves(name, "llama", large.heads, large.kv_heads, rows),
    )


def decoded_gguf(source: Path) -> Path:
    """The GGUF `source` with every weight as the 32-bit number that its code stands for, beside it; made
    once. Which program reads it has no codes to round anything for.
    """
    file, target = read_header(source), source.with_name(f"{source.stem}-decoded.gguf")
    tensors = [Tensor(own, "F32", tensor.shape) for own, tensor in file.tensors.items()]

    def numbers(own: str) -> np.ndarray:
        raw, tensor = file.raw(own), file.tensors[own]
        if tensor.kind in BITS:
            return planes(raw, tensor.kind, tensor.shape).decoded().numpy()
        return floats(raw, tensor.kind, tensor.shape).float().numpy()

    return _once(target, Metadata.of_file(file), tensors, numbers)


def shape_of(name: str, config: ModelConfig) -> tuple[int, ...]:
    """A weight's sizes by its name in checkpoints."""
    hidden, wide = config.hidden, config.intermediate
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes = {
        "embed_tokens": (config.vocab, hidden),
        "lm_head": (config.vocab, hidden),
        "q_proj": (q, hidden),
        "k_proj": (kv, hidden),
        "v_proj": (kv, hidden),
        "o_proj": (hidden, q),
        "gate_proj": (wide, hidden),
        "up_proj": (wide, hidden),
        "down_proj": (hidden, wide),
    }
    return sizes.get(name.split(".")[-2], (hidden,))


def weight_names(layers: int) -> list[str]:
    """The weights of a tied llama of so many layers, as checkpoints name them."""
    parts = [one for one in OF_LAYER if one not in ("self_attn.q_norm", "self_attn.k_norm")]
    of_layers = [f"model.layers.{layer}.{part}.weight" for layer in range(layers) for part in parts]
    return ["model.embed_tokens.weight", "model.norm.weight", *of_layers]


def _tensor(own: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(own, SIXTEEN if len(shape) == 2 else "F32", shape)


def _written(
    target: Path,
    metadata: Metadata,
    tensors: Sequence[Tensor],
    value: Callable[[str], torch.Tensor],
    names: dict[str, str],
    order: Callable[[str, int], torch.Tensor | None],
) -> Path:
    def blocks(own: str) -> np.ndarray:
        found = value(own)
        made = (found.float() if found.ndim == 1 else found.half()).numpy()
        rows = order(names[own], len(made))
        if rows is not None:
            made[rows.numpy()] = made.copy()  # as the file has them
        return made

    return _once(target, metadata, tensors, blocks)


def _once(
    target: Path, metadata: Metadata, tensors: Sequence[Tensor], blocks: Callable[[str], np.ndarray]
) -> Path:
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        write(part, metadata, tensors, blocks)
        part.rename(target)
    return target


def _settings(file: GgufFile, large: ModelConfig) -> dict[str, Any]:
    """Those of the file, with the larger sizes."""
    rope = large.source["rope_parameters"]["rope_theta"]
    changed = {
        "general.name": large.name,
        "llama.block_count": large.layers,
        "llama.embedding_length": large.hidden,
        "llama.feed_forward_length": large.intermediate,
        "llama.attention.head_count": large.heads,
        "llama.attention.head_count_kv": large.kv_heads,
        "llama.attention.key_length": large.head_dim,
        "llama.attention.value_length": large.head_dim,
        "llama.rope.dimension_count": large.head_dim,
        "llama.attention.layer_norm_rms_epsilon": large.norm_eps,
        "llama.rope.freq_base": float(rope),
        "llama.context_length": large.max_position,
    }
    return {**file.metadata, **changed}


# numbers of the kinds of settings, with how they are packed; bool first, since a bool is an int, too
_KINDS = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}
_SIGNED, _TEXT, _LIST = 5, 8, 9


def _metadata(values: dict[str, Any]) -> Metadata:
    packed = b""
    for name, value in values.items():
        kind, found = _packed(value)
        packed += _packed(name)[1] + struct.pack("<I", kind) + found
    return Metadata(len(values), packed)


def _packed(value: Any) -> tuple[int, bytes]:
    """The number of its kind, and its bytes."""
    if isinstance(value, str):
        encoded = value.encode()
        return _TEXT, struct.pack("<Q", len(encoded)) + encoded
    if isinstance(value, list):
        if isinstance(value[0], int):  # llama.cpp asks for signed ones here
            return _LIST, struct.pack(f"<IQ{len(value)}i", _SIGNED, len(value), *value)
        kinds, members = zip(*map(_packed, value), strict=True)
        return _LIST, struct.pack("<IQ", kinds[0], len(value)) + b"".join(members)
    number, form = next(_KINDS[kind] for kind in _KINDS if isinstance(value, kind))
    return number, struct.pack(form, value)
