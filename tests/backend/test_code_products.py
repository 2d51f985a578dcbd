"""The GPU's products with weights in codes against the codes' own definition, without a GPU: its launches are
done by a stand-in for the driver (tests/support/fake_driver.py), and with `pip install triton==3.9.0` by
Triton's interpreter from the kernel's own source as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle

import pytest
import torch

from core.backend.cpu import quantized_linear
from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.triton import product_trial
from core.backend.cuda.triton.build import Variant, variants
from core.backend.cuda.triton.driver import CudaDriver, read_kernel
from core.backend.cuda.triton.products import CardProducts, QuantizedProducts, _split_chunks
from core.backend.cuda.triton.sizes import BITS
from core.backend.shared.compiled import PRODUCTS
from core.backend.shared.quantized import QuantizedMatrix
from core.cache.full import FullKVCache
from core.model.gguf.folder import opened
from core.model.gguf.reader import BITS as KINDS
from core.model.loader import load_model
from tests.support.cuda_device import Device, Stream
from tests.support.engine_runs import PROMPT
from tests.support.fake_driver import EXECUTORS, Grid, Library, promise
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import MIXED, wide
from tests.support.quantized_inputs import inputs, matrix
from tests.support.recording import Recording
from tests.support.said import values, worded_by

HALF = (torch.bfloat16, torch.float16)
WHOLE_GROUPS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")  # SmolLM2's 576 columns are no whole number of 256


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request) -> str:
    return request.param


def products(executor: str, dtype: torch.dtype = torch.bfloat16) -> CardProducts:
    driver = CudaDriver(Library(EXECUTORS[executor]))
    return CardProducts({bits: QuantizedProducts(driver, dtype, bits, stream=lambda: 0) for bits in BITS})


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "rows", "columns"),
    [(1, 67, 1280), (2, 1, 256), (5, 3, 768), (17, 67, 512), (33, 9, 1280), (40, 67, 256)],
)
def test_products_are_of_the_rounded_weights(executor, dtype, kind, n, rows, columns):
    """A code left out or read twice, a scale of another group, a matrix or inputs that fill no tile."""
    given, x = matrix(kind, rows, columns), inputs(n, columns, dtype)
    weights = given.decoded().to(dtype).double()
    want, size = x.double() @ weights.t(), x.double().abs() @ weights.abs().t()
    found = products(executor, dtype).multiply(x, [given])
    assert found.dtype == dtype and found.shape == want.shape
    rounding = torch.finfo(dtype).eps / 2
    assert torch.all((found.double() - want).abs() <= rounding * want.abs() + 1e-6 * size)


@pytest.mark.parametrize("kind", WHOLE_GROUPS)
def test_columns_of_whole_groups_are_enough(executor, kind):
    """Half a tile of chunks at the end of each row: nothing of the next row may be counted."""
    given, x = matrix(kind, 9, 544), inputs(3, 544, torch.bfloat16)
    want = x.double() @ given.decoded().bfloat16().double().t()
    assert torch.allclose(products(executor).multiply(x, [given]).double(), want, rtol=8e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_and_many_are_of_one_set_of_numbers(executor, kind):
    """What prefill leaves in the cache and what decoding computes must be of one model: an identity reads the
    numbers that the decoder writes, which are torch's to the bit.
    """
    given, made = matrix(kind, 40, 256), products(executor)
    eye = torch.eye(256, dtype=torch.bfloat16)
    want = given.decoded().bfloat16()
    for n in (4, 33):
        assert torch.equal(torch.cat([made.multiply(x, [given]) for x in eye.split(n)]).t(), want)
    assert torch.equal(made.decode(given, torch.empty(40, 256, dtype=torch.bfloat16)), want)
    part = torch.empty(7, 256, dtype=torch.bfloat16)
    assert torch.equal(made.decode(given, part, first=11), want[11:18])
    ids = torch.tensor([5, 0, 39, 5])
    assert torch.equal(made.rows(given, ids, part[:4]), want[ids])


def test_a_row_among_many_is_computed_as_alone():
    """A verification of many rows must agree with plain decoding wherever it can: programs take the same rows
    and columns of the matrix, in steps of one size, however many inputs there are.
    """
    taken = []

    def look(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
        if variant.function == "multiply_codes":
            *_, rows, first, total, chunks, each = numbers
            taken.append((grid[1:], rows, first, total, chunks, each, variant.constants["CHUNKS"]))
        promise(variant, grid, numbers)

    made = QuantizedProducts(CudaDriver(Library(look)), torch.bfloat16, 4, stream=lambda: 0)
    for n in (1, 2, 16, 17, 40):
        CardProducts({4: made}).multiply(inputs(n, 1280, torch.bfloat16), [matrix("Q4_K", 67, 1280)])
    assert len(taken) == 5 and len(set(taken)) == 1 and taken[0][0] == (2, 3)


def test_matrices_above_one_another_and_a_bias(executor):
    """q and k of 4 bits, v of 6: one result, the bias added before it is rounded."""
    parts = [matrix("Q4_K", 130), matrix("Q6_K", 33), matrix("Q8_0", 1)]
    x, bias = inputs(3, 512, torch.bfloat16), torch.randn(164, generator=torch.Generator().manual_seed(1))
    weights = torch.cat([part.decoded() for part in parts]).bfloat16().double()
    want = x.double() @ weights.t() + bias.double()
    found = products(executor).multiply(x, parts, bias).double()
    assert torch.all((found - want).abs() <= 2.0**-8 * want.abs() + 1e-4)


@pytest.mark.parametrize("rows", [1, 64, 4096, 151_936])
@pytest.mark.parametrize("chunks", [1, 8, 18, 128, 448])
def test_splits_cover_the_columns(rows: int, chunks: int):
    """Whole tiles of chunks, so that none is read by two programs; few, since each leaves sums in memory."""
    each = _split_chunks(chunks, rows)
    assert each % 4 == 0 and 1 <= -(-chunks // each) <= 8


@pytest.mark.parametrize(
    "variant", [one for one in variants() if "SHIFTED" in one.constants], ids=lambda one: one.name
)
def test_a_weight_is_rounded_as_torch_rounds_it(variant: Variant):
    """A driver may fuse a product and a sum unless each says how it is rounded; then weights would differ in
    a last bit from those of prefill by torch. Codes without an offset have none added.
    """
    text = read_kernel(variant.name).ptx.decode("ascii")
    assert "fma" not in text and "mul.f32" not in text and "add.f32" not in text
    assert "mul.rn.f32" in text and ("add.rn.f32" in text) == bool(variant.constants["SHIFTED"])


@pytest.mark.parametrize(
    "variant", [one for one in variants() if one.function == "multiply_codes"], ids=lambda one: one.name
)
def test_factors_are_fetched_two_steps_before_they_are_used(variant: Variant):
    """A step multiplies what was decoded in the step before, and that decodes what the one before it read:
    read by themselves, factors kept every step waiting.
    """
    before, _, loop = (
        read_kernel(variant.name).ptx.decode("ascii").partition("mma.sync")[0].rpartition("$L__BB")
    )
    # those of the first two steps stand before it
    fetched = [len(re.findall(r"ld\.global\.b8 ", part)) for part in (before, loop)]
    assert fetched[0] == 2 * fetched[1] > 0


# ---- in the backend ----------------------------------------------------------------------------------------


@pytest.fixture
def card(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:  # noqa: F811
    """A card's stand-in whose clock finds our kernel the faster: it is asked for both in turns."""
    turns = cycle((1.0, 2.0))
    monkeypatch.setattr(product_trial, "_TIMED", (64, 256))
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), next(turns))[1])
    return device


