"""The models a person can choose on this computer: what fits, what is here, and one download at a time. No
HTML here.

The download runs in a process of its own (core.model.store.fetch): converting a checkpoint needs torch, which
the app does not load.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.engine.process import log_file
from app.models.local_files import drop, own_files
from app.models.progress import DownloadSpeed, Transfer
from core import paths
from core.config import Settings
from core.errors import UserError
from core.hardware.facts import Hardware
from core.hardware.probe import probe
from core.model.gguf.shards import stem_of
from core.model.store.catalogue import EMBEDDED, draft_for, find
from core.model.store.disk_usage import kept_bytes, remove_model
from core.model.store.fetch import is_downloaded
from core.model.store.untrusted import entry_safely
from core.paths import ROOT, write_whole
from core.planning.offers import offer_for, offers, would_fit_with
from core.planning.recommended import Offer, times
from core.planning.stored_facts import NOTHING, StoredFacts, known_in
from core.text.packing import from_json
from core.text.words import translated as _

log = logging.getLogger(__name__)
FETCH = (sys.executable, "-m", "core.model.store.fetch")
_PAUSE_WAIT_S = 10.0  # a file is being checked or converted; both can be broken off


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model on this computer. `bytes`: what a download would still fetch. `disk_bytes`: what it takes
    here and would give back.
    """

    name: str
    licence: str
    languages: str
    chat: bool
    gated: bool
    bytes: int
    here: bool
    context_tokens: int = 0
    tbt_ms: float = 0.0
    reason: str = ""  # why it does not fit
    would_fit_with: str = ""
    recommended: bool = False
    times: str = ""  # to the first answer, and to read a book
    disk_bytes: int = 0
    path: str = ""  # of a file of the person's own
    file: str = ""  # of a GGUF on the hub

    @property
    def id(self) -> str:
        """By which the page asks for it, and the engine is told to load it."""
        return self.path or self.name

    @property
    def fits(self) -> bool:
        """Whether this computer can run it."""
        return not self.reason


def survey(
    hardware: Hardware, settings: Settings, *, known: StoredFacts = NOTHING
) -> tuple[ListedModel, ...]:
    """What there is for this computer: what fits first, the recommended one before all."""
    found = offers(hardware, settings, is_downloaded=is_downloaded, known=known)
    first = sorted(found, key=lambda offer: not offer.recommended)
    listed = tuple(_model(offer, hardware, settings) for offer in first)
    return *listed[:1], *(_own(path, hardware, settings, known) for path in own_files()), *listed[1:]


def _own(path: Path, hardware: Hardware, settings: Settings, known: StoredFacts) -> ListedModel:
    """A file of the person's own, looked at anew: it may have been changed or moved."""
    try:
        entry = entry_safely(path) if path.is_file() else None
    except UserError as error:
        return ListedModel(stem_of(path), "", "", True, False, 0, True, reason=str(error), path=str(path))
    if entry is None:
        gone = _("{file} is gone. Choose where it is now, or take it off the list.").format(file=path)
        return ListedModel(stem_of(path), "", "", True, False, 0, True, reason=gone, path=str(path))
    offer = offer_for(hardware, settings, entry, downloaded=True, known=known)
    ours = path.parent.parent == paths.subdir("models").resolve()  # copied here from the page
    taken = kept_bytes(path.parent.name) if ours else 0
    return replace(_model(offer, hardware, settings), path=str(path), disk_bytes=taken)


def _model(offer: Offer, hardware: Hardware, settings: Settings) -> ListedModel:
    entry, plan = offer.entry, offer.plan
    parts = [one for one in (entry, draft_for(entry)) if one is not None and not is_downloaded(one)]
    return ListedModel(
        name=entry.name,
        file=entry.file,
        licence=entry.licence,
        languages=entry.languages,
        chat=entry.chat,
        gated=entry.gated,
        bytes=sum(one.download_bytes for one in parts),
        here=offer.downloaded,
        reason=offer.reason,
        would_fit_with=(
            "" if plan else would_fit_with(hardware, settings, entry, downloaded=offer.downloaded)
        ),
        context_tokens=plan.context_tokens if plan else 0,
        tbt_ms=plan.expected_tbt_ms if plan else 0.0,
        recommended=offer.recommended,
        times=times(plan) if plan else "",
        disk_bytes=0 if entry.embedded else kept_bytes(entry.name),
    )


