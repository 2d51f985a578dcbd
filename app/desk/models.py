"""What a person does with models: change to one, delete one, use a file of one's own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.desk.store import Store
from app.models.catalogue import Models, chosen, remember_model
from app.models.copies import ModelCopies
from app.models.file_dialog import chosen_file, dialog_command
from app.models.local_files import (
    FileInspection,
    FolderChoice,
    add_file,
    drop,
    forget_folder,
    look_into,
    name_folder,
    named_folders,
)
from core import paths
from core.config import Settings
from core.errors import UserError
from core.model.store.catalogue import title_of
from core.model.store.discovery import FoundModel, found_below, found_elsewhere, longest_s
from core.model.store.untrusted import LIMITS, entry_safely
from core.sandbox.process import CallCancelled
from core.text.words import joined_sentences, size
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime


class ModelChoice:
    """Changes models as the page asks: a name that comes from there must be in the list."""

    def __init__(self, store: Store, engine: Runtime, models: Models) -> None:
        self._store, self._engine, self._models = store, engine, models
        self._given_up = self._found_enough = threading.Event()  # each look and each search has its own
        self.copies = ModelCopies(models, store.say)
        self._dialog = threading.Lock()
        # the model that was asked for last, and what was chosen before that
        self._asked: tuple[str, str | None] | None = None
        models.when_arrived(self._arrived)

    def use(self, name: str) -> None:
        """Changes to another model, now and for later starts."""
        wanted = next((one for one in self._models.list if one.id == name and one.here and one.fits), None)
        if self._store.refuse_while_busy() or wanted is None or wanted.name == self._engine.model_name:
            return
        self._asked = name, chosen()
        remember_model(name)
        threading.Thread(target=self._engine.use, args=(name,), name="another model", daemon=True).start()
        self._store.tell()

    def went_back(self, settings: Settings) -> None:
        """Loading the model that was asked for was cancelled: later starts take the one before, too."""
        if self._asked is not None and self._asked[0] != settings.model:
            remember_model(self._asked[1])
            self._asked = None

    def delete(self, name: str) -> None:
        """Deletes a downloaded model, unless it is the one in use."""
        if name == self._engine.model_name:
            said = _("{name} is in use. Change to another model, then delete it.")
            self._store.say(said.format(name=title_of(name)), "info")
            return
        try:
            freed = self._models.delete(name)
        except OSError as error:
            said = _("{name} could not be deleted ({reason}). Close what has its files open, and try again.")
            self._store.say(said.format(name=title_of(name), reason=error.strerror or error))
            return
        if freed:
            gone = _("{name} is deleted: {size} given back.")
            self._store.say(gone.format(name=title_of(name), size=size(freed)), "info")

    # --- files of one's own

    def look_into(self, folder: str) -> None:
        """Shows a folder to choose a file from, or a folder for a model; "" is the home folder."""
        shown = look_into(Path(folder) if folder else Path.home())
        before = self._store.state.choosing or shown
        named = tuple(map(str, named_folders()))
        same = {"moving": before.moving, "dropped": before.dropped, "free_bytes": before.free_bytes}
        self._show(replace(shown, named=named, dialog=dialog_command() is not None, **same))

    def open_dialog(self) -> None:
        """Lets the person choose a file in the system's own dialog, one at a time."""
        command = dialog_command()
        if command is None or not self._dialog.acquire(blocking=False):
            return

        def choose() -> None:
            try:
                path = chosen_file(command)
            finally:
                self._dialog.release()
            if path:
                self.file(path)

        threading.Thread(target=choose, name="system's dialog", daemon=True).start()

    def look_elsewhere(self) -> None:
        """Shows what other programs keep, and what is below folders that were named. The person's yes is the
        button's.
        """
        named = named_folders()
        self._search(partial(found_elsewhere, named), longest_s(len(named), programs=True))

    def search_below(self, folder: str) -> None:
        """Remembers a folder, and shows which models are below it and those named before."""
        name_folder(Path(folder))
        named = named_folders()
        self._search(partial(found_below, named), longest_s(len(named)))

    def stop_searching(self) -> None:
        """Ends the search; what was found so far is shown."""
        self._found_enough.set()

    def forget_folder(self, folder: str) -> None:
        """Searches below a folder no more."""
        forget_folder(Path(folder))
        choosing = self._store.state.choosing
        self.look_into(choosing.folder if choosing else "")

    def dropped(self, name: str, size: int) -> None:
        """A model file was dropped onto the page, which never learns where it lies: the person can show it,
        or have it copied.
        """
        free = shutil.disk_usage(paths.subdir("models")).free
        self._show(FolderChoice(dropped=(name, size), free_bytes=free))
        self.look_into("")

    def place_for(self, name: str) -> None:
        """Shows folders that a downloaded model may be moved to."""
        if name == self._engine.model_name:
            said = _("{name} is in use. Change to another model, then move it.")
            self._store.say(said.format(name=title_of(name)), "info")
            return
        self._show(FolderChoice(moving=name))
        self.look_into("")

    def move_to(self, folder: str) -> None:
        """Moves the model that a folder is chosen for."""
        choosing = self._store.state.choosing
        self._show(None)
        if choosing and choosing.moving and choosing.moving != self._engine.model_name:
            self.copies.move(choosing.moving, Path(folder))

    async def take(self, name: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Copies a dropped file and uses it; what is wrong is said."""
        self.done_choosing()
        try:
            file = await self.copies.take(name, size, pieces)
        except UserError as error:
            self._store.say(str(error))
            return
        self.file(str(file))

    def _search(self, find: Callable[..., list[FoundModel]], most_s: float) -> None:
        named = tuple(map(str, named_folders()))
        self._found_enough.set()
        self._found_enough = enough = threading.Event()
        self._show(FolderChoice(searching_s=most_s, named=named))

        def search() -> None:
            found = tuple(find(should_stop=enough.is_set))
            choosing = self._store.state.choosing
            if choosing is not None and choosing.searching_s and enough is self._found_enough:
                self._show(FolderChoice(found=found, named=named))

        threading.Thread(target=search, name="models elsewhere", daemon=True).start()

    def done_choosing(self) -> None:
        """Shows no folder any more."""
        self.stop_searching()
        self._show(None)

    def file(self, path: str) -> None:
        """Uses a model file where it lies, in the background; what is wrong with it is said."""
        self.stop_looking()
        self._given_up = given_up = threading.Event()
        self._look(FileInspection(path, LIMITS.time_s))
        threading.Thread(
            target=self._file, args=(Path(path), given_up), name="own model", daemon=True
        ).start()

    def stop_looking(self) -> None:
        """Gives up the file that is looked at; the model in use stays."""
        self._given_up.set()
        self._look(None)

    def forget(self, path: str) -> None:
        """Takes a file off the list. The file stays where it is."""
        if drop(Path(path)):
            self._models.start()

    def _file(self, path: Path, given_up: threading.Event) -> None:
        try:
            file = entry_safely(path, should_stop=given_up.is_set).folder
            add_file(file)
            self._models.look_again()
        except CallCancelled:
            return
        except (UserError, OSError) as error:
            self._store.say(str(error))
        else:
            self._use_file(file, given_up)
        finally:
            if given_up is self._given_up:
                self._look(None)

    def _use_file(self, file: Path, given_up: threading.Event) -> None:
        if given_up.is_set():
            return
        self._show(None)
        found = next((one for one in self._models.list if one.path == str(file)), None)
        if found is None or not found.fits:
            self._store.say(found.reason if found else _("{file} could not be looked at.").format(file=file))
            return
        self._store.say(_("{name} is being loaded from {file}.").format(name=found.name, file=file), "info")
        self.use(found.id)

    def _look(self, looking: FileInspection | None) -> None:
        self._store.update(looking=looking)

    def _show(self, choosing: FolderChoice | None) -> None:
        self._store.update(choosing=choosing)

    def _arrived(self, name: str, words: str) -> None:
        if self._store.state.busy:
            here = _("{name} is on this computer now: choose it in the list of models.")
            self._store.say(
                joined_sentences(here.format(name=title_of(name)), *filter(None, [words])), "info"
            )
            return
        here = _("{name} is on this computer now and is being loaded.")
        self._store.say(joined_sentences(here.format(name=title_of(name)), *filter(None, [words])), "info")
        self.use(name)
