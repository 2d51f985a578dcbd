"""Models fetched from the Hugging Face hub. Knows nothing of what a model is for.

A download is resumed where it broke off, every file is checked against the hub's own checksum, and the folder
appears under its name only when all of it is there. Pickled weights are refused, because opening one can run
any program; for the models known to have no others they are converted without running anything in them.
"""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.gguf.shards import parts_of
from core.model.store.digests import remember_digest
from core.model.store.hub import RemoteFile, bar, fetch_file, list_files, told_to_the_user
from core.model.store.hub import is_offline as switched_off
from core.model.store.manifest import finished, place_of, write_manifest
from core.model.store.model_folder import PICKLED, check_files
from core.model.store.untrusted import entry_safely
from core.paths import subdir
from core.text.words import GB, size
from core.text.words import translated as _

WANTED = (
    "*.safetensors",
    "*.json",
    "tokenizer*",
    "*.model",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
    "LICENSE*",
    "NOTICE*",
)
SPARE_BYTES = GB  # left free on the disk after a download
SHA256_DIGITS = 64

log = logging.getLogger(__name__)


def download(
    repo: str,
    *,
    name: str | None = None,
    revision: str = "main",
    models_dir: Path | None = None,
    pickled: bool = False,
    file: str = "",
    sha256: str = "",
    offline: bool = False,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Path:
    """The folder of `repo` below "models" in the user's data folder, fetched when it is not there yet.

    `name` names the folder (default: the repository's own). `pickled` allows weights in .bin files where
    there are no others; they are converted to safetensors. `file` is the one GGUF that is wanted of it, of
    this `sha256` where it is known; the first of several parts stands for all. With `offline` nothing is
    fetched. Raises UserError with cause and remedy, Stopped when `should_stop` said so.
    """
    root = models_dir if models_dir is not None else subdir("models")
    folder = root / (name or repo.rpartition("/")[2])
    held = folder if models_dir is not None else place_of(folder.name)
    facts = finished(held)
    if facts is not None and facts.get("repo") == repo:
        return held
    if offline:
        said = _(
            "{repo} is not on this computer and downloads are switched off. Run: launcher.py models "
            "download {name}"
        )
        raise UserError(said.format(repo=repo, name=name or repo))
    if switched_off():
        said = _("{name} is not on this computer, and offline is set: nothing is fetched. Start without it.")
        raise UserError(said.format(name=name or repo))
    from filelock import FileLock

    root.mkdir(parents=models_dir is not None, exist_ok=True)
    report = progress or (lambda stage, fraction: None)
    with FileLock(root / f".{folder.name}.lock"), told_to_the_user(repo, root):
        if finished(folder) is None:
            wanted = _Wanted(repo, revision, pickled, file, sha256)
            _fetch(wanted, folder, report, should_stop or (lambda: False))
    return folder


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What of a repository is fetched: see `download`."""

    repo: str
    revision: str
    pickled: bool
    file: str
    sha256: str


# ---- what to fetch -----------------------------------------------------------------------------------------


def plan_files(repo: str, files: list[RemoteFile], *, pickled: bool = False) -> list[RemoteFile]:
    """Those of a repository's files that a model needs. Raises UserError when there are no weights of an
    allowed kind.
    """
    top = [file for file in files if "/" not in file.name]
    wanted = [file for file in top if _matches(file.name, WANTED) and not _is_pickled(file.name)]
    weights = [file for file in wanted if file.name.endswith(".safetensors")]
    if not weights:
        bins = [file for file in top if _matches(file.name, ("pytorch_model*.bin",))]
        if pickled and bins:
            return wanted + bins
        if any(_is_pickled(file.name) for file in files):
            said = _(
                "{repo} has only pickled weights (.bin), and opening those can run any program hidden in "
                "them. Choose a repository with .safetensors files; many models have a converted twin."
            )
            raise UserError(said.format(repo=repo))
        said = _("{repo} has no .safetensors weights. Choose another repository of this model.")
        raise UserError(said.format(repo=repo))
    own = [file for file in weights if file.name.startswith("model")]
    # some repositories carry the same weights twice, whole and in shards of another naming
    return [file for file in wanted if file not in weights or file in (own or weights)]


def model_file(repo: str, files: list[RemoteFile], name: str, sha256: str = "") -> list[RemoteFile]:
    """The file of this name, or all its parts, whose checksums are the hub's."""
    parts = [part.name for part in parts_of(Path(name))]
    return [only_file(repo, files, part, sha256 if len(parts) == 1 else "") for part in parts]


def only_file(repo: str, files: list[RemoteFile], name: str, sha256: str = "") -> RemoteFile:
    """The file of this name. `sha256`: what is known of its checksum, all of it or its beginning. Raises
    UserError when the repository has none, or another than the one known.
    """
    found = next((file for file in files if file.name == name), None)
    if found is None:
        said = _(
            "{repo} has no file {file} any more. Choose another model, or give the path of a file of yours."
        )
        raise UserError(said.format(repo=repo, file=name))
    if found.sha256 and not found.sha256.startswith(sha256):
        said = _(
            "{file} of {repo} is another file than the one this program knows (its checksum differs). "
            "Nothing was fetched. Choose another model; or, if you trust it, fetch it yourself and give its "
            "path."
        )
        raise UserError(said.format(repo=repo, file=name))
    whole = sha256 if len(sha256) == SHA256_DIGITS else None
    return replace(found, sha256=found.sha256 or whole)


def converted_names(pickled: list[str]) -> dict[str, str]:
    """The safetensors name that each pickled file gets."""
    return {
        name: f"model-{n:05d}-of-{len(pickled):05d}.safetensors"
        for n, name in enumerate(sorted(pickled), start=1)
    }


def _is_pickled(name: str) -> bool:
    return name.endswith(PICKLED)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# ---- fetching ----------------------------------------------------------------------------------------------


def _fetch(wanted: _Wanted, folder: Path, report: Progress, should_stop: Callable[[], bool]) -> None:
    report(_("Asking for the list of files"), None)
    repo = wanted.repo
    commit, found = list_files(repo, wanted.revision)
    if wanted.file:
        files = model_file(repo, found, wanted.file, wanted.sha256)
    else:
        files = plan_files(repo, found, pickled=wanted.pickled)
    bins = [file for file in files if _is_pickled(file.name)]
    converted = converted_names([file.name for file in bins])
    stage = folder.parent / f".{folder.name}.part"
    _unlink(stage.glob("*.part"))  # of a conversion that was killed
    _require_free_space(repo, files, stage, extra=max((file.size for file in bins), default=0))
    stage.mkdir(exist_ok=True)
    total, before = sum(file.size for file in files), 0
    for file in files:
        if not any((stage / name).exists() for name in (file.name, converted.get(file.name, file.name))):
            fetch_file(repo, commit, file, stage, bar(before, max(total, 1), report, should_stop))
        before += file.size
    _verify_all(repo, stage, [file for file in files if (stage / file.name).exists()], report)
    if bins:
        from core.model.store.unpickle import to_safetensors

        to_safetensors(stage, converted, report)
    _unlink(stage.glob("*.incomplete"))  # of a commit that is no longer the newest
    if wanted.file:
        entry_safely(stage / wanted.file)
    else:
        check_files(stage)
    sums = {file.name: file.sha256 for file in files if file.sha256}
    write_manifest(stage, repo=repo, revision=commit, sha256=sums)
    if folder.exists():
        shutil.rmtree(folder)
    stage.rename(folder)
    for part in parts_of(Path(wanted.file)) if wanted.file else ():
        if part.name in sums:
            remember_digest(folder.resolve() / part.name, sums[part.name])
    log.info("%s at %s stored in %s", repo, commit, folder)


def _unlink(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        leftover.unlink()


def _require_free_space(repo: str, files: list[RemoteFile], stage: Path, *, extra: int) -> None:
    """What is already in the stage is on the disk and not needed again. `extra` is what converting takes."""
    there = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file()) if stage.exists() else 0
    needed = max(sum(file.size for file in files) - there, 0) + extra + SPARE_BYTES
    free = shutil.disk_usage(stage.parent).free
    if free < needed:
        said = _(
            "{repo} needs {needed} in {folder}, {more} more than is free. Free some space, choose a smaller "
            "model, or move the data folder to another drive: in the settings, or by TRIFORCE_HOME."
        )
        words = {"needed": size(needed), "more": size(needed - free), "folder": stage.parent}
        raise UserError(said.format(repo=repo, **words))


def _verify_all(repo: str, stage: Path, files: list[RemoteFile], report: Progress) -> None:
    """Reports the share of all their bytes. Raises UserError: see `_verify`."""
    sizes = [(stage / file.name).stat().st_size for file in files]
    total, before = max(sum(sizes), 1), 0
    for file, size_bytes in zip(files, sizes, strict=True):
        words = _("Checking {file}").format(file=file.name)
        report(words, before / total)
        for done in _verify(repo, stage, file):
            report(words, (before + done) / total)
        before += size_bytes


def _verify(repo: str, stage: Path, file: RemoteFile) -> Iterator[int]:
    """Yields how many bytes of it are checked. Raises UserError, and removes the file so that it is fetched
    anew, when it is not the hub's.
    """
    path = stage / file.name
    if file.sha256:
        digest, expected = hashlib.sha256(), file.sha256
    else:
        digest, expected = (
            hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False),
            file.blob_id,
        )
    with path.open("rb") as reader:
        while chunk := reader.read(1 << 22):
            digest.update(chunk)
            yield reader.tell()
    if digest.hexdigest() != expected:
        path.unlink()
        said = _(
            "{file} of {repo} arrived damaged (its checksum is not the one that huggingface.co names) and "
            "was removed. Start the download again; only this file is fetched. If it happens again, "
            "something on the way, such as a proxy or an antivirus program, changes files."
        )
        raise UserError(said.format(file=file.name, repo=repo))
