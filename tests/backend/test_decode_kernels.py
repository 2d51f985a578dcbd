"""Every kernel of a pass of few rows against one reference in fp64: the one compiled for CPUs, the one
compiled for GPUs, and what stands in for both.

The GPU's runs without a GPU: a stand-in for the driver (tests/support/fake_driver.py) takes its launches.
With `pip install triton==3.9.0` that is done by Triton's interpreter from the kernel's own source as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import torch

from core.backend.base import ScoreRequest
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import NativeAttention
from core.backend.cpu.native.library import library_path, torch_openmp
from core.backend.cuda.triton.attention import DecodeAttention
from core.backend.cuda.triton.driver import CudaDriver
from core.backend.shared import blockwise, library_attention
from core.backend.shared.compiled import CPU_HEAD_DIMS, HEAD_DIMS
from core.backend.shared.kv_rows import CODES, as_rows, dequantized
from core.backend.shared.merge import merge, merge_all
from tests.support.attention_cases import CASES, HERE, LONG, ROUNDED
from tests.support.fake_driver import EXECUTORS, Library
from tests.support.reference import dense, material, seen_to

LSE = 2e-5
_WIDE_PAIRS = 700  # of a row and a key: heads of 512 numbers are interpreted in tiles of 16


@dataclass(frozen=True)
class Kind:
    """How one of them is made for a type of numbers and a head size, and what it takes."""

    make: Callable[[torch.dtype, int], object]
    dtypes: tuple[torch.dtype, ...]
    dims: tuple[int, ...] = (64, 128)
    off: float | None = None  # None: by its numbers
    coarse: bool = False  # leaves its out in 16 bits before it is joined
    codes: bool = False  # its keys and values are codes
    slow: bool = False  # small cases only


def compiled(
    executor: str, dtype: torch.dtype, dim: int, *, rows: torch.dtype | None = None
) -> DecodeAttention:
    """The GPU's kernel, its launches done by one of the stand-ins."""
    driver = CudaDriver(Library(EXECUTORS[executor]))
    return DecodeAttention(driver, torch.device("cpu"), dtype, dim, rows=rows, stream=lambda: 0)


class ByBlocks:
    """The GPU's way without a kernel of our own, by its plainest library kernel."""

    attend_part = staticmethod(partial(blockwise.attend_blocks, library_attention.by_matmul))
    chunk_lse = staticmethod(blockwise.chunk_lse)
    attend_slots = staticmethod(
        lambda q, k, v, *, slots: CpuBackend(q.dtype).attend_slots(q, k[0], v[0], slots=slots)
    )


HALF = (torch.bfloat16, torch.float16)
WIDE = (torch.bfloat16, torch.float32)
CARD_DIMS = tuple(sorted(HEAD_DIMS, key=lambda dim: dim == 128))  # the last stands for all
KINDS = {
    **{
        f"native {name}": Kind(
            lambda dtype, dim, name=name: NativeAttention(
                library_path("attention"), name, openmp=torch_openmp()
            ),
            WIDE,
            dims=CPU_HEAD_DIMS,
            off=2e-6,
        )
        for name in HERE
    },
    "compiled promise": Kind(partial(compiled, "promise"), HALF, CARD_DIMS, off=2e-6),
    "compiled promise, codes": Kind(
        partial(compiled, "promise", rows=CODES), HALF, CARD_DIMS, off=2e-6, codes=True
    ),
    "torch on a CPU": Kind(lambda dtype, dim: CpuBackend(dtype), WIDE, dims=(16, 64), coarse=True),
    "torch by blocks": Kind(
        lambda dtype, dim: ByBlocks(), (*WIDE, torch.float16), dims=(16, 128), coarse=True
    ),
}
if "interpreter" in EXECUTORS:
    KINDS["compiled interpreter"] = Kind(partial(compiled, "interpreter"), HALF, CARD_DIMS, slow=True)
    KINDS["compiled interpreter, codes"] = Kind(
        partial(compiled, "interpreter", rows=CODES), HALF, CARD_DIMS, slow=True, codes=True
    )

WHO = [
    pytest.param(kind, dtype, dim, id=f"{name}-{str(dtype)[6:]}-{dim}")
    for name, kind in KINDS.items()
    for dtype in kind.dtypes
    for dim in kind.dims
]


def windowed(one: pytest.ParameterSet) -> bool:
    """Whether it is a card's kernel over numbers."""
    return one.id.startswith("compiled") and not one.values[0].codes


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy speaks of the logarithm of zero, which is what a row without a visible key has."""
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def laid(kind: Kind, *parts: torch.Tensor) -> list[torch.Tensor]:
    """Keys and values as they lie in this kernel's cache."""
    return [as_rows(part, part.shape[-1], CODES) if kind.codes else part for part in parts]


