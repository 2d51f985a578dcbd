"""A checkpoint of 16 bits as a GGUF of 8 or 4: made once, kept in the user's data folder, and gone on with
where it was stopped. The checkpoint stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from core.errors import UserError
from core.events import Progress
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, load_config
from core.model.families import FAMILIES, is_shifted
from core.model.gguf.config import WHOLE, gguf_name, parts_of_layer
from core.model.gguf.folder import POINTER
from core.model.gguf.quantize_blocks import q4_0, q8_0
from core.model.gguf.size_estimates import GROUP
from core.model.gguf.weights import rows_of_halves
from core.model.gguf.writer import Metadata, Tensor, write
from core.model.mixer_sizes import DeltaSizes
from core.model.store.manifest import fingerprint, finished, write_manifest
from core.model.store.tensor_names import JOINS_AHEAD, tensor_names
from core.model.value_heads import TiledWeights
from core.model.weight_shapes import INPUTS_NORM, INPUTS_PROJECTION, INPUTS_TABLE, ahead_shapes
from core.paths import subdir, write_whole
from core.text.words import size
from core.text.words import translated as _

_KEYS_AND_VALUES = ("self_attn.k_", "self_attn.v_")
_FORMAT = 1  # raised when other numbers come out
_MAKERS: dict[str, Callable[[torch.Tensor], np.ndarray]] = {"Q8_0": q8_0, "Q4_0": q4_0}


def quantised(folder: Path, kind: str, report: Progress) -> Path:
    """The folder that stands for the checkpoint in `folder` with its matrices as `kind` (Q8_0 or Q4_0), to be
    loaded as any other. Made where it is not there; a try that was stopped is gone on with.

    Raises UserError where the disk has no room, or a matrix cannot be held so.
    """
    ahead = " and the layer ahead" if JOINS_AHEAD in tensor_names(folder) else ""
    key = hashlib.sha256(f"{fingerprint(folder)} {kind} {_FORMAT}{ahead}".encode()).hexdigest()
    made = subdir("quantised") / f"{key[:32]}-{kind}" / folder.name
    if finished(made) is not None:
        return made
    config, weights = load_config(folder), Weights(folder)
    if isinstance(config.states, DeltaSizes):
        weights = TiledWeights(weights, config.states)
    tensors = {name: _tensor(name, kind, config, weights) for name in _names(config, weights)}
    needed = sum(tensor.nbytes for tensor in tensors.values())
    made.mkdir(parents=True, exist_ok=True)
    file = made / f"{folder.name}.gguf"
    _require_room(made, needed - (file.stat().st_size if file.is_file() else 0))
    by_gguf = {tensor.name: name for name, tensor in tensors.items()}
    said = _("Rounding the weights to {kind}").format(kind=kind)
    write(
        file,
        _metadata(config),
        list(tensors.values()),
        lambda name: _blocks(by_gguf[name], tensors[by_gguf[name]].kind, config, weights),
        lambda share: report(said, share),
    )
    for path in folder.iterdir():
        if path.is_file() and (path.suffix in (".json", ".jinja", ".model") and "index" not in path.name):
            shutil.copyfile(path, made / path.name)
    stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_whole(made / "config.json", json.dumps(stated | {"content": key}, indent=1))
    write_whole(made / POINTER, json.dumps({"sha256": key, "file": file.name}))
    write_manifest(made)
    return made


def _names(config: ModelConfig, weights: Weights | TiledWeights) -> list[str]:
    """The weights that are computed with, by the checkpoint's names."""
    found = ["model.embed_tokens.weight", "model.norm.weight"]
    if not config.tied:
        found.append("lm_head.weight")
    if config.input_width:
        found += [f"{stem}.weight" for stem in (INPUTS_TABLE, INPUTS_PROJECTION, INPUTS_NORM)]
    for layer, layer_kind in enumerate(config.kinds):
        parts = [f"{part}.{kind}" for part in parts_of_layer(config.family) for kind in ("weight", "bias")]
        if layer_kind.reads >= 0:  # a checkpoint has keys and values of such a layer, and nothing reads them
            parts = [part for part in parts if not part.startswith(_KEYS_AND_VALUES)]
        names = (f"model.layers.{layer}.{part}" for part in (*parts, *WHOLE))
        found += [name for name in names if name in weights]
    if JOINS_AHEAD in weights:
        found += ahead_shapes(config)
    return found


def _tensor(name: str, kind: str, config: ModelConfig, weights: Weights | TiledWeights) -> Tensor:
    shape = weights.shape(name)
    if len(shape) == 3:  # a convolution within each channel
        return Tensor(gguf_name(name, config.family), "F32", (shape[0], shape[2]))
    own = gguf_name(name, config.family, ahead=config.layers)
    if len(shape) == 2 and shape[-1] % GROUP:
        said = _(
            "“{name}” has rows of {columns} numbers, which cannot be rounded in groups of {group}. Set "
            "weights: 16."
        )
        raise UserError(said.format(name=name, columns=shape[-1], group=GROUP))
    return Tensor(own, kind if len(shape) == 2 else "F32", shape)


def _blocks(name: str, kind: str, config: ModelConfig, weights: Weights | TiledWeights) -> np.ndarray:
    value = weights.tensor(name).float()
    if kind == "F32":
        if is_shifted(name, config.family):
            value = value + 1
        made = (-value.exp() if name.endswith("A_log") else value).numpy()
    else:
        made = _MAKERS[kind](value)
    order = rows_of_halves(name, config.family, config.heads, config.kv_heads, len(made))
    if order is not None:
        made[order.numpy()] = made.copy()
    return made


def _metadata(config: ModelConfig) -> Metadata:
    """What the reader of the weights asks for."""
    architecture = FAMILIES[config.family].gguf
    return Metadata.of_values(
        {
            "general.architecture": architecture,
            "general.name": config.name,
            f"{architecture}.attention.head_count": config.heads,
            f"{architecture}.attention.head_count_kv": config.kv_heads,
        }
    )


def _require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        said = _(
            "Rounding the weights needs {needed} in {folder}, and {free} is free. Free some, or set weights: "
            "16."
        )
        raise UserError(said.format(needed=size(needed), folder=folder, free=size(free)))
