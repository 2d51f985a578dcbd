"""Tiny random models of each family, in transformers (the oracle) and in the runtime, with the same
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from core.assembly.composition import Composer
from core.backend.base import Backend
from core.backend.cpu.backend import CpuBackend
from core.backend.ranks import SINGLE, Ranks
from core.cache.base import TargetKVCache
from core.cache.full import FullKVCache
from core.cache.layered import with_side
from core.engine import Engine
from core.model.config import from_source
from core.model.families import text_config, usual_name
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.selftest.random_model import SMALL_PLAN

VOCAB = 97
ALIKE = ("llama", "mistral", "qwen2", "qwen3")  # all of their layers
ONE_STORE = (*ALIKE, "ministral3", "smollm3")  # holds the rows of all layers
# whose layers are not those of Llama
OTHERS = ("gemma3_text", "gemma4_text", "gemma4_shared", "lfm2", "ministral3", "qwen3_5_text", "smollm3")
FAMILIES = (*ONE_STORE, "gemma3_text", "gemma4_text", "gemma4_shared", "lfm2", "qwen3_5_text")
# of Gemma 4 E2B and E4B, whose last layers read what others hold, and whose tokens bring inputs to each layer
SHARED = "gemma4_shared"


# what sets a tiny model of a family apart: as published, but for the original context
OWN = {
    "mistral": {"sliding_window": None},
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        }
    },
    "smollm3": {"num_hidden_layers": 4},
    "lfm2": {
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "block_multiple_of": 16,
    },
    "qwen3_5_text": {
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [1, 1, 0],
        },
    },
    "gemma4_text": {
        "num_hidden_layers": 6,
        "sliding_window": 24,
        "max_position_embeddings": 64,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 3.0,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1000000.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "gemma3_text": {
        "num_hidden_layers": 6,
        "sliding_window": 24,
        "query_pre_attn_scalar": 12,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
}


OWN[SHARED] = OWN["gemma4_text"] | {
    "num_hidden_layers": 7,
    "layer_types": ["sliding_attention", "full_attention"] * 2
    + ["sliding_attention"] * 2
    + ["full_attention"],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "attention_k_eq_v": False,
    "num_global_key_value_heads": None,
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": VOCAB,
}


def model_type(family: str) -> str:
    """What transformers calls it."""
    return "gemma4_text" if family == SHARED else family


class Named:
    """Weights by name out of a transformers model, as the loader reads them from a file."""

    def __init__(self, oracle: torch.nn.Module) -> None:
        self._tensors = {usual_name(name): value.detach() for name, value in oracle.state_dict().items()}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]


def oracle(
    family: str = "llama",
    *,
    kv_heads: int = 2,
    tied: bool = False,
    head_dim: int = 8,
    rope: dict[str, Any] | None = None,
    **more: Any,
):
    """A transformers model in fp32 with weights large enough that its laws are not flat."""
    from transformers import AutoConfig, AutoModelForCausalLM

    given = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "bos_token_id": 0,
        "eos_token_id": None,
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    given |= OWN.get(family, {}) | more | ({"rope_parameters": rope} if rope else {})
    config = AutoConfig.for_model(model_type(family), **given)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name else 0.0, 0.2 if value.ndim < 2 else 0.25)
        scale_layers(model)
    return model


def scale_layers(model: torch.nn.Module) -> None:
    """Scalars of layers, which a random model has at 1, away from it."""
    for number, (_name, value) in enumerate(
        pair for pair in model.named_buffers() if pair[0].endswith("layer_scalar")
    ):
        value.fill_((0.6, 1.3, 0.8)[number % 3])


def ours(
    model: torch.nn.Module,
    *,
    positions: int = 512,
    eos: int | None = None,
    dtype: torch.dtype = torch.float32,
    backend: Backend | None = None,
    ranks: Ranks = SINGLE,
    source: dict[str, Any] | None = None,
) -> LlamaModel:
    """The same model in the runtime, on the CPU unless another backend is given; `source`: configured so."""
    return build_model(
        from_source(source or text_config(model.config.to_dict()), name="tiny", eos=eos),
        Named(model),
        backend or CpuBackend(dtype),
        positions=positions,
        ranks=ranks,
    )


def whole_cache(
    model: LlamaModel,
    capacity: int,
    *,
    block_tokens: int = 64,
    dtype: torch.dtype | None = None,
    room: int = 48,
) -> TargetKVCache:
    """A cache on the device that holds so many tokens."""
    shape, how = model.config.kv_shape, {"block_tokens": block_tokens, "dtype": dtype}
    return with_side(shape, FullKVCache(shape.of_full, capacity, model.backend, **how), room=room)


PLAN = replace(
    SMALL_PLAN,
    model="tiny",
    context_tokens=448,
    layers=2,
    on_chip_layers=2,
    retrieval_budget=64,
    tail_tokens=32,
    draft_window=24,
    gamma=4,
    middle_gamma=2,
    prefill_segment_tokens=48,
    prefill_chunk_tokens=20,
    staging_blocks=0,
    staging_block_tokens=0,
    weights_bits=32,
)


def engine(
    model: LlamaModel,
    *,
    draft: LlamaModel | None = None,
    composer: type[Composer] = Composer,
    new_cache: Callable[[int], TargetKVCache] | None = None,
    **plan: Any,
) -> Engine:
    """An engine around a tiny model, composed as the product composes it, over full caches unless `new_cache`
    makes others.
    """
    figures = replace(PLAN, **plan)

    def full_cache(capacity: int) -> TargetKVCache:
        return whole_cache(model, capacity + 32)

    return Engine(
        model,
        figures,
        new_cache=new_cache or full_cache,
        compose=composer(figures, model, draft).compose,
        peak_memory=lambda: 1,
    )
