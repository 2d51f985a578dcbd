"""Weights rounded to the blocks of a GGUF. Knows nothing of files."""

from __future__ import annotations

import numpy as np
import torch

from core.model.gguf.size_estimates import GROUP

_TOP = 127  # the highest 8-bit code
_SCALES = (1.0, 0.8, 0.85, 0.9, 0.95, 1.05, 1.1)


def q8_0(weight: torch.Tensor) -> np.ndarray:
    """Blocks of the nearest weights d*q, q in -127..127, of `weight` [rows, columns]: uint8 [rows, bytes]."""
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    scale = (groups.abs().amax(-1, keepdim=True) / _TOP).half()
    codes = (groups / scale.float().clamp(min=1e-12)).round_().clamp_(-_TOP, _TOP).to(torch.int8)
    return torch.cat((scale.view(torch.uint8), codes.view(torch.uint8)), dim=-1).flatten(1).numpy()


def q4_0(weight: torch.Tensor) -> np.ndarray:
    """Blocks of weights d*(q - 8), q in 0..15, of `weight` [rows, columns]: uint8 [rows, bytes]. Of a few
    scales near the one that the largest weight asks for, each group takes that of the least squared error.
    """
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -8
    best = scale = codes = None
    for share in _SCALES:
        tried = (largest * share).half()
        step = tried.float()
        found = (groups / torch.where(step == 0, 1.0, step)).round_().add_(8).clamp_(0, 15)
        error = ((found - 8) * step - groups).square().sum(-1, keepdim=True)
        if best is None:
            best, scale, codes = error, tried, found
            continue
        better = error < best
        best, scale = torch.where(better, error, best), torch.where(better, tried, scale)
        codes = torch.where(better, found, codes)
    low, high = codes.to(torch.uint8).split(GROUP // 2, dim=-1)
    return torch.cat((scale.view(torch.uint8), low | (high << 4)), dim=-1).flatten(1).numpy()
