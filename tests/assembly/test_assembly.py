"""What a plan becomes: which caches, on which device, and from which snapshots."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.assembly import models
from core.assembly.engines import build_engine
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import products
from core.backend.shared.compiled import COARSE, PRODUCTS
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.config import Settings
from core.decoding.decoder import Round
from core.engine import Engine
from core.hardware.gpus import imagined_hardware
from core.hardware.measured import CPU, PAGE_LOCKED, Measurements, kernels_on
from core.hardware.probe import probe
from core.model.shapes import ModelShape
from core.planning import notes
from core.planning.offers import choose_model
from core.planning.plan import Plan
from core.planning.planner import make_plan
from tests.support.assembled_engines import GREEDY, OFFLOADED, SmallDevice, answer, built
from tests.support.modes import GRID_MODES
from tests.support.said import worded_by
from tests.support.tiny import PLAN, VOCAB, oracle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint."""
    target = tmp_path_factory.mktemp("tiny")
    oracle().save_pretrained(target)
    return target


@pytest.mark.parametrize("mode", GRID_MODES)
@pytest.mark.parametrize("residency", ["layers", "blocks"])
@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("kv_bits", [32, 8])
def test_an_offloading_plan_answers_as_plain_decoding_without(
    folder: Path, mode: str, residency: str, layers: int, kv_bits: int
):
    """The product's own assembly, on the CPU: `device: cpu` with `on_chip_layers` below all. Of a KV cache in
    8 bits the reference is plain decoding over one.
    """
    engine = built(folder, replace(OFFLOADED, on_chip_layers=layers, residency=residency, kv_bits=kv_bits))
    context = engine.new_context(400)
    assert isinstance(context.cache, OffloadedKVCache)
    assert context.cache.rows(0, 0, 1)[0].dtype == {32: torch.float32, 8: torch.int8}[kv_bits]
    tokens, done = answer(engine, context, replace(GREEDY, mode=mode))
    plain = built(folder, replace(PLAN, kv_bits=kv_bits))
    assert isinstance(plain.new_context(400).cache, FullKVCache)
    for other in (mode, "autoregressive"):
        assert tokens == answer(plain, plain.new_context(400), replace(GREEDY, mode=other))[0]
    # half of every layer's 432 rows: more than were filled
    all_resident = residency == "blocks" and layers == 1
    assert (done.stats.bytes_moved == 0) == all_resident


def test_what_could_not_be_page_locked_is_known_to_the_next_plan(folder: Path, home: Path):
    """Else every start counts on copies twice as fast as they are."""
    backend = SmallDevice()
    engine = built(folder, backend=backend)
    engine.new_context(400)
    assert Measurements(home).get(PAGE_LOCKED) is None
    backend.page_locked_limit = 12_345
    engine.new_context(400)
    assert Measurements(home).get(PAGE_LOCKED)["bytes"] == 12_345


def test_a_kernel_that_the_card_refused_is_known_to_the_next_plan(folder: Path, home: Path):
    """Else every start counts on a kernel that never serves. One that serves again is counted on again."""
    backend = SmallDevice()
    built(folder, backend=backend)
    key = kernels_on(backend.name)
    assert Measurements(home).get(key) is None
    for refused in ({"a kernel"}, set()):
        backend.refused = refused
        built(folder, backend=backend)
        assert Measurements(home).get(key)["refused"] == sorted(refused)


def test_a_start_without_our_kernels_says_nothing_of_them(folder: Path, home: Path):
    """Else the next start with them would count on one that was refused, or on none."""
    backend = SmallDevice()
    backend.refused = {"a kernel"}
    built(folder, backend=backend)
    backend.refused = set()
    built(folder, backend=backend, kernels="library")
    assert Measurements(home).get(kernels_on(backend.name))["refused"] == ["a kernel"]


