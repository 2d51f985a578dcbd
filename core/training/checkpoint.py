"""What training leaves in its folder: the state to go on from, and the draft as a checkpoint that
core.model.loader reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from core.errors import UserError
from core.paths import whole_file, write_whole
from core.text.words import translated as _
from core.training.network import DraftNetwork
from core.training.recipe import Recipe


class Workshop:
    """The folder `out`: the draft in it, everything else below `training`. Files are replaced whole."""

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out / "training"
        self.folder.mkdir(parents=True, exist_ok=True)

    def agree(self, recipe: Any) -> None:
        """Keeps the recipe on the first call. Raises UserError when the folder was begun with another one."""
        path = self.folder / "recipe.json"
        lasting = {key: value for key, value in asdict(recipe).items() if key not in recipe.MAY_CHANGE}
        lasting = json.loads(json.dumps(lasting))
        if not path.is_file():
            write_whole(path, json.dumps(lasting, indent=1))
        begun = json.loads(path.read_text(encoding="utf-8"))
        if begun != lasting:
            other = ", ".join(
                f"{key} {begun.get(key)!r}" for key in lasting if begun.get(key) != lasting[key]
            )
            said = _(
                "{folder} was begun with other settings ({settings}). Use those again, or another folder."
            )
            raise UserError(said.format(folder=self.out, settings=other))

    def vocabulary(self, make: Callable[[], list[int]]) -> list[int]:
        """The head's token ids: those of the first call, whatever texts are added later."""
        return self.kept("vocabulary", make)

    def kept(self, name: str, make: Callable[[], list[Any]]) -> list[Any]:
        """What `make` gives on the first call."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            write_whole(path, json.dumps(make()))
        return json.loads(path.read_text(encoding="utf-8"))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Everything a later run needs to go on as if it had not stopped."""
        with whole_file(self.folder / "state.pt") as part:
            torch.save(dict(state), part)

    def load_state(self, device: torch.device) -> dict[str, Any] | None:
        """What `save_state` wrote last, or None."""
        path = self.folder / "state.pt"
        return torch.load(path, map_location=device, weights_only=True) if path.is_file() else None

    def export(
        self, network: DraftNetwork, head_ids: Sequence[int], target_config: Mapping[str, Any], recipe: Recipe
    ) -> None:
        """The draft in bfloat16: layers and norm under their usual names and `head_ids`; embedding and output
        rows are the target's.
        """
        tensors = {
            f"model.{name}": value.detach().to("cpu", torch.bfloat16).contiguous()
            for name, value in network.state_dict().items()
        }
        tensors["head_ids"] = torch.tensor(head_ids, dtype=torch.int32)
        with whole_file(self.out / "model.safetensors") as part:
            save_file(tensors, part, metadata={"format": "pt"})
        config = {
            **target_config,
            "num_hidden_layers": recipe.layers,
            "dtype": "bfloat16",
            "draft": {
                "target": recipe.target,
                "head_tokens": len(head_ids),
                "sinks": recipe.sinks,
                "window": recipe.window,
            },
        }
        for of_target in ("layer_types", "content"):
            config.pop(of_target, None)
        write_whole(self.out / "config.json", json.dumps(config, indent=1))
