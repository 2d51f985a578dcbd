"""All layers in one call: the numbers of the layers computed one by one, the bits of a row alone, the caches
it may write to, and that it is used only where it can run.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import layers
from core.backend.cpu.native.attention import NativeAttention, native_attention
from core.backend.cpu.native.layers import NativeLayers, NativeModel, native_layers
from core.backend.cpu.native.library import instruction_sets, library_path, torch_openmp
from core.backend.cpu.native.products import NativeProducts, native_products
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.backend.shared.kv_rows import CODES
from core.backend.shared.quantized import QuantizedMatrix
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.hardware.cpu import cpu_flags
from core.model.llama import Layer, LlamaModel
from core.model.loader import build_model
from core.selftest.random_model import RandomWeights, random_config

LIBRARY = library_path("layers")
HERE = instruction_sets(cpu_flags()) if LIBRARY else []
READ = 70  # rows that a cache holds; its blocks have 32


@pytest.fixture(scope="module", params=HERE or [""])
def kernel(request) -> NativeLayers:
    """Every instruction set that this CPU has, not only the best."""
    if not request.param:
        pytest.skip("no library for this computer")
    openmp = torch_openmp()
    sets = instruction_sets(cpu_flags(), "attention")  # its names are other ones
    name = sets[0] if request.param == HERE[0] else sets[-1]
    attention = NativeAttention(library_path("attention"), name, openmp=openmp)
    products = NativeProducts(library_path("products"), request.param, openmp=openmp)
    return NativeLayers(LIBRARY, attention, products)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


class Weights(RandomWeights):
    """With what a family has besides: biases, norms of queries and keys; norms that are not ones."""

    def __init__(self, config, *, biases: bool, norms: bool) -> None:
        super().__init__(config, deviation=0.1)
        self._endings = (("bias",) if biases else ()) + (("q_norm.weight", "k_norm.weight") if norms else ())
        self._of_heads = config

    def __contains__(self, name: str) -> bool:
        return "self_attn" in name and "o_proj" not in name and name.endswith(self._endings)

    def tensor(self, name: str) -> torch.Tensor:
        sizes = self._of_heads
        if name.endswith("bias"):
            rows = {"q_proj": sizes.heads, "k_proj": sizes.kv_heads, "v_proj": sizes.kv_heads}
            return 0.3 * torch.randn(rows[name.split(".")[-2]] * sizes.head_dim, generator=self._dice)
        if name.endswith("norm.weight"):
            size = sizes.head_dim if name.split(".")[-2] in ("q_norm", "k_norm") else sizes.hidden
            return 0.5 + torch.rand(size, generator=self._dice)
        return super().tensor(name)


def made(kernel: NativeLayers | None, *, head_dim: int = 64, biases=False, norms=False) -> LlamaModel:
    """A model whose weights are held in 16 bits, so that few rows are multiplied by the compiled kernel."""
    config = random_config(
        layers=3, hidden=96, heads=4, kv_heads=2, head_dim=head_dim, intermediate=160, vocab=211
    )
    native, products = (kernel.attention, kernel.products) if kernel else (None, None)
    backend = CpuBackend(storage=torch.bfloat16, native=native, products=products, layers=kernel)
    return build_model(config, Weights(config, biases=biases, norms=norms), backend, positions=1024)


def one_by_one(model: LlamaModel) -> LlamaModel:
    """The same weights, layer by layer."""
    other = LlamaModel.__new__(LlamaModel)
    other.__dict__.update(model.__dict__, _in_one=None)
    return other


def ids(n: int, first: int = 0) -> list[int]:
    return [(7 * (first + at) + 3) % 211 for at in range(n)]


def filled(model: LlamaModel, *, rows: torch.dtype | None = torch.float32, block: int = 32) -> FullKVCache:
    cache = FullKVCache(model.config.kv_shape, 160, model.backend, block_tokens=block, dtype=rows)
    one_by_one(model).forward(ids(READ), cache)
    return cache


@pytest.mark.parametrize("rows", [torch.float32, torch.bfloat16, CODES])
@pytest.mark.parametrize("more", [{}, {"biases": True}, {"norms": True}, {"head_dim": 128}], ids=str)
@pytest.mark.parametrize("n", [1, 5, 40])
def test_equals_the_layers_one_by_one(kernel, rows, more, n):
    """Logits, and what lies in the cache afterwards; 40 rows run over two borders of blocks."""
    model = made(kernel, **more)
    assert isinstance(model._in_one, NativeModel)
    wanted, found = filled(model, rows=rows), filled(model, rows=rows)
    before = found.store.k.clone()
    want = one_by_one(model).forward(ids(n, READ), wanted)
    got = model.forward(ids(n, READ), found)
    # a number that lies between two codes may become either
    off = 2e-4 if rows == torch.float32 else 2e-2
    assert torch.allclose(got, want, atol=off * float(want.std())) and found.length == READ + n
    for own, others in ((found.store.k, wanted.store.k), (found.store.v, wanted.store.v)):
        far = (own.float() - others.float()).abs()
        assert float(far.max() if rows != CODES else far[..., : model.config.head_dim].max()) < 1.01 * (
            1 if rows == CODES else off
        )
        assert float((far > 0).float().mean()) < (1 if rows == torch.float32 else 0.02)
    assert torch.equal(before[:, :2], found.store.k[:, :2])  # what was read stays as it was


@pytest.mark.parametrize("rows", [torch.bfloat16, CODES])
def test_a_row_among_many_has_the_bits_it_has_alone(kernel, rows):
    """Plain decoding and verification agree wherever they can."""
    model, n = made(kernel, biases=True, norms=True), 33
    together, alone = filled(model, rows=rows), filled(model, rows=rows)
    logits = model.forward(ids(n, READ), together)
    for row in range(n):
        assert torch.equal(model.forward(ids(1, READ + row), alone)[0], logits[row]), row
    assert torch.equal(together.store.k, alone.store.k) and torch.equal(together.store.v, alone.store.v)


def test_threads_do_not_change_the_bits(kernel, monkeypatch):
    model, found = made(kernel), []
    cache = filled(model)
    for threads in (1, 2, 3, 1):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(model.forward(ids(6, READ), cache))
        cache.rollback(READ)
    assert all(torch.equal(one, found[0]) for one in found)


def test_who_watches_is_shown_the_same(kernel):
    """Queries of every layer to the witness; queries, keys and where they stand to the observer."""
    model, seen = made(kernel), {}
    for name, runs in (("one", one_by_one(model)), ("all", model)):
        cache, told = filled(model), []
        cache.witness = lambda layer, q, start, told=told: told.append((layer, q.clone(), start))
        cache.observer = lambda layer, q, k, told=told, **how: told.append((layer, q.clone(), k.clone(), how))
        runs.forward(ids(4, READ), cache)
        seen[name] = told
    assert len(seen["one"]) == len(seen["all"]) == 6
    for one, other in zip(seen["one"], seen["all"], strict=True):
        for a, b in zip(one, other, strict=True):
            assert torch.allclose(a, b, atol=1e-4) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("rows", [torch.bfloat16, CODES])
@pytest.mark.parametrize("n", [1, 4])
def test_who_watches_is_given_sums_of_the_pass_itself(kernel, rows, n):
    """Of every layer, in one call and one by one: what reading its keys again would give. A chunk that the
    kernel does not sum is left to be asked for.
    """
    model = made(kernel)
    for runs in (one_by_one(model), model):
        cache, told = filled(model, rows=rows), []
        cache.observer = lambda layer, q, k, *, sums=None, told=told, **how: told.append((q.clone(), k, sums))
        cache.observed_chunk = 8
        runs.forward(ids(n, READ), cache)
        assert len(told) == 3
        for q, k, sums in told:
            want = kernel.attention.chunk_lse(q[0], k, length=READ + 1, chunk=8)
            assert torch.allclose(sums, want, atol=1e-4)
        cache.observed_chunk = 32 * 3
        runs.forward(ids(n, READ + n), cache)
        assert len(told) == 6 and told[-1][2] is None


def test_a_tap_is_given_no_sums_that_another_asked_for(kernel):
    """A question behind an answer is a short prefill, and the answer's verifications had asked for them."""
    model = made(kernel)
    cache, told = filled(model), []
    cache.observed_chunk = 8
    how = {"segment_tokens": 64, "chunk_tokens": 64, "should_stop": lambda: False}
    tap = lambda layer, q, k, **given: told.append(given)  # noqa: E731 (an observer of one line)
    assert list(model.prefill(ids(5, READ), cache, tap=tap, **how))
    assert len(told) == 3 and not any("sums" in given for given in told)


