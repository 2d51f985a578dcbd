"""A tiny target for training: random weights and the embedded model's tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch


def tiny_target(folder: Path, embedded: Path, **sizes: Any) -> Path:
    """Writes a Llama of two KV heads into `folder`; `sizes`: fields of LlamaConfig."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        eos_token_id=2,
        **sizes,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded / name, folder / name)
    return folder
