"""Weights in codes are multiplied as they are: by the compiled kernel and by torch, few rows and many."""

from __future__ import annotations

import logging

import pytest
import torch

from core.backend.cpu import quantized_linear
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import products
from core.backend.cpu.native.library import instruction_sets, library_path, torch_openmp
from core.backend.cpu.native.products import NativeProducts, native_products
from core.backend.shared.quantized import stacked
from core.hardware.cpu import cpu_flags
from tests.support.quantized_inputs import KINDS, inputs, matrix

LIBRARY = library_path("products")
HERE = instruction_sets(cpu_flags()) if LIBRARY else []


@pytest.fixture(scope="module", params=HERE or [""])
def kernel(request) -> NativeProducts:
    """Every instruction set that this CPU has, not only the best."""
    if not request.param:
        pytest.skip("no library for this computer")
    return NativeProducts(LIBRARY, request.param, openmp=torch_openmp())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (3, 512), (33, 768), (67, 1280)])
def test_decodes_every_code(kernel, kind, rows, columns):
    """In fp32 the weights themselves, in bf16 the nearest; any stretch of rows."""
    given = matrix(kind, rows, columns)
    want = given.decoded()
    assert torch.equal(kernel.decode(given, torch.empty(rows, columns)), want)
    part = torch.empty(rows - rows // 2, columns, dtype=torch.bfloat16)
    assert torch.equal(kernel.decode(given, part, first=rows // 2), want[rows // 2 :].bfloat16())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (35, 512), (67, 1280)])
def test_products_are_of_the_exact_weights(kernel, kind, n, rows, columns):
    """Within what fp32 sums may be off; rows and columns that fill no tile."""
    given, x = matrix(kind, rows, columns), inputs(n, columns)
    weights = given.decoded().double()
    want, size = x.double() @ weights.t(), x.double().abs() @ weights.abs().t()
    assert float(((kernel.multiply(x, [given]).double() - want).abs() / size).max()) < 1e-6


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "BF16"])
def test_columns_of_whole_groups_are_enough(kernel, kind):
    """SmolLM2's 576 columns are no whole number of 256."""
    given, x = matrix(kind, 9, 576), inputs(3, 576)
    assert torch.allclose(kernel.multiply(x, [given]), x @ given.decoded().t(), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_each_input_reads_its_column(kernel, kind):
    """An identity shows the numbers inside: few rows and many are of one set of weights."""
    given = matrix(kind, 40, 256)
    eye = torch.eye(256)
    few = torch.cat([kernel.multiply(rows, [given]) for rows in eye.split(4)])
    many = torch.cat([kernel.multiply(rows, [given]) for rows in eye.split(33)])
    assert torch.equal(few.t(), given.decoded()) and torch.equal(many, few)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_among_many_has_the_bits_it_has_alone(kernel, kind):
    """A verification of many rows must agree with plain decoding wherever it can."""
    given, x = matrix(kind, 67, 1280), inputs(40, 1280)
    alone = torch.cat([kernel.multiply(row, [given]) for row in x.split(1)])
    for n in (2, 3, 4, 5, 9, 33, 40):
        assert torch.equal(kernel.multiply(x[:n], [given]), alone[:n]), n


def test_threads_and_stacking_do_not_change_the_bits(kernel, monkeypatch):
    """Matrices of different formats above one another give what each gives; whoever computes it."""
    parts = [
        matrix("Q4_K", 130, 512),
        matrix("Q6_K", 33, 512),
        matrix("Q8_0", 1, 512),
        matrix("BF16", 40, 512),
    ]
    for n in (1, 5):
        x = inputs(n, 512)
        want = torch.cat([kernel.multiply(x, [part]) for part in parts], dim=-1)
        for threads in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            assert all(torch.equal(kernel.multiply(x, parts), want) for _ in range(3))


def test_neighbours_of_one_format_become_one_matrix():
    """q and k of Q4_K are one call; v of Q6_K is another part of it."""
    parts = [matrix("Q4_K", 5), matrix("Q4_K", 3), matrix("Q6_K", 2), matrix("Q4_K", 4)]
    found = stacked(parts)
    assert [one.rows for one in found] == [8, 2, 4]
    whole = torch.cat([part.decoded() for part in parts])
    assert torch.equal(torch.cat([one.decoded() for one in found]), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [1, 7, 41, 60])
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_is_the_same_for_few_rows_and_many(kernel, dtype, compiled, n, biased, monkeypatch):
    """Every way through the backend, in pieces of a few rows, against the decoded matrix."""
    monkeypatch.setattr(quantized_linear, "PIECE_NUMBERS", 512 * 10)
    backend = CpuBackend(dtype, products=kernel if compiled else None)
    parts = [matrix("Q4_K", 35), matrix("Q6_K", 12)]
    bias = torch.randn(47) if biased else None
    x = inputs(n, 512, dtype)
    weights = torch.cat([part.decoded() for part in parts]).double()
    want = x.double() @ weights.t() + (bias.double() if biased else 0)
    size = x.double().abs() @ weights.abs().t() + (bias.double().abs() if biased else 0)
    found = backend.coded(parts, bias)(x)
    assert found.dtype == dtype and found.shape == (n, 47)
    rounding = 2.0**-8 if dtype == torch.bfloat16 else 2e-6
    assert float(((found.double() - want).abs() / size).max()) < rounding


@pytest.mark.parametrize("compiled", [True, False])
def test_few_rows_and_many_are_of_one_set_of_numbers(kernel, compiled):
    """What prefill leaves in the cache and what decoding computes must be of one model: in bf16 an identity
    reads the same numbers either way.
    """
    layer = CpuBackend(torch.bfloat16, products=kernel if compiled else None).coded(
        [matrix("Q5_K", 40, 256)], None
    )
    eye = torch.eye(256).bfloat16()
    assert torch.equal(torch.cat([layer(row) for row in eye.split(1)]), layer(eye))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_an_embedding(kind):
    given, ids = matrix(kind), torch.tensor([5, 0, 66, 5])
    for dtype in (torch.float32, torch.bfloat16):
        assert torch.equal(CpuBackend(dtype).coded_rows(given)[ids], given.decoded()[ids].to(dtype))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [1, 5, 41])
@pytest.mark.parametrize("columns", [512, 48])
def test_numbers_of_16_bits_are_multiplied_in_float32(kernel, compiled, n, columns, monkeypatch):
    """Where a CPU multiplies no 16 bits: the matrix is held once, as it is, whatever its width."""
    monkeypatch.setattr(quantized_linear, "PIECE_NUMBERS", columns * 10)
    backend = CpuBackend(storage=torch.bfloat16, products=kernel if compiled else None)
    weight, bias, x = inputs(67, columns, torch.bfloat16), torch.randn(67), inputs(n, columns)
    layer = backend.linear(weight, bias)
    assert layer.parts[0].low.data_ptr() == weight.data_ptr()
    want = x.double() @ weight.double().t() + bias.double()
    size = x.double().abs() @ weight.double().abs().t() + bias.double().abs()
    found = layer(x)
    assert found.dtype == torch.float32
    assert float(((found.double() - want).abs() / size).max()) < 2e-6


def test_the_compiled_kernel_takes_what_plain_decoding_and_verification_ask(kernel):
    """From one row to forty; above, the decoded matrix is multiplied."""
    calls = []

    class Counting(NativeProducts):
        def multiply(self, x, parts, bias=None):
            calls.append(x.shape[0])
            return super().multiply(x, parts, bias)

    layer = CpuBackend(products=Counting(LIBRARY, kernel.instructions)).coded([matrix("Q4_0")], None)
    for n in (1, 33, 40, 41):
        layer(inputs(n, 512))
    assert calls == [1, 33, 40]


def test_without_the_flags_it_is_never_called():
    """An illegal instruction ends the process: nothing may be tried on a CPU that lacks one."""
    assert native_products(frozenset()) is None and native_products({"avx2"}) is None


def test_a_library_that_computes_wrongly_is_not_used(monkeypatch, caplog):
    """Said once, in the log; torch decodes instead."""
    if native_products(cpu_flags()) is None:
        pytest.skip("no library for this computer")
    right = NativeProducts.multiply
    monkeypatch.setattr(NativeProducts, "multiply", lambda *args: right(*args) + 1e-2)
    with caplog.at_level(logging.WARNING):
        assert native_products(cpu_flags()) is None
    assert "wrongly" in caplog.text


def test_a_damaged_library_is_not_used(monkeypatch, tmp_path):
    """A half-copied file costs speed, not the start."""
    broken = tmp_path / "products.so"
    broken.write_bytes(b"\x7fELF nonsense")
    monkeypatch.setattr(products, "library_path", lambda name: broken)
    assert native_products(cpu_flags()) is None
