"""The weights of a checkpoint folder (safetensors), read one tensor at a time. Knows names, no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from core.errors import UserError
from core.model.families import usual_name
from core.text.words import translated as _


class Weights:
    """Named tensors of a checkpoint folder, read on demand. They go by the names that Llama's have; those
    of the text model in one that also sees pictures by the names that they have in a text model.
    """

    def __init__(self, folder: Path) -> None:
        index = _index(folder)
        self._stored = {usual_name(name): name for name in index}
        self._files = {name: folder / index[stored] for name, stored in self._stored.items()}
        self._open: dict[Path, object] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor as stored, of its shape and dtype. Raises UserError when the checkpoint lacks it."""
        return self._file_of(name).get_tensor(self._stored[name])

    def shape(self, name: str) -> tuple[int, ...]:
        """Its sizes. Reads no weights. Raises as `tensor`."""
        return tuple(self._file_of(name).get_slice(self._stored[name]).get_shape())

    def place(self, name: str) -> tuple[Path, str]:
        """Its file, and its name there."""
        return self._files[name], self._stored[name]

    def _file_of(self, name: str) -> Any:
        if name not in self._files:
            said = _(
                "The model lacks the weights “{name}”; its folder is incomplete or of another kind. "
                "Download it again."
            )
            raise UserError(said.format(name=name))
        file = self._files[name]
        if file not in self._open:
            self._open[file] = safe_open(file, framework="pt")
        return self._open[file]


def _index(folder: Path) -> dict[str, str]:
    """File name of every tensor."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    single = folder / "model.safetensors"
    if not single.is_file():
        said = _("{folder} has no safetensors weights. Download the model again or choose another folder.")
        raise UserError(said.format(folder=folder))
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single.name)
