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
from core.planning.planner import plan as planned
from core.text.words import size
from core.text.words import translated as _

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
        note = _(
            "{draft} could draft for it and is not on this computer: launcher.py models download {model} "
            "fetches it."
        ).format(draft=draft.name, model=entry.name)
        return replace(found, plan=_noted(found.plan, note))
    others = [other.shape for other in load().values() if other.role == "target" and other.chat]
    made = planned(
        hardware,
        settings,
        target=entry.shape,
        draft=draft.shape if draft else None,
        alternatives=others,
        known=known,
    )
    if not entry.chat:
        said = _("{model} is a base model, not tuned for chat: it continues texts rather than answers.")
        made = _noted(made, said.format(model=entry.name))
    return Choice(entry, draft if made.draft_model is not None else None, made)


def _noted(plan: Plan, note: str) -> Plan:
    return replace(plan, notes=(*plan.notes, note))


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
    """Every target model of the catalogue on this machine: those that fit first, the larger before."""
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
        plan = plan_for(hardware, settings, entry, known=known).plan
    except (PlanError, UserError) as error:
        return Offer(entry, None, str(error), downloaded)
    reason = _too_large(plan, hardware) if not downloaded else ""
    if settings.context_tokens is None and plan.context_tokens < min(USEFUL_CONTEXT, entry.native_context):
        reason = reason or _("Only {tokens} tokens of context would fit beside it.").format(
            tokens=f"{plan.context_tokens:,}"
        )
    return Offer(entry, None if reason else plan, reason, downloaded)


def _too_large(plan: Plan, hardware: Hardware) -> str:
    """Why the files do not fit the disk, if they do not."""
    files = sum(line.bytes for line in plan.budget if line.name == MODEL_FILES)
    free = hardware.disk_free_bytes
    if free is None or files <= free:
        return ""
    said = _("Its files take {needed}; {free} is free in {folder}.")
    return said.format(needed=size(files), free=size(free), folder=hardware.disk_path)
