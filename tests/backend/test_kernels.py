"""Attention over blocks by one-run kernels, against dense softmax in fp64; and kernels that lie are found
out.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.backend.cuda.streams import contiguous_runs
from core.backend.shared import library_attention
from core.backend.shared.blockwise import attend_blocks
from tests.support.attention_cases import SHAPES
from tests.support.reference import dense, material

# many rows over whole blocks, few rows over several, own rows that begin in one block and end in the next or
# the one after
MORE_SHAPES = [(65, 170, True), (4, 100, True), (5, 34, True), (40, 70, True), (2, 64, False), (1, 96, False)]


@pytest.mark.parametrize(("n", "length", "causal"), SHAPES + MORE_SHAPES)
def test_attention_over_blocks_equals_dense(n: int, length: int, causal: bool):
    """A block counted twice or left out, rows aligned to the wrong end, a part without its share."""
    q, k, v = material(n, length)
    want, want_lse = dense(q, k, v, length, causal)
    out, lse = attend_blocks(library_attention.by_matmul, q, k, v, length=length, causal=causal)
    assert out.dtype == lse.dtype == torch.float32
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


@pytest.mark.parametrize("scores", [1, 500, 1 << 26])
def test_the_plain_kernel_is_the_same_in_slices(monkeypatch: pytest.MonkeyPatch, scores: int):
    """Memory decides how many rows it takes at a time; the causal border must move along."""
    q, k, v = material(17, 96)
    monkeypatch.setattr(library_attention, "_SCORES", scores)
    want, want_lse = dense(q, k, v, 96, True)
    out, lse = attend_blocks(library_attention.by_matmul, q, k, v, length=96, causal=True)
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


@pytest.mark.parametrize("numbers", [1, 100, 1 << 24])
@pytest.mark.parametrize(("n", "causal"), [(17, True), (17, False), (1, False)])
def test_the_plain_kernel_copies_keys_in_pieces(
    monkeypatch: pytest.MonkeyPatch, numbers: int, n: int, causal: bool
):
    """All keys of a layer in fp32 are 4 GB of a 7B model at 128K. Few queries here: what is copied of them
    must not hide the keys.
    """
    monkeypatch.setattr(library_attention, "_NUMBERS", numbers)
    monkeypatch.setattr(library_attention, "_SCORES", 500)
    q, k, v = material(n, 200, block=64, heads=2)
    want, want_lse = dense(q, k, v, 200, causal)
    copied: list[int] = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func is torch.ops.aten._to_copy.default:
                copied.append(out.numel())
            return out

    half = [part.to(torch.bfloat16) for part in (k, v)]
    with Copies():
        attend_blocks(library_attention.by_matmul, q.to(torch.bfloat16), *half, length=200, causal=causal)
    assert max(copied) <= max(numbers, k.shape[0] * max(q.numel(), k.shape[1] * k.shape[3]))
    out, lse = attend_blocks(library_attention.by_matmul, q, k, v, length=200, causal=causal)
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


class Efficient:
    """torch's memory-efficient attention as its source has it: heads in the third place and no groups, a mask
    by number, the log-sum-exp padded to 32 rows.
    """

    def __init__(self) -> None:
        self.copies = 0

    def __call__(self, q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout, mask, compute_lse):
        assert (bias, cu_q, cu_k, max_q, max_k, dropout, compute_lse) == (*[None] * 5, 0.0, True)
        assert q.shape[0] == k.shape[0] and q.shape[2] == k.shape[2] == v.shape[2], "it knows no groups"
        assert all(part.stride(-1) == 1 for part in (q, k, v))
        self.copies += k.untyped_storage().nbytes() < k.numel() * k.element_size()
        assert mask in (0, 2), "aligned to the first key"
        out, lse = library_attention.by_matmul(
            *(part.transpose(1, 2) for part in (q, k, v)), causal=mask == 2
        )
        padded = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=torch.inf)
        return out.transpose(1, 2), padded, None, None, 0, 0


@pytest.mark.parametrize(("n", "length", "causal"), SHAPES + MORE_SHAPES)
def test_the_efficient_kernel_is_asked_in_its_own_way(
    monkeypatch: pytest.MonkeyPatch, n: int, length: int, causal: bool
):
    """Windows wheels of torch have it and no flash kernel. Groups, padding and alignment are its own."""
    monkeypatch.setattr(torch.ops.aten, "_efficient_attention_forward", Efficient())
    q, k, v = material(n, length)
    want, want_lse = dense(q, k, v, length, causal)
    out, lse = attend_blocks(library_attention.by_efficient, q, k, v, length=length, causal=causal)
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


def test_without_flash_the_efficient_kernel_is_used(monkeypatch: pytest.MonkeyPatch):
    """It passes the same trial; without it plain products are left."""
    for name in ("by_flash_attn", "by_torch"):
        monkeypatch.setattr(library_attention, name, that_is_not_there)
    assert (
        library_attention.choose_kernel(torch.device("cpu"), torch.float32, 16) is library_attention.by_matmul
    )
    monkeypatch.setattr(torch.ops.aten, "_efficient_attention_forward", Efficient())
    assert (
        library_attention.choose_kernel(torch.device("cpu"), torch.float32, 16)
        is library_attention.by_efficient
    )


def aligned_to_the_first_key(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Query i sees keys 0 to i, as torch's public attention has it."""
    n = q.shape[2]
    return (
        library_attention.by_matmul(q, k[:, :, :n], v[:, :, :n], causal=True)
        if causal
        else library_attention.by_matmul(q, k, v, causal=False)
    )


