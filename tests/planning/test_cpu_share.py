"""The processor's share: what the plan promises of it, and when it is taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from core.backend.shared.compiled import ATTENTION
from core.config import Settings
from core.decoding.refresh import RetrievalRefresh
from core.errors import PlanError
from core.hardware.gpus import imagined_hardware
from core.model.store.catalogue import EMBEDDED, draft_for, find
from core.planning import notes, wording
from core.planning.cpu_share import LOOKED_AT, PROMISE
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.planning.stored_facts import StoredFacts
from core.planning.tuned import Tuned
from core.planning.wording import format_plan
from tests.support.imagined import planned
from tests.support.said import figures, values, worded_by
from tests.support.tuned_record import MACHINE, RECORD
from tests.tiers import first

SEVEN, LWM, EIGHT = "Yarn-Llama-2-7b-128k", "LWM-Text-Chat-128K", "Llama-3.1-8B-Instruct"
SIXTEEN, FEW = {"weights": 16, "kv": 16}, {"weights": 4, "kv": 8}
# card, model, tokens, formats
PAPERS = ("RTX 4090", SEVEN, 124_928, SIXTEEN)
ROUNDED = ("RTX 4090", LWM, 131_072, FEW)
GROUPED = ("RTX 4070", EIGHT, 131_072, FEW)


def plan_of(
    case: tuple[str, str, int, dict[str, int]], *, cores: int, bus: float = 25.0, **given: object
) -> Plan:
    card, name, context, formats = case
    machine = imagined_hardware(gpu=card, ram_gib=256, cores=cores, pcie_gb_per_s=bus)
    found = planned(machine, name, context=context, **{"cpu_share": "auto", **formats, **given})
    assert isinstance(found, Plan), found
    return found


@pytest.mark.parametrize(
    ("case", "cores", "ms", "without"),
    [
        (PAPERS, 4, 249, 249),
        (PAPERS, 8, 201, 249),
        (PAPERS, 16, 186, 249),
        (ROUNDED, 4, 104, 104),
        (ROUNDED, 8, 90, 104),
        (ROUNDED, 32, 78, 104),
        (GROUPED, 32, 45, 45),
    ],
)
def test_a_share_is_taken_where_a_token_takes_less_by_the_promise(
    case, cores: int, ms: float, without: float
):
    """The papers' case and four bits on the same card from eight cores; fewer KV heads by no more than 32 of
    them: they make fewer bytes of the same products.
    """
    found = plan_of(case, cores=cores)
    assert (round(found.expected_tbt_ms), ms < without) == (ms, found.cpu_share > 0)
    assert plan_of(case, cores=cores, cpu_share="none").expected_tbt_ms == pytest.approx(without, abs=0.5)
    if found.cpu_share:
        assert found.expected_unshared_tbt_ms >= PROMISE * found.expected_tbt_ms


@pytest.mark.parametrize("case", [PAPERS, ROUNDED], ids=["16 bits", "few bits"])
def test_bus_and_cpu_are_done_at_once(case):
    """Of a verification with the planned draft: the bytes of either at its rate, and the products of so many
    rows on seven cores. A share beside that would leave one of them waiting.
    """
    found = plan_of(case, cores=8)
    shape, rows, share = find(case[1]).shape, found.gamma + 1, found.cpu_share
    away, tokens = found.layers - found.on_chip_layers, found.context_tokens
    nbytes = away * tokens * shape.kv_bytes_per_token_layer(found.kv_rows)
    flops = 4 * shape.heads * shape.head_dim * rows * tokens * away
    by_bus, by_cpu = (1 - share) * nbytes / 25e9, share * (nbytes / 20e9 + flops / 420e9)
    assert by_cpu <= by_bus <= 1.1 * by_cpu


def test_plain_decoding_has_a_share_of_its_own():
    """One row makes few products: there the CPU's part is as large as its share of the bytes, and four cores
    pay where they do not for drafts.
    """
    found = plan_of(PAPERS, cores=4)
    alone = plan_of(PAPERS, cores=4, cpu_share="none")
    assert found.cpu_share == 0 and found.cpu_share_plain == pytest.approx(20 / 45, abs=0.05)
    assert PROMISE * found.expected_plain_tbt_ms < alone.expected_plain_tbt_ms
    assert found.verification_ms == alone.expected_plain_tbt_ms == found.expected_unshared_plain_ms
    eight = plan_of(PAPERS, cores=8)
    assert eight.expected_plain_tbt_ms < eight.verification_ms < alone.verification_ms
    assert eight.cpu_share < eight.cpu_share_plain


def grid() -> dict[tuple[float, ...], dict[str, object]]:
    return {
        place: {"vram_gib": place[0], "ram_gib": place[1], "pcie_gb_per_s": place[2]}
        for place in product((12, 24), (48, 256), (12.0, 25.0))
    }


@pytest.mark.parametrize("name", first([SEVEN, LWM, EIGHT, "Qwen3-8B-Q4_K_M", "Qwen3.5-9B-Q4_K_M"], 3))
@pytest.mark.parametrize(
    "formats", [{}, SIXTEEN, {"kv_residency": "blocks"}], ids=["auto", "16 bits", "blocks"]
)
def test_more_cores_never_make_a_plan_slower(name: str, formats: dict[str, object]):
    """On any card, RAM and bus; and a share decides nothing but times and lengths."""
    context = min(131_072, find(name).shape.longest_context)
    for place, parts in grid().items():
        before = None
        for cores in (1, 2, 4, 6, 8, 16, 64):
            machine = imagined_hardware(gpu="RTX 4090", cores=cores, **parts)
            found, alone = (
                planned(machine, name, context=context, cpu_share=how, **formats) for how in ("auto", "none")
            )
            if isinstance(found, PlanError):
                assert str(found) == str(alone)
                continue
            check_beside(found, alone)
            if before is not None:
                assert found.expected_tbt_ms <= before.expected_tbt_ms, (place, cores)
                assert found.expected_plain_tbt_ms <= before.expected_plain_tbt_ms, (place, cores)
            before = found


def check_beside(found: Plan, alone: Plan) -> None:
    """A plan with the CPU's share against the one without."""
    assert (found.on_chip_layers, found.kv_bits, found.weights_bits, found.draft_model, found.budget) == (
        alone.on_chip_layers,
        alone.kv_bits,
        alone.weights_bits,
        alone.draft_model,
        alone.budget,
    )
    assert found.expected_prefill_s == alone.expected_prefill_s
    if not found.cpu_share and not found.cpu_share_plain:
        assert found.to_json() == alone.to_json()
        return
    assert (found.expected_unshared_tbt_ms, found.expected_unshared_plain_ms) == (
        alone.expected_tbt_ms,
        alone.expected_plain_tbt_ms,
    )
    assert (found.cpu_share > 0) == (found.expected_tbt_ms * PROMISE <= alone.expected_tbt_ms * 1.0001)
    assert found.expected_tbt_ms <= found.expected_plain_tbt_ms
    assert found.cpu_share <= 1 and found.cpu_share_plain <= 1


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        ({"cpu_share": "none"}, {}),
        ({"context_tokens": 4096}, {}),
        ({"dtype": "float16"}, {}),
        ({}, {"refused": (ATTENTION,)}),
        ({}, {"cores": 1}),
        ({}, {"bus": 52.0}),
    ],
    ids=["switched off", "all on the card", "float16", "no kernel", "one core", "the bus takes all"],
)
def test_nobody_shares_where_it_cannot_pay(given: dict[str, object], machine: dict[str, object]):
    """Rows that only torch reads, no core beside the one that launches, RAM that the bus reads alone."""
    parts = {"cores": 8, "bus": 25.0, "refused": (), **machine}
    pc = imagined_hardware(gpu="RTX 4090", ram_gib=256, cores=parts["cores"], pcie_gb_per_s=parts["bus"])
    pc = replace(pc, refused=parts["refused"])
    settings = Settings(**{"device": "cuda", "context_tokens": 124_928, **SIXTEEN, **given})
    found = make_plan(pc, settings, target=find(SEVEN).shape, draft=draft_for(find(SEVEN)).shape)
    assert (found.cpu_share, found.cpu_share_plain, found.expected_unshared_tbt_ms) == (0, 0, None)
    assert not any("cpu_share" in note for note in found.notes)
    assert sum("plain" in one.values for one in wording._times(found)) == 1


