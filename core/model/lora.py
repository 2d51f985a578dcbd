"""Low-rank changes to a model's matrices (LoRA, https://arxiv.org/abs/2106.09685): read from a file, and
added to the weights of a GGUF. Knows nothing of where they were learned.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from core.model.gguf.config import gguf_name
from core.model.gguf.quantize_blocks import q8_0
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.gguf.writer import Metadata, Tensor, write
from core.paths import whole_file

Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]  # by matrix: down [rank, in] and up [out, rank]
_TOP = 127  # a signed byte's


def save_factors(path: Path, factors: Factors) -> None:
    """Writes factors as signed bytes, one scale a rank.

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


def load_factors(path: Path) -> Factors:
    """The factors of `save_factors`, float32."""
    with safe_open(path, "pt") as held:
        names = sorted({key.rsplit(".", 1)[0] for key in held.keys()})  # noqa: SIM118 (no mapping)

        def factor(name: str, part: str) -> torch.Tensor:
            return held.get_tensor(f"{name}.{part}").float() * held.get_tensor(f"{name}.{part}_scale")

        return {name: (factor(name, "down"), factor(name, "up")) for name in names}


def merged_weight(weight: torch.Tensor, down: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """weight + up @ down, float32 [out, in]."""
    return torch.addmm(weight.float(), up, down)


def add_to_gguf(
    source: Path, adapter: Path, target: Path, report: Callable[[float], None] = lambda share: None
) -> None:
    """Writes `target`: the model of the GGUF `source` with what the factors in the file `adapter` change.
    `report` hears the share that is done.

    The changed matrices are kept in 8 bits, whatever they had: what is learned is a few hundredths of the
    weights' size, the weights stand on their 4-bit grid already, and rounding to it takes most of the change
    away again.
    """
    file, factors = read_header(source), load_factors(adapter)
    weights, changed = GgufWeights(file), {gguf_name(f"{name}.weight"): name for name in factors}

    def blocks(name: str) -> np.ndarray:
        if name not in changed:
            return file.raw(name)
        full = f"{changed[name]}.weight"
        # float16 first, as it was learned on
        made = q8_0(merged_weight(weights.tensor(full).half(), *factors[changed[name]]))
        order = weights.order(full, len(made))
        if order is not None:
            made[order.numpy()] = made.copy()  # rows as the file has them
        return made

    tensors = [
        Tensor(one.name, "Q8_0" if one.name in changed else one.kind, one.shape)
        for one in file.tensors.values()
    ]
    write(target, Metadata.of_file(file), tensors, blocks, report)
