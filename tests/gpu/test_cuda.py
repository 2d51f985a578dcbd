"""On a CUDA GPU: the same answers as on the CPU, offloaded as on chip, and no memory lost.
Skipped without one: `pytest tests/gpu`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.backend.base import ScoreRequest
from core.backend.cpu.backend import CpuBackend
from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.triton.attention import DecodeAttention
from core.backend.cuda.triton.delta import CardDelta, CardDeltaChunks
from core.backend.cuda.triton.driver import CudaDriver
from core.backend.shared.compiled import HEAD_DIMS
from core.backend.shared.delta_example import ExampleSizes, delta_by_definition, example_layer, example_rows
from core.backend.shared.kv_rows import CODES
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.config import MODES
from core.engine import Engine
from core.model.llama import LlamaModel
from core.model.recorded_verification import OFTEN, RecordedVerification
from tests.support.attention_cases import CASES, LONG, ROUNDED, SHAPES
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.reference import dense, material
from tests.support.replays import BUSY, Level0, Middle, compare, prepared
from tests.support.tiny import FAMILIES, engine, oracle, ours, whole_cache

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]
HALF = [torch.float16, torch.bfloat16]
SPLITS = [{"layers": 0}, {"layers": 1}, {"layers": 2, "blocks": 2}]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As in the worker."""
    with torch.inference_mode():
        yield


def offloaded(
    model: LlamaModel, capacity: int, *, layers: int = 1, blocks: int | None = None
) -> OffloadedKVCache:
    return OffloadedKVCache(
        model.config.kv_shape,
        capacity,
        model.backend,
        block_tokens=32,
        resident_layers=layers,
        resident_blocks=blocks,
        staging_blocks=2,
        fresh_tokens=40,
    )


def offloaded_engine(model: LlamaModel, **split: int) -> Engine:
    return engine(model, new_cache=lambda capacity: offloaded(model, capacity + 32, **split))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("n", "length", "causal"), SHAPES)
def test_attention_equals_dense(dtype: torch.dtype, n: int, length: int, causal: bool):
    """Whichever library's kernel was chosen, over blocks, grouped heads, borders inside and outside the rows'
    own square.
    """
    backend = CudaBackend(dtype)
    q, k, v = (part.to(backend.device, dtype) for part in material(n, length))
    v[v.abs() > 100] = 0  # the nonsense behind the length is too large for 16 bits
    want, want_lse = dense(q.cpu(), k.cpu(), v.cpu(), length, causal)
    out, lse = backend.attend_part(q, k, v, length=length, causal=causal)
    assert torch.allclose(out.cpu().double(), want, atol=3e-2) and torch.allclose(
        lse.cpu().double(), want_lse, atol=3e-2
    )


def compiled(dtype: torch.dtype, dim: int) -> DecodeAttention:
    backend = CudaBackend(dtype)
    return DecodeAttention(CudaDriver.open(), backend.device, dtype, dim, stream=backend._stream)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize(("n", "length", "block", "heads", "kv_heads", "causal"), CASES + LONG)
def test_the_compiled_kernel_equals_dense(dtype, dim, n, length, block, heads, kv_heads, causal):
    """Machine code made by this card's driver."""
    q, k, v = material(n, length, block=block, heads=heads, kv_heads=kv_heads, dim=dim, dtype=dtype)
    got = compiled(dtype, dim).attend_part(
        *(part.to("cuda") for part in (q, k, v)), length=length, causal=causal
    )
    want, want_lse = dense(q, k, v, length, causal)
    assert torch.allclose(got[0].cpu().double(), want, atol=ROUNDED[dtype], rtol=0)
    assert torch.allclose(got[1].cpu().double(), want_lse, atol=1e-4, rtol=0)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("dim", HEAD_DIMS)
