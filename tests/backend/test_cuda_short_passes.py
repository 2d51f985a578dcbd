"""The CUDA backend's short passes by the compiled kernel, with stand-ins for the driver, streams and graphs:
that every way there leads to it, that a recorded pass is the eager one, and that a card where it does not
serve goes on with the library's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest
import torch

from core.backend.cpu.at_once import PlainCopies
from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.streams import WARM_UPS
from core.backend.cuda.triton import trial
from core.backend.cuda.triton.build import Variant
from core.backend.shared import blockwise
from core.backend.shared.compiled import CODED_KV
from core.backend.shared.kv_rows import as_rows, dequantized
from core.backend.shared.quantized_example import KINDS, example
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.windows import WindowRows
from core.decoding.refresh import RetrievalRefresh
from core.errors import DeviceLost
from core.hardware.measured import DeviceTrials, Measurements, trials_on
from core.model.recorded_verification import OFTEN, RecordedVerification
from tests.support.cuda_device import Device, Stream, on_the_cpu
from tests.support.engine_runs import PROMPT
from tests.support.fake_driver import Grid, Library, promise
from tests.support.reference import dense, material
from tests.support.replays import BUSY, Level0, Middle, compare
from tests.support.said import figures, values, worded_by
from tests.support.tiny import oracle, ours

DTYPE = torch.bfloat16
OLD, NEW = 2.0, 1.0  # seconds of the library's kernel and of ours


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A trial over few keys, as in the engine."""
    monkeypatch.setattr(trial, "_TIMED_BYTES", 1 << 16)
    monkeypatch.setattr(trial, "_COLD_BYTES", 1 << 16)
    with torch.inference_mode():
        yield


@pytest.fixture
def card(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:  # noqa: F811
    """A card's stand-in whose clock finds our kernel the faster: it is asked for both in turns."""
    turns = cycle((NEW, OLD))
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), next(turns))[1])
    monkeypatch.setattr(CudaBackend, "copies", lambda self: PlainCopies())
    return device


