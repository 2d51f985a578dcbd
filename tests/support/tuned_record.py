"""What tuning measured, as a record."""

from __future__ import annotations

from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import EMBEDDED
from core.planning import stored_facts
from core.planning.tuned import Tuned, machine_of

MACHINE = imagined_hardware(ram_gib=16, cores=2)


RECORD = Tuned(
    machine=machine_of(MACHINE),
    model=EMBEDDED,
    folder="",
    fingerprint="",
    version=stored_facts.tuning_version(),
    date="2026-11-21",
    device="cpu",
    dtype="bfloat16",
    kernel="codes",
    threads=2,
    context_tokens=8192,
    on_chip_layers=30,
    draft_model=None,
    retrieval_budget=512,
    retrieval_chunk=16,
    gamma=5,
    middle_gamma=2,
    acceptance=0.8,
    draft_acceptance=0.3,
    verify_ms=((1, 40.0), (9, 56.0), (33, 104.0)),
    middle_ms=((1, 10.0), (9, 26.0)),
    draft_ms=0.0,
    tbt_ms=20.0,
    default_tbt_ms=25.0,
)