def test_sums_of_chunks_and_the_bits_of_an_answer_that_nobody_watches(dtype, dim):
    """A pass that leaves sums is another kernel, whose rows must be those of plain decoding."""
    made = material(5, 1000, block=512, heads=8, kv_heads=2, dim=dim, dtype=dtype)
    kernel, sums, (q, k, v) = compiled(dtype, dim), ScoreRequest(8), (part.to("cuda") for part in made)
    watched = kernel.attend_part(q, k, v, length=1000, causal=True, sums=sums)
    plain = kernel.attend_part(q, k, v, length=1000, causal=True)
    assert all(torch.equal(*pair) for pair in zip(watched, plain, strict=True))
    assert torch.allclose(sums.found.logsumexp(1), plain[1][0], atol=1e-4, rtol=0)


@pytest.mark.compiled
@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize(("n", "heads"), [(4, 8), (33, 8)], ids=["low tile", "high tile"])
def test_a_row_among_many_has_the_bits_it_has_alone(dim: int, n: int, heads: int):
    """A verification of many rows must agree with plain decoding wherever it can."""
    kernel = compiled(torch.bfloat16, dim)
    q, k, v = (
        part.to("cuda")
        for part in material(n, 1000, block=512, heads=heads, kv_heads=2, dim=dim, dtype=torch.bfloat16)
    )
    out, lse = kernel.attend_part(q, k, v, length=1000, causal=True)
    for row in range(n):
        alone, own_lse = kernel.attend_part(q[row : row + 1], k, v, length=1000 - n + row + 1, causal=True)
        assert torch.equal(alone[0], out[row]) and torch.equal(own_lse[0], lse[row])


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("dim", HEAD_DIMS)
@pytest.mark.parametrize(
    ("n", "length", "window"), [(1, 1500, 1024), (5, 900, 100), (33, 1500, 512), (9, 9, 4)]
)
def test_rows_of_a_window_see_it_alone(dtype, dim, n, length, window):
    """Machine code made by this card's driver; a row's bits are of its own."""
    q, k, v = material(n, length, block=1536, heads=8, kv_heads=2, dim=dim, dtype=dtype)
    kernel, here = compiled(dtype, dim), [part.to("cuda") for part in (k, v)]
    got = kernel.attend_window(q.to("cuda"), *here, length=length, window=window)
    for row in range(n):
        end = length - n + row + 1
        run = [part[:, :, max(0, end - window) : end] for part in (k, v)]
        want, _ = dense(q[row : row + 1], *run, min(end, window), False)
        assert torch.allclose(got[row].cpu().double(), want[0], atol=2 * ROUNDED[dtype], rtol=0)
        alone = kernel.attend_window(q[row : row + 1].to("cuda"), *here, length=end, window=window)
        assert torch.equal(alone[0], got[row])


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("sizes", [ExampleSizes(16, 32, 128, 128), ExampleSizes(2, 8, 128, 48)], ids=str)
@pytest.mark.parametrize("n", [1, 5, 40, 103])
def test_rows_of_states_equal_the_definition_alone_and_among_others(dtype, sizes, n):
    """Written beside the state that was read, or over it."""
    dice, backend = torch.Generator().manual_seed(n), CudaBackend(dtype)
    exact, (state, rows) = example_layer(sizes, dice), example_rows(sizes, n, dice)
    layer = example_layer(sizes, torch.Generator().manual_seed(n), backend.device)
    kernel = CardDelta(CudaDriver.open(), dtype, stream=backend._stream)
    rows, own = rows.to(dtype), state.to(backend.device)
    given, target = rows.to(backend.device), torch.empty_like(own)
    found = kernel.through(layer, own, target, given)
    for got, want in zip((found, target), delta_by_definition(exact, state, rows), strict=True):
        assert torch.allclose(got.cpu().double(), want, atol=1e-4)
    for row in range(n):
        alone = kernel.through(layer, own, own, given[row : row + sizes.kernel])
        assert torch.equal(alone[0], found[row])
    assert torch.equal(own, target)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("sizes", [ExampleSizes(16, 32, 128, 128), ExampleSizes(2, 8, 128, 48)], ids=str)
