"""Products with rounded inputs, for passes whose tokens are verified: what they compute, that a model for
drafts has them, and that nothing which decides what is said ever does.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import products
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.layers import NativeLayers, native_layers
from core.backend.cpu.native.library import instruction_sets, library_path, torch_openmp
from core.backend.cpu.native.products import NativeProducts, coarse_products, native_products
from core.backend.shared.quantized import CHUNK, SPAN, QuantizedMatrix
from core.cache.full import FullKVCache
from core.decoding.decoder import Round
from core.hardware.cpu import cpu_flags
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.request import Params
from core.selftest.random_model import RandomWeights, random_config
from tests.support.quantized_inputs import KINDS, inputs, matrix
from tests.support.tiny import PLAN, engine

LIBRARY = library_path("products")
CODES = [kind for kind in KINDS if kind not in ("F16", "BF16")]
HERE = [
    name
    for name in (instruction_sets(cpu_flags()) if LIBRARY else [])
    if name != "avx512" or "avx512_vnni" in cpu_flags()
]


@pytest.fixture(scope="module", params=HERE or [""])
def kernel(request) -> NativeProducts:
    """Every instruction set that this CPU has, not only the best."""
    if not request.param:
        pytest.skip("no library for this computer")
    return NativeProducts(LIBRARY, request.param, openmp=torch_openmp(), coarse=True)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """By the definition: of every 256 numbers the largest is 127 steps."""
    found = []
    for part in x.split(SPAN, dim=1):
        top = part.abs().amax(1, keepdim=True)
        steps = torch.where(top > 0, 127 / top, 0.0).double()
        found.append((part.double() * steps).round() * (top / 127).double())
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (3, 512), (8, 1280), (37, 512)])
def test_products_are_of_the_exact_weights_and_rounded_inputs(kernel, kind, n, rows, columns):
    """Within what fp32 sums may be off: integers lose nothing. Rows that fill no four and no unit."""
    given, x = matrix(kind, rows, columns), inputs(n, columns)
    x[-1] *= 1000
    x[0, :SPAN] = 0
    weights, taken = given.decoded().double(), rounded(x)
    want, size = taken @ weights.t(), taken.abs() @ weights.abs().t()
    assert float(((kernel.multiply(x, [given]).double() - want).abs() / size.clamp(min=1e-9)).max()) < 1e-6


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0"])
def test_columns_may_end_within_a_span(kernel, kind):
    given, x = matrix(kind, 9, 576), inputs(3, 576)
    want = rounded(x) @ given.decoded().double().t()
    assert torch.allclose(kernel.multiply(x, [given]).double(), want, atol=1e-4)


def test_largest_codes_and_inputs_do_not_overflow(kernel):
    """Four of the largest products in a lane, of either sign."""
    for code in (-128, 127):
        low = torch.full((4, 512), code, dtype=torch.int8)
        given = QuantizedMatrix(8, CHUNK, low, torch.ones(4, 512 // CHUNK, dtype=torch.float16))
        for sign in (-1.0, 1.0):
            assert torch.allclose(
                kernel.multiply(torch.full((1, 512), sign), [given]), torch.full((1, 4), 512.0 * code * sign)
            )


def test_a_row_among_many_and_parts_above_one_another_have_their_own_bits(kernel, monkeypatch):
    """Whoever computes them."""
    parts = [matrix("Q4_K", 130, 512), matrix("Q6_K", 33, 512), matrix("Q8_0", 1, 512)]
    x = inputs(16, 512)
    alone = torch.cat([torch.cat([kernel.multiply(row, [part]) for part in parts], -1) for row in x.split(1)])
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for n in (1, 4, 7, 16):
            assert torch.equal(kernel.multiply(x[:n], parts), alone[:n]), n


@pytest.mark.parametrize(
    ("kinds", "n", "columns"), [(["Q4_0"], 17, 512), (["Q4_0"], 2, 96), (["Q4_0", "BF16"], 2, 512)]
)
def test_what_is_not_for_integers_is_exact(kernel, kinds, n, columns):
    """More rows than a draft has, widths that fill no register, weights that are no codes."""
    parts, x = [matrix(kind, 35, columns) for kind in kinds], inputs(n, columns)
    exact = NativeProducts(LIBRARY, kernel.instructions, openmp=torch_openmp())
    assert torch.equal(kernel.multiply(x, parts), exact.multiply(x, parts))


def test_the_flags_choose():
    """Without integer products of AVX-512 those of AVX2 serve; without any nothing is called."""
    assert coarse_products(frozenset()) is None
    if {"avx2", "fma"} <= set(cpu_flags()):
        assert coarse_products(set(cpu_flags()) - {"avx512_vnni"}).instructions == "avx2"


def test_a_kernel_that_computes_wrongly_is_not_used(monkeypatch):
    if coarse_products(cpu_flags()) is None:
        pytest.skip("no library for this computer")
    right = NativeProducts.multiply
    monkeypatch.setattr(products.NativeProducts, "multiply", lambda *args: right(*args) * 1.2)
    assert coarse_products(cpu_flags()) is None


# ---- the model for drafts ---------------------------------------------------------------------------------


class InCodes(CpuBackend):
    """Holds every matrix in codes of 8 bits."""

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        groups = weight.float().view(weight.shape[0], -1, CHUNK)
        scale = (groups.abs().amax(-1) / 127).half()
        codes = (groups / scale.float().unsqueeze(-1)).round().clamp(-127, 127)
        return self.coded([QuantizedMatrix(8, CHUNK, codes.to(torch.int8).view(weight.shape), scale)], bias)


class Liar(NativeProducts):
    """Products of nothing."""

    def multiply(self, x: torch.Tensor, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None):
        return -super().multiply(x, parts, bias) + 0.3


def made(*, coarse: NativeProducts | None, layers: NativeLayers | None = None, backend=InCodes) -> LlamaModel:
    if native_products(cpu_flags()) is None:
        pytest.skip("no library for this computer")
    config = random_config(
        layers=2, hidden=128, heads=4, kv_heads=2, head_dim=64, intermediate=192, vocab=211
    )
    exact = NativeProducts(LIBRARY, HERE[0], openmp=torch_openmp())
    held = backend(
        storage=torch.bfloat16,
        native=native_attention(cpu_flags()),
        products=exact,
        coarse=coarse,
        layers=layers,
    )
    return build_model(config, RandomWeights(config, deviation=0.2), held, positions=1024)


def logits(model: LlamaModel, n: int) -> torch.Tensor:
    cache = FullKVCache(model.config.kv_shape, 64, model.backend)
    with torch.inference_mode():
        return model.forward([(7 * at + 3) % 211 for at in range(n)], cache)


@pytest.mark.parametrize("in_one", [True, False])
@pytest.mark.parametrize("n", [1, 5, 30])
def test_a_model_for_drafts_is_near_and_the_target_stays_exact(kernel, in_one, n):
    """The same weights, layer by layer and in one call."""
    attention, exact = native_attention(cpu_flags()), native_products(cpu_flags())
    layers = native_layers(cpu_flags(), attention, exact) if in_one else None
    model, alone = made(coarse=kernel, layers=layers), made(coarse=None, layers=layers)
    want, near = logits(alone, n), logits(model.drafting, n)
    assert torch.equal(logits(model, n), want), "the target knows nothing of it"
    assert (model.drafting._in_one is not None) == in_one
    off = float((near - want).abs().max() / want.std())
    assert off < 0.2 and (off > 2e-3) == (n <= 16)  # another instruction set: some last bits


def test_where_nothing_is_quicker_there_is_one_model(kernel):
    """No kernel; weights that are no codes; matrices that torch multiplies."""
    for model in (
        made(coarse=None),
        made(coarse=kernel, backend=CpuBackend),
        build_model(*_plain(), CpuBackend(coarse=kernel), positions=64),
    ):
        assert model.drafting is model


def test_a_model_that_is_let_go_is_gone_at_once(kernel):
    """With its drafting one, or without: a card's memory is not to wait for Python to look for cycles."""
    for coarse in (kernel, None):
        model = made(coarse=coarse)
        drafting, gone = weakref.ref(model.drafting), weakref.ref(model)
        del model
        assert gone() is None and drafting() is None