def backend_with(monkeypatch, library: Library | None, dtype: torch.dtype = torch.bfloat16) -> CudaBackend:
    def opened() -> CudaDriver:
        if library is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        return CudaDriver(library)

    monkeypatch.setattr(CudaDriver, "open", opened)
    backend = CudaBackend(dtype)
    backend.device = torch.device("cpu")
    return backend


def layer_error(
    backend: CudaBackend, parts: list[QuantizedMatrix], n: int, bias: torch.Tensor | None = None
) -> float:
    """Of a layer in the backend, against its rounded weights, in shares of what rounding allows."""
    weights = torch.cat([part.decoded() for part in parts]).to(backend.dtype).double()
    x = inputs(n, parts[0].columns, backend.dtype)
    want = x.double() @ weights.t() + (0 if bias is None else bias.double())
    size = x.double().abs() @ weights.abs().t() + (0 if bias is None else bias.double().abs())
    found = backend.coded(parts, bias)(x)
    assert found.dtype == backend.dtype and found.shape == want.shape
    return float(((found.double() - want).abs() / size).max())


def test_short_passes_take_two_launches_a_matrix_and_long_ones_decode(card: Device, monkeypatch):
    """Up to forty rows straight from the codes; above, pieces of numbers for torch's product."""
    monkeypatch.setattr(quantized_linear, "PIECE_NUMBERS", 512 * 20)
    library = Library(promise)
    backend = backend_with(monkeypatch, library)
    parts = [matrix("Q4_K", 35), matrix("Q6_K", 12)]
    backend.coded(parts, None)
    for n, launched in ((1, ["multiply_codes"] * 2 + ["join_products"]), (41, ["decode_rows"] * 3)):
        library.launched.clear()
        assert layer_error(backend, parts, n, torch.randn(47)) < 2.0**-8
        assert [name for name, *_ in library.launched] == launched
        # else it would overtake the inputs it reads
        assert {stream for *_, stream in library.launched} == {Stream.cuda_stream}
    told = [values(note) for note in backend.notes]
    assert [(one["bits"], one["ours"], one["theirs"]) for one in told] == [
        (4, 2000.0, 4000.0),
        (6, 2000.0, 4000.0),
    ]
    assert not any("reason" in one for one in told) and not backend.refused


