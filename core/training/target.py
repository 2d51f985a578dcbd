"""The target as transformers runs it, from a checkpoint or from a GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.model.loader import weights_in


def in_transformers(folder: Path, dtype: torch.dtype, *, config: Any = None) -> Any:
    """The model in `folder`, with all its weights as numbers of `dtype`; `config` stands for its own. Raises
    UserError where the folder or what it stands for is damaged.
    """
    weights, config = weights_in(folder, in_codes=False), config or AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(weights.tensor(name))
        factors = config.rope_parameters.get("frequency_factors")
        if factors is not None:  # transformers computes them from numbers that a GGUF does not have
            model.model.rotary_emb.inv_freq /= torch.tensor(factors)
    return model