def test_the_plan_says_what_it_promises():
    """Both times, in words and in JSON, and how to leave it out."""
    found = plan_of(PAPERS, cores=8)
    (note,) = worded_by(notes._cpu_share, *found.notes)
    assert values(note).keys() == {"share", "ms", "without"} and figures(note) == ["26", "201", "249"]
    assert "cpu_share: none" in note
    _with_it, alone = [one for one in wording._times(found) if "plain" in one.values]
    assert figures(alone) == ["249", "2,465"] and alone in format_plan(found)
    kept = found.to_json()
    assert (kept["cpu_share"], kept["cpu_share_plain"]) == (0.26, 0.43)
    assert kept["expected_tbt_ms"] < kept["expected_unshared_tbt_ms"]
    plain = plan_of(PAPERS, cores=8, mode="autoregressive")
    (note,) = [note for note in plain.notes if "cpu_share" in note]
    assert "43%" in note and "2,465 without" in note
    assert not any("cpu_share" in note for note in plan_of(PAPERS, cores=8, mode="cpu_attention").notes)


def test_drafts_that_are_the_persons_are_priced_with_a_share_too():
    """gamma given: no fallback to plain decoding, and the share is that of so many rows."""
    few, many = (plan_of(PAPERS, cores=16, gamma=gamma) for gamma in (4, 32))
    assert few.gamma == 4 and few.cpu_share > many.cpu_share > 0


