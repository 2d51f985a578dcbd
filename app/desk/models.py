"""What a person does with models on a desk: change to one, delete one, use a file of one's own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.models.catalogue import chosen, remember
from app.models.copies import Copies
from app.models.file_dialog import chosen_file, dialog_command
from app.models.local_files import (
    Choosing,
    Looking,
    drop,
    forget_folder,
    keep,
    look_into,
    name_folder,
    named_folders,
)
from core import paths
from core.config import Settings
from core.errors import UserError
from core.model.store.catalogue import title_of
from core.model.store.discovery import Found, found_below, found_elsewhere, longest_s
from core.model.store.untrusted import LIMITS, entry_safely
from core.sandbox.process import CallCancelled
from core.text.words import sentences, size
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk


class ModelsUsed:
    """The models of a desk, as its page asks for them: a name that comes from there must be in the list.

    `choosing`: what is shown to choose a file from, `looking`: the file that was chosen, while it is looked
    at; None while there is none.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.choosing: Choosing | None = None
        self.looking: Looking | None = None
        self._given_up = self._found_enough = threading.Event()  # each look and each search has its own
        self.copies = Copies(desk.models, desk.say)
        self._dialog = threading.Lock()
        # the model that was asked for last, and what was chosen before that
        self._asked: tuple[str, str | None] | None = None
        desk.models.arrived = self._arrived

    def use(self, name: str) -> None:
        """Changes to another model, now and for later starts."""
        desk = self._desk
        wanted = next((one for one in desk.models.list if one.id == name and one.here and one.fits), None)
        if desk.refuse_while_busy() or wanted is None or wanted.name == desk.engine.model_name:
            return
        self._asked = name, chosen()
        remember(name)
        threading.Thread(target=desk.engine.use, args=(name,), name="another model", daemon=True).start()
        desk.change()

    def went_back(self, settings: Settings) -> None:
        """Loading the model that was asked for was cancelled: later starts take the one before, too."""
        if self._asked is not None and self._asked[0] != settings.model:
            remember(self._asked[1])
            self._asked = None

    def delete(self, name: str) -> None:
        """Deletes a downloaded model, unless it is the one in use."""
        desk = self._desk
        if name == desk.engine.model_name:
            said = _("{name} is in use. Change to another model, then delete it.")
            desk.say(said.format(name=title_of(name)), "info")
            return
        try:
            freed = desk.models.delete(name)
        except OSError as error:
            said = _("{name} could not be deleted ({reason}). Close what has its files open, and try again.")
            desk.say(said.format(name=title_of(name), reason=error.strerror or error))
            return
        if freed:
            gone = _("{name} is deleted: {size} given back.")
            desk.say(gone.format(name=title_of(name), size=size(freed)), "info")

    # --- files of one's own

    def look_into(self, folder: str) -> None:
        """Shows a folder to choose a file from, or a folder for a model; "" is the home folder."""
        shown = look_into(Path(folder) if folder else Path.home())
        before = self.choosing or shown
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
        self.look_into(self.choosing.folder if self.choosing else "")

    def dropped(self, name: str, size: int) -> None:
        """A model file was dropped onto the page, which never learns where it lies: the person can show it,
        or have it copied.
        """
        free = shutil.disk_usage(paths.subdir("models")).free
        self.choosing = Choosing(dropped=(name, size), free_bytes=free)
        self.look_into("")

    def place_for(self, name: str) -> None:
        """Shows folders that a downloaded model may be moved to."""
        if name == self._desk.engine.model_name:
            said = _("{name} is in use. Change to another model, then move it.")
            self._desk.say(said.format(name=title_of(name)), "info")
            return
        self.choosing = Choosing(moving=name)
        self.look_into("")

    def move_to(self, folder: str) -> None:
        """Moves the model that a folder is chosen for."""
        name, self.choosing = self.choosing.moving if self.choosing else "", None
        if name and name != self._desk.engine.model_name:
            self.copies.move(name, Path(folder))
        self._desk.change()

    async def take(self, name: str, size: int, pieces: AsyncIterator[bytes]) -> None:
        """Copies a dropped file and uses it; what is wrong is said."""
        self.done_choosing()
        try:
            file = await self.copies.take(name, size, pieces)
        except UserError as error:
            self._desk.say(str(error))
            return
        self.file(str(file))

    def _search(self, find: Callable[..., list[Found]], most_s: float) -> None:
        named = tuple(map(str, named_folders()))
        self._found_enough.set()
        self._found_enough = enough = threading.Event()
        self._show(Choosing(searching_s=most_s, named=named))

        def search() -> None:
            found = tuple(find(should_stop=enough.is_set))
            if self.choosing is not None and self.choosing.searching_s and enough is self._found_enough:
                self._show(Choosing(found=found, named=named))

        threading.Thread(target=search, name="models elsewhere", daemon=True).start()

    def done_choosing(self) -> None:
        """Shows no folder any more."""
        self.stop_searching()
        self._show(None)

    def file(self, path: str) -> None:
        """Uses a model file where it lies, in the background; what is wrong with it is said."""
        self.stop_looking()
        self._given_up = given_up = threading.Event()
        self._look(Looking(path, LIMITS.time_s))
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
            self._desk.models.start()

    def _file(self, path: Path, given_up: threading.Event) -> None:
        try:
            file = entry_safely(path, should_stop=given_up.is_set).folder
            keep(file)
            self._desk.models.look_again()
        except CallCancelled:
            return
        except (UserError, OSError) as error:
            self._desk.say(str(error))
        else:
            self._use_file(file, given_up)
        finally:
            if given_up is self._given_up:
                self._look(None)

    def _use_file(self, file: Path, given_up: threading.Event) -> None:
        desk = self._desk
        if given_up.is_set():
            return
        self.choosing = None
        found = next((one for one in desk.models.list if one.path == str(file)), None)
        if found is None or not found.fits:
            desk.say(found.reason if found else _("{file} could not be looked at.").format(file=file))
            return
        desk.say(_("{name} is being loaded from {file}.").format(name=found.name, file=file), "info")
        self.use(found.id)

    def _look(self, looking: Looking | None) -> None:
        self.looking = looking
        self._desk.change()

    def _show(self, choosing: Choosing | None) -> None:
        self.choosing = choosing
        self._desk.change()

    def _arrived(self, name: str, words: str) -> None:
        desk = self._desk
        if desk.busy:
            here = _("{name} is on this computer now: choose it in the list of models.")
            desk.say(sentences(here.format(name=title_of(name)), *filter(None, [words])), "info")
            return
        here = _("{name} is on this computer now and is being loaded.")
        desk.say(sentences(here.format(name=title_of(name)), *filter(None, [words])), "info")
        self.use(name)