def without_kernel(monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    backend = on_the_cpu(monkeypatch, None)
    backend.prepare(4, 2, 64)
    return backend


@pytest.mark.parametrize("kind", [Middle, Level0])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
def test_recorded_passes_are_the_eager_ones(card: Device, monkeypatch, kind, kv_heads: int):
    """Lengths that stay as they were recorded, temporary memory that is used again: over growth, rollback,
    selection and a second conversation, to the bit; and without a selection as the library's.
    """
    library = Library(promise)
    backend, eager = (on_the_cpu(monkeypatch, library) for _ in range(2))
    compare(kind, BUSY, backend, like=eager, off=0, kv_heads=kv_heads, head_dim=64)
    assert card.said.count("record") == 4 and len(library.launched) > 100
    (note,) = backend.notes
    assert "reason" not in values(note) and figures(note) == ["2000.00", "4000.00"]
    feeds = [op for op in BUSY if op[0] in ("feed", "rollback")]
    backend = on_the_cpu(monkeypatch, library)
    compare(kind, feeds, backend, like=without_kernel(monkeypatch), off=5e-2, kv_heads=kv_heads, head_dim=64)


@pytest.mark.parametrize("rows", [DTYPE, torch.int8], ids=["numbers", "codes"])
def test_a_recorded_verification_is_the_pass_itself(card: Device, monkeypatch, rows: torch.dtype):
    """Over a cache that lies on the card as a whole, to the bit, by launches that are told lengths by the
    card's memory alone; a draft of every third pass is rejected.
    """
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    model = ours(oracle(kv_heads=2, head_dim=64), backend=backend)
    passes, caches = RecordedVerification(model, most_rows=40), []
    for _cache in range(2):
        cache = FullKVCache(model.config.kv_shape, 192, backend, block_tokens=192, dtype=rows)
        model.forward(PROMPT[:70], cache)
        cache.commit(70)
        caches.append(cache)
    for number in range(2 * OFTEN):
        said = [one.forward(PROMPT[20:25], cache) for one, cache in zip((passes, model), caches, strict=True)]
        assert torch.equal(*said)
        for cache in caches:
            cache.commit(cache.length - 3 * (number % 3 == 0))
    assert passes.rows(caches[0]) == (5,) and card.said.count("record") == 1 and not passes.reason
    assert torch.equal(caches[0].store.k, caches[1].store.k)


def test_rows_of_a_window_go_together(card: Device, monkeypatch):
    """Each by itself would be two launches a row and layer; what each sees is its own window all the same."""
    shape = KVShape(2, 2, 256, window=24, windowed=(0, 1))
    said, library = [], Library(promise)
    for backend in (without_kernel(monkeypatch), on_the_cpu(monkeypatch, library)):
        rows, dice = WindowRows(shape, backend, room=16), torch.Generator().manual_seed(0)
        for start, n in ((0, 20), (20, 9), (29, 5)):
            q, k, v = (torch.randn(n, heads, 256, generator=dice).to(DTYPE) for heads in (4, 2, 2))
            backend.prepare(4, 2, 256)
            library.launched.clear()
            rows.make_room(start, start + n)
            found = rows.attend(1, q, k, v, start=start)
        said.append(found)
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"]
    assert torch.allclose(*(one.double() for one in said), atol=2e-2)


def test_without_our_kernel_verification_is_not_recorded(card: Device, monkeypatch):
    """The library's is launched for one length; over all rows of a book's store it would read them all."""
    said = "attention by the library's kernel is told lengths by the processor"
    assert without_kernel(monkeypatch).long_unrecorded(4, 2, 64) == said
    assert on_the_cpu(monkeypatch, Library(promise)).long_unrecorded(4, 2, 64) == ""


def half_streamed(plain, backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple]:
    """Each of the two with a model that has read 70 tokens: the first all on the device, of the second's two
    layers one in host memory.
    """
    backend.prepare(4, 2, 64)
    monkeypatch.setattr(backend, "host_memory", lambda shape, dtype: torch.zeros(tuple(shape), dtype=dtype))
    for one in (plain, backend):
        model = ours(oracle(kv_heads=2, head_dim=64), backend=one)
        shape = model.config.kv_shape
        cache = FullKVCache(shape, 160, one, block_tokens=32)
        if one is backend:
            cache = OffloadedKVCache(
                shape, 160, one, block_tokens=32, resident_layers=1, staging_blocks=2, fresh_tokens=40
            )
        model.forward(PROMPT[:70], cache)
        cache.commit(70)
        yield one, model, cache


def test_a_streamed_layer_needs_two_launches_a_block(card: Device, monkeypatch):
    """Own rows, resident blocks and each block that comes over the bus, joined where they are computed."""
    plain, library = without_kernel(monkeypatch), Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    said = []
    for _one, model, cache in half_streamed(plain, backend, monkeypatch):
        library.launched.clear()
        said.append(model.forward(PROMPT[70:75], cache))
    assert float((said[0] - said[1]).abs().max()) < 5e-2 * float(said[0].abs().max())
    # the layer on the device at once; of the other the own rows and three blocks
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"] * (1 + 1 + 3)


def test_long_passes_stay_with_the_library(card: Device, monkeypatch):
    """Prefill is arithmetic, not reading."""
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    backend.prepare(6, 2, 64)
    for n, launches in ((41, 0), (40, 2)):
        library.launched.clear()
        q, k, v = material(n, 100, dim=64, dtype=DTYPE)
        out, lse = backend.attend_part(q, k, v, length=100, causal=True)
        want, want_lse = dense(q, k, v, 100, True)
        assert torch.allclose(out.double(), want, atol=3e-2) and torch.allclose(
            lse.double(), want_lse, atol=3e-2
        )
        assert len(library.launched) == launches
        slots = torch.full((n,), 31)
        library.launched.clear()
        backend.attend_slots(q, k[0], v[0], slots=slots)
        assert len(library.launched) == launches


def test_a_selection_comes_from_the_attention_itself(card: Device, monkeypatch):
    """The keys of a verification that is observed are read once: own rows, resident blocks, blocks that come
    over the bus. What is chosen by is what a separate pass over them finds.
    """
    plain, library, separate = without_kernel(monkeypatch), Library(promise), []
    chunk_lse = blockwise.chunk_lse
    monkeypatch.setattr(
        blockwise, "chunk_lse", lambda *given, **named: separate.append(1) or chunk_lse(*given, **named)
    )
    backend = on_the_cpu(monkeypatch, library)
    found = []
    for one, model, cache in half_streamed(plain, backend, monkeypatch):
        view = RetrievalKVCache(cache, budget=32, chunk=8, recent=8, tail_tokens=16)
        RetrievalRefresh(cache, view).before_round()
        separate.clear()
        library.launched.clear()
        model.forward(PROMPT[70:75], cache)
        found.append(view.policy._scores.shares(model.config.kv_shape.kv_heads))
        assert view.policy.ready and bool(separate) == (one is plain)
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"] * (1 + 1 + 3)
    assert torch.allclose(*found, atol=2e-2) and float(found[0].sum()) == pytest.approx(8, abs=1e-3)


def wrong(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card that leaves the last split out."""
    if variant.function == "attend_split":
        grid = (grid[0], max(1, grid[1] - 1), grid[2])
    promise(variant, grid, numbers)


def sees_too_much(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card whose windows are one key too wide."""
    if variant.function == "attend_split" and numbers[-1] < 2**31 - 1:
        numbers = [*numbers[:-1], numbers[-1] + 1]
    promise(variant, grid, numbers)


@pytest.mark.parametrize(
    ("library", "dtype", "said"),
    [
        (None, DTYPE, "cannot open shared object"),
        (Library(promise, refuses=["load"]), DTYPE, "unsupported toolchain"),
        (Library(promise, refuses=["launch"]), DTYPE, "unsupported toolchain"),
        (Library(wrong), DTYPE, "computes wrongly"),
        (Library(sees_too_much), DTYPE, "computes wrongly"),
        (Library(promise), torch.float32, "no compiled one for heads of 64 numbers in float32"),
    ],
    ids=["no driver", "old driver", "no launch", "wrong", "wrong windows", "fp32"],
)
def test_where_it_does_not_serve_the_library_does(card: Device, monkeypatch, library, dtype, said: str):
    """Said once in the plan's notes; answers go on."""
    backend = on_the_cpu(monkeypatch, library, dtype)
    for _ in range(2):
        backend.prepare(6, 2, 64)
    assert len(backend.notes) == 1 and said in backend.notes[0]
    assert worded_by(trial._library, *backend.notes)
    before = len(library.launched) if library else 0
    q, k, v = material(5, 100, dim=64, dtype=dtype)
    want, _ = dense(q, k, v, 100, True)
    assert torch.allclose(backend.attend(q, k, v, length=100, causal=True).double(), want, atol=3e-2)
    total = backend.attend_part(q, k[3:], v[3:], length=4, causal=False)
    total = backend.attend_more(total, q, k[:3], v[:3], length=96)
    assert torch.allclose(total[0].double(), dense(q, k, v, 100, False)[0], atol=3e-2)
    assert (len(library.launched) if library else 0) == before


@pytest.mark.parametrize("room", [1 << 30, 3 << 16, 1])
def test_the_clock_runs_over_more_than_a_cache_holds(monkeypatch, room: int):
    """64 MiB of zeros lie in the cache of an RTX 4090: what was timed there was Python."""
    monkeypatch.setattr(trial, "_COLD_BYTES", 1 << 18)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Kernel:
        def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: object) -> torch.Tensor:
            seen.append((k, v))
            return q

    def library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: object) -> tuple[torch.Tensor]:
        return (q,)

    sizes, cpu = trial.HeadSizes(4, 2, 64), torch.device("cpu")
    times = trial._times(
        Kernel(), library, sizes, DTYPE, cpu, DTYPE, lambda run: (run(), 8.0)[1], room
    )  # fmt: skip
    layers = {1 << 30: 4, 3 << 16: 3, 1: 1}[room]
    assert len(seen) == layers * len(trial._TIMED_ROWS) and times == (16.0 / layers,) * 2
    parts = [part for pair in seen[:layers] for part in pair]
    assert len({part.data_ptr() for part in parts}) == 2 * layers
    assert all(part.float().std() > 0.5 for part in parts)


