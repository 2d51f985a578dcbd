"""Copies of model files: a model moved to another folder, and a file dropped onto the page. One at a time,
shown where downloads are; never begun by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.catalogue import Models
from app.models.progress import DownloadSpeed, Transfer
from core.errors import UserError
from core.model.gguf.reader import MAGIC, no_gguf
from core.model.gguf.shards import parts_of
from core.model.store.catalogue import title_of
from core.model.store.hub import Stopped
from core.model.store.manifest import write_manifest
from core.model.store.relocate import SPARE_BYTES, move
from core.model.store.untrusted import entry_safely
from core.paths import subdir
from core.sandbox.process import CallCancelled
from core.text.words import size as in_words
from core.text.words import translated as _

if TYPE_CHECKING:
    from starlette.requests import Request

_PIECE = 1 << 22  # bytes that are written at once


async def until_gone(request: Request) -> AsyncIterator[bytes]:
    """A request's body; less of it when the browser goes away."""
    from starlette.requests import ClientDisconnect

    with contextlib.suppress(ClientDisconnect):
        async for piece in request.stream():
            yield piece


class ModelCopies:
    """What is copied, on a desk's list of models. `say(words, kind)` tells the person."""

    def __init__(self, models: Models, say: Callable[..., None]) -> None:
        self._models, self._say = models, say
        self._stop = threading.Event()
        for left in subdir("models").glob(".*.copying"):  # by a run that was ended meanwhile
            shutil.rmtree(left, ignore_errors=True)

    def stop(self) -> None:
        """Breaks the copy off; what there was before stays."""
        self._stop.set()

    def move(self, name: str, folder: Path) -> None:
        """Moves a downloaded model, in the background."""
        model = next((one for one in self._models.list if one.name == name and one.disk_bytes), None)
        if model is None or not self._begin(name):
            return
        given = (name, folder, DownloadSpeed(model.disk_bytes))
        threading.Thread(target=self._move, args=given, name="move a model", daemon=True).start()

    def _move(self, name: str, folder: Path, pace: DownloadSpeed) -> None:
        said = _("{name} is where it was.").format(name=title_of(name))
        try:
            where = move(name, folder, progress=self._shown(name, pace), should_stop=self._stop.is_set)
            said = _("{name} lies in {folder} now.").format(name=title_of(name), folder=where)
        except Stopped:
            pass
        except UserError as error:
            self._say(str(error))
            return
        finally:
            self._models.show(None)
            self._models.look_again()
        self._say(said, "info")

    async def take(self, name: str, size: int, pieces: AsyncIterator[bytes]) -> Path:
        """A file from the browser as a model of its own: the file's path. Raises UserError, and then nothing
        of it is kept. `size`: its bytes, as announced.
        """
        name = Path(name.replace("\\", "/")).name
        folder = subdir("models") / (re.sub(r"[^\w.-]+", "-", Path(name).stem).strip(".-") or "gguf")
        self._check(name, size, folder)
        if not self._begin(name):
            raise UserError(_("Something else is being fetched or copied. Wait for it, or stop it."))
        stage = folder.with_name(f".{folder.name}.copying")
        shutil.rmtree(stage, ignore_errors=True)
        try:
            stage.mkdir()
            await self._written(stage / name, size, pieces)
            self._shown(name, DownloadSpeed(size))(_("Looking at the file"), None)
            await asyncio.to_thread(entry_safely, stage / name, should_stop=self._stop.is_set)
            write_manifest(stage, repo="")
            stage.rename(folder)
        except (Stopped, CallCancelled):
            raise UserError(_("{name} was not copied.").format(name=name)) from None
        except OSError as error:
            said = _("{name} could not be copied ({reason}). Nothing of it is kept.")
            raise UserError(said.format(name=name, reason=error.strerror or error)) from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            self._models.show(None)
        return folder / name

    def _check(self, name: str, size: int, folder: Path) -> None:
        if Path(name).suffix.lower() != ".gguf" or len(parts_of(Path(name))) > 1:
            said = _("{name} cannot be copied: it is no GGUF file, or one of several parts.")
            raise UserError(said.format(name=name))
        if folder.exists():
            said = _("There is a model called {name} already. Delete it first, or rename the file.")
            raise UserError(said.format(name=folder.name))
        free = shutil.disk_usage(folder.parent).free
        if free < size + SPARE_BYTES:
            said = _("{name} needs {needed} free in {folder}; {free} is free. Choose where it lies instead.")
            words = {"needed": in_words(size + SPARE_BYTES), "free": in_words(free)}
            raise UserError(said.format(name=name, folder=folder.parent, **words))

    async def _written(self, file: Path, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Raises UserError for what is not all there, or no GGUF."""
        shown, held, done = self._shown(file.name, DownloadSpeed(size)), bytearray(), 0
        with file.open("wb") as writer:
            async for piece in pieces:
                if self._stop.is_set():
                    raise Stopped
                held += piece
                done += len(piece)
                if len(held) >= _PIECE or done == size:
                    if writer.tell() == 0 and not held.startswith(MAGIC):
                        raise no_gguf(file.name)
                    await asyncio.to_thread(writer.write, bytes(held))
                    held.clear()
                    shown(_("Copying"), done / size)
        if done != size:
            raise UserError(_("{name} did not arrive whole. Drop it again.").format(name=file.name))

    def _begin(self, name: str) -> bool:
        self._stop.clear()
        return self._models.begin_copy(name)

    def _shown(self, name: str, pace: DownloadSpeed) -> Callable[[str, float | None], None]:
        def show(stage: str, share: float | None) -> None:
            per_s, left_s = pace.at(share)
            self._models.show(Transfer(name, stage, share, "copying", bytes_per_s=per_s, left_s=left_s))

        return show