def with_a_binary_logarithm(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = library_attention.by_matmul(q, k, v, causal=causal)
    return out, lse / 0.6931


def with_padded_sums(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = library_attention.by_matmul(q, k, v, causal=causal)
    return out, torch.nn.functional.pad(lse, (0, 128 - lse.shape[-1] % 128))


def that_is_not_there(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    raise RuntimeError("no kernel image is available for execution on the device")


@pytest.mark.parametrize(
    "kernel", [aligned_to_the_first_key, with_a_binary_logarithm, with_padded_sums, that_is_not_there]
)
def test_a_kernel_that_means_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, kernel: library_attention.LibraryKernel
):
    """Private operations may change their meaning with any release."""
    monkeypatch.setattr(library_attention, "by_flash_attn", kernel)
    monkeypatch.setattr(library_attention, "by_torch", that_is_not_there)
    assert (
        library_attention.choose_kernel(torch.device("cpu"), torch.float32, 16) is library_attention.by_matmul
    )


def test_a_kernel_that_works_is_used(monkeypatch: pytest.MonkeyPatch):
    """The self-test lets the truth pass, in 16 bits too."""

    def honest(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return library_attention.by_matmul(q.half(), k.half(), v.half(), causal=causal)

    monkeypatch.setattr(library_attention, "by_flash_attn", honest)
    assert library_attention.choose_kernel(torch.device("cpu"), torch.bfloat16, 64) is honest


@pytest.mark.parametrize("rows", [slice(0, 16), slice(0, 5), slice(3, 9)])
def test_copies_are_made_of_contiguous_runs(rows: slice):
    """Whole blocks in one piece, parts of blocks head by head; every number exactly once."""
    source, target = torch.rand(3, 16, 4), torch.zeros(3, 16, 4)
    pairs = list(contiguous_runs(target[:, rows], source[:, rows]))
    assert len(pairs) == (1 if rows == slice(0, 16) else 3)
    for into, run in pairs:
        assert into.is_contiguous() and run.is_contiguous()
        into.copy_(run)
    assert torch.equal(target[:, rows], source[:, rows]) and float(target.sum()) == pytest.approx(
        float(source[:, rows].sum()), rel=1e-6
    )
