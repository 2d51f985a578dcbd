"""Low-rank changes to a model's matrices (LoRA, https://arxiv.org/abs/2106.09685): read from a file, added to
the weights, and the sum as 8-bit codes. Knows nothing of where they were learned.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from core.paths import whole_file

GROUP = 32  # weights that share a scale and an offset
_TOP = 127  # the highest 8-bit code


def save(path: Path, factors: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Writes factors by matrix name: down [rank, in] and up [out, rank], as signed bytes, one scale a rank.

    A byte is enough: rank r of the product changes by less than 1 % of its own size.
    """
    tensors = {}
    for name, pair in factors.items():
        for part, factor, along in (("down", pair[0], 1), ("up", pair[1], 0)):
            scale = factor.abs().amax(dim=along, keepdim=True).float().clamp(min=1e-12) / _TOP
            tensors[f"{name}.{part}"] = (factor.float() / scale).round().to(torch.int8).contiguous()
            tensors[f"{name}.{part}_scale"] = scale.contiguous()
    with whole_file(path) as part:
        save_file(tensors, part)


def load(path: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The factors of `save`, float32: down [rank, in] and up [out, rank] by matrix name."""
    with safe_open(path, "pt") as held:
        names = sorted({key.rsplit(".", 1)[0] for key in held.keys()})  # noqa: SIM118 (no mapping)

        def factor(name: str, part: str) -> torch.Tensor:
            return held.get_tensor(f"{name}.{part}").float() * held.get_tensor(f"{name}.{part}_scale")

        return {name: (factor(name, "down"), factor(name, "up")) for name in names}


def merged(weight: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """weight + up @ down, float32 [out, in]."""
    return torch.addmm(weight.float(), up, down)


def requantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes int8 [out, in], scale and offset float16 [out, in / 32] of the nearest weights d*q, q in
    -127..127 (Q8_0; the offset is 0).

    Not 4 bits: what is learned is a few hundredths of the weights' size, the weights stand on their 4-bit
    grid already, and rounding to it takes most of the change away again.
    """
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    scale = (groups.abs().amax(-1, keepdim=True) / _TOP).half()
    codes = (groups / scale.float().clamp(min=1e-12)).round_().clamp_(-_TOP, _TOP)
    return codes.view(weight.shape).to(torch.int8), scale.squeeze(-1), torch.zeros_like(scale.squeeze(-1))


def rebuilt(codes: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """The weights float32 [out, in] that codes stand for."""
    groups = codes.view(codes.shape[0], -1, GROUP).float()
    return (groups * scale.float().unsqueeze(-1) + offset.float().unsqueeze(-1)).view(codes.shape)
