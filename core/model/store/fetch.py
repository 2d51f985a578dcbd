"""A catalogue model and the draft model paired with it, fetched where they are missing. `python -m
core.model.store.fetch NAME` does it in a process of its own, which says how far it is in lines of JSON and
stops when its stdin closes. Knows nothing of plans.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from core.errors import UserError
from core.events import Progress
from core.model.store.catalogue import CatalogueEntry, draft_for, find
from core.model.store.download import download
from core.model.store.embedded import ensure_embedded
from core.model.store.hub import Stopped
from core.model.store.manifest import finished, place_of
from core.model.store.model_folder import use_folder
from core.model.store.untrusted import entry_safely
from core.text.packing import to_json_text
from core.text.words import translated as _

_STEP = 0.001  # of a download, between two lines
# between two questions whether to stop; the client's own 10 MB are minutes on a slow line
_CHUNK_BYTES = 1 << 20


def is_downloaded(entry: CatalogueEntry) -> bool:
    """Whether the model can be used without fetching anything but the embedded one."""
    return entry.embedded or entry.folder is not None or finished(place_of(entry.name)) is not None


def fetch_model(
    entry: CatalogueEntry, *, progress: Progress, should_stop: Callable[[], bool] = lambda: False
) -> tuple[Path, str]:
    """The model's folder, and what should be said: "" or why its draft model, without which it runs too,
    could not be had.

    Raises UserError when the model itself cannot be had, Stopped when `should_stop` said so.
    """
    folder = _one(entry, progress, should_stop=should_stop)
    draft = draft_for(entry)
    if draft is None:
        return folder, ""
    try:
        of_draft = _("{stage} (draft model)")
        _one(
            draft,
            lambda stage, fraction: progress(of_draft.format(stage=stage), fraction),
            should_stop=should_stop,
        )
    except UserError as error:
        said = _(
            "{draft}, which would draft for it, could not be had; drafts come from n-gram lookup. {error}"
        )
        return folder, said.format(draft=draft.name, error=error)
    return folder, ""


def model_folder(entry: CatalogueEntry, progress: Progress, *, weights: str = "") -> Path:
    """Where the model lies; the embedded one is put in place when it is missing. `weights`: the format its
    matrices are to be held in; a checkpoint of 16 bits is rounded to it once. Raises UserError.
    """
    folder = _one(entry, progress, offline=True)
    if not weights or entry.shape.coded_weights:
        return folder
    from core.model.store.quantize_checkpoint import quantised

    return quantised(folder, weights, progress)


def _one(
    entry: CatalogueEntry,
    progress: Progress,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    offline: bool = False,
) -> Path:
    if entry.embedded:
        return ensure_embedded(progress)
    if entry.folder is not None and entry.role == "ahead":
        return entry.folder
    if entry.folder is not None and entry.weights == "gguf":
        return _opened(entry.folder, progress)
    if entry.folder is not None:
        return use_folder(entry.folder)
    folder = download(
        entry.repo,
        name=entry.name,
        revision=entry.revision,
        pickled=entry.weights == "bin",
        file=entry.file,
        sha256=entry.sha256,
        offline=offline,
        progress=progress,
        should_stop=should_stop,
    )
    if not entry.file:
        return folder
    entry_safely(folder / entry.file)  # at every load, as any file that somebody else made
    return _opened(folder / entry.file, progress)


def _opened(file: Path, progress: Progress) -> Path:
    from core.model.gguf.folder import opened

    return opened(file, progress)


def main(arguments: list[str] | None = None) -> int:
    """The process. Its last line is {"done": words}, {"error": words} or {"stopped": true}."""
    from huggingface_hub import constants

    parser = argparse.ArgumentParser(prog="core.model.store.fetch")
    parser.add_argument("name")
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    stop, told = threading.Event(), _Told(sys.stdout.fileno())
    threading.Thread(target=_wait_for_the_end, args=(stop,), name="stdin", daemon=True).start()
    try:
        entry = find(parser.parse_args(arguments).name)
        told.say(done=fetch_model(entry, progress=told.progress, should_stop=stop.is_set)[1])
    except UserError as error:
        told.say(error=str(error))
    except Stopped:
        told.say(stopped=True)
    return 0


def _wait_for_the_end(stop: threading.Event) -> None:
    # not sys.stdin: a thread that holds it when the process ends breaks the ending
    while os.read(0, 1024):
        pass
    stop.set()


class _Told:
    """What the process has said. A line more only when there is something new."""

    def __init__(self, stream: int) -> None:
        self._stream = os.dup(stream)
        os.dup2(2, stream)  # what libraries print must not get between the lines
        self._last: tuple[str, float] = ("", 0.0)

    def say(self, **words: object) -> None:
        os.write(self._stream, to_json_text(words).encode() + b"\n")

    def progress(self, stage: str, fraction: float | None) -> None:
        now = (stage, -1.0 if fraction is None else fraction)
        if stage != self._last[0] or abs(now[1] - self._last[1]) >= _STEP:
            self._last = now
            self.say(stage=stage, fraction=fraction)


if __name__ == "__main__":
    sys.exit(main())