def test_a_trial_times_a_recording(device: Device, monkeypatch):  # noqa: F811
    """Launched one by one, what a kernel takes would be what Python takes to ask for it."""
    backend, asked = on_the_cpu(monkeypatch, None), []
    x = torch.ones(4)
    assert backend._seconds(lambda: (asked.append(1), x + 1)[1]) >= 0
    assert device.said == ["record"] and len(asked) == WARM_UPS + 1
    device.breaks = RuntimeError("not allowed while recording")
    backend._seconds(lambda: (asked.append(1), x + 1)[1])
    assert len(asked) > 2 * (WARM_UPS + 1) and backend.capture(lambda: x) is None


def test_a_kernel_that_is_no_faster_is_not_used(card: Device, monkeypatch):
    """Decided on the user's card, by its clock."""
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), 1.0)[1])
    backend = on_the_cpu(monkeypatch, Library(promise))
    backend.prepare(6, 2, 64)
    assert "reason" in values(backend.notes[0]) and figures(backend.notes[0]) == ["2000.00", "2000.00"]


def test_heads_of_another_size_are_the_librarys(card: Device, monkeypatch):
    """SmolLM's 64 and Llama's 128 are compiled; 96 is not."""
    backend = on_the_cpu(monkeypatch, Library(promise))
    q, k, v = material(2, 40, dim=96, dtype=DTYPE)
    want, _ = dense(q, k, v, 40, True)
    assert torch.allclose(backend.attend(q, k, v, length=40, causal=True).double(), want, atol=3e-2)
    assert "heads of 96" in backend.notes[0]


