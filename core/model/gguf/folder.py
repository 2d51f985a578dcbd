"""A folder that stands for a GGUF: configuration and tokenizer as every model folder has them, and where
the file is. Made once for each content; the weights stay where they are.
"""

from __future__ import annotations

import json
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.families import FULL
from core.model.gguf.config import config_of, name_of
from core.model.gguf.reader import GgufFile, read_header
from core.model.gguf.shards import first_shard
from core.model.store.digests import POINTER, digest_of
from core.model.store.manifest import finished, write_manifest
from core.paths import subdir, write_whole
from core.text.gguf_tokenizer import write_tokenizer
from core.text.words import translated as _

_FORMAT = 2  # raised when what is written here changes


def opened(file: Path, progress: Progress | None = None) -> Path:
    """The folder that stands for `file`, below "gguf" in the user's data folder. Raises UserError for a
    file that does not run here.

    The file's content is its name there: two files share nothing, and a file that was moved is known
    again. Reading all of it takes seconds, so the hash is remembered by path, size and time.
    """
    file = first_shard(file)
    name = name_of(read_header(file))
    digest = digest_of(file, progress or (lambda stage, fraction: None))
    folder = subdir("gguf") / digest[:32] / name
    facts = finished(folder)
    if facts is None or facts.get("format") != _FORMAT:
        folder.mkdir(parents=True, exist_ok=True)
        describe_file(folder, file, digest)
        write_manifest(folder, sha256=digest, format=_FORMAT)
    # not among the files of the marker: it changes when the file is moved
    write_whole(folder.parent / POINTER, json.dumps({"path": str(file)}))
    return folder


def describe_file(folder: Path, file: Path, digest: str) -> None:
    """Writes into `folder` what stands for `file`, whose content has the SHA-256 `digest`. Raises UserError
    for a file that does not run here.
    """
    from core.model.gguf.weights import GgufWeights

    header = read_header(file)
    # whatever is kept by the model's configuration is kept for this content alone
    config = config_of(header, name_of(header)) | {"content": digest}
    factors = GgufWeights(header).frequency_factors()
    if factors is not None:
        turned = config["rope_parameters"]
        turned.get(FULL, turned)["frequency_factors"] = factors
    write_whole(folder / "config.json", json.dumps(config, indent=1))
    if unsaid := header.metadata.get("tokenizer.ggml.suppress_tokens"):
        write_whole(folder / "generation_config.json", json.dumps({"suppress_tokens": unsaid}))
    write_tokenizer(header.metadata, folder)
    inside = {"file": file.name} if file.parent == folder else {}
    write_whole(folder / POINTER, json.dumps({"sha256": digest, **inside}))


def gguf_in(folder: Path) -> GgufFile | None:
    """The file that the folder stands for; None for a folder of another kind. Raises UserError when it is
    gone.
    """
    if not (folder / POINTER).is_file():
        return None
    return read_header(_path_in(folder))


def _path_in(folder: Path) -> Path:
    try:
        inside = json.loads((folder / POINTER).read_text(encoding="utf-8")).get("file")
        if inside:
            return folder / Path(inside).name
        found = Path(json.loads((folder.parent / POINTER).read_text(encoding="utf-8"))["path"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = _(
            "{folder} does not say where its model file is ({error}). Delete that folder and start again."
        )
        raise UserError(said.format(folder=folder.parent, error=error)) from error
    if not found.is_file():
        raise UserError(_("The model file {file} is gone. Choose where it is now.").format(file=found))
    return found