def calls_of(model: LlamaModel, monkeypatch) -> list[int]:
    """Rows of every pass that is one call."""
    found, run = [], model._in_one._library.run
    monkeypatch.setattr(model._in_one._library, "run", lambda call: (found.append(1), run(call)))
    return found


def test_a_retrieval_cache_is_written_behind_what_it_selected(kernel, monkeypatch):
    model = made(kernel)
    caches = []
    for runs in (one_by_one(model), model):
        source = filled(model, rows=torch.bfloat16)
        cache = RetrievalKVCache(source, budget=32, chunk=16, recent=16)
        cache.policy.choose = lambda among, m: torch.arange(m).expand(3, 2, m)
        monkeypatch.setattr(type(cache.policy), "ready", property(lambda self: True))
        assert cache.refresh()
        calls = calls_of(model, monkeypatch)
        logits = runs.forward(ids(3, READ), cache)
        caches.append((logits, cache, len(calls)))
    (want, one, none), (got, other, once) = caches
    assert (none, once) == (0, 1) and one.length == other.length == READ + 3
    assert torch.allclose(got, want, atol=2e-2 * float(want.std()))


@pytest.mark.parametrize(("n", "used"), [(1, True), (SHORT_PASS_ROWS, True), (SHORT_PASS_ROWS + 1, False)])
def test_passes_of_many_rows_go_layer_by_layer(kernel, monkeypatch, n, used):
    model = made(kernel)
    cache, calls = filled(model), calls_of(model, monkeypatch)
    model.forward(ids(n, READ), cache)
    assert bool(calls) == used and cache.length == READ + n