def test_the_full_cache_goes_by_the_kernel(card: Device, monkeypatch):
    """A verification over many blocks, by the cache's own call."""
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)
    model = ours(oracle(kv_heads=2, head_dim=64), backend=backend)
    cache = FullKVCache(model.config.kv_shape, 200, backend, block_tokens=32)
    backend.prepare(4, 2, 64)
    model.forward(PROMPT[:70], cache)
    cache.commit(70)
    library.launched.clear()
    model.forward(PROMPT[70:75], cache)
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"] * 2
    # else it would overtake the rows it reads
    assert {stream for *_, stream in library.launched} == {Stream.cuda_stream}


def said_over_codes(backend: CudaBackend, resident: int, before: Callable[[], None]) -> torch.Tensor:
    """Logits of a verification over a cache in codes; `before` it something is done."""
    backend.prepare(4, 2, 64, rows=torch.int8)
    model = ours(oracle(kv_heads=2, head_dim=64), backend=backend)
    backend.host_memory = lambda shape, dtype: torch.zeros(tuple(shape), dtype=dtype)
    room = {"block_tokens": 32, "resident_layers": resident, "staging_blocks": 2, "fresh_tokens": 40}
    cache = OffloadedKVCache(model.config.kv_shape, 160, backend, dtype=torch.int8, **room)
    model.forward(PROMPT[:70], cache)
    cache.commit(70)
    before()
    return model.forward(PROMPT[70:75], cache)