def test_chunks_of_a_prefill_equal_the_definition_in_any_number_of_calls(dtype, sizes):
    """More of them than one launch takes, too."""
    dice, backend, n = torch.Generator().manual_seed(5), CudaBackend(dtype), 640
    exact, (state, rows) = example_layer(sizes, dice), example_rows(sizes, n, dice)
    layer = example_layer(sizes, torch.Generator().manual_seed(5), backend.device)
    kernel = CardDeltaChunks(CudaDriver.open(), dtype, stream=backend._stream)
    rows, own, again = rows.to(dtype), state.to(backend.device), state.to(backend.device)
    given = rows.to(backend.device)
    found = kernel.through(layer, own, given)
    for got, want in zip((found, own), delta_by_definition(exact, state, rows), strict=True):
        assert torch.allclose(got.cpu().double(), want, atol=5e-4)
    parts = [kernel.through(layer, again, given[at : at + 64 + sizes.kernel - 1]) for at in range(0, n, 64)]
    assert torch.equal(torch.cat(parts), found) and torch.equal(again, own)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
def test_the_cpu_and_the_gpu_agree(family: str, kv_heads: int):
    """Logits of a prefill in segments and of a short pass behind it, in fp32."""
    reference = oracle(family, kv_heads=kv_heads)
    rows = []
    for model in (ours(reference), ours(reference, backend=CudaBackend(torch.float32))):
        cache = whole_cache(model, 200, block_tokens=32)
        for _ in model.prefill(
            PROMPT[:-5], cache, segment_tokens=48, chunk_tokens=20, should_stop=lambda: False
        ):
            pass
        rows.append(model.forward(PROMPT[-5:], cache).cpu())
    assert float((rows[0] - rows[1]).abs().max()) < 1e-4 * float(rows[0].abs().max())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("split", SPLITS, ids=["none", "one layer", "two blocks of each"])
def test_offloaded_answers_as_on_chip_and_as_the_cpu(mode: str, split: dict[str, int]):
    """Copies that overtake the computation, or are overtaken by it, show here."""
    params = replace(GREEDY, mode=mode, max_new_tokens=32)
    model = ours(oracle(), backend=CudaBackend(torch.float32, cpu=CpuBackend))
    engines = engine(ours(oracle())), engine(model), offloaded_engine(model, **split)
    answers = [run(one, one.new_context(400), PROMPT, params) for one in engines]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("kind", [Middle, Level0])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
def test_replay_equals_eager(kind: type[Middle] | type[Level0], kv_heads: int):
    """In fp32 the CPU's eager passes; in 16 bits this card's own, which round their scores elsewhere."""
    compare(kind, BUSY * 3, CudaBackend(torch.float32), kv_heads=kv_heads)
    for dtype in HALF:
        compare(kind, BUSY * 3, CudaBackend(dtype), like=CudaBackend(dtype), off=5e-2, kv_heads=kv_heads)


@pytest.mark.parametrize("mode", ["triforce", "retrieval", "draft"])
@pytest.mark.parametrize("graphs", ["on", "auto"])
def test_answers_by_graphs_are_the_cpus(mode: str, graphs: str):
    """Two conversations in the memory that was recorded, whatever the measurement on this card decides."""
    params = replace(GREEDY, mode=mode, max_new_tokens=64)
    one, other = (
        prepared(CpuBackend(), kv_heads=2),
        prepared(CudaBackend(torch.float32), kv_heads=2, graphs=graphs),
    )
    for ids in (PROMPT, PROMPT[30:]):
        assert run(one, one.new_context(400), ids, params) == run(other, other.new_context(400), ids, params)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("coded", [False, True], ids=["numbers", "codes"])
