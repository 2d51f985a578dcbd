"""Which models a machine can run, and the plan for the one that is asked for. Joins probe, catalogue and
planner; no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from core.config import Settings
from core.errors import PlanError, UserError
from core.hardware.facts import Hardware
from core.hardware.gpus import imagine, with_vram
from core.model.gguf.size_estimates import ROUNDED
from core.model.shapes import ModelShape
from core.model.store.catalogue import (
    EMBEDDED,
    CatalogueEntry,
    draft_for,
    find,
    has_file,
    load_catalogue,
    with_layer,
)
from core.planning.budget import MODEL_FILES
from core.planning.plan import ASSISTANT, MTP, USEFUL_CONTEXT, Plan
from core.planning.planner import make_plan
from core.planning.recommended import Offer, best_offer, is_swift
from core.planning.stored_facts import NOTHING, StoredFacts
from core.text.words import size
from core.text.words import translated as _

# GiB, as they are sold
_CARDS = (6, 8, 10, 12, 16, 24, 32, 48, 80)
_MEMORIES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model, the draft model the plan uses (None: n-gram lookup), and the plan."""

    entry: CatalogueEntry
    draft: CatalogueEntry | None
    plan: Plan


def plan_model(
    hardware: Hardware,
    settings: Settings,
    entry: CatalogueEntry,
    *,
    is_there: Callable[[CatalogueEntry], bool] = lambda entry: True,
    known: StoredFacts = NOTHING,
) -> PlannedModel:
    """The plan for this model with its draft pairing, of which only a draft that `is_there` is used unless
    the user named it. Raises PlanError or UserError, which name a model that fits where there is one.
    """
    others = _alternatives(hardware, settings)
    return _planned(hardware, settings, entry, is_there=is_there, known=known, alternatives=others)


def _alternatives(hardware: Hardware, settings: Settings) -> list[ModelShape]:
    """Among which a refusal names one that fits."""
    on_card = hardware.gpus and settings.device != "cpu"
    return [
        other.shape
        for other in load_catalogue().values()
        # codes are decoded for every product on a card: they fit, and write slowly
        if other.role == "target" and other.chat and not (on_card and other.file)
    ]


def _planned(
    hardware: Hardware,
    settings: Settings,
    entry: CatalogueEntry,
    *,
    is_there: Callable[[CatalogueEntry], bool] = lambda entry: True,
    known: StoredFacts,
    alternatives: Sequence[ModelShape],
) -> PlannedModel:
    """`plan_model`; one that does not fit is refused with one of the alternatives that does, which takes as
    long as a plan.
    """
    if entry.role == "assistant":
        said = _("{model} only drafts for another model. Choose that one, and set draft_model to this.")
        raise UserError(said.format(model=entry.name))
    if entry.role == "ahead":
        said = _(
            "{model} is one layer of a model, which drafts for it. Choose the model's own file, and set "
            "draft_model to this one."
        )
        raise UserError(said.format(model=entry.name))
    draft = draft_for(entry, settings.draft_model)
    is_layer = draft is not None and draft.role == "ahead"
    if is_layer:
        entry = with_layer(entry, draft)
    if draft is not None and settings.draft_model is None and not is_there(draft):
        alone = replace(settings, draft_model="none")
        found = _planned(hardware, alone, entry, known=known, alternatives=alternatives)
        note = _(
            "{draft} could draft for it and is not on this computer: launcher.py models download {model} "
            "fetches it."
        ).format(draft=draft.name, model=entry.name)
        return replace(found, plan=_noted(found.plan, note))
    made = make_plan(
        hardware,
        settings,
        target=entry.shape,
        draft=entry.shape.layer_ahead if is_layer else draft and draft.shape,
        alternatives=alternatives,
        known=known,
    )
    if not entry.chat:
        said = _("{model} is a base model, not tuned for chat: it continues texts rather than answers.")
        made = _noted(made, said.format(model=entry.name))
    drafts = made.drafter == (MTP if is_layer else "model") or made.drafter == ASSISTANT
    return PlannedModel(entry, draft if drafts else None, made)


def _noted(plan: Plan, note: str) -> Plan:
    return replace(plan, notes=(*plan.notes, note))


def choose_model(
    hardware: Hardware,
    settings: Settings,
    *,
    is_downloaded: Callable[[CatalogueEntry], bool],
    known: StoredFacts = NOTHING,
) -> PlannedModel:
    """What to run: the model asked for, else the best downloaded one that answers soon enough, else the
    embedded model. Raises as `plan_model`.
    """
    if settings.model is not None:
        return plan_model(hardware, settings, find(settings.model), is_there=is_downloaded, known=known)
    found = offers(hardware, settings, is_downloaded=is_downloaded, known=known)
    ready = best_offer(offer for offer in found if offer.downloaded)
    entry = ready.entry if ready else find(EMBEDDED)
    return plan_model(hardware, settings, entry, is_there=is_downloaded, known=known)


def offers(
    hardware: Hardware,
    settings: Settings,
    *,
    is_downloaded: Callable[[CatalogueEntry], bool] = lambda entry: entry.embedded,
    known: StoredFacts = NOTHING,
) -> tuple[Offer, ...]:
    """Every target model of the catalogue on this machine: those that fit first, of these those that answer
    soon enough, the larger before. One is recommended.
    """
    made = [
        offer_for(hardware, settings, entry, downloaded=is_downloaded(entry), known=known)
        for entry in load_catalogue().values()
        if entry.role == "target"
    ]
    chosen = best_offer(made, free=True)
    name = chosen.entry.name if chosen else EMBEDDED
    made = [replace(offer, recommended=offer.entry.name == name) for offer in made]
    return tuple(sorted(made, key=_last))