def meant(kind: Kind, dim: int, *rows: torch.Tensor) -> list[torch.Tensor]:
    """What they stand for."""
    return [dequantized(part, dim, torch.float32) if kind.codes else part for part in rows]


def each(*dtypes: torch.dtype, having: str) -> list[object]:
    """Every kind that has this verb, for these numbers and its smallest known heads."""
    found = []
    for name, kind in KINDS.items():
        for dtype in (one for one in dtypes if one in kind.dtypes):
            made = kind.make(dtype, kind.dims[-1])
            if hasattr(made, having):
                found.append(pytest.param(kind, dtype, kind.dims[-1], id=f"{name}-{str(dtype)[6:]}"))
    return found


def attends(kind: Kind, made: object) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return made.attend if isinstance(made, NativeAttention) else made.attend_part


def lse_off(kind: Kind, dtype: torch.dtype) -> float:
    """torch's has a quick exponential for 16 bits."""
    return 1e-3 if kind.coarse and dtype in HALF else kind.off or LSE


def same(kind: Kind, dtype: torch.dtype, got: object, want: object) -> bool:
    """Whether (out, lse) are those of the reference, as near as the kernel's numbers allow."""
    (out, lse), (want_out, want_lse) = got, want
    assert out.dtype == lse.dtype == torch.float32
    off = kind.off or ROUNDED[dtype] * (3 if kind.coarse else 1)
    near = torch.allclose(out.double(), want_out, atol=off, rtol=0)
    return near and torch.allclose(lse.double(), want_lse, atol=lse_off(kind, dtype), rtol=0)


@pytest.mark.parametrize(("n", "length", "block", "heads", "kv_heads", "causal"), CASES + LONG)
@pytest.mark.parametrize(("kind", "dtype", "dim"), WHO)
def test_equals_the_reference(kind, dtype, dim, n, length, block, heads, kv_heads, causal):
    """A key left out or counted twice, one seen too early, a row that took another's head."""
    if kind.slow and (length >= LONG[0][1] or (dim > 128 and n * length > _WIDE_PAIRS)):
        pytest.skip("an interpreter takes minutes for it")
    q, k, v = material(
        n, length, block=block, blocks=None, heads=heads, kv_heads=kv_heads, dim=dim, dtype=dtype
    )
    k, v = laid(kind, k, v)
    got = attends(kind, kind.make(dtype, dim))(q, k, v, length=length, causal=causal)
    assert same(kind, dtype, got, dense(q, *meant(kind, dim, k, v), length, causal))


