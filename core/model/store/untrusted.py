"""A model that somebody else made: a GGUF's header is read, and a chat template run, in a process of its own
with limits on memory and time. No torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.model.gguf.shards import first_shard
from core.model.shapes import ModelShape
from core.model.store.catalogue import CatalogueEntry, find, from_gguf, gguf_at, load_catalogue
from core.sandbox.process import CallCancelled, Limits, SandboxError, run_isolated
from core.text.chat_template import pieces_of
from core.text.words import translated as _

LIMITS = Limits(memory_bytes=1 << 30, time_s=20.0)
_LONGEST_REASON = 200

log = logging.getLogger(__name__)


def entry_safely(path: Path, *, should_stop: Callable[[], bool] | None = None) -> CatalogueEntry:
    """The entry for the GGUF at `path`, or alone in that folder. Raises UserError with what is wrong with it,
    and what would do; CallCancelled when `should_stop` says so.
    """
    file = gguf_at(path.expanduser())
    if file is None:
        said = _("{file} is no GGUF file, and no folder with one. Choose a file that ends in .gguf.")
        raise UserError(said.format(file=path))
    file = first_shard(file)
    try:
        facts = run_isolated(
            f"{__name__}:facts_of", {"path": str(file)}, limits=LIMITS, should_stop=should_stop
        )
    except CallCancelled:
        raise
    except SandboxError as error:
        said = _("{file} cannot be looked into: it is damaged, or built to do harm. Choose another file.")
        raise UserError(said.format(file=file)) from error
    shape = ModelShape(**facts["shape"])
    own = {"name": facts["name"], "role": facts["role"]}
    of_file = {**own, "folder": file, "shape": shape, "weights": "gguf"}
    if facts["known"]:
        return replace(find(facts["known"]), **of_file, embedded=False, taught=False)
    listed = {"repo": str(file), "vocabulary": f"file:{facts['name']}", "frame": "completion"}
    return CatalogueEntry(**of_file, **listed, licence=facts["licence"], chat=facts["chat"])


def written_safely(name: str) -> Callable[[Mapping[str, Any]], list[str | None]]:
    """What runs the chat template of the model called `name` (core.text.chat_template.pieces_of)."""

    def written(given: Mapping[str, Any]) -> list[str | None]:
        try:
            found = run_isolated(f"{__name__}:pieces_or_reason", {"given": dict(given)}, limits=LIMITS)
        except SandboxError as error:
            found = _("it takes too long, or too much memory")
            log.warning("the chat template of %s: %r", name, error)
        if isinstance(found, str):
            said = _(
                "The chat template of {model} cannot be used: {reason}. Choose another model, or another "
                "file of this one."
            )
            raise UserError(said.format(model=name, reason=found))
        return found

    return written


def pieces_or_reason(given: Mapping[str, Any]) -> list[str | None] | str:
    """What the template writes, or why it does not. Runs in the child."""
    try:
        return pieces_of(given)
    except MemoryError:
        raise
    except Exception as error:  # a template may raise what it likes
        return (str(error) or type(error).__name__)[:_LONGEST_REASON].strip().rstrip(".")


def facts_of(path: str) -> dict[str, Any]:
    """What `entry_safely` needs to know, as JSON values. Runs in the child."""
    entry = from_gguf(Path(path))
    known = next(
        (one.name for one in load_catalogue().values() if not one.file and one.repo == entry.repo), ""
    )
    own = {name: getattr(entry, name) for name in ("name", "licence", "chat", "role")}
    return {**own, "shape": asdict(entry.shape), "known": known}
