"""A checkpoint folder (safetensors) to a LlamaModel on a backend. Knows the checkpoint's names and nothing of decoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open

from core.backend.base import Backend, Codes, Linear
from core.errors import UserError
from core.model.config import ModelConfig, load_config
from core.model.llama import Layer, LlamaModel
from core.model.rope import Rope

Progress = Callable[[str, float | None], None]


def load_model(
    folder: Path, backend: Backend, *, positions: int, stretch: float = 1.0, progress: Progress | None = None
) -> LlamaModel:
    """The model in `folder`, able to take positions [0, positions). Raises UserError when the folder is incomplete or unsupported."""
    config = load_config(folder)
    return build(config, Weights(folder), backend, positions=positions, stretch=stretch, progress=progress)


def build(
    config: ModelConfig, weights: Weights, backend: Backend, *, positions: int, stretch: float = 1.0, progress: Progress | None = None
) -> LlamaModel:
    """The same from a configuration and a reader of named weights."""
    report = progress or (lambda stage, fraction: None)
    embedding = weights.tensor("model.embed_tokens.weight").to(backend.device, backend.dtype)
    layers = []
    for index in range(config.layers):
        layers.append(_layer(f"model.layers.{index}.", weights, backend))
        report("Loading the model", (index + 1) / config.layers)
    head = "model.embed_tokens" if config.tied else "lm_head"
    return LlamaModel(
        config, backend,
        embedding=embedding,
        layers=layers,
        norm=_vector(weights, backend, "model.norm.weight"),
        head=_linear(weights, backend, [head]),
        rope=Rope(config, positions, dtype=backend.dtype, device=backend.device, stretch=stretch),
    )


class Weights:
    """Named tensors of a checkpoint folder, read on demand, and the integer codes beside them if there are any."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: folder / file for name, file in _index(folder).items()}
        codes = folder / "codes.safetensors"
        self._codes = safe_open(codes, framework="pt") if codes.is_file() else None
        self._code_names = set(self._codes.keys()) if self._codes else set()
        self._open: dict[Path, object] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor as stored. Raises UserError when the checkpoint lacks it."""
        if name not in self._files:
            raise UserError(f"The model lacks the weights {name!r}; its folder is incomplete or of another kind. Download it again.")
        file = self._files[name]
        if file not in self._open:
            self._open[file] = safe_open(file, framework="pt")
        return self._open[file].get_tensor(name)

    def codes(self, stem: str) -> Codes | None:
        """The integer codes of `stem`.weight, or None."""
        if f"{stem}.codes" not in self._code_names:
            return None
        return Codes(*(self._codes.get_tensor(f"{stem}.{field}") for field in ("codes", "scale", "offset")))


def _index(folder: Path) -> dict[str, str]:
    """File name of every tensor."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    single = folder / "model.safetensors"
    if not single.is_file():
        raise UserError(f"{folder} has no safetensors weights. Download the model again or choose another folder.")
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single.name)


def _layer(prefix: str, weights: Weights, backend: Backend) -> Layer:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    has_norms = attention + "q_norm.weight" in weights
    return Layer(
        qkv=_linear(weights, backend, [attention + "q_proj", attention + "k_proj", attention + "v_proj"]),
        out=_linear(weights, backend, [attention + "o_proj"]),
        gate_up=_linear(weights, backend, [mlp + "gate_proj", mlp + "up_proj"]),
        down=_linear(weights, backend, [mlp + "down_proj"]),
        attention_norm=_vector(weights, backend, prefix + "input_layernorm.weight"),
        mlp_norm=_vector(weights, backend, prefix + "post_attention_layernorm.weight"),
        q_norm=_vector(weights, backend, attention + "q_norm.weight") if has_norms else None,
        k_norm=_vector(weights, backend, attention + "k_norm.weight") if has_norms else None,
    )


def _linear(weights: Weights, backend: Backend, stems: list[str]) -> Linear:
    """One product for several stacked matrices [sum of out, in]."""
    weight = torch.cat([weights.tensor(f"{stem}.weight") for stem in stems])
    biased = f"{stems[0]}.bias" in weights
    bias = torch.cat([weights.tensor(f"{stem}.bias") for stem in stems]) if biased else None
    codes = [weights.codes(stem) for stem in stems]
    stacked = None if None in codes else Codes(*(torch.cat([getattr(c, f) for c in codes]) for f in ("codes", "scale", "offset")))
    return backend.linear(weight.to(backend.device), bias, stacked)


def _vector(weights: Weights, backend: Backend, name: str) -> torch.Tensor:
    return weights.tensor(name).to(backend.device, backend.dtype)
