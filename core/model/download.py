"""Models from the Hugging Face hub, or from a folder the user already has. Knows nothing of what a model is
for.

A download is resumed where it broke off, every file is checked against the hub's own checksum, and the folder
appears under its name only when all of it is there. Pickled weights are refused, because opening one can run
any program; for the models known to have no others they are converted without running anything in them.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import logging
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.stored import finish, finished
from core.paths import subdir

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
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
SPARE_BYTES = 1_000_000_000  # left free on the disk after a download

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository. Large files have a sha256, all have git's own id."""

    name: str
    size: int
    blob_id: str
    sha256: str | None


class Stopped(Exception):
    """The caller asked to stop; what was fetched is kept for the next try."""


def download(
    repo: str,
    *,
    name: str | None = None,
    revision: str = "main",
    models_dir: Path | None = None,
    pickled: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Path:
    """The folder of `repo` below "models" in the user's data folder, fetched when it is not there yet.

    `name` names the folder (default: the repository's own). `pickled` allows weights in .bin files where
    there are no others; they are converted to safetensors. With `offline` nothing is fetched. Raises
    UserError with cause and remedy, Stopped when `should_stop` said so.
    """
    root = models_dir if models_dir is not None else subdir("models")
    folder = root / (name or repo.rpartition("/")[2])
    facts = finished(folder)
    if facts is not None and facts.get("repo") == repo:
        return folder
    if offline:
        raise UserError(
            f"{repo} is not on this computer and downloads are switched off. Run: launcher.py models "
            f"download {name or repo}"
        )
    from filelock import FileLock

    root.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda stage, fraction: None)
    with FileLock(root / f".{folder.name}.lock"), _told_to_the_user(repo, root):
        if finished(folder) is None:
            _fetch(repo, revision, folder, pickled, report, should_stop or (lambda: False))
    return folder


def use_folder(folder: Path) -> Path:
    """The folder itself when it holds a model the app can open; else UserError naming what is missing."""
    folder = folder.expanduser()
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Give the folder that holds the model's config.json.")
    _check_files(folder)
    return folder


# ---- what to fetch -----------------------------------------------------------------------------------------


def plan_files(repo: str, files: list[RemoteFile], *, pickled: bool = False) -> list[RemoteFile]:
    """Those of a repository's files that a model needs. Raises UserError when there are no weights of an
    allowed kind.
    """
    top = [file for file in files if "/" not in file.name]
    wanted = [file for file in top if _matches(file.name, WANTED) and not _matches(file.name, PICKLED)]
    weights = [file for file in wanted if file.name.endswith(".safetensors")]
    if not weights:
        bins = [file for file in top if _matches(file.name, ("pytorch_model*.bin",))]
        if pickled and bins:
            return wanted + bins
        if any(_matches(file.name, PICKLED) for file in files):
            raise UserError(
                f"{repo} has only pickled weights (.bin), and opening those can run any program hidden in "
                "them. Choose a "
                f"repository with .safetensors files; many models have a converted twin."
            )
        raise UserError(f"{repo} has no .safetensors weights. Choose another repository of this model.")
    own = [file for file in weights if file.name.startswith("model")]
    # some repositories carry the same weights twice, whole and in shards of another naming
    return [file for file in wanted if file not in weights or file in (own or weights)]


