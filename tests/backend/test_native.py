"""The attention kernel compiled for CPUs: its bits, its threads, its files, and that it is used only where it
can run. That it is attention: test_decode_kernels.py.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from pathlib import Path

import pytest
import torch

from core.backend.base import ScoreRequest
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import attention, build
from core.backend.cpu.native.attention import NativeAttention, native_attention
from core.backend.cpu.native.library import torch_openmp
from core.backend.shared.compiled import CPU_HEAD_DIMS
from core.backend.shared.kv_rows import CODES, as_rows, dequantized
from core.hardware.cpu import cpu_flags
from tests.support.attention_cases import HERE, LIBRARY
from tests.support.reference import dense, material

OF_CODES = 5e-4  # queries, and the weights of a tile, have 16 bits there
MEAN_OF_CODES = 1e-5  # root of the mean square


@pytest.fixture(scope="module", params=HERE or [""])
def kernel(request) -> NativeAttention:
    """Every instruction set that this CPU has, not only the best."""
    if not request.param:
        pytest.skip("no library for this computer")
    return NativeAttention(LIBRARY, request.param, openmp=torch_openmp())


@pytest.mark.parametrize("dim", CPU_HEAD_DIMS)
@pytest.mark.parametrize(("n", "length"), [(1, 700), (5, 1025)])
def test_rows_of_codes_are_what_codes_and_scales_say(kernel, dim, n, length):
    """Codes of int8 with a scale at the end of each row, padded: what an 8-bit cache holds."""
    q, k, v = material(n, length, block=512, heads=6, kv_heads=3, dim=dim, dtype=torch.float32)
    coded = []
    for part in (k, v):
        scales = part.abs().amax(-1, keepdim=True) / 127
        rows = torch.zeros(*part.shape[:3], dim + 16, dtype=torch.int8)
        rows[..., :dim] = (part / scales).round()
        rows[..., dim : dim + 4] = scales.view(torch.int8)
        coded.append((rows, rows[..., :dim].float() * scales))
    (k_rows, k_values), (v_rows, v_values) = coded
    want, want_lse = dense(q, k_values, v_values, length, True)
    out, lse = kernel.attend(q, k_rows, v_rows, length=length, causal=True)
    assert torch.allclose(out.double(), want, atol=OF_CODES)
    assert torch.allclose(lse.double(), want_lse, atol=OF_CODES)
    assert float((out.double() - want).square().mean().sqrt()) < MEAN_OF_CODES, "fewer than 16 bits"


@pytest.mark.parametrize("dim", CPU_HEAD_DIMS)
@pytest.mark.parametrize("n", [1, 9])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_codes_overflow_nothing(kernel, dim, n, sign):
    """All numbers of a query and all codes at their largest, in every key: the sum of a row, and of a tile's
    values. The next key is all zeros, so that a wrapped sum would turn the weights round.
    """
    q = torch.full((n, 1, dim), 0.02 * sign)
    rows = torch.ones(1, 1, 128, dim)
    rows[:, :, 1::2] = 0
    k, v = (as_rows(rows, dim, CODES) for _ in range(2))
    out, lse = kernel.attend(q, k, v, length=127, causal=False)
    want, want_lse = dense(q, rows, rows, 127, False)
    assert torch.allclose(out.double(), want, atol=OF_CODES)
    assert torch.allclose(lse.double(), want_lse, atol=OF_CODES)


@pytest.mark.parametrize("nothing", ["queries", "keys", "values"])
def test_of_nothing_but_zeros_no_code_is_made_wrongly(kernel, nothing):
    """They have no largest number to be measured by."""
    q, k, v = material(3, 130, block=128, heads=2, kv_heads=1, dim=64, dtype=torch.float32)
    {"queries": q, "keys": k, "values": v}[nothing].zero_()
    held = [as_rows(part, 64, CODES) for part in (k, v)]
    out, lse = kernel.attend(q, *held, length=130, causal=True)
    want, want_lse = dense(q, *(dequantized(part, 64, torch.float32) for part in held), 130, True)
    assert torch.allclose(out.double(), want, atol=OF_CODES)
    assert torch.allclose(lse.double(), want_lse, atol=OF_CODES)


def test_dot_products_of_the_cpu_change_no_bit():
    """AVX2 with them and without: integers have one sum."""
    if not {"avxvnni", "avx2"} <= set(HERE):
        pytest.skip("this CPU has no dot products for AVX2")
    q, k, v = material(5, 700, block=512, heads=6, kv_heads=2, dim=128, dtype=torch.float32)
    held = [as_rows(part, 128, CODES) for part in (k, v)]
    one, two = (
        NativeAttention(LIBRARY, name).attend(q, *held, length=700, causal=True)
        for name in ("avxvnni", "avx2")
    )
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("n", "length", "block"), [(4, 1025, 512), (9, 1500, 512), (33, 1536, 512)])
def test_a_row_among_many_has_the_bits_it_has_alone(kernel, n, length, block):
    """A verification of many rows must agree with plain decoding wherever it can."""
    q, k, v = material(n, length, block=block, heads=9, kv_heads=3, dim=64, dtype=torch.bfloat16)
    out, lse = kernel.attend(q, k, v, length=length, causal=True)
    for row in range(n):
        alone, own_lse = kernel.attend(q[row : row + 1], k, v, length=length - n + row + 1, causal=True)
        assert torch.equal(alone[0], out[row]) and torch.equal(own_lse[0], lse[row])


@pytest.mark.parametrize("dim", CPU_HEAD_DIMS)
@pytest.mark.parametrize("rows", [torch.float32, torch.bfloat16, CODES], ids=str)
def test_so_it_has_among_any_number_of_queries(kernel, rows, dim):
    """Few read keys as they lie, others turned keys, up to twelve at once, more in groups: all alike, and
    near the definition.
    """
    for n in range(1, 28):
        length = 150 + n
        q, k, v = material(n, length, block=128, heads=1, kv_heads=1, dim=dim, dtype=torch.float32)
        held = [as_rows(part, dim, rows) for part in (k, v)]
        out, lse = kernel.attend(q, *held, length=length, causal=True)
        want, want_lse = dense(q, *(dequantized(part, dim, torch.float32) for part in held), length, True)
        near = OF_CODES if rows == CODES else 5e-6
        assert torch.allclose(out.double(), want, atol=near), n
        assert torch.allclose(lse.double(), want_lse, atol=near), n
        for row in {0, n // 2, n - 1}:
            seen = length - n + row + 1
            alone, own_lse = kernel.attend(q[row : row + 1], *held, length=seen, causal=True)
            assert torch.equal(alone[0], out[row]) and torch.equal(own_lse[0], lse[row]), (n, row)


def test_threads_do_not_change_the_bits(kernel, monkeypatch):
    """Units are joined in their order, whoever computed them."""
    q, k, v = material(4, 5000, block=512, heads=9, kv_heads=3, dim=64, dtype=torch.bfloat16)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found += [kernel.attend(q, k, v, length=5000, causal=True) for _ in range(3)]
    assert all(torch.equal(out, found[0][0]) and torch.equal(lse, found[0][1]) for out, lse in found)


def test_torchs_own_threads_are_used_whatever_else_is_loaded():
    """sentencepiece brings an OpenMP of its own: its threads would fight torch's for the cores."""
    import sentencepiece  # noqa: F401

    assert torch_openmp().parent.parent == Path(torch.__file__).parent


