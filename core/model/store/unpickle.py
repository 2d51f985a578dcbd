"""Pickled checkpoints (.bin) to safetensors, once, after a download. Only tensors are taken out: nothing in
the file can run.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import torch
from safetensors.torch import save_file

from core.errors import UserError
from core.events import Progress
from core.paths import whole_file
from core.text.words import translated as _


def to_safetensors(folder: Path, shards: dict[str, str], progress: Progress) -> None:
    """Replaces each pickled file (key) in `folder` by a safetensors file (value), and writes their index. Can
    be interrupted.

    Raises UserError when a file holds anything but tensors.
    """
    for number, (pickled, name) in enumerate(shards.items()):
        progress(_("Converting {file}").format(file=pickled), number / len(shards))
        if (folder / pickled).exists():
            with whole_file(folder / name) as part:
                save_file(_tensors(folder / pickled), part, metadata={"format": "pt"})
            (folder / pickled).unlink()
    _write_index(folder)


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors by name, each with memory of its own (a file of named tensors has no shared ones)."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        said = _(
            "{file} is not a plain file of tensors and was not opened further, because it could run a "
            "program. Choose a repository of this model with .safetensors files."
        )
        raise UserError(said.format(file=path.name)) from error
    state = state.get("state_dict", state)
    return {
        name: value.detach().clone().contiguous()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _write_index(folder: Path) -> None:
    from safetensors import safe_open

    where: dict[str, str] = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            where.update(dict.fromkeys(weights.keys(), path.name))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where}), encoding="utf-8"
    )
    (folder / "pytorch_model.bin.index.json").unlink(missing_ok=True)