def converted_names(pickled: list[str]) -> dict[str, str]:
    """The safetensors name that each pickled file gets."""
    return {
        name: f"model-{n:05d}-of-{len(pickled):05d}.safetensors"
        for n, name in enumerate(sorted(pickled), start=1)
    }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _list(repo: str, revision: str) -> tuple[str, list[RemoteFile]]:
    """The commit behind `revision` and its files."""
    from huggingface_hub import HfApi

    info = HfApi(library_name="triforce-chat").model_info(repo, revision=revision, files_metadata=True)
    files = [
        RemoteFile(file.rfilename, file.size or 0, file.blob_id or "", file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    ]
    return info.sha, files


# ---- fetching ----------------------------------------------------------------------------------------------


def _fetch(
    repo: str, revision: str, folder: Path, pickled: bool, report: Progress, should_stop: Callable[[], bool]
) -> None:
    report("Asking for the list of files", None)
    commit, listed = _list(repo, revision)
    files = plan_files(repo, listed, pickled=pickled)
    bins = [file for file in files if _matches(file.name, PICKLED)]
    converted = converted_names([file.name for file in bins])
    stage = folder.parent / f".{folder.name}.part"
    _unlink(stage.glob("*.part"))  # of a conversion that was killed
    _require_free_space(repo, files, stage, extra=max((file.size for file in bins), default=0))
    stage.mkdir(exist_ok=True)
    total, before = sum(file.size for file in files), 0
    for file in files:
        if not any((stage / name).exists() for name in (file.name, converted.get(file.name, file.name))):
            _fetch_file(repo, commit, file, stage, _bar(before, max(total, 1), report, should_stop))
        before += file.size
    for file in (file for file in files if (stage / file.name).exists()):
        report(f"Checking {file.name}", None)
        _verify(repo, stage, file)
    if bins:
        from core.model.unpickle import to_safetensors

        to_safetensors(stage, converted, report)
    _unlink(stage.glob("*.incomplete"))  # of a commit that is no longer the newest
    _check_files(stage)
    finish(
        stage, repo=repo, revision=commit, sha256={file.name: file.sha256 for file in files if file.sha256}
    )
    if folder.exists():
        shutil.rmtree(folder)
    stage.rename(folder)
    log.info("%s at %s stored in %s", repo, commit, folder)


def _fetch_file(repo: str, commit: str, file: RemoteFile, stage: Path, bar: type) -> None:
    """One file, from where an earlier try broke off. The client's own resuming ends with the process."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    part = stage / f"{file.name}.{file.blob_id[:12]}.incomplete"
    with part.open("ab") as writer:
        http_get(
            hf_hub_url(repo, file.name, revision=commit),
            writer,
            resume_size=writer.tell(),
            expected_size=file.size,
            headers=build_hf_headers(library_name="triforce-chat"),
            tqdm_class=bar,
        )
    part.replace(stage / file.name)


def _unlink(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        leftover.unlink()


def _bar(before: int, total: int, report: Progress, should_stop: Callable[[], bool]) -> type:
    """A class with the face of a progress bar that the hub's client drives; it reports bytes of all files
    together.
    """

    class Bar:
        def __init__(self, *args: object, initial: int | None = 0, **options: object) -> None:
            self.n = 0
            self.update(initial)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            report("Downloading", min((before + self.n) / total, 1.0))
            if should_stop():
                raise Stopped

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *exception: object) -> None:
            self.close()

        def close(self) -> None:
            """Nothing is held open."""

        def __getattr__(self, name: str) -> Callable[..., None]:
            """Whatever else a bar can do concerns only how it looks."""
            return lambda *args, **options: None

    return Bar


def _require_free_space(repo: str, files: list[RemoteFile], stage: Path, *, extra: int) -> None:
    """What is already in the stage is on the disk and not needed again. `extra` is what converting takes."""
    there = sum(path.stat().st_size for path in stage.rglob("*") if path.is_file()) if stage.exists() else 0
    needed = max(sum(file.size for file in files) - there, 0) + extra + SPARE_BYTES
    free = shutil.disk_usage(stage.parent).free
    if free < needed:
        raise UserError(
            f"{repo} needs {needed / 1e9:.1f} GB free in {stage.parent}; {free / 1e9:.1f} GB is free. Free "
            "some space, choose "
            f"a smaller model, or set TRIFORCE_HOME to a folder on another drive."
        )


def _verify(repo: str, stage: Path, file: RemoteFile) -> None:
    """Raises UserError, and removes the file so that it is fetched anew, when it is not what the hub says it
    is.
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
    if digest.hexdigest() != expected:
        path.unlink()
        raise UserError(
            f"{file.name} of {repo} arrived damaged (its checksum is not the hub's) and was removed. Start "
            "the download again; "
            "only this file is fetched. If it happens again, something between this computer and the hub "
            "changes files."
        )


@contextlib.contextmanager
def _told_to_the_user(repo: str, root: Path) -> Iterator[None]:
    """The client's errors as cause and remedy."""
    from huggingface_hub import errors

    again = "Start the download again: it goes on where it stopped."
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{repo} is given only to people who accepted its licence. Accept it at "
            f"https://huggingface.co/{repo}, make an "
            "access token at https://huggingface.co/settings/tokens, and set the environment variable "
            "HF_TOKEN to it."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"The hub has no public model {repo}. Check the name; for a private one set HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{repo} has no such revision. Leave the revision out to take the newest.") from error
    except errors.HfHubHTTPError as error:
        raise UserError(f"The hub answered with an error ({error}). {again}") from error
    except Exception as error:
        if _is_network(error):
            raise UserError(
                f"{repo} could not be downloaded: no connection to the hub ({type(error).__name__}). Connect "
                "to the internet. "
                f"{again} Or copy the model's folder to this computer and give its path as the model."
            ) from error
        if not isinstance(error, OSError):
            raise
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise UserError(
                f"The disk is full: {repo} does not fit in {root}. Free some space. {again}"
            ) from error
        if "Consistency check failed" in str(error):
            raise UserError(f"The connection broke while {repo} was being downloaded. {again}") from error
        raise


def _is_network(error: Exception) -> bool:
    """The hub's client lets its HTTP library's own errors through; which library that is has changed
    before.
    """
    from huggingface_hub import errors

    known = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError, TimeoutError)
    return isinstance(error, known) or type(error).__module__.split(".")[0] in (
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
    )


# ---- a folder that is there --------------------------------------------------------------------------------


def _check_files(folder: Path) -> None:
    """Raises UserError unless config, tokenizer and whole safetensors weights are there. Opens headers
    only.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder} has no readable config.json ({error}). Give the folder that holds one."
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise UserError(
            f"{folder / 'config.json'} is not a model's config. Give the folder of a Transformers model."
        )
    weights = _weight_files(folder)
    missing = [path.name for path in weights if not path.is_file()]
    if missing:
        raise UserError(
            f"{folder} lacks {', '.join(missing[:3])}. Copy the whole folder, or download the model again."
        )
    if not weights:
        pickled = any(_matches(path.name, PICKLED) for path in folder.iterdir())
        raise UserError(
            f"{folder} has no .safetensors weights"
            + (
                ", only pickled ones, which can run any program when opened. Convert them, or use a "
                "safetensors twin."
                if pickled
                else ". Copy the model's weights there too."
            )
        )
    for path in weights:
        if not _is_whole(path):
            raise UserError(f"{path} is damaged or cut short. Copy or download it again.")
    if "draft" not in config and not any(
        (folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")
    ):
        raise UserError(
            f"{folder} has no tokenizer (tokenizer.json or tokenizer.model). Copy the whole folder."
        )


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            return [folder / Path(shard).name for shard in sorted(shards)]
    return sorted(folder.glob("*.safetensors"))


def _is_whole(path: Path) -> bool:
    """Whether the file is as long as its own header says: 8 bytes of length, a JSON table of offsets, the
    data.
    """
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
