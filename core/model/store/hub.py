"""The Hugging Face hub by its own client: a repository's list of files, one file, and what is wrong in words.
Knows nothing of models.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.text.words import translated as _

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


def is_offline() -> bool:
    """Whether the person wants nothing to be fetched: by `offline` in the settings, or the client's own
    variable.
    """
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def list_files(repo: str, revision: str) -> tuple[str, list[RemoteFile]]:
    """The commit behind `revision` and its files."""
    from huggingface_hub import HfApi

    info = HfApi(library_name="triforce-chat").model_info(repo, revision=revision, files_metadata=True)
    files = [
        RemoteFile(file.rfilename, file.size or 0, file.blob_id or "", file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    ]
    return info.sha, files


def fetch_file(repo: str, commit: str, file: RemoteFile, stage: Path, bar: type) -> None:
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


def bar(before: int, total: int, report: Progress, should_stop: Callable[[], bool]) -> type:
    """A class with the face of a progress bar, for the hub's client; it reports bytes of all files."""

    class Bar:
        def __init__(self, *args: object, initial: int | None = 0, **options: object) -> None:
            self.n = 0
            self.update(initial)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            report(_("Downloading"), min((before + self.n) / total, 1.0))
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


@contextlib.contextmanager
def told_to_the_user(repo: str, root: Path) -> Iterator[None]:
    """The client's errors as cause and remedy."""
    try:
        yield
    except Exception as error:
        said = _explained(error)
        if not said:
            raise
        again = _("Start the download again: it goes on where it stopped.")
        words = {"repo": repo, "folder": root, "status": _status(error), "again": again}
        log.warning("%s was not downloaded: %r", repo, error)
        raise UserError(said.format(**words)) from error


def _explained(error: Exception) -> str:
    """What the user should hear of it; "" for what is not theirs to mend."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return _(
            "{repo} is given only to people who accepted its licence. Accept it at "
            "https://huggingface.co/{repo}, make an access token at "
            "https://huggingface.co/settings/tokens, and set the environment variable HF_TOKEN to it."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return _("huggingface.co has no public model {repo}. Check the name; for a private one set HF_TOKEN.")
    if isinstance(error, errors.RevisionNotFoundError):
        return _("{repo} has no such revision. Leave the revision out to take the newest.")
    if isinstance(error, errors.HfHubHTTPError):
        return _("huggingface.co did not give {repo} (error {status}). Wait some minutes. {again}")
    if _is_network(error):
        return _(
            "{repo} could not be downloaded: huggingface.co cannot be reached. Connect to the internet. "
            "{again} Or download the model with another computer, copy it to this one, and choose it as a "
            "file that you have."
        )
    if not isinstance(error, OSError):
        return ""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return _("The disk is full: {repo} does not fit in {folder}. Free some space. {again}")
    if "Consistency check failed" in str(error):
        return _("The connection broke while {repo} was being downloaded. {again}")
    return ""


def _status(error: Exception) -> str:
    """The number of an answer that is an error, "" where nobody answered."""
    return str(getattr(getattr(error, "response", None), "status_code", ""))


def _is_network(error: Exception) -> bool:
    """The hub's client lets its HTTP library's own errors through; which one that is has changed before."""
    from huggingface_hub import errors

    known = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError, TimeoutError)
    return isinstance(error, known) or type(error).__module__.split(".")[0] in (
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
    )
