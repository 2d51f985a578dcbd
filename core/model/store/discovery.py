"""GGUF files that other programs on this computer keep: where they are, and what they are called there. Reads
folders and small files of those programs, changes nothing, opens no model.

Where LM Studio's pointer and Jan's settings lie is what public code says (looked up 2026-11-22 and 23); the
rest is what these programs were last known to do, and none of them was run. What is not there is passed over.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from core.errors import UserError
from core.model.gguf.shards import bytes_of, is_later_part, require_all, stem_of

# of one program: a named folder may be a whole disk
_MOST_FILES, _MOST_FOLDERS, _DEEPEST, _LONGEST_S = 2000, 20_000, 12, 15.0
_PROGRAMS = 4  # folders of other programs that are walked through
_MOST_BYTES = 1 << 20  # of a small file that is read
_MODEL_LAYER = "application/vnd.ollama.image.model"
_OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model of another program. `why_not`: why it cannot run here, where that is known unopened."""

    path: Path
    name: str
    program: str
    bytes: int
    why_not: str = ""


def found_elsewhere(
    named: Sequence[Path] = (),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    system: str = sys.platform,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[FoundModel]:
    """Models of LM Studio, Ollama, Jan, llama.cpp, the hub's cache, and below the folders `named`; each file
    once. What cannot be read is left out. It ends, with what was found, when `should_stop` says so.
    """
    home = home or Path.home()
    return _each(
        {
            "LM Studio": _lm_studio(home, should_stop),
            "Ollama": _ollama(home, environ),
            "Jan": _jan(home, environ, system),
            "llama.cpp": _below(_llama_cache(home, environ, system), should_stop),
            "Hugging Face": _below(_hub_cache(home, environ), should_stop),
        },
        lambda: found_below(named, should_stop=should_stop),
        should_stop,
    )


def found_below(
    named: Sequence[Path], *, should_stop: Callable[[], bool] = lambda: False
) -> list[FoundModel]:
    """Models below folders that somebody named: portable programs keep theirs beside themselves. The search
    ends after some seconds, files, folders and levels, or when `should_stop` says so.
    """
    below = {str(folder): _below(folder.expanduser(), should_stop) for folder in named}
    return _each(below, list, should_stop)


def longest_s(named: int, *, programs: bool = False) -> float:
    """After so many seconds a search below `named` folders ends by itself, and one of other programs."""
    return _LONGEST_S * (named + (_PROGRAMS if programs else 0))


def _each(
    programs: Mapping[str, Iterator[tuple[Path, str]]],
    more: Callable[[], Sequence[FoundModel]],
    should_stop: Callable[[], bool],
) -> list[FoundModel]:
    """Each file once, by the first program that has it."""
    seen: dict[Path, FoundModel] = {}
    for program, files in programs.items():
        for path, name in files:
            if should_stop():
                break
            found = _found(path, name, program)
            if found is not None:
                seen.setdefault(path.resolve(), found)
    for found in more():
        seen.setdefault(found.path.resolve(), found)
    return list(seen.values())


def _found(path: Path, name: str, program: str) -> FoundModel | None:
    """None for what is no model of its own: a projector for pictures, a later part, a file that is gone."""
    if "mmproj" in path.name.lower() or is_later_part(path):
        return None
    try:
        size = path.stat().st_size
        parts = require_all(path)
    except OSError:
        return None
    except UserError as error:
        return FoundModel(path, stem_of(path), program, size, str(error))
    return FoundModel(path, name if len(parts) == 1 else stem_of(path), program, bytes_of(path))


def _below(folder: Path | None, should_stop: Callable[[], bool]) -> Iterator[tuple[Path, str]]:
    """(file, name) of every GGUF below a folder. Links to folders are not followed."""
    files, until = 0, time.monotonic() + _LONGEST_S
    top = len(Path(folder or "").parts)
    for folders, (parent, below, names) in enumerate(os.walk(folder or "", followlinks=False)):
        deeper = len(Path(parent).parts) - top < _DEEPEST
        below[:] = sorted(one for one in below if deeper and not one.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(".gguf"):
                files += 1
                yield Path(parent) / name, name[: -len(".gguf")]
        if files >= _MOST_FILES or folders >= _MOST_FOLDERS or time.monotonic() > until or should_stop():
            return


def _lm_studio(home: Path, should_stop: Callable[[], bool]) -> Iterator[tuple[Path, str]]:
    """A pointer file names its home; its settings may name another folder for models."""
    pointed = _text(home / ".lmstudio-home-pointer").strip()
    bases = [Path(pointed)] if pointed else [home / ".lmstudio", home / ".cache" / "lm-studio"]
    for base in bases:
        chosen = _json(base / "settings.json").get("downloadsFolder")
        folder = Path(chosen) if isinstance(chosen, str) and chosen else base / "models"
        yield from _below(folder, should_stop)


def _ollama(home: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Names are in manifests; the weights are the layer of the model's kind, a file named by its hash."""
    own = environ.get("OLLAMA_MODELS")
    for root in [Path(own)] if own else [home / ".ollama" / "models", _OLLAMA_SERVICE]:
        manifests = root / "manifests"
        for parent, _below, names in os.walk(manifests):
            for name in sorted(names):
                layers = _json(Path(parent) / name).get("layers")
                digest = _model_digest(layers if isinstance(layers, list) else [])
                if digest:
                    model = Path(parent).relative_to(manifests).name
                    yield root / "blobs" / f"sha256-{digest}", f"{model}:{name}"


def _model_digest(layers: list[object]) -> str:
    for layer in layers:
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            found = re.fullmatch(r"sha256:([0-9a-f]{64})", str(layer.get("digest")))
            return found[1] if found else ""
    return ""


def _jan(home: Path, environ: Mapping[str, str], system: str) -> Iterator[tuple[Path, str]]:
    """Its settings name the data folder, in which each model has a model.yml. Both have moved; the newest
    place is the first.
    """
    data, config = _data_folder(home, environ, system), _config_folder(home, environ, system)
    for base in dict.fromkeys((data / "jan.ai.app", data / "Jan", config / "Jan")):
        chosen = _json(base / "settings.json").get("data_folder")
        yield from _of_jan(Path(chosen) if isinstance(chosen, str) and chosen else base / "data")


def _of_jan(data: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted((data / "llamacpp" / "models").glob("**/model.yml"))[:_MOST_FILES]:
        try:
            facts = yaml.safe_load(_text(file))
        except yaml.YAMLError:
            continue
        path = facts.get("model_path") if isinstance(facts, dict) else None
        if isinstance(path, str) and path:
            name = facts.get("name")
            yield data / path, name if isinstance(name, str) and name else file.parent.name


def _data_folder(home: Path, environ: Mapping[str, str], system: str) -> Path:
    if system in ("win32", "darwin"):
        return _config_folder(home, environ, system)
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")


def _config_folder(home: Path, environ: Mapping[str, str], system: str) -> Path:
    if system == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _llama_cache(home: Path, environ: Mapping[str, str], system: str) -> Path:
    if chosen := environ.get("LLAMA_CACHE"):
        return Path(chosen)
    if system == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "llama.cpp"
    if system == "darwin":
        return home / "Library" / "Caches" / "llama.cpp"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "llama.cpp"


def _hub_cache(home: Path, environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("HF_HUB_CACHE"):
        return Path(chosen)
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return Path(environ.get("HF_HOME") or cache / "huggingface") / "hub"


def _text(file: Path) -> str:
    """A small file's text; "" for one that is missing, unreadable or not small."""
    try:
        with file.open("rb") as reader:
            content = reader.read(_MOST_BYTES + 1)
    except OSError:
        return ""
    return content.decode("utf-8", errors="replace") if len(content) <= _MOST_BYTES else ""


def _json(file: Path) -> dict[str, object]:
    try:
        found = json.loads(_text(file))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
