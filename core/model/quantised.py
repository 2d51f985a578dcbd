"""Weights rounded to the blocks of a GGUF. Knows nothing of files."""

from __future__ import annotations

import numpy as np
import torch

GROUP = 32  # weights that share a scale
_TOP = 127  # the highest 8-bit code


def q8_0(weight: torch.Tensor) -> np.ndarray:
    """Blocks of the nearest weights d*q, q in -127..127, of `weight` [rows, columns]: uint8 [rows, bytes]."""
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    scale = (groups.abs().amax(-1, keepdim=True) / _TOP).half()
    codes = (groups / scale.float().clamp(min=1e-12)).round_().clamp_(-_TOP, _TOP).to(torch.int8)
    return torch.cat((scale.view(torch.uint8), codes.view(torch.uint8)), dim=-1).flatten(1).numpy()