def test_two_cards_leave_the_cpu_less():
    """Each bus takes its bytes from the same RAM: of 45 GB/s two of 25 leave nothing."""
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=256, cores=16, pcie_gb_per_s=25.0, cards=2)
    how = {"cpu_share": "auto", **SIXTEEN, "devices": (0, 1), "on_chip_layers": 0}
    both = planned(machine, SEVEN, context=124_928, **how)
    assert both.cpu_share == both.cpu_share_plain == 0


def test_what_was_tuned_keeps_the_share_that_it_was_measured_with():
    """And cannot be used by whoever switches it off."""
    record = Tuned.from_json({**RECORD.to_json(), "cpu_share": 0.25, "cpu_share_plain": 0.4})
    known = StoredFacts((record,))
    made = make_plan(MACHINE, Settings(context_tokens=8192), target=find(EMBEDDED).shape, known=known)
    assert (made.tuned, made.cpu_share, made.cpu_share_plain) == (record.date, 0.25, 0.4)
    (note,) = worded_by(notes._cpu_share, *made.notes)
    assert values(note) == {"share": 0.25} and figures(note) == ["25"]
    how = {"dtype": record.dtype, "threads": record.threads}
    assert record.unfit(record.machine, Settings(), **how) == ""
    assert "cpu_share" in record.unfit(record.machine, Settings(cpu_share="none"), **how)
    assert RECORD.unfit(RECORD.machine, Settings(cpu_share="none"), **how) == ""


def test_so_many_passes_are_looked_at_as_the_price_says():
    """One after every twelve rounds with a draft, which carries everything."""
    rounds = RetrievalRefresh.__init__.__kwdefaults__["every"]
    assert pytest.approx(1 / rounds) == LOOKED_AT


@pytest.mark.parametrize("cores", [4, 16])
def test_the_mode_that_drafts_is_never_slower_than_plain_decoding_with_its_share(cores: int):
    """However much is accepted: where drafts do not pay it decodes plainly, with that share."""
    kinds = set()
    for percent in range(2, 99, 2):
        rate = {"assumed_acceptance": percent / 100}
        found, alone = (plan_of(PAPERS, cores=cores, cpu_share=how, **rate) for how in ("auto", "none"))
        check_beside(found, alone)
        kinds.add((found.expected_tbt_ms == found.expected_plain_tbt_ms, found.cpu_share > 0))
    assert {(True, True), (False, True)} <= kinds
