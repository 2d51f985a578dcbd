"""A folder that holds a model: whether the app can open it. Reads headers, no weights."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

from core.errors import UserError
from core.text.words import translated as _

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def use_folder(folder: Path) -> Path:
    """The folder itself when it holds a model the app can open; else UserError naming what is missing."""
    folder = folder.expanduser()
    if not folder.is_dir():
        said = _("There is no folder {folder}. Give the folder that holds the model's config.json.")
        raise UserError(said.format(folder=folder))
    check_files(folder)
    return folder


def check_files(folder: Path) -> None:
    """Raises UserError unless config, tokenizer and whole safetensors weights are there. Reads headers."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = _("{folder} has no readable config.json ({error}). Give the folder that holds one.")
        raise UserError(said.format(folder=folder, error=error)) from error
    if not isinstance(config, dict) or "model_type" not in config:
        said = _("{file} is not a model's config. Give the folder of a Transformers model.")
        raise UserError(said.format(file=folder / "config.json"))
    _check_weights(folder)
    tokenizers = (folder / "tokenizer.json", folder / "tokenizer.model")
    if "draft" not in config and not any(path.is_file() for path in tokenizers):
        said = _("{folder} has no tokenizer (tokenizer.json or tokenizer.model). Copy the whole folder.")
        raise UserError(said.format(folder=folder))


def mapped_files(folder: Path) -> dict[str, int]:
    """{path: bytes} of the weights that may stay mapped into memory while the model is used: a process that
    reads behind the end of one is ended by the system. A GGUF is read once and never mapped.
    """
    return {str(file): file.stat().st_size for file in _weight_files(folder) if file.is_file()}


def changed_since(files: Mapping[str, int]) -> Path | None:
    """The first of such files that is gone or has another size."""
    for name, size in files.items():
        file = Path(name)
        if not file.is_file() or file.stat().st_size != size:
            return file
    return None


def _check_weights(folder: Path) -> None:
    weights = _weight_files(folder)
    missing = [path.name for path in weights if not path.is_file()]
    if missing:
        said = _("{folder} lacks {files}. Copy the whole folder, or download the model again.")
        raise UserError(said.format(folder=folder, files=", ".join(missing[:3])))
    if not weights:
        said = _("{folder} has no .safetensors weights. Copy the model's weights there too.")
        if any(path.suffix in PICKLED for path in folder.iterdir()):
            said = _(
                "{folder} has no .safetensors weights, only pickled ones, which can run any program when "
                "opened. Convert them, or use a safetensors twin."
            )
        raise UserError(said.format(folder=folder))
    for path in weights:
        if not _is_whole(path):
            said = _("{file} is damaged or cut short. Copy or download it again.")
            raise UserError(said.format(file=path))


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            return [folder / Path(shard).name for shard in sorted(shards)]
    return sorted(folder.glob("*.safetensors"))


def _is_whole(path: Path) -> bool:
    """Whether the file is as long as its header says: 8 bytes of length, a JSON table of offsets, data."""
    size = path.stat().st_size
    with path.open("rb") as reader:
        head = reader.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, 100_000_000):
            return False
        try:
            table = json.loads(reader.read(length))
            end = max(
                (entry["data_offsets"][1] for name, entry in table.items() if name != "__metadata__"),
                default=0,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
    return size == 8 + length + end
