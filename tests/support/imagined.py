"""Plans of catalogue models for imagined machines."""

from __future__ import annotations

from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import Hardware
from core.model.store.catalogue import draft_for, find, load_catalogue
from core.planning.plan import PLACES, Plan
from core.planning.planner import make_plan
from core.planning.stored_facts import NOTHING, StoredFacts

VRAM, PINNED, RAM, DISK = PLACES
SHAPES = tuple(
    entry.shape for entry in load_catalogue().values() if entry.role == "target" and not entry.file
)


def planned(
    hardware: Hardware, name: str, *, context: int | None, known: StoredFacts = NOTHING, **settings
) -> Plan | PlanError:
    """The plan for a catalogue model with its draft pairing, or the refusal: on the card where there is one,
    unless `device` says otherwise, and without the CPU's share (tests/planning/test_cpu_share.py).
    """
    settings.setdefault("cpu_share", "none")
    settings.setdefault("device", "cuda" if hardware.gpus else None)
    entry = find(name)
    draft = draft_for(entry)
    try:
        return make_plan(
            hardware,
            Settings(context_tokens=context, **settings),
            target=entry.shape,
            draft=draft.shape if draft else None,
            alternatives=SHAPES,
            known=known,
        )
    except PlanError as error:
        return error
