"""Small GGUF models of mixed types, and what they compute."""

from __future__ import annotations

from pathlib import Path

import torch

from core.backend.cpu.backend import CpuBackend
from core.model.families import FAMILIES, is_shifted, usual_name
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.loader import load_model
from tests.support.gguf_files import tiled_heads
from tests.support.tiny import SHARED, oracle, scale_layers, whole_cache

# as Q4_K_M has it: some matrices in other kinds than their neighbours
MIXED = {"": "Q4_K", "v_proj": "Q6_K", "down_proj": "Q6_K", "embed_tokens": "Q5_K", "lm_head": "Q8_0"}


IDS = [5, 17, 200, 3, 88, 88, 250, 41, 7, 119, 300, 12]


WIDE = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 320}


def wide(family: str = "llama", *, vocab: int = WIDE["vocab_size"], **more):
    """A tiny model whose rows are whole blocks of 256."""
    from transformers import AutoConfig, AutoModelForCausalLM

    given = oracle(family, **more).config.to_dict() | WIDE | {"head_dim": 64, "vocab_size": vocab}
    if "linear_value_head_dim" in given:
        given |= {"linear_value_head_dim": 64, "linear_key_head_dim": 32}
    if "per_layer_config" in given:
        given["per_layer_config"] = {
            layer: {**own, "head_dim": 128} for layer, own in given["per_layer_config"].items()
        }
    if family == SHARED:
        given |= {"vocab_size_per_layer_input": vocab, "hidden_size_per_layer_input": 256}
    if family == "lfm2":  # whose MLP has two thirds of that, unless it says otherwise
        given["block_auto_adjust_ff_dim"] = False
    if "query_pre_attn_scalar" in given:  # which a file does not say
        given["query_pre_attn_scalar"] = given["head_dim"]
    config = AutoConfig.for_model(**given)
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name else 0.0, 0.2 if value.ndim < 2 else 0.08)
            if family == SHARED and "q_norm" in name:  # whose scores are not divided: rounding would tell
                value.mul_(0.5)
        scale_layers(model)
    return model


def as_stored(model: torch.nn.Module, file: Path) -> torch.nn.Module:
    """`model` with the file's own weights, decoded."""
    weights = GgufWeights(read_header(file))
    tied = model.config.tie_word_embeddings
    found = {
        name: weights.tensor(usual_name(name)).float()
        for name in model.state_dict()
        if not (tied and "lm_head" in name)
    }
    family = model.config.model_type
    found = {name: value - 1 if is_shifted(name, family) else value for name, value in found.items()}
    if FAMILIES[family].gated:
        given = {name: value.squeeze(1) if "conv1d" in name else value for name, value in found.items()}
        found = {name: tiled_heads(name, value, model.config, back=True) for name, value in given.items()}
    model.load_state_dict(found, strict=False)
    return model


def logits(
    file: Path, backend: CpuBackend, ids: list[int] = IDS, *, one_by_one: bool = False, **more
) -> torch.Tensor:
    model = load_model(opened(file), backend, positions=512, **more)
    cache = whole_cache(model, 512)
    with torch.inference_mode():
        if not one_by_one:
            return model.forward(ids, cache)
        return torch.cat([model.forward([one], cache) for one in ids])
