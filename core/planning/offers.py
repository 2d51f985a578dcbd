"""Which models a machine can run, and the plan for the one that is asked for. Joins probe, catalogue and
planner; no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from core.config import Settings
from core.errors import PlanError, UserError
from core.hardware.facts import Hardware
from core.model.catalogue import EMBEDDED, CatalogueEntry, draft_for, find, load
from core.planning.budget import MODEL_FILES
from core.planning.known import NOTHING, Known
from core.planning.plan import Plan
from core.planning.planner import plan
from core.planning.wording import size

USEFUL_CONTEXT = 8192  # below this a larger model reads a book in too many pieces to be worth it


@dataclass(frozen=True, slots=True)
class Choice:
    """A model, the draft model the plan uses (None: n-gram lookup), and the plan."""

    entry: CatalogueEntry
    draft: CatalogueEntry | None
    plan: Plan


@dataclass(frozen=True, slots=True)
class Offer:
    """One catalogue model on this machine: its plan, or why there is none."""

    entry: CatalogueEntry
    plan: Plan | None
    reason: str
    downloaded: bool


def plan_for(
    hardware: Hardware,
    settings: Settings,
    entry: CatalogueEntry,
    *,
    is_there: Callable[[CatalogueEntry], bool] = lambda entry: True,
    known: Known = NOTHING,
) -> Choice:
    """The plan for this model with its draft pairing, of which only a draft that `is_there` is used unless
    the user named it.

    Raises PlanError or UserError; another model that fits is named.
    """
    draft = draft_for(entry, settings.draft_model)
    if draft is not None and settings.draft_model is None and not is_there(draft):
        found = plan_for(hardware, replace(settings, draft_model="none"), entry, known=known)
        note = (
            f"{draft.name} could draft for it and is not on this computer: launcher.py models download "
            f"{entry.name} fetches it."
        )
        return replace(found, plan=replace(found.plan, notes=(*found.plan.notes, note)))
    others = [other.shape for other in load().values() if other.role == "target" and other.chat]
    made = plan(
        hardware,
        settings,
        target=entry.shape,
        draft=draft.shape if draft else None,
        alternatives=others,
        known=known,
    )
    if not entry.chat:
        note = f"{entry.name} is a base model, not tuned for chat: it continues texts rather than answers."
        made = replace(made, notes=(*made.notes, note))
    return Choice(entry, draft if made.draft_model is not None else None, made)


def choose(
    hardware: Hardware,
    settings: Settings,
    *,
    is_downloaded: Callable[[CatalogueEntry], bool],
    known: Known = NOTHING,
) -> Choice:
    """What to run: the model asked for, else the largest downloaded chat model that fits a GPU, else the
    embedded model. Raises as `plan_for`.
    """
    entry = find(settings.model or EMBEDDED)
    if settings.model is None and hardware.gpus and settings.device != "cpu":
        found = offers(hardware, settings, is_downloaded=is_downloaded, known=known)
        ready = (offer.entry for offer in found if offer.downloaded and offer.plan is not None)
        entry = next((one for one in ready if not one.embedded), entry)
    return plan_for(hardware, settings, entry, is_there=is_downloaded, known=known)


def offers(
    hardware: Hardware,
    settings: Settings,
    *,
    is_downloaded: Callable[[CatalogueEntry], bool] = lambda entry: entry.embedded,
    known: Known = NOTHING,
) -> tuple[Offer, ...]:
    """Every target model of the catalogue on this machine: those that fit first, the larger before the
    smaller.
    """
    made = [
        _offer(hardware, settings, entry, downloaded=is_downloaded(entry), known=known)
        for entry in load().values()
        if entry.role == "target"
    ]
    return tuple(
        sorted(
            made, key=lambda offer: (offer.plan is None, not offer.entry.chat, -offer.entry.shape.parameters)
        )
    )


def _offer(
    hardware: Hardware, settings: Settings, entry: CatalogueEntry, *, downloaded: bool, known: Known
) -> Offer:
    try:
        choice = plan_for(hardware, settings, entry, known=known)
    except (PlanError, UserError) as error:
        return Offer(entry, None, str(error), downloaded)
    files, free = (
        sum(line.bytes for line in choice.plan.budget if line.name == MODEL_FILES),
        hardware.disk_free_bytes,
    )
    if not downloaded and free is not None and files > free:
        return Offer(
            entry,
            None,
            f"Its files take {size(files)}; {size(free)} is free in {hardware.disk_path}.",
            downloaded,
        )
    short = choice.plan.context_tokens < min(USEFUL_CONTEXT, entry.native_context)
    if short and settings.context_tokens is None:
        return Offer(
            entry,
            None,
            f"Only {choice.plan.context_tokens:,} tokens of context would fit beside it.",
            downloaded,
        )
    return Offer(entry, choice.plan, "", downloaded)