def test_caches_that_take_no_rows_in_place_are_asked_to_attend(kernel, monkeypatch):
    """A window that rotates when it reads, a cache in host memory: as ever."""
    model = made(kernel)
    shape, calls = model.config.kv_shape, calls_of(model, monkeypatch)
    window = StreamingKVCache(shape, model.backend, model.rope.rotate)
    away = OffloadedKVCache(shape, 64, model.backend, block_tokens=32, resident_layers=1)
    model.forward(ids(3), window)
    model.forward(ids(3), away)
    assert not calls


def test_no_row_is_written_behind_a_cache(kernel):
    """It would be another's memory."""
    model = made(kernel)
    cache = FullKVCache(model.config.kv_shape, 32, model.backend, block_tokens=32)
    with pytest.raises(AssertionError):
        model.forward(ids(33), cache)


def test_other_weights_go_layer_by_layer(kernel):
    """Numbers that torch multiplies, heads of another size, widths that fill no chunk."""
    config = random_config(layers=1, hidden=96, heads=4, kv_heads=2, head_dim=64, intermediate=160, vocab=11)

    def prepared(changed, **how):
        backend = CpuBackend(
            **({"storage": torch.bfloat16} | how),
            native=kernel.attention,
            products=kernel.products,
            layers=kernel,
        )
        return build_model(changed, RandomWeights(changed), backend, positions=64)._in_one

    assert prepared(config) is not None
    assert prepared(config, storage=None) is None
    assert prepared(replace(config, head_dim=32)) is None
    assert prepared(replace(config, intermediate=176)) is None  # 176 columns


def test_without_its_kernels_or_flags_it_is_not_used():
    flags = cpu_flags()
    assert native_layers(flags, None, None) is None
    assert native_layers(frozenset(), native_attention(flags), native_products(flags)) is None


def test_a_library_that_computes_wrongly_is_not_used(monkeypatch, caplog):
    flags = cpu_flags()
    attention, products = native_attention(flags), native_products(flags)
    if native_layers(flags, attention, products) is None:
        pytest.skip("no library for this computer")
    right = NativeModel.__call__

    def wrong(*given):
        rows, queries = right(*given)
        return rows + 1e-2, queries

    monkeypatch.setattr(NativeModel, "__call__", wrong)
    with caplog.at_level(logging.WARNING):
        assert native_layers(flags, attention, products) is None
    assert "wrongly" in caplog.text


def test_matrices_of_several_formats_are_one_above_the_other(kernel):
    """As the quantised checkpoints mix them: values in another format than queries and keys."""
    from tests.support.quantized_inputs import matrix

    config = random_config(
        layers=1, hidden=256, heads=4, kv_heads=2, head_dim=64, intermediate=256, vocab=211
    )
    native = {"native": kernel.attention, "products": kernel.products, "layers": kernel}
    backend = CpuBackend(torch.float32, **native)

    def linear(*parts: QuantizedMatrix):
        return backend.coded(list(parts), None)

    dice = torch.Generator().manual_seed(2)
    layer = layers._Layer64(
        linear(matrix("Q4_K", 384, 256), matrix("Q6_K", 128, 256)),
        linear(matrix("Q5_0", 256, 256)),
        linear(matrix("Q4_0", 256, 256), matrix("Q8_0", 256, 256)),
        linear(matrix("Q5_1", 256, 256)),
        *(0.5 + torch.rand(256, generator=dice) for _ in range(2)),
        None,
        None,
    )
    built = build_model(config, RandomWeights(config), CpuBackend(), positions=256)
    model = LlamaModel(
        config,
        backend,
        embedding=built.embedding,
        layers=[Layer(**layer._asdict())],
        norm=torch.ones(256),
        head=built._head,
        rope=built.rope,
    )
    assert model._in_one is not None
    wanted, found = filled(model), filled(model)
    want = one_by_one(model).forward(ids(3), wanted)
    assert torch.allclose(model.forward(ids(3), found), want, atol=1e-3 * float(want.std()))