@pytest.mark.parametrize("n", [1, 7, 33])
def test_a_recorded_verification_has_the_bits_of_the_pass(dtype: torch.dtype, coded: bool, n: int):
    """In CUDA graphs, over a cache that grows and is cut; without equal bits the product replays none."""
    backend, rows = CudaBackend(dtype), CODES if coded else dtype
    backend._compiled[64, rows] = DecodeAttention(
        CudaDriver.open(), backend.device, dtype, 64, rows=rows, stream=backend._stream
    )
    model = ours(oracle(kv_heads=2, head_dim=64), backend=backend)
    passes, caches = RecordedVerification(model, most_rows=40), []
    for _cache in range(2):
        cache = FullKVCache(model.config.kv_shape, 480, backend, block_tokens=480, dtype=rows)
        model.forward(PROMPT, cache)
        cache.commit(cache.length)
        caches.append(cache)
    for time in range(2 * OFTEN):
        ids = [(5 * row + time) % 50 for row in range(n)]
        assert torch.equal(
            *(one.forward(ids, cache) for one, cache in zip((passes, model), caches, strict=True))
        )
        for cache in caches:
            cache.commit(cache.length - n // 2)
    assert not passes.reason and passes.rows(caches[0]) == (n,)
    assert torch.equal(caches[0].store.k, caches[1].store.k)


@pytest.mark.compiled
def test_recordings_of_the_next_conversation_are_made_when_the_last_ones_went():
    """The pool of memory that they share is not theirs."""
    backend = CudaBackend(torch.bfloat16)
    model = ours(oracle(kv_heads=2, head_dim=64), backend=backend)
    for n in (1, 5, 17):
        passes = RecordedVerification(model, most_rows=40)
        cache = FullKVCache(model.config.kv_shape, 480, backend, block_tokens=480)
        model.forward(PROMPT, cache)
        for _time in range(OFTEN + 1):
            passes.forward(list(range(n)), cache)
            cache.rollback(len(PROMPT))
        assert not passes.reason and passes.rows(cache) == (n,)
        del passes, cache
        gc.collect()


def test_rows_survive_large_blocks_bit_for_bit():
    """Blocks of megabytes, so that copies really run beside the computation; three times over the same
    ring.
    """
    backend = CudaBackend(torch.float16)
    shape, heads, length = KVShape(layers=4, kv_heads=8, head_dim=128), 16, 12_000
    cache = OffloadedKVCache(
        shape, 16_384, backend, block_tokens=2048, resident_layers=1, staging_blocks=3, fresh_tokens=64
    )
    full = FullKVCache(shape, 16_384, backend, block_tokens=2048)
    dice = torch.Generator(device=backend.device).manual_seed(0)

    def feed(n: int) -> None:
        for layer in range(shape.layers):
            q = torch.randn(n, heads, 128, generator=dice, device=backend.device, dtype=torch.float16)
            k, v = (
                torch.randn(n, 8, 128, generator=dice, device=backend.device, dtype=torch.float16)
                for _ in range(2)
            )
            got, want = cache.attend(layer, q, k, v), full.attend(layer, q, k, v)
            assert torch.allclose(got, want, atol=2e-3)
        for one in (cache, full):
            one.advance(n)
            one.commit(one.length)

    feed(length)
    for _ in range(20):
        feed(7)
    for layer in range(shape.layers):
        for got, want in zip(
            cache.rows(layer, 0, cache.length), full.rows(layer, 0, full.length), strict=True
        ):
            assert torch.equal(got.cpu(), want.cpu())


def test_twenty_prompts_do_not_grow_the_memory():
    """What a prompt leaves behind on the device or locked in host memory adds up to a crash."""
    model = ours(oracle(), backend=CudaBackend(torch.float32))
    tiny = offloaded_engine(model, layers=1)
    held: list[int] = []
    for start in range(20):
        run(tiny, tiny.new_context(400), PROMPT[start:], GREEDY)
        gc.collect()  # what lies in cycles goes when it is looked for, not when its prompt ends
        held.append(torch.cuda.memory_allocated())
    assert max(held[2:]) <= held[1]


def test_host_memory_is_page_locked_again_and_again():
    """Ordinary memory would cross the bus at half the rate, and not beside the computation."""
    memory = CudaBackend(torch.float16).host_memory((3, 5, 1000), torch.float16)
    assert memory.is_pinned() and bool((memory == 0).all())
    del memory
    # perhaps at the same address
    assert CudaBackend(torch.float16).host_memory((3, 5, 1000), torch.float16).is_pinned()


def test_a_full_device_raises_what_the_backend_names():
    """That is what the engine gives way to."""
    backend = CudaBackend(torch.float16)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device=backend.device)
    assert backend.out_of_memory(caught.value)
