"""TriForce's published times (arXiv 2404.11912 and its project page) beside what the planner expects of the
same case. Ours are computed; nothing here was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.report.plan_tables import plan_row
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import draft_for, find
from core.planning.plan import Plan
from core.planning.planner import make_plan

CONTEXT, RAM_GIB = 124_928, 256
SEVEN, THIRTEEN, LWM = "Yarn-Llama-2-7b-128k", "Yarn-Llama-2-13b-128k", "LWM-Text-Chat-128K"
# of an A100 of 80 GB: read per second, products of 16-bit numbers
A100 = {"vram_gib": 79.0, "vram_gb_per_s": 2039.0, "tflops": 312.0}
COLUMNS = (
    "Cards",
    "Model",
    "Conditions",
    "published: TriForce",
    "baseline",
    "speedup",
    "ours, expected: TriForce",
    "plain",
    "speedup",
    "ours, 4-bit weights, 8-bit cache",
)


@dataclass(frozen=True, slots=True)
class PublishedCase:
    """A row of theirs. `accepted`: of the middle level's proposals, where they say it."""

    cards: str
    model: str
    conditions: str
    triforce: str
    baseline: str
    speedup: str
    gpus: int = 1
    accepted: float = 0.92
    on_a100: bool = False


def _on_a100(temperature: str, speedup: str, accepted: float) -> PublishedCase:
    said = f"all on the card, T {temperature}, {accepted:g} accepted"
    return PublishedCase("A100", SEVEN, said, "", "", speedup, accepted=accepted, on_a100=True)


CASES = (
    PublishedCase("2 × RTX 4090", SEVEN, "streamed", "108 ms", "840 ms", "7.78", gpus=2),
    PublishedCase("2 × RTX 4090", LWM, "streamed", "114 ms", "840 ms", "7.37", gpus=2),
    PublishedCase("2 × RTX 4090", THIRTEEN, "streamed", "226 ms", "1,794 ms", "7.94", gpus=2),
    PublishedCase(
        "RTX 4090",
        SEVEN,
        "streamed; theirs is compared with attention on the CPU",
        "312 ms",
        "1,516 ms",
        "4.86",
    ),
    PublishedCase(
        "RTX 4090",
        LWM,
        "streamed; theirs is compared with attention on the CPU",
        "314 ms",
        "1,516 ms",
        "4.83",
    ),
    _on_a100("0", "2.31", 0.9234),
    _on_a100("0.6", "2.19", 0.9137),
    _on_a100("1.0", "2.08", 0.9004),
    _on_a100("1.2", "2.02", 0.8902),
)
# what cannot be computed, and why
NOT_OURS = (
    (
        "A100",
        SEVEN,
        "2 × 56K, 6 × 19K, 10 × 12K at once",
        "not published",
        "not published",
        "1.89, 1.90, 1.72",
    )
    + ("not built: one conversation at a time", *["–"] * 3),
    ("A100", SEVEN, "T 0.6: retrieval alone, StreamingLLM in its place, a draft model alone")
    + ("not published", "not published", "1.80, 1.90, 1.42")
    + ("measured on small models alone (Decode)", *["–"] * 3),
)
BASELINE = PublishedCase("RTX 4090", SEVEN, "plain decoding, attention on the CPU", "", "1,516 ms", "1")

SHARED = PublishedCase("RTX 4090", SEVEN, "streamed, the CPU attends to a share", "", "", "")


def papers_table() -> str:
    """Every row of theirs has ours, or says why not."""
    lines = [plan_row(COLUMNS), plan_row(["---"] * 3 + ["---:"] * (len(COLUMNS) - 3))]
    lines += [plan_row(_cells(case)) for case in CASES]
    lines += [plan_row(cells) for cells in NOT_OURS]
    lines.append(plan_row(_shared_cells()))
    lines.append(plan_row(_baseline_cells()))
    return "\n".join(lines)


def _cells(case: PublishedCase) -> Iterator[str]:
    theirs = (case.triforce or "not published", case.baseline or "not published", case.speedup)
    yield from (case.cards, case.model, case.conditions, *theirs)
    whole, coded = _plan(case, weights=16, kv=16), _plan(case, weights=4, kv=8)
    yield from (f"{whole.expected_tbt_ms:,.0f} ms", f"{whole.expected_plain_tbt_ms:,.0f} ms")
    yield f"{whole.expected_plain_tbt_ms / whole.expected_tbt_ms:.2f}"
    yield f"{coded.expected_tbt_ms:,.0f} ms of {coded.expected_plain_tbt_ms:,.0f}"


def _baseline_cells() -> Iterator[str]:
    """Mode cpu_attention, by an imagined CPU of eight cores with AVX2."""
    case = BASELINE
    yield from (case.cards, case.model, case.conditions, "none", case.baseline, case.speedup, "none")
    whole, coded = _plan(case, weights=16, kv=16), _plan(case, weights=4, kv=8)
    yield from (f"{whole.expected_cpu_attention_ms:,.0f} ms", "1")
    yield f"{coded.expected_cpu_attention_ms:,.0f} ms"


def _shared_cells() -> Iterator[str]:
    """The same CPU attends to the share that the plan gives it."""
    yield from (SHARED.cards, SHARED.model, SHARED.conditions, "none", "none", "none")
    whole, coded = _plan(SHARED, weights=16, kv=16), _plan(SHARED, weights=4, kv=8)
    yield from (f"{whole.expected_tbt_ms:,.0f} ms", f"{whole.expected_plain_tbt_ms:,.0f} ms")
    yield f"{whole.expected_plain_tbt_ms / whole.expected_tbt_ms:.2f}"
    yield f"{coded.expected_tbt_ms:,.0f} ms of {coded.expected_plain_tbt_ms:,.0f}"


def _plan(case: PublishedCase, *, weights: int, kv: int) -> Plan:
    entry = find(case.model)
    draft = draft_for(entry)
    settings = Settings(
        device="cuda",
        devices=tuple(range(case.gpus)) if case.gpus > 1 else None,
        context_tokens=CONTEXT,
        weights=weights,
        kv=kv,
        assumed_acceptance=case.accepted,
        cpu_share="auto" if case is SHARED else "none",
        **(A100 if case.on_a100 else {}),
    )
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=RAM_GIB, cards=case.gpus)
    return make_plan(machine, settings, target=entry.shape, draft=draft.shape)