def written(model: LlamaModel, prompt: list[int], mode: str, temperature: float) -> list[int]:
    runs = engine(model)
    params = Params(max_new_tokens=24, mode=mode, temperature=temperature, seed=3)
    events = runs.generate(runs.new_context(400), prompt, params)
    return [token for event in events if isinstance(event, Round) for token in event.tokens]


def _plain():
    config = random_config(layers=1, hidden=64, heads=1, kv_heads=1, head_dim=64, intermediate=64, vocab=11)
    return config, RandomWeights(config)


@pytest.mark.parametrize("mode", ["triforce", "retrieval", "streaming"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_that_is_wrong_costs_time_and_changes_nothing(mode, temperature):
    """Whatever the products of the drafting levels say, what is written is the target's: at 0 token by token.
    The target, its first tokens and its cache use the exact ones.
    """
    lying = Liar(LIBRARY, HERE[0], openmp=torch_openmp(), coarse=True) if HERE else None
    model, prompt = made(coarse=lying), [(5 * at + 1) % 211 for at in range(120)]
    passes = []
    composer = Composer(PLAN, model, None)
    assert composer._middle_model is model.drafting is not model
    forward = LlamaModel.forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            LlamaModel,
            "forward",
            lambda self, ids, cache: (
                passes.append((self is model, type(cache).__name__)),
                forward(self, ids, cache),
            )[1],
        )
        said = written(model, prompt, mode, temperature)
    assert {cache for exact, cache in passes if exact} == {"FullKVCache"}
    drafted = {cache for exact, cache in passes if not exact}
    assert drafted and "FullKVCache" not in drafted
    if temperature == 0:
        assert said == written(made(coarse=None), prompt, "autoregressive", 0.0)
