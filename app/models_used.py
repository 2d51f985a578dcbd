"""What a person does with models on a desk: change to one, delete one, use a file of one's own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from app.models import remember
from app.own_files import Choosing, drop, keep, look_into
from core.errors import UserError
from core.model.elsewhere import found_elsewhere
from core.model.foreign import entry_safely
from core.text.words import size
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.handlers import Desk


class ModelsUsed:
    """The models of a desk, as its page asks for them: a name that comes from there must be in the list.

    `choosing`: what is shown to choose a file from; None while nobody does.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.choosing: Choosing | None = None
        desk.models.arrived = self._arrived

    def use(self, name: str) -> None:
        """Changes to another model, now and for later starts."""
        desk = self._desk
        wanted = next((one for one in desk.models.list if one.id == name and one.here and one.fits), None)
        if desk.refuse_while_busy() or wanted is None or wanted.name == desk.engine.model_name:
            return
        remember(name)
        threading.Thread(target=desk.engine.use, args=(name,), name="another model", daemon=True).start()
        desk.change()

    def delete(self, name: str) -> None:
        """Deletes a downloaded model, unless it is the one in use."""
        desk = self._desk
        if name == desk.engine.model_name:
            said = _("{name} is in use. Change to another model, then delete it.")
            desk.say(said.format(name=name), "info")
            return
        try:
            freed = desk.models.delete(name)
        except OSError as error:
            said = _("{name} could not be deleted ({reason}). Close what has its files open, and try again.")
            desk.say(said.format(name=name, reason=error.strerror or error))
            return
        if freed:
            desk.say(_("{name} is deleted: {size} given back.").format(name=name, size=size(freed)), "info")

    # --- files of one's own

    def look_into(self, folder: str) -> None:
        """Shows a folder to choose a file from; "" is the home folder."""
        self._show(look_into(Path(folder) if folder else Path.home()))

    def look_elsewhere(self) -> None:
        """Shows what other programs keep. The person's yes is the button's."""
        self._show(Choosing(found=tuple(found_elsewhere())))

    def done_choosing(self) -> None:
        """Shows no folder any more."""
        self._show(None)

    def file(self, path: str) -> None:
        """Uses a model file where it lies, in the background; what is wrong with it is said."""
        said = _("Looking at {file}.").format(file=path)
        self._desk.say(said, "info")
        threading.Thread(target=self._file, args=(Path(path),), name="own model", daemon=True).start()

    def forget(self, path: str) -> None:
        """Takes a file off the list. The file stays where it is."""
        if drop(Path(path)):
            self._desk.models.start()

    def _file(self, path: Path) -> None:
        desk = self._desk
        try:
            file = entry_safely(path).folder
            keep(file)
        except (UserError, OSError) as error:
            desk.say(str(error))
            return
        self.choosing = None
        desk.models.look_again()
        found = next((one for one in desk.models.list if one.path == str(file)), None)
        if found is None or not found.fits:
            desk.say(found.reason if found else _("{file} could not be looked at.").format(file=file))
            return
        desk.say(_("{name} is being loaded from {file}.").format(name=found.name, file=file), "info")
        self.use(found.id)

    def _show(self, choosing: Choosing | None) -> None:
        self.choosing = choosing
        self._desk.change()

    def _arrived(self, name: str, words: str) -> None:
        desk = self._desk
        if desk.busy:
            here = _("{name} is on this computer now: choose it in the list of models.").format(name=name)
            desk.say(f"{here} {words}".strip(), "info")
            return
        here = _("{name} is on this computer now and is being loaded.").format(name=name)
        desk.say(f"{here} {words}".strip(), "info")
        self.use(name)