class Models:
    """The list and the download. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        *,
        look: Callable[[], Hardware] | None = None,
        command: Sequence[str] = FETCH,
    ) -> None:
        self._settings, self._command = settings, tuple(command)
        self.offline = settings.offline
        self._look = look or (lambda: probe(paths.data_dir(), measure=False))
        self._first: Hardware | None = None  # what was seen at the first look
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pace = DownloadSpeed(0)
        self._changed: Callable[[], None] = lambda: None
        self._arrived: Callable[[str, str], None] = lambda name, words: None
        self.list: tuple[ListedModel, ...] = ()
        self.fetching: Transfer | None = None

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change, from any thread; it must only take notice."""
        self._changed = changed

    def when_arrived(self, arrived: Callable[[str, str], None]) -> None:
        """`arrived(name, words)` is called after a download."""
        self._arrived = arrived

    def start(self) -> None:
        """Looks at the machine in the background."""
        threading.Thread(target=self.look_again, name="models", daemon=True).start()

    @property
    def offer(self) -> ListedModel | None:
        """The model that this computer should have, while it has nothing but the demonstration and nobody
        said "not now".
        """
        if (
            self.offline
            or self.fetching is not None
            or any(model.here and model.name != EMBEDDED for model in self.list)
        ):
            return None
        chosen = next((model for model in self.list if model.recommended and not model.here), None)
        return chosen if chosen and not _offers_declined().exists() else None

    def decline(self) -> None:
        """Offers nothing by itself from now on; the list still says which model is recommended."""
        with contextlib.suppress(OSError):
            write_whole(_offers_declined(), "")
        self._changed()

    def delete(self, name: str) -> int:
        """Removes a downloaded model, or what there is of one that is not whole. Bytes that this gave back.
        Raises OSError.
        """
        with self._lock:
            known = any(model.name == name for model in self.list)
            if not known or name == EMBEDDED or self._process is not None:
                return 0
            freed = remove_model(name)
            for file in own_files():  # one that was copied here, and is gone with it
                if file.parent == paths.subdir("models").resolve() / name:
                    drop(file)
            if self.fetching is not None and self.fetching.name == name:
                self.show(None)
        self.start()
        return freed

    def fetch(self, name: str) -> None:
        """Downloads a model of the list, or goes on with it. One at a time."""
        with self._lock:
            wanted = next((model for model in self.list if model.name == name and model.fits), None)
            if self.is_busy or wanted is None or self.offline:
                return
            self._pace = DownloadSpeed(wanted.bytes)
            with log_file("download") as said:
                self._process = subprocess.Popen(
                    [*self._command, name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONUTF8": "1"},
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            self.show(Transfer(name, _("Starting the download")))
        threading.Thread(
            target=self._listen, args=(self._process, name), name="download", daemon=True
        ).start()

    @property
    def is_busy(self) -> bool:
        """Whether something is fetched or copied: one at a time."""
        copies = self.fetching is not None and self.fetching.state == "copying"
        return copies or self._process is not None

    def begin_copy(self, name: str) -> bool:
        """Shows that a copy begins; False while something else is fetched or copied."""
        with self._lock:
            if self.is_busy:
                return False
            self.show(Transfer(name, _("Copying"), 0.0, "copying"))
            return True

    def pause(self) -> None:
        """Breaks the download off; what came stays. In the background."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                still = {"bytes_per_s": None, "left_s": None}
                self.show(replace(self.fetching, state="paused", **still))
                threading.Thread(target=_end, args=(process,), name="pause", daemon=True).start()

    def close(self) -> None:
        """Ends a download; the next start of the app offers it again, and it goes on where it was."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _end(process)

    def look_again(self) -> None:
        """Works the list out anew; returns when it stands."""
        try:
            now = self._look()
            self._first = self._first or now
            seen = _as_at_first(now, self._first)
            self.list = survey(seen, self._settings, known=known_in(paths.data_dir()))
        except Exception:  # a background thread's boundary: the app runs without the list
            log.exception("the models that fit could not be worked out")
        self._changed()

    def _listen(self, process: subprocess.Popen[bytes], name: str) -> None:
        said: dict = {}
        with contextlib.suppress(OSError, ValueError):
            for line in process.stdout:
                said = from_json(line)
                with self._lock:
                    if "stage" in said and process is self._process:
                        per_s, left_s = self._pace.at(said["fraction"])
                        stage, fraction = said["stage"], said["fraction"]
                        self.show(Transfer(name, stage, fraction, bytes_per_s=per_s, left_s=left_s))
        process.wait()
        with self._lock:
            if process is not self._process:  # paused, or the app ends
                return
            self._process = None
            if "done" not in said:
                self.show(
                    Transfer(
                        name,
                        state="failed",
                        error=said.get("error")
                        or _(
                            "The download ended unexpectedly; the log has the reason. Start it again: "
                            "it goes on where it stopped."
                        ),
                    )
                )
                return
            self.show(None)
        self.look_again()
        self._arrived(name, said["done"])

    def show(self, fetching: Transfer | None) -> None:
        """What the page shows of a download or a copy."""
        self.fetching = fetching
        self._changed()


def _as_at_first(now: Hardware, first: Hardware) -> Hardware:
    """The machine with the memory that was free at the first look and the speed that was known of it then:
    later the engine holds some, other programs come and go, and what is said of a model stands still.
    """
    free = {gpu.index: gpu.free_bytes for gpu in first.gpus}
    gpus = tuple(replace(gpu, free_bytes=free.get(gpu.index, gpu.free_bytes)) for gpu in now.gpus)
    return replace(now, gpus=gpus, ram_available_bytes=first.ram_available_bytes, cpu_rates=first.cpu_rates)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_PAUSE_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---- the choice --------------------------------------------------------------------------------------------


def _offers_declined() -> Path:
    return paths.data_dir() / "no-model-offer"


def _choice_file() -> Path:
    return paths.data_dir() / "model.json"


def chosen() -> str | None:
    """The model that was chosen in the app; None: none was."""
    try:
        name = json.loads(_choice_file().read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def remember_model(name: str | None) -> None:
    """The model the app starts with from now on, unless config.yaml names one. None: none is chosen."""
    try:
        if name is None:
            _choice_file().unlink(missing_ok=True)
        else:
            write_whole(_choice_file(), json.dumps({"model": name}))
    except OSError as error:
        log.warning("the choice of a model is not kept: %s", error)


def remembered(settings: Settings) -> Settings:
    """The settings with the model chosen in the app, where config.yaml leaves it open and the model is still
    here.
    """
    name = chosen()
    if settings.model is not None or name is None:
        return settings
    try:
        # a file from outside is not opened here: the engine looks at it under limits
        here = Path(name).is_file() if Path(name).is_absolute() else is_downloaded(find(name))
        return replace(settings, model=name) if here else settings
    except (OSError, ValueError, UserError):
        return settings