@pytest.mark.parametrize(("kind", "dtype", "dim"), [one for one in WHO if windowed(one)])
@pytest.mark.parametrize(
    ("n", "length", "capacity", "window", "heads", "kv_heads"),
    [(1, 1, 64, 24, 4, 2), (5, 70, 96, 24, 4, 2), (17, 200, 208, 100, 6, 2), (9, 9, 48, 24, 2, 1)]
    + [(3, 40, 64, 1, 2, 2), (33, 300, 304, 128, 2, 1), (4, 30, 64, 500, 4, 1)],
)
def test_a_row_sees_its_window(kind, dtype, dim, n, length, capacity, window, heads, kv_heads):
    """Windows that begin in the first tile, inside one, behind whole splits, and nowhere; alone a row has the
    numbers that it has among others, but for rounding.
    """
    if kind.slow and n * length > _WIDE_PAIRS:
        pytest.skip("an interpreter takes minutes for it")
    q, k, v = material(n, length, block=capacity, heads=heads, kv_heads=kv_heads, dim=dim, dtype=dtype)
    made, how = kind.make(dtype, dim), {"window": window}
    got = made.attend_window(q, k, v, length=length, **how)
    want = []
    for row in range(n):
        end = length - n + row + 1
        run = [part[:, :, max(0, end - window) : end] for part in (k, v)]
        want.append(dense(q[row : row + 1], *run, min(end, window), False)[0])
        alone = made.attend_window(q[row : row + 1], k, v, length=end, **how)
        # to rounding: a stand-in's products are the processor's
        assert torch.allclose(alone[0].double(), got[row].double(), atol=ROUNDED[dtype], rtol=0)
    assert got.dtype == dtype and torch.allclose(
        got.double(), torch.cat(want), atol=ROUNDED[dtype] * 2, rtol=0
    )


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(*HALF, torch.float32, having="attend_part"))
@pytest.mark.parametrize("kv_heads", [6, 2], ids=["MHA", "GQA"])
@pytest.mark.parametrize(
    ("n", "length", "causal"), [(1, 40, True), (5, 70, True), (33, 64, True), (2, 32, False)]
)
def test_blocks_without_a_visible_key_add_nothing(kind, dtype, dim, n, length, causal, kv_heads):
    """Whole blocks and splits behind the newest key, full of what would be seen at once."""
    q, k, v = material(n, length, block=32, blocks=12, kv_heads=kv_heads, dim=dim, dtype=dtype)
    k, v = laid(kind, k, v)
    got = attends(kind, kind.make(dtype, dim))(q, k, v, length=length, causal=causal)
    assert same(kind, dtype, got, dense(q, *meant(kind, dim, k, v), length, causal))


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(*WIDE, having="attend_slots"))
@pytest.mark.parametrize("capacity", [256, 137])
@pytest.mark.parametrize("newest", [[0], [130], [126, 127, 128, 129], [5, 3, 100]])
@pytest.mark.parametrize("kv_heads", [6, 2], ids=["MHA", "GQA"])
def test_slots_say_what_is_seen(kind, dtype, dim, newest, kv_heads, capacity):
    """From the very first row, over the border of a split, in any order; nonsense where nobody looks."""
    q, k, v = material(len(newest), max(newest) + 1, block=capacity, kv_heads=kv_heads, dim=dim, dtype=dtype)
    backend, (k, v) = kind.make(dtype, dim), laid(kind, k, v)
    stores = (k[0], v[0]) if isinstance(backend, CpuBackend) else (k, v)
    got = backend.attend_slots(q, *stores, slots=torch.tensor(newest))
    want, _ = seen_to(q, *meant(kind, dim, k, v), torch.tensor(newest))
    off = 1e-5 if dtype == torch.float32 else 2e-2
    assert got.dtype == dtype and float((got.double() - want).abs().max()) < off


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(*WIDE, having="chunk_lse"))
@pytest.mark.parametrize(
    ("length", "block", "chunk"), [(1, 64, 16), (64, 64, 16), (75, 48, 8), (100, 48, 16), (700, 256, 64)]
)
def test_sums_of_chunks(kind, dtype, dim, length, block, chunk):
    """Every chunk of every head, also one that the length cuts; nothing behind the length."""
    q, k, _ = material(1, length, block=block, dim=dim, dtype=dtype)
    (k,) = laid(kind, k)
    lse = kind.make(dtype, dim).chunk_lse(q[0], k, length=length, chunk=chunk)
    keys = meant(kind, dim, k)[0].transpose(1, 2).reshape(-1, 2, dim).double().repeat_interleave(3, 1)
    scores = torch.einsum("hd,mhd->hm", q[0].double(), keys) / dim**0.5
    scores[:, length:] = -torch.inf
    want = scores.unflatten(1, (-1, chunk)).logsumexp(2)
    assert lse.dtype == torch.float32 and lse.shape == want.shape
    # the library's product of 16-bit numbers leaves scores of 16 bits
    off = 3e-2 if kind.coarse and dtype in HALF else LSE
    assert torch.allclose(lse.double(), want, atol=off)


COMPILED = [
    pytest.param(kind, dtype, dim, id=f"{name}-{str(dtype)[6:]}-{dim}")
    for name, kind in KINDS.items()
    if name.startswith("compiled")
    for dtype in kind.dtypes
    for dim in kind.dims
]