@pytest.mark.parametrize("group", [1, 4, 7, 13])
@pytest.mark.parametrize("rows", [torch.float32, torch.bfloat16, CODES], ids=str)
def test_sums_of_chunks_of_any_rows_and_groups(kernel, monkeypatch, group, rows):
    """What chunks are chosen by, over several units and whoever computes them; a cut chunk at the end."""
    q, k, _ = material(1, 2043, block=1024, heads=2 * group, kv_heads=2, dim=64, dtype=torch.float32)
    k = as_rows(k, 64, rows)
    keys = dequantized(k, 64, torch.float32).transpose(1, 2).reshape(-1, 2, 64).double()
    scores = torch.einsum("hd,mhd->hm", q[0].double(), keys.repeat_interleave(group, 1)) / 8
    scores[:, 2043:] = -torch.inf
    for chunk in (4, 64):
        found = []
        for threads in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            found.append(CpuBackend(native=kernel).chunk_lse(q[0], k, length=2043, chunk=chunk))
        near = OF_CODES if rows == CODES else 1e-5
        assert torch.allclose(found[0].double(), scores.unflatten(1, (-1, chunk)).logsumexp(2), atol=near)
        assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("rows", [torch.float32, torch.bfloat16, CODES])
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_sums_of_chunks_on_the_way_of_attention(kernel, n, group, rows):
    """Those of the first query, who does not see the rows of the others; attention's own stay.

    Over units that are full, a block that is cut, and own rows that begin a tile.
    """
    for length in (2043, 1023 + n):
        q, *pair = material(n, length, block=1024, heads=2 * group, kv_heads=2, dim=64, dtype=torch.float32)
        k, v = (as_rows(part, 64, rows) for part in pair)
        for chunk in (4, 8, 64):
            sums = ScoreRequest(chunk)
            found = kernel.attend(q, k, v, length=length, causal=True, sums=sums)
            alone = kernel.attend(q, k, v, length=length, causal=True)
            assert all(torch.equal(one, other) for one, other in zip(found, alone, strict=True))
            want = kernel.chunk_lse(q[0], k, length=length - n + 1, chunk=chunk)
            assert torch.allclose(sums.found, want, atol=1e-5)


