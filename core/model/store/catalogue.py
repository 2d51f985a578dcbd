"""The models this program knows: where they are, shape, licence, context, draft pairing, and how they read
best. No torch.

The data is catalogue.yaml beside this file. A folder with a checkpoint that is not listed gets an entry of
its own.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from core.errors import UserError
from core.model.assistant_sizes import assistant_shape, is_assistant
from core.model.families import why_no_experts, why_not
from core.model.gguf.config import (
    ROPE_FACTORS,
    bits_of,
    bytes_in_codes,
    config_of,
    format_of,
    head_bytes,
    name_of,
    table_bytes,
)
from core.model.gguf.folder import gguf_in
from core.model.gguf.layer_ahead import is_layer_alone
from core.model.gguf.reader import GgufFile, is_gguf, read_header
from core.model.gguf.shards import is_later_part, parts_of
from core.model.gguf.size_estimates import in_format
from core.model.mixer_sizes import ConvolutionSizes, DeltaSizes, StateSizes
from core.model.shapes import ModelShape
from core.model.store.tensor_names import JOINS_AHEAD, tensor_names
from core.paths import ROOT
from core.text.words import translated as _

DATA = Path(__file__).with_name("catalogue.yaml")
EMBEDDED = "SmolLM2-135M-Instruct"
_PADDING = 64  # rows of a vocabulary


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model. `draft` names another entry with the same vocabulary."""

    name: str
    repo: str
    shape: ModelShape
    vocabulary: str
    licence: str
    languages: str = ""
    revision: str = "main"
    chat: bool = True  # False: a base model, "not tuned for chat"
    # how a conversation is written where the tokenizer has no chat template (core.text)
    frame: str = "lwm"
    # "draft": only useful as a draft model; "ahead": the layer alone that predicts one token further than its
    # model; "assistant": a small model that attends to its model's keys and values
    role: str = "target"
    draft: str | None = None
    # "bin": pickled checkpoint, converted once after the download; "gguf": one file, used as it is
    weights: str = "safetensors"
    # of a GGUF on the hub: its name there, the model it is a file of, its size, and as much of its checksum
    # as a public source states
    file: str = ""
    of: str = ""
    file_bytes: int = 0
    sha256: str = ""
    # the licence must be accepted on the model's page before a download
    gated: bool = False
    embedded: bool = False
    taught: bool = False  # to read: its weights are changed by an adapter of ours
    # a checkpoint of the user's own, or one that comes with the program; of a GGUF the file
    folder: Path | None = None
    # attention heads (layer, head) that look where an answer stands; see core.tuning.heads
    heads: tuple[tuple[int, int], ...] = ()
    # how a book is put to it; core.conversation.reading.ReadingStyle's keys
    reading: Mapping[str, Any] = field(default_factory=dict)

    def title(self, beside: str = "") -> str:
        """Its name as a person reads it, with the format of a file, and `beside` that, in brackets."""
        details = ", ".join(filter(None, (self.shape.format if self.of else "", beside)))
        plain = spelt(self.of or self.name)
        plain = f"{plain} ({details})" if details else plain
        return _("{name}, taught to read").format(name=plain) if self.taught else plain

    @property
    def native_context(self) -> int:
        """Tokens the model was trained for."""
        return self.shape.native_context

    @property
    def download_bytes(self) -> int:
        """What a download fetches, about."""
        return self.file_bytes or self.shape.file_bytes


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return yaml.safe_load(DATA.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _entries() -> tuple[CatalogueEntry, ...]:
    models = {name: _entry(name, values) for name, values in _data()["models"].items()}
    files = (_file_entry(name, values, models) for name, values in _data()["files"].items())
    return *models.values(), *files


def not_yet() -> dict[str, str]:
    """Models that people ask for and that do not run here, each with the reason."""
    return {
        name: why_no_experts(name) if family == "experts" else why_not(family, name)
        for name, family in _data()["not_yet"].items()
    }


def has_file(entry: CatalogueEntry) -> bool:
    """Whether the catalogue has a checkpoint of 16 bits as a GGUF, too."""
    return any(values["of"] == entry.name for values in _data()["files"].values())


def load_catalogue() -> dict[str, CatalogueEntry]:
    """All entries by name, in the file's order. The dict is the caller's own."""
    return {entry.name: entry for entry in _entries()}


def title_of(name: str, beside: str = "") -> str:
    """The title of the entry of this very name; the name itself where none has it."""
    entry = next((entry for entry in _entries() if entry.name == name), None)
    if entry is None:
        return f"{name} ({beside})" if beside else name
    return entry.title(beside)


def spelt(name: str) -> str:
    """A name as a person reads it: spaces for hyphens, and units of size as they are written."""
    return re.sub(r"\b[\d.]+[bkm]\b", lambda found: found[0].upper(), name.replace("-", " "))


def find(name: str) -> CatalogueEntry:
    """The entry of this name, repository or checkpoint folder, in any case. UserError names the nearest."""
    wanted = name.strip().lower()
    for entry in _entries():
        if wanted in (entry.name.lower(), entry.repo.lower()):
            return entry
    path = Path(name).expanduser()
    if (path / "config.json").is_file():
        return from_folder(path)
    if (file := gguf_at(path)) is not None:
        return from_gguf(file)
    for known, why in not_yet().items():
        if wanted == known.lower():
            raise UserError(why)
    if path.is_absolute():
        said = _("{file} is gone, or holds no model. Choose where the model is now, or another one.")
        raise UserError(said.format(file=path))
    names = {entry.name.lower(): entry.name for entry in _entries()}
    near = names[difflib.get_close_matches(wanted, names, n=1, cutoff=0.0)[0]]
    said = _(
        "There is no model “{name}”; the nearest is {near}. `models list` shows all; a folder with a "
        "checkpoint works too."
    )
    raise UserError(said.format(name=name, near=near))


def from_folder(folder: Path) -> CatalogueEntry:
    """An entry for a local checkpoint folder of a covered architecture. Raises UserError when it is none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = _("{folder} is not a model folder: config.json cannot be read ({error}).")
        raise UserError(said.format(folder=folder, error=error)) from error
    known = {entry.name.lower(): entry for entry in _entries()}.get(folder.name.lower())
    if (file := gguf_in(folder)) is not None:
        return from_gguf(file.path)
    if is_assistant(config):
        return _of_assistant(folder, config)
    shape = ModelShape.from_hf_config(config, name=folder.name)
    # who saves a model anew may leave the layer out
    if shape.ahead and JOINS_AHEAD not in tensor_names(folder):
        shape = replace(shape, ahead=0)
    if known is not None and _sizes(shape) == _sizes(known.shape):
        return replace(known, folder=folder, shape=replace(known.shape, ahead=shape.ahead))
    pickled = not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin"))
    templated, chat_name = _has_chat_template(folder), re.search(r"llama-?2.*chat", folder.name.lower())
    return CatalogueEntry(
        name=folder.name,
        repo=str(folder),
        shape=shape,
        vocabulary=f"folder:{folder.name}",
        licence=_("see the folder"),
        chat=templated or bool(chat_name),
        frame="llama2" if chat_name else "completion",
        role="draft" if "draft" in config else "target",
        weights="bin" if pickled else "safetensors",
        folder=folder,
    )


def _of_assistant(folder: Path, config: Mapping[str, Any]) -> CatalogueEntry:
    return CatalogueEntry(
        name=folder.name,
        repo=str(folder),
        shape=assistant_shape(config, name=folder.name),
        vocabulary=f"folder:{folder.name}",
        licence=_("see the folder"),
        chat=False,
        role="assistant",
        folder=folder,
    )


def gguf_at(path: Path) -> Path | None:
    """The GGUF that the path is, or that is the only one in it; of one in parts the first. Raises UserError
    where there are several.
    """
    if path.is_file() and (path.suffix.lower() == ".gguf" or is_gguf(path)):
        return parts_of(path)[0]
    files = sorted(path.glob("*.gguf")) if path.is_dir() else []
    found = [one for one in files if not is_later_part(one) and "mmproj" not in one.name.lower()]
    if len(found) > 1:
        said = _("{folder} holds several models: {files}. Give the path of one.")
        raise UserError(said.format(folder=path, files=", ".join(one.name for one in found)))
    return found[0] if found else None


def from_gguf(file: Path) -> CatalogueEntry:
    """An entry for a GGUF of a covered architecture. Reads its header. Raises UserError when it is none,
    or damaged.
    """
    header = read_header(file)
    name = name_of(header)
    shape = ModelShape.from_hf_config(config_of(header, name), name=name)
    coded_bytes, coded_weights = bytes_in_codes(header)
    ahead_bytes, ahead_weights = bytes_in_codes(header, ahead=True)
    if is_layer_alone(header):
        shape = replace(shape, ahead_weights=ahead_weights, ahead_bytes=ahead_bytes)
        return _of_file(file, header, shape, role="ahead")
    shape = replace(
        shape,
        longest_context=shape.native_context if ROPE_FACTORS in header.tensors else shape.longest_context,
        format=format_of(header),
        code_bits=bits_of(header),
        coded_weights=coded_weights,
        coded_bytes=coded_bytes,
        ahead_weights=ahead_weights,
        ahead_bytes=ahead_bytes,
        head_bytes=head_bytes(header),
        table_bytes=table_bytes(header),
    )
    for known in (entry for entry in _entries() if entry.weights != "gguf"):
        if name.lower().startswith(_file_names(known)) and _same_but_for_the_form(shape, known.shape):
            # some say a million tokens, which need another attention than is computed with here
            shape = shape.capped(known.shape.longest_context)
            of_file = {"name": name, "folder": file, "shape": shape, "weights": "gguf"}
            return replace(known, **of_file, embedded=False, taught=False)
    return _of_file(file, header, shape)


def _of_file(file: Path, header: GgufFile, shape: ModelShape, *, role: str = "target") -> CatalogueEntry:
    """The entry for a GGUF that is no file of a model in the list."""
    return CatalogueEntry(
        name=shape.name,
        repo=str(file),
        shape=shape,
        vocabulary=f"file:{shape.name}",
        licence=str(header.metadata.get("general.license") or _("see the file")),
        chat="tokenizer.chat_template" in header.metadata,
        frame="completion",
        role=role,
        weights="gguf",
        folder=file,
    )


def with_layer(entry: CatalogueEntry, layer: CatalogueEntry) -> CatalogueEntry:
    """The model with a layer that predicts one token further from a file of its own. Raises UserError where
    it is another model's.
    """
    if not _same_but_for_the_form(layer.shape, entry.shape):
        said = _(
            "{draft} is the layer of another model than {model}: their sizes differ. Choose the file that "
            "was made for it, or draft_model: none."
        )
        raise UserError(said.format(draft=layer.name, model=entry.name))
    of_layer = {name: getattr(layer.shape, name) for name in ("ahead", "ahead_weights", "ahead_bytes")}
    return replace(entry, shape=replace(entry.shape, **of_layer))


def draft_for(entry: CatalogueEntry, chosen: str | None = None) -> CatalogueEntry | None:
    """The draft model for `entry`: its pairing, or the user's choice ("none": none). UserError when they
    cannot pair.

    Checkpoints outside the catalogue are taken at their word here; the loader compares the tokenizers.
    """
    if chosen is not None and chosen.strip().lower() == "none":
        return None
    if chosen is None:
        return find(entry.draft) if entry.draft else _assistant_beside(entry)
    draft = find(chosen)
    if draft.role == "assistant" and not draft.shape.suits(entry.shape):
        said = _(
            "{draft} was made to draft for another model than {model}: their sizes differ. Choose the one "
            "that was made for it, or draft_model: none."
        )
        raise UserError(said.format(draft=draft.name, model=entry.name))
    both_listed = entry.folder is None and draft.folder is None
    if both_listed and draft.vocabulary != entry.vocabulary:
        said = _(
            "{draft} cannot draft for {model}: they have different vocabularies. Set draft_model to auto "
            "or none."
        )
        raise UserError(said.format(draft=draft.name, model=entry.name))
    return draft


def _assistant_beside(entry: CatalogueEntry) -> CatalogueEntry | None:
    """The assistant in the folder beside the model's that is called as its makers call it."""
    folder = entry.folder and entry.folder.with_name(f"{entry.folder.name.removesuffix('.gguf')}-assistant")
    if folder is None or not (folder / "config.json").is_file():
        return None
    found = from_folder(folder)
    return found if found.role == "assistant" and found.shape.suits(entry.shape) else None


def _file_names(entry: CatalogueEntry) -> tuple[str, ...]:
    """What files of the model are called, up to their format, in small letters."""
    files = (name for name, values in _data()["files"].items() if values["of"] == entry.name)
    return entry.name.lower(), *(name.lower().rpartition("-")[0] for name in files)


def _same_but_for_the_form(file: ModelShape, checkpoint: ModelShape) -> bool:
    """A file may hold twice what a checkpoint holds once, and leave out rows that no token has."""
    if abs(file.vocab - checkpoint.vocab) > _PADDING:
        return False
    alike = replace(file, tied=checkpoint.tied, vocab=checkpoint.vocab)
    return _sizes(alike) == _sizes(checkpoint)


def _sizes(shape: ModelShape) -> ModelShape:
    """A shape without what config.json does not tell."""
    plain = replace(shape.decoded(), format="", code_bits=16, ahead=0, table_bytes=0)
    return replace(plain, name="", native_context=0, longest_context=0)


def _entry(name: str, values: Mapping[str, Any]) -> CatalogueEntry:
    values = dict(values)
    native, measures = values.pop("native_context"), dict(values.pop("shape"))
    states = measures.pop("states", None)
    shape = ModelShape(
        name=name,
        family=values.pop("family"),
        native_context=native,
        longest_context=values.pop("longest_context", native),
        states=_states(states) if states else None,
        **measures,
    )
    if kind := values.pop("format", None):
        shape = in_format(shape, name, kind)
    folder = values.pop("folder", None)
    return CatalogueEntry(
        name=name,
        shape=shape,
        folder=ROOT / folder if folder else None,
        heads=tuple((layer, head) for layer, head in values.pop("heads", ())),
        reading=MappingProxyType(values.pop("reading", {})),
        **values,
    )


def _states(sizes: Mapping[str, int]) -> StateSizes:
    return ConvolutionSizes(**sizes) if "channels" in sizes else DeltaSizes(**sizes)


def _file_entry(name: str, values: Mapping[str, Any], models: Mapping[str, CatalogueEntry]) -> CatalogueEntry:
    """The model `of` as one GGUF of the hub. It has no draft model: drafts come from n-gram lookup."""
    base = models[values["of"]]
    own = {"ahead": 0} | {key: values[key] for key in ("tied", "vocab", "ahead") if key in values}
    return replace(
        base,
        name=name,
        repo=values["repo"],
        revision=values.get("revision", "main"),
        shape=in_format(
            replace(base.shape, **own),
            name,
            values["format"],
            ends=values.get("ends"),
            table=values.get("table"),
        ),
        gated=False,
        draft=None,
        weights="gguf",
        file=f"{name}.gguf",
        of=base.name,
        file_bytes=values["bytes"],
        sha256=values.get("sha256", ""),
    )


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(
            json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template")
        )
    except (OSError, ValueError):
        return False