@pytest.mark.parametrize(("kind", "dtype", "dim"), COMPILED)
@pytest.mark.parametrize(
    ("n", "length", "block", "blocks", "heads", "kv_heads", "chunk", "causal"),
    [
        (1, 1, 76, 1, 4, 2, 8, True),
        (5, 5, 76, 1, 6, 2, 8, True),
        (5, 75, 48, 3, 6, 2, 8, True),
        (33, 100, 64, 2, 4, 1, 16, True),
        (40, 64, 32, 3, 2, 2, 8, False),
        (2, 700, 256, 4, 17, 1, 64, True),
    ],
)
def test_attention_leaves_sums_of_chunks(
    kind, dtype, dim, n, length, block, blocks, heads, kv_heads, chunk, causal
):
    """What the first query pays to each chunk, from the same pass: a chunk cut by what it sees, none behind
    it, a head that took another's, and an answer that is another because somebody looked.
    """
    made = kind.make(dtype, dim)
    sizes = {"block": block, "blocks": blocks, "heads": heads, "kv_heads": kv_heads, "dim": dim}
    q, k, v = material(n, length, **sizes, dtype=dtype)
    k, v = laid(kind, k, v)
    keys = meant(kind, dim, k)[0].transpose(1, 2).flatten(0, 1).double()
    keys = keys.repeat_interleave(heads // kv_heads, 1)
    scores = torch.einsum("hd,mhd->hm", q[0].double(), keys) / dim**0.5
    scores[:, length - n + 1 if causal else length :] = -torch.inf
    scores = torch.nn.functional.pad(scores, (0, -scores.shape[1] % chunk), value=-torch.inf)
    want = scores.unflatten(1, (-1, chunk)).logsumexp(2)
    sums = ScoreRequest(chunk)
    got = made.attend_part(q, k, v, length=length, causal=causal, sums=sums)
    plain = made.attend_part(q, k, v, length=length, causal=causal)
    assert all(torch.allclose(*pair, atol=2e-6) for pair in zip(got, plain, strict=True))
    assert sums.found.dtype == torch.float32 and sums.found.shape == want.shape
    assert torch.allclose(sums.found.double(), want, atol=LSE)
    if not causal:
        more = ScoreRequest(chunk)
        made.attend_more(got, q, k, v, length=length, sums=more)
        assert torch.equal(more.found, sums.found)


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(torch.bfloat16, having="attend_more"))
def test_parts_join_what_is_there(kind, dtype, dim):
    """Own rows first, then blocks of which each is joined to the sum so far, one of them partly filled: what
    a streamed layer does.
    """
    made, (q, k, v) = kind.make(dtype, dim), material(5, 160, block=32, dim=dim, dtype=dtype)
    k, v = laid(kind, k, v)
    total = made.attend_part(q, k[4:], v[4:], length=32, causal=True)
    for block, length in ((0, 32), (1, 32), (2, 32), (3, 32)):
        total = made.attend_more(total, q, k[block : block + 1], v[block : block + 1], length=length)
    shown = meant(kind, dim, k, v)
    assert same(kind, dtype, total, dense(q, *shown, 160, True))
    nothing = made.attend_part(q, k, v, length=0, causal=False)
    assert same(kind, dtype, made.attend_more(nothing, q, k, v, length=150), dense(q, *shown, 150, False))
    before = tuple(part.clone() for part in total)
    after = made.attend_more(total, q, k, v, length=0)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(before, after, strict=True))


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(*HALF, torch.float32, having="attend_part"))
@pytest.mark.parametrize("blocks", [0, 2])
def test_nothing_to_see_is_zero_and_minus_infinity(kind, dtype, dim, blocks):
    """An empty part contributes nothing to a merge, and is never NaN."""
    q, k, v = material(2, 64, dim=dim, dtype=dtype)
    k, v = laid(kind, k, v)
    out, lse = attends(kind, kind.make(dtype, dim))(q, k[:blocks], v[:blocks], length=0, causal=False)
    assert out.shape == q.shape and not out.any() and torch.isneginf(lse).all()


@pytest.mark.parametrize(("kind", "dtype", "dim"), each(*HALF, torch.float32, having="attend_part"))
def test_views_are_taken_as_they_lie(kind, dtype, dim):
    """Queries out of a wider product, keys that were rotated row by row: strides of every kind."""
    q, k, v = material(3, 50, block=64, dim=dim, dtype=dtype)
    k, v = laid(kind, k, v)
    wide = torch.cat((q, torch.full_like(q, 9.0)), 1)[:, :6]
    by_row = k[0].transpose(0, 1).contiguous().transpose(0, 1)[None]
    got = attends(kind, kind.make(dtype, dim))(wide, by_row, v, length=50, causal=True)
    assert same(kind, dtype, got, dense(q, *meant(kind, dim, by_row, v), 50, True))


@pytest.mark.parametrize(
    ("kind", "dtype", "dim"), [*each(torch.float32, having="attend"), *each(*HALF, having="attend_part")]
)
def test_extreme_scores_stay_finite(kind, dtype, dim):
    """One key far above the others, and all far below zero: exponentials must neither overflow nor vanish."""
    q = torch.full((1, 2, dim), 8.0, dtype=dtype)
    for scale in (8.0, -8.0):
        k, v = torch.full((1, 2, 128, dim), scale, dtype=dtype), torch.ones(1, 2, 128, dim, dtype=dtype)
        k[0, :, 7] = 0.0
        k, v = laid(kind, k, v)
        want, want_lse = dense(q, *meant(kind, dim, k, v), 128, False)
        out, lse = attends(kind, kind.make(dtype, dim))(q, k, v, length=128, causal=False)
        assert torch.allclose(out.double(), want, atol=1e-5)
        assert torch.allclose(lse.double(), want_lse, rtol=1e-6, atol=lse_off(kind, dtype))


def test_merging_is_the_same_pair_by_pair_and_all_at_once():
    """The two joins of the fallbacks."""
    q, k, v = material(4, 96)
    parts = [CpuBackend().attend_part(q, k[i : i + 1], v[i : i + 1], length=32, causal=False) for i in (0, 1)]
    out, lse = merge(*parts[0], *parts[1])
    outs, sums = (torch.stack(side) for side in zip(*parts, strict=True))
    assert torch.allclose(out, merge_all(outs, sums), atol=1e-6)
    assert torch.allclose(lse, sums.logsumexp(0), atol=1e-6)