@pytest.mark.parametrize("resident", [2, 1], ids=["on the card", "one layer streamed"])
def test_a_cache_in_codes_goes_by_the_kernel(card: Device, monkeypatch, resident: int):
    """Read as it lies: a verification launches what a cache of numbers does, and decodes nothing; its own
    rows are seen as the cache keeps them.
    """
    want = said_over_codes(without_kernel(monkeypatch), resident, lambda: None)
    library = Library(promise)
    backend = on_the_cpu(monkeypatch, library)

    def listen() -> None:
        library.launched.clear()
        monkeypatch.setattr(blockwise, "attend_decoded", None)

    got = said_over_codes(backend, resident, listen)
    assert float((got - want).abs().max()) < 5e-2 * float(want.abs().max())
    assert "reason" not in values(backend.notes[-1]) and figures(backend.notes[-1])[0] == "8"
    assert not backend.refused
    launches = 2 if resident == 2 else 1 + 1 + 3
    assert [name for name, *_ in library.launched] == ["attend_split", "join_splits"] * launches


def test_codes_that_the_kernel_reads_wrongly_are_decoded(card: Device, monkeypatch):
    """Another kernel than that of numbers: tried for itself, and the next plan knows."""

    def no_factors(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
        if variant.constants.get("CODED"):
            grid = (grid[0], max(1, grid[1] - 1), grid[2])
        promise(variant, grid, numbers)

    backend = on_the_cpu(monkeypatch, Library(no_factors))
    backend.prepare(6, 2, 64)
    backend.prepare(6, 2, 64, rows=torch.int8)
    assert "reason" not in values(backend.notes[0]) and "reason" in values(backend.notes[1])
    assert figures(backend.notes[1]) == ["8"]
    assert backend.refused == {CODED_KV}
    q, k, v = material(5, 100, dim=64, dtype=DTYPE)
    rows = [as_rows(part, 64, torch.int8) for part in (k, v)]
    want, _ = dense(q, *(dequantized(part, 64, DTYPE) for part in rows), 100, True)
    assert torch.allclose(backend.attend(q, *rows, length=100, causal=True).double(), want, atol=3e-2)


def test_a_kernel_that_kills_the_card_on_trial_is_left_out_at_the_next_start(
    card: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """An illegal address is reported by whatever comes next, for ever: the load would fail at every start."""

    def faulted(_device: object = None) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def started(library: Library) -> CudaBackend:
        backend = on_the_cpu(monkeypatch, library)
        backend._trials = DeviceTrials(Measurements(tmp_path), backend.name)
        return backend

    with monkeypatch.context() as broken:
        broken.setattr(torch.cuda, "synchronize", faulted)
        with pytest.raises(DeviceLost):
            started(Library(promise, refuses=["launch"])).prepare(6, 2, 64)
    library = Library(promise)
    backend = started(library)
    backend.prepare(6, 2, 64)
    assert not library.launched and worded_by(trial.recorded_trial, *backend.notes)
    backend.prepare(6, 2, 128)
    assert library.launched, "only that kernel is left out"
    Measurements(tmp_path).forget(trials_on(backend.name))
    library.launched.clear()
    started(library).prepare(6, 2, 64)
    assert library.launched and not DeviceTrials(Measurements(tmp_path), backend.name).broke("any")


def test_kernels_of_the_library_alone_where_the_person_says_so(card: Device, monkeypatch):
    """For a card on which one of ours breaks the program: none is loaded, tried or launched, whatever for."""
    library = Library(promise)
    monkeypatch.setattr(library, "cuModuleLoadData", None)
    backend = on_the_cpu(monkeypatch, library, own_kernels=False)
    backend.prepare(6, 2, 64)
    q, k, v = material(5, 100, dim=64, dtype=DTYPE)
    want, _ = dense(q, k, v, 100, True)
    assert torch.allclose(backend.attend(q, k, v, length=100, causal=True).double(), want, atol=3e-2)
    planes = example(KINDS[0], torch.Generator().manual_seed(0), rows=64)
    x = torch.randn(2, planes.columns).to(DTYPE)
    want = x.double() @ planes.decoded().double().t()
    assert torch.allclose(backend.coded([planes])(x).double(), want, atol=0.02 * float(want.abs().max()))
    assert not library.launched and len(backend.notes) == 2
    assert len(worded_by(trial.left_out, *backend.notes)) == 2