def test_a_kernel_that_failed_its_trial_on_this_cpu_is_known_to_the_next_plan(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the self-test to the plan: what torch must do takes torch's time. One that serves again, as after
    an update, is counted on again.
    """
    settings = Settings(model=str(folder), context_tokens=256, weights=8)

    def started() -> Plan:
        plan = choose_model(probe(home, measure=False), settings, is_downloaded=lambda one: True).plan
        build_engine(plan, settings, folder)
        return plan

    swift = started()
    assert Measurements(home).get(kernels_on(CPU)) is None
    with monkeypatch.context() as broken:
        broken.setattr(products, "_agrees", lambda kernel: False)
        assert started().expected_plain_tbt_ms == swift.expected_plain_tbt_ms  # nobody knew yet
        assert set(Measurements(home).get(kernels_on(CPU))["refused"]) == {PRODUCTS, COARSE}
        slow = started()
    assert slow.expected_plain_tbt_ms > swift.expected_plain_tbt_ms
    (said,) = worded_by(notes._refused, *slow.notes)
    assert "torch" in said and not worded_by(notes._refused, *swift.notes)
    with monkeypatch.context() as broken:
        broken.setattr(products, "_nearly_agrees", lambda kernel: False)
        started()
        assert Measurements(home).get(kernels_on(CPU))["refused"] == [COARSE]
        slow_drafts = started()
    assert slow_drafts.expected_plain_tbt_ms == swift.expected_plain_tbt_ms
    (said,) = worded_by(notes._refused, *slow_drafts.notes)
    assert "drafts" in said
    started()
    again = started()
    assert (again.expected_plain_tbt_ms, again.dtype) == (swift.expected_plain_tbt_ms, swift.dtype)


def test_the_planner_can_plan_it_for_the_cpu(folder: Path):
    """With the user's figure alone, not with a plan made for the test."""
    shape = ModelShape.from_hf_config(oracle().config.to_dict(), name="tiny")
    asked = Settings(on_chip_layers=0, context_tokens=512, max_new_tokens=64)
    plan = make_plan(imagined_hardware(gpu=None, ram_gib=16), asked, target=shape)
    context = built(folder, plan).new_context(300)
    assert isinstance(context.cache, OffloadedKVCache)


@pytest.mark.parametrize("kv_bits", [32, 8])
def test_a_plan_that_sweeps_its_prefills_answers_alike(folder: Path, kv_bits: int):
    """The plan's word reaches the cache; where two whole layers take no more, they are held."""
    plan = replace(OFFLOADED, on_chip_layers=0, swept_prefill=True, kv_bits=kv_bits)
    engine = built(folder, plan)
    context = engine.new_context(400)
    assert len(context.cache.swept_layers) == plan.layers
    plain = built(folder, replace(PLAN, kv_bits=kv_bits))
    assert answer(engine, context)[0] == answer(plain, plain.new_context(400))[0]
    assert not built(folder, plan).new_context(60).cache.swept_layers


def test_a_short_context_gets_the_room_of_a_long_one(folder: Path):
    """On-chip layers are counted for the whole context; of a tenth of it all layers may stay, unless the user
    said how many.
    """
    engine = built(folder, on_chip_layers=None)
    assert isinstance(engine.new_context(440).cache, OffloadedKVCache)
    assert isinstance(engine.new_context(100).cache, FullKVCache)
    assert isinstance(built(folder, on_chip_layers=1).new_context(100).cache, OffloadedKVCache)


@pytest.mark.parametrize("chunk", [8, 24, 100])
@pytest.mark.parametrize("plan", [PLAN, OFFLOADED])
def test_any_chunk_fits_the_blocks(folder: Path, plan: Plan, chunk: int):
    """A chunk never lies across two blocks, whatever number the user likes."""
    engine = built(folder, replace(plan, retrieval_chunk=chunk, retrieval_budget=2 * chunk))
    context = engine.new_context(400)
    assert context.cache.block_tokens % chunk == 0
    assert len(answer(engine, context)[0]) == 16


@pytest.mark.parametrize(
    ("dtype", "computes"), [("bfloat16", "float32"), ("bfloat16", "bfloat16"), ("float32", "float32")]
)
def test_a_cpu_multiplies_as_it_is_faster(monkeypatch: pytest.MonkeyPatch, dtype: str, computes: str):
    backend = models.new_backend(replace(PLAN, dtype=dtype, computes=computes), Settings())
    seen = []
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, weight, bias=None: seen.append(x.dtype) or x @ weight.t()
    )
    made = backend.linear(torch.ones(4, 8))(torch.ones(300, 8, dtype=backend.dtype))
    assert seen == [made.dtype] == [backend.dtype] == [getattr(torch, computes)]
    assert backend.storage == getattr(torch, dtype)


# ---- snapshots ---------------------------------------------------------------------------------------------

BOOK = [int(token) for token in torch.randint(0, VOCAB, (300,), generator=torch.Generator().manual_seed(6))]


def keeping(folder: Path, root: Path, **plan: object) -> Engine:
    """An engine that keeps what it reads in `root`, in any dtype."""
    wanted = replace(PLAN, **{"computes": plan["dtype"], **plan})
    backend = CpuBackend(getattr(torch, wanted.computes), storage=getattr(torch, wanted.dtype))
    return build_engine(wanted, Settings(snapshot_quota_gb=1), folder, snapshots=root, backend=backend)


@pytest.fixture(scope="module")
def kept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of snapshots with one book, read in bfloat16."""
    root = tmp_path_factory.mktemp("snapshots")
    engine = keeping(folder, root, dtype="bfloat16")
    context = engine.new_context(400)
    context.belongs_to("book", len(BOOK))
    next(event for event in engine.generate(context, [*BOOK, 1], GREEDY) if isinstance(event, Round))
    engine.save(context, should_stop=lambda: False)
    return root


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({}, True),
        ({"context_stretch": 2.0}, False),
        ({"dtype": "float32"}, False),
        ({"dtype": "float16"}, False),  # of the same size
        ({"computes": "float32"}, False),
        ({"weights_kernel": "codes"}, False),
        ({"kv_bits": 8}, False),
    ],
    ids=["same", "rotation", "wider", "dtype", "computes", "kernel", "codes"],
)
def test_rows_computed_otherwise_are_not_read(
    folder: Path, kept: Path, tmp_path: Path, other: dict, found: bool
):
    """Two engines over one folder of snapshots: another rotation, other numbers, other kernels. Rows of the
    one would make the other's answers wrong, and nothing would say so.
    """
    own = shutil.copytree(kept, tmp_path / "own")  # what one refuses it deletes
    stored = keeping(folder, own, **{"dtype": "bfloat16", **other}).stored_tokens("book", BOOK)
    assert stored > 250 if found else stored == 0


def test_the_plan_says_how_attention_is_computed(folder: Path):
    """Kernels are tried for the model's own sizes before anybody asks, and what was found is told."""

    class Choosing(SmallDevice):
        def prepare(
            self, heads: int, kv_heads: int, head_dim: int, *, rows: torch.dtype | None = None
        ) -> None:
            self.notes = (*self.notes, f"attention of {heads} over {kv_heads} heads of {head_dim} in {rows}")

    said = "attention of 4 over 2 heads of 8 in"
    assert f"{said} None" in built(folder, backend=Choosing()).plan.notes
    eight = built(folder, replace(PLAN, kv_bits=8), backend=Choosing()).plan.notes
    assert {f"{said} None", f"{said} torch.int8"} <= set(eight)
