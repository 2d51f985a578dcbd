"""A tiny assistant of Gemma 4: in transformers, as a checkpoint, in the runtime."""

from __future__ import annotations

from pathlib import Path

import torch

from core.model.assistant import Assistant, build_assistant
from core.model.families import wide_heads
from core.model.llama import LlamaModel
from tests.support.ahead import NamedShapes
from tests.support.tiny import scale_layers

TYPES = ["sliding_attention", "full_attention"]
GROUPS = 12
SAME = ("num_key_value_heads", "head_dim", "sliding_window", "rope_parameters", "max_position_embeddings")


def assistant_oracle(reference: torch.nn.Module, *, grouped: bool = False):
    """transformers' assistant for a tiny Gemma 4; `grouped`: it looks at a quarter of all tokens."""
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

    target = reference.config.to_dict()
    vocab, hidden, wide = target["vocab_size"], target["hidden_size"], wide_heads(target)
    own = {
        "model_type": "gemma4_text",
        "vocab_size": vocab,
        "vocab_size_per_layer_input": 0,
        "hidden_size": 24,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "layer_types": TYPES,
        "num_attention_heads": 4,
        **{key: target[key] for key in SAME},
        "num_global_key_value_heads": wide[0],
        "global_head_dim": wide[1],
        # then the number of heads there is one of its own
        "attention_k_eq_v": True,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": False,
        "tie_word_embeddings": True,
    }
    config = Gemma4AssistantConfig(
        text_config=own,
        backbone_hidden_size=hidden,
        use_ordered_embeddings=grouped,
        num_centroids=GROUPS,
        centroid_intermediate_top_k=GROUPS // 4,
    )
    torch.manual_seed(5)
    model = Gemma4AssistantForCausalLM._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name else 0.0, 0.2 if value.ndim < 2 else 0.25)
        scale_layers(model)
        if grouped:
            model.masked_embedding.token_ordering.copy_(torch.randperm(vocab))
    return model


def our_assistant(target: LlamaModel, model: torch.nn.Module) -> Assistant:
    """The same in the runtime."""
    source = model.config.to_dict()
    return build_assistant(source, NamedShapes(model), target.backend, target=target, name="assistant")


def saved(model: torch.nn.Module, folder: Path) -> Path:
    """As a checkpoint."""
    model.save_pretrained(folder)
    return folder