def test_chunks_that_are_no_part_of_a_tile_are_torchs(kernel):
    q, k, _ = material(1, 500, block=256, heads=4, kv_heads=2, dim=64, dtype=torch.float32)
    found = (CpuBackend(native=one).chunk_lse(q[0], k, length=500, chunk=128) for one in (kernel, None))
    sums = ScoreRequest(128)
    CpuBackend(native=kernel).attend(q, k, k, length=500, causal=True, sums=sums)
    assert sums.found is None
    assert torch.equal(*found)


def test_openmp_of_llvm_and_intel_serves_too(kernel, monkeypatch):
    """On Windows and macOS torch computes with that one."""
    other = next((path for path in Path(sys.prefix).glob("lib/libiomp5.so")), None)
    if other is None:
        pytest.skip("no such library here: pip install intel-openmp")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    q, k, v = material(4, 5000, block=512, heads=9, kv_heads=3, dim=64, dtype=torch.bfloat16)
    found = NativeAttention(LIBRARY, kernel.instructions, openmp=other)
    for one, two in zip(
        found.attend(q, k, v, length=5000, causal=True),
        kernel.attend(q, k, v, length=5000, causal=True),
        strict=True,
    ):
        assert torch.equal(one, two)


def test_backend_takes_it_for_few_rows_of_known_heads(kernel):
    """The same answer as torch's kernel, and torch's kernel where this one does not serve."""
    calls = []

    class Counting(NativeAttention):
        def attend(self, *args, **named):
            calls.append(args[0].shape)
            return super().attend(*args, **named)

    fast = CpuBackend(native=Counting(LIBRARY, kernel.instructions))
    assert fast.notes == () and CpuBackend().notes != ()
    served = ((1, 64), (33, 128), (2, 256), (2, 512))
    for n, dim, used in (*((*one, True) for one in served), (41, 64, False), (1, 32, False)):
        calls.clear()
        q, k, v = material(n, 600, block=512, heads=4, kv_heads=2, dim=dim, dtype=torch.float32)
        out = fast.attend(q, k, v, length=600, causal=True)
        assert bool(calls) == used
        assert torch.allclose(out, CpuBackend().attend(q, k, v, length=600, causal=True), atol=2e-5)


def test_no_key_gives_zeros(kernel):
    q, k, v = material(2, 64, block=64, heads=2, kv_heads=2, dim=64, dtype=torch.float32)
    out, lse = CpuBackend(native=kernel).attend_part(q, k, v, length=0, causal=False)
    assert not out.any() and torch.isneginf(lse).all()


def test_where_there_is_one_it_serves():
    """Its own trial before use finds nothing wrong, and the best set of instructions is taken."""
    served = native_attention(cpu_flags())
    assert (served.instructions if served is not None else None) == next(iter(HERE), None)


def test_without_the_flags_it_is_never_called():
    """An illegal instruction ends the process: nothing may be tried on a CPU that lacks one."""
    assert native_attention(frozenset()) is None
    assert native_attention({"avx2"}) is None


def test_a_library_that_computes_wrongly_is_not_used(monkeypatch, caplog):
    """Said once, in the log; the plan's notes say which kernel serves."""
    if native_attention(cpu_flags()) is None:
        pytest.skip("no library for this computer")
    right = NativeAttention.attend
    monkeypatch.setattr(
        NativeAttention, "attend", lambda *args, **named: tuple(one + 1e-3 for one in right(*args, **named))
    )
    with caplog.at_level(logging.WARNING):
        assert native_attention(cpu_flags()) is None
    assert "wrongly" in caplog.text


def test_a_damaged_library_is_not_used(monkeypatch, tmp_path):
    """A half-copied file costs speed, not the start."""
    broken = tmp_path / "attention.so"
    broken.write_bytes(b"\x7fELF nonsense")
    monkeypatch.setattr(attention, "library_path", lambda name: broken)
    assert native_attention(cpu_flags()) is None


@pytest.mark.parametrize("name", build.LIBRARIES)
def test_libraries_belong_to_their_source(name: str):
    """A kernel changed without being built again would be tested by nobody."""
    source, _ = build.LIBRARIES[name]
    assert build.c_source_digest(source).encode() in (build.FOLDER / name).read_bytes()


@pytest.mark.slow
def test_libraries_are_what_the_source_builds(tmp_path):
    """Binaries in a repository are to be believed only as far as they can be made again, to the byte."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"no compiler: pip install ziglang=={build.COMPILER}")
    build.build_libraries(tmp_path)
    for name in build.LIBRARIES:
        made, kept = (
            hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in (tmp_path, build.FOLDER)
        )
        assert made == kept, name
