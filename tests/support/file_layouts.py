"""Checkpoints in the file layouts of the real ones, and what the product's download makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from core.model.store import download as hub_client
from core.model.store.download import download
from tests.support.hub import serving


def sharded_bin(model: torch.nn.Module, folder: Path) -> None:
    """pytorch_model-0000x-of-00002.bin and their index, as LWM and Yarn-Llama-2 ship them."""
    tensors = list(model.state_dict().items())
    where: dict[str, str] = {}
    for number, part in enumerate((tensors[:7], tensors[7:]), start=1):
        name = f"pytorch_model-{number:05d}-of-00002.bin"
        torch.save(dict(part), folder / name)
        where |= dict.fromkeys(dict(part), name)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    model.config.save_pretrained(folder)


def older_config(folder: Path) -> None:
    """config.json as transformers 4 wrote it: `rope_scaling` with `type`, and `rope_theta` beside it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"], kind = rope.pop("rope_theta"), rope.pop("rope_type")
    config["rope_scaling"] = (
        {"type": kind, **rope}
        if kind == "yarn"
        else {"rope_type": kind, **rope}
        if kind != "default"
        else None
    )
    path.write_text(json.dumps(config))


def fetched(source: Path, monkeypatch: pytest.MonkeyPatch, *, pickled: bool) -> Path:
    """Where the files of `source` lie after a download from a stand-in hub."""
    from huggingface_hub import constants

    monkeypatch.setattr(hub_client, "SPARE_BYTES", 0)
    with serving() as (hub, url):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        hub.files = {path.name: path.read_bytes() for path in source.iterdir()}
        return download("someone/tiny", pickled=pickled)
