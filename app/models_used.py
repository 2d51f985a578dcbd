"""What a person does with models on a desk: change to one, delete one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.models import remember
from core.text.words import size
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.handlers import Desk


class ModelsUsed:
    """The models of a desk, as its page asks for them: a name that comes from there must be in the list."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        desk.models.arrived = self._arrived

    def use(self, name: str) -> None:
        """Changes to another model, now and for later starts."""
        desk = self._desk
        if (
            desk.refuse_while_busy()
            or name == desk.engine.model_name
            or not any(model.name == name and model.here and model.fits for model in desk.models.list)
        ):
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

    def _arrived(self, name: str, words: str) -> None:
        desk = self._desk
        if desk.busy:
            here = _("{name} is on this computer now: choose it in the list of models.").format(name=name)
            desk.say(f"{here} {words}".strip(), "info")
            return
        here = _("{name} is on this computer now and is being loaded.").format(name=name)
        desk.say(f"{here} {words}".strip(), "info")
        self.use(name)