def test_a_recorded_layer_follows_its_inputs(card: Device, monkeypatch):
    """Embedding, product and bias inside a graph: what is replayed reads what was written meanwhile."""
    backend = backend_with(monkeypatch, Library(promise))
    rows, head = backend.coded_rows(matrix("Q6_K")), backend.coded([matrix("Q4_K")], torch.ones(67))
    ids = torch.tensor([1, 2])
    with Recording() as recording:
        out = head(rows[ids])
    ids.copy_(torch.tensor([60, 3]))
    recording.replay()
    assert torch.equal(out, head(rows[torch.tensor([60, 3])]))


def test_rows_of_an_embedding_are_decoded_in_one_launch(card: Device, monkeypatch):
    """By number; the numbers are those of the codes."""
    library = Library(promise)
    backend, given = backend_with(monkeypatch, library), matrix("Q5_K")
    rows, ids = backend.coded_rows(given), torch.tensor([5, 0, 66, 5])
    library.launched.clear()
    assert torch.equal(rows[ids], given.decoded()[ids].bfloat16())
    assert [name for name, *_ in library.launched] == ["decode_rows"]


@pytest.mark.wide
def test_a_gguf_is_computed_by_the_kernels(card: Device, monkeypatch, tmp_path):
    """Embedding, every matrix of every layer and the head, in a reading and in a verification: what torch
    computes from the same codes, decoded.
    """
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))
    folder, library = opened(write_gguf(tmp_path / "model.gguf", wide(), MIXED)), Library(promise)
    said = []
    for one in (library, None):
        model = load_model(folder, backend_with(monkeypatch, one), positions=128)
        cache = FullKVCache(model.config.kv_shape, 128, model.backend, block_tokens=32)
        library.launched.clear()
        read = model.forward(PROMPT[:50], cache)
        cache.commit(50)
        said.append(torch.cat((read, model.forward(PROMPT[50:55], cache))))
        if one is library:
            names = Counter(name for name, *_ in library.launched)
    assert torch.allclose(*said, atol=5e-2 * float(said[1].abs().max()))
    layers = model.config.layers
    # q, k and v are of two formats; gate and up, o, down; the head comes on top, in both passes
    assert names["join_products"] >= 4 * layers + 1 and names["multiply_codes"] > names["join_products"]
    assert names["decode_rows"] >= 2 + 4 * layers


def wrong(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """A card that takes every offset for zero."""
    if variant.function == "multiply_codes":
        numbers = [*numbers[:10], 0, *numbers[11:]]
    promise(variant, grid, numbers)


@pytest.mark.parametrize(
    ("library", "dtype", "said"),
    [
        (None, torch.bfloat16, "cannot open shared object"),
        (Library(promise, refuses=["load"]), torch.bfloat16, "unsupported toolchain"),
        (Library(promise, refuses=["launch"]), torch.bfloat16, "unsupported toolchain"),
        (Library(wrong), torch.bfloat16, "computes wrongly"),
        (Library(promise), torch.float32, "no compiled one for float32"),
    ],
    ids=["no driver", "old driver", "no launch", "wrong", "fp32"],
)
def test_where_it_does_not_serve_torch_decodes(card: Device, monkeypatch, library, dtype, said: str):
    """Said once in the notes, and kept for the next plan; answers go on."""
    backend = backend_with(monkeypatch, library, dtype)
    given = [matrix("Q4_K"), matrix("Q4_K", 5)]
    for n in (1, 40, 41):
        assert layer_error(backend, given, n) < 2.0**-8
    assert torch.equal(backend.coded_rows(given[0])[torch.tensor([3])], given[0].decoded()[3:4].to(dtype))
    assert len(backend.notes) == 1 and said in backend.notes[0]
    assert worded_by(product_trial._torch, *backend.notes)
    assert backend.refused == {PRODUCTS}


def test_a_kernel_that_is_no_faster_is_not_used(card: Device, monkeypatch):
    """Decided on the user's card, by its clock."""
    monkeypatch.setattr(CudaBackend, "_seconds", lambda self, run: (run(), 1.0)[1])
    backend = backend_with(monkeypatch, Library(promise))
    backend.coded([matrix("Q4_0")], None)
    told = values(backend.notes[0])
    assert "reason" in told and (told["ours"], told["theirs"]) == (2000.0, 2000.0)