def _last(offer: Offer) -> tuple[bool, bool, bool, int]:
    """By which offers are sorted: what is of no use here has the highest key."""
    plan, entry = offer.plan, offer.entry
    return plan is None, not entry.chat, plan is None or not is_swift(plan), -entry.shape.parameters


def offer_for(
    hardware: Hardware, settings: Settings, entry: CatalogueEntry, *, downloaded: bool, known: StoredFacts
) -> Offer:
    """One model on this machine, or why it does not fit. What would crawl on the CPU beside a card is nothing
    to fetch: it is offered for the card, or not at all.
    """
    others = _alternatives(hardware, settings)
    return _offer(hardware, settings, entry, downloaded=downloaded, known=known, alternatives=others)


def _offer(
    hardware: Hardware,
    settings: Settings,
    entry: CatalogueEntry,
    *,
    downloaded: bool,
    known: StoredFacts,
    alternatives: Sequence[ModelShape],
) -> Offer:
    settings = _as_offered(settings, entry, downloaded=downloaded)
    try:
        plan = _planned(hardware, settings, entry, known=known, alternatives=alternatives).plan
        if plan.device == "cpu" and hardware.gpus and not (downloaded or is_swift(plan)):
            for_card = _for_card(hardware, settings)
            plan = _planned(hardware, for_card, entry, known=known, alternatives=alternatives).plan
    except (PlanError, UserError) as error:
        return Offer(entry, None, str(error), downloaded)
    reason = _too_large(plan, hardware) if not downloaded else ""
    if settings.context_tokens is None and plan.context_tokens < min(USEFUL_CONTEXT, entry.native_context):
        reason = reason or _("Only {tokens} tokens of context would fit beside it.").format(
            tokens=f"{plan.context_tokens:,}"
        )
    return Offer(entry, None if reason else plan, reason, downloaded)


def _for_card(hardware: Hardware, settings: Settings) -> Settings:
    """For the card, where there is one and nobody chose."""
    return replace(settings, device="cuda") if hardware.gpus and settings.device is None else settings


def _as_offered(settings: Settings, entry: CatalogueEntry, *, downloaded: bool) -> Settings:
    """A checkpoint of 16 bits is fetched to be rounded only where the list has no GGUF of the model, which is
    a third of the download and rounded with more care.
    """
    if downloaded or settings.weights is not None or entry.file or not has_file(entry):
        return settings
    return replace(settings, weights=16)


def would_fit_with(
    hardware: Hardware, settings: Settings, entry: CatalogueEntry, *, downloaded: bool = False
) -> str:
    """The least that this machine would need instead for the model to fit: memory, of the card or of the
    machine; "" where nothing that is sold helps. Before that, of a model that exists in 16 bits only and is
    set to be held in so many, the setting that rounds it.
    """
    settings = _for_card(hardware, _as_offered(settings, entry, downloaded=downloaded))
    bits, more = _rounding(hardware, settings, entry), _hardware(hardware, settings, entry)
    if bits and more:
        return _("weights: {bits} in the settings, or {more}").format(bits=bits, more=more)
    return _("weights: {bits} in the settings").format(bits=bits) if bits else more


def _rounding(hardware: Hardware, settings: Settings, entry: CatalogueEntry) -> int | None:
    """To how many bits a model that exists in 16 alone must be rounded to fit, where more are set."""
    if settings.weights is None or entry.file or has_file(entry):
        return None
    fewer = (bits for bits in ROUNDED if bits < settings.weights)
    return next((bits for bits in fewer if _fits(hardware, replace(settings, weights=bits), entry)), None)


def _hardware(hardware: Hardware, settings: Settings, entry: CatalogueEntry) -> str:
    gpu = hardware.gpus and settings.device != "cpu"
    for gib in _CARDS if gpu else ():
        if gib << 30 > hardware.gpus[0].vram_bytes and _fits(with_vram(hardware, gib), settings, entry):
            return _("a card with {gib} GB").format(gib=gib)
    for gib in _MEMORIES:
        if gib << 30 <= hardware.ram_bytes:
            continue
        larger = imagine(hardware, ram_gib=gib)
        if _fits(larger, settings, entry):
            return _("{gib} GB of RAM").format(gib=gib)
        if gpu and _fits(with_vram(larger, _CARDS[-1]), settings, entry):
            least = next(one for one in _CARDS if _fits(with_vram(larger, one), settings, entry))
            return _("a card with {vram} GB and {gib} GB of RAM").format(vram=least, gib=gib)
    return ""


def _fits(hardware: Hardware, settings: Settings, entry: CatalogueEntry) -> bool:
    found = _offer(hardware, settings, entry, downloaded=True, known=NOTHING, alternatives=())
    return found.plan is not None


def _too_large(plan: Plan, hardware: Hardware) -> str:
    """Why the files do not fit the disk, if they do not."""
    files = sum(line.bytes for line in plan.budget if line.name == MODEL_FILES)
    free = hardware.disk_free_bytes
    if free is None or files <= free:
        return ""
    said = _("Its files take {needed}, more than is free in {folder}.")
    return said.format(needed=size(files), folder=hardware.disk_path)
