"""The commands `models` and `use`: what there is for this computer or another one, fetching it, and a file of
one's own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.commands import imagined_machine, imagined_settings
from app.cli.terminal import say, status, tell
from core import paths
from core.config import Settings
from core.errors import UserError
from core.text.words import size
from core.text.words import translated as _

if TYPE_CHECKING:
    from core.hardware.facts import Hardware
    from core.model.store.catalogue import CatalogueEntry
    from core.planning.plan import Plan
    from core.planning.recommended import Offer


def models(given: argparse.Namespace, settings: Settings) -> int:
    """The models this program knows, where they are kept, and fetching one."""
    if given.action == "path":
        say(str(paths.subdir("models")))
    elif given.action == "download":
        _download(given)
    elif given.action == "move":
        _move(given)
    else:
        _list(given, settings)
    return 0


def use(given: argparse.Namespace, settings: Settings) -> int:
    """Uses a model file where it lies: in the app that runs, else from its next start on."""
    from app.host.instance import Instance
    from app.models.catalogue import remember_model
    from app.models.local_files import add_file
    from core.model.store.untrusted import entry_safely

    entry = entry_safely(Path(given.file).absolute())
    address = Instance(paths.subdir("run")).running()
    if address is not None and address.told("/use", str(entry.folder)):
        words = _("{name} is given to the app at {address}.")
        say(words.format(name=entry.name, address=f"http://127.0.0.1:{address.port}/"))
        return 0
    add_file(entry.folder)
    remember_model(str(entry.folder))
    say(_("The app will start with {name}, from {file}.").format(name=entry.name, file=entry.folder))
    return 0


def _download(given: argparse.Namespace) -> None:
    from core.model.store.catalogue import find
    from core.model.store.fetch import fetch_model

    if not given.name:
        raise UserError(
            _(
                "Which model? Name one: launcher.py models download NAME. `launcher.py models list` "
                "shows them."
            )
        )
    entry = find(given.name)
    if entry.folder is not None:
        words = _("{folder} is on this computer already; there is nothing to download.")
        raise UserError(words.format(folder=entry.folder))
    folder, note = fetch_model(entry, progress=status)
    status("", None)
    say(str(folder))
    if note:
        tell(note)


def _move(given: argparse.Namespace) -> None:
    from core.model.store.catalogue import find
    from core.model.store.relocate import move

    if not given.name or not given.to:
        words = _("Which model, and where to? launcher.py models move NAME --to FOLDER")
        raise UserError(words)
    folder = move(find(given.name).name, Path(given.to), progress=status)
    status("", None)
    say(str(folder))


def _list(given: argparse.Namespace, settings: Settings) -> None:
    from core.model.store.catalogue import not_yet
    from core.model.store.fetch import is_downloaded
    from core.planning.offers import offers
    from core.planning.stored_facts import known_in

    machine, settings = imagined_machine(given), imagined_settings(given, settings)
    known = known_in(paths.data_dir())
    found = offers(machine, settings, is_downloaded=is_downloaded, known=known)
    if given.json:
        rows = [_facts(offer, machine, settings) for offer in found]
        say(json.dumps([*rows, *(_absent(name, why) for name, why in not_yet().items())]))
        return
    for problem in machine.problems:
        say(problem)
    for offer in found:
        say(_line(offer))
    absent = _("not yet")
    for name, why in not_yet().items():
        say(f"{absent:<7} {name}\n{'':8} {why}")


def _facts(offer: Offer, machine: Hardware, settings: Settings) -> dict[str, Any]:
    from core.planning.offers import would_fit_with

    entry, plan = offer.entry, offer.plan
    return {
        "name": entry.name,
        "recommended": offer.recommended,
        "fits": plan is not None,
        "reason": offer.reason,
        "would_fit_with": (
            "" if plan else would_fit_with(machine, settings, entry, downloaded=offer.downloaded)
        ),
        "file": entry.file or entry.repo,
        "bytes": entry.download_bytes,
        "licence": entry.licence,
        "context_tokens": plan.context_tokens if plan else entry.native_context,
        "tbt_ms": plan.expected_tbt_ms if plan else None,
        "read_100k_s": plan.expected_book_s if plan else None,
    }


def _absent(name: str, why: str) -> dict[str, Any]:
    """A model that no computer can run here yet."""
    none = {"bytes": None, "licence": "", "context_tokens": None, "tbt_ms": None, "read_100k_s": None}
    facts = {"name": name, "recommended": False, "fits": False, "reason": why}
    return {**facts, "would_fit_with": "", "file": "", **none}


def _line(offer: Offer) -> str:
    """Two lines: the model, and how it fits."""
    entry = offer.entry
    here = _("here") if offer.downloaded else ""
    facts = [entry.licence, entry.languages, "" if entry.chat else _("not tuned for chat")]
    fits = _("does not fit: {reason}").format(reason=offer.reason.splitlines()[0]) if offer.reason else ""
    if offer.plan:
        fits = _fits(entry, offer.plan)
    if offer.recommended:
        fits = _("recommended for this computer; {fits}").format(fits=fits)
    return f"{here:<7} {entry.name:<32} {'; '.join(filter(None, facts))}\n{'':8} {fits}"


def _fits(entry: CatalogueEntry, plan: Plan) -> str:
    from core.planning.recommended import times

    said = _("{size}, {tokens:,} tokens of context; expected: {time:.0f} ms per token, {times}")
    facts = {"tokens": plan.context_tokens, "time": plan.expected_tbt_ms, "times": times(plan)}
    return said.format(size=size(entry.download_bytes), **facts)
