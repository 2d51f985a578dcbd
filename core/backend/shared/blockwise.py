"""Attention over block-major keys by kernels that take one contiguous run of keys per head, and over rows of
another type than the queries, which are made numbers piece by piece. Knows no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from core.backend.shared.kv_rows import dequantized, run_of
from core.backend.shared.library_attention import LibraryKernel
from core.backend.shared.merge import merge_all, merge_into
from core.backend.shared.pieces import PIECE_TOKENS

# up to here all whole blocks go into one launch
_FEW_ROWS = 64

Part = tuple[torch.Tensor, torch.Tensor]  # out [n, heads, head_dim], lse fp32 [n, heads]


class AttendPart(Protocol):
    """Backend.attend_part."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool
    ) -> Part: ...


def attend_decoded(
    attend: AttendPart,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    length: int,
    causal: bool,
    total: Part | None = None,
) -> Part:
    """`attend` over rows of another type than q, a few thousand of which are numbers at a time; shapes as in
    Backend.attend_part: q [n, heads, head_dim], k and v [blocks, kv_heads, block_tokens, width]. Joined into
    `total`, where there is one.
    """
    n, head_dim = q.shape[0], q.shape[-1]
    past, found = (length - n if causal else length), _Sum(total)
    ranges = [(start, end, False) for start, end in _ranges(past, k.shape[2])]
    if causal:
        ranges.append((past, length, True))
    for start, end, own in ranges:
        keys, values = (run_of(part, start, end, head_dim, q.dtype)[None] for part in (k, v))
        found.add(*attend(q, keys, values, length=end - start, causal=own))
    return found.part or found.of_nothing(q)


def _ranges(length: int, block_tokens: int) -> Iterator[tuple[int, int]]:
    """Tokens [0, length) in pieces of PIECE_TOKENS, none over the border of a block that is as large."""
    step = max(1, PIECE_TOKENS // block_tokens) * block_tokens
    for whole in range(0, length, step):
        end = min(whole + step, length)
        for start in range(whole, end, PIECE_TOKENS):
            yield start, min(start + PIECE_TOKENS, end)


def attend_blocks(
    kernel: LibraryKernel,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    length: int,
    causal: bool,
    total: Part | None = None,
) -> Part:
    """See Backend.attend_part; with a `total`, Backend.attend_more.

    Blocks wholly before the queries' own rows are seen by every query. What is left lies in the block where
    the own rows begin, which the kernel can take with them; rows that run over the end of that block are
    gathered first. Every part is joined to the sum as soon as it is computed: of many rows over many blocks
    one output in fp32 exists, and one of the kernel's.
    """
    n, block_tokens = q.shape[0], k.shape[2]
    found = _Sum(total)
    if length == 0:
        return found.part or found.of_nothing(q)
    past = length - n if causal else length
    whole, rest = divmod(past, block_tokens)
    if whole and n <= _FEW_ROWS:
        found.add(*_whole_blocks(kernel, q, k[:whole], v[:whole]))
    else:
        for block in range(whole):
            found.add(*_run(kernel, q, k[block], v[block], causal=False))
    if causal and rest + n <= block_tokens:
        found.add(*_run(kernel, q, k[whole, :, : rest + n], v[whole, :, : rest + n], causal=True))
        return found.part
    if rest:
        found.add(*_run(kernel, q, k[whole, :, :rest], v[whole, :, :rest], causal=False))
    if causal:
        found.add(*_run(kernel, q, *(_rows(part[whole:], rest, n) for part in (k, v)), causal=True))
    return found.part


class _Sum:
    """Attention over the parts that were added."""

    def __init__(self, part: Part | None) -> None:
        self.part = part

    def add(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        """out [n, heads, head_dim] of any type, lse fp32 [n, heads]."""
        if self.part is None:
            self.part = out.float(), lse
        else:
            merge_into(*self.part, out, lse)

    @staticmethod
    def of_nothing(q: torch.Tensor) -> Part:
        """No key is seen."""
        lse = q.new_full(q.shape[:2], -torch.inf, dtype=torch.float32)
        return torch.zeros_like(q, dtype=torch.float32), lse


def _whole_blocks(kernel: LibraryKernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Part:
    """All of them in one launch, as if each were a sequence of its own."""
    # [blocks, heads, n, head_dim]
    rows = q.transpose(0, 1).unsqueeze(0).expand(k.shape[0], -1, -1, -1).contiguous()
    out, lse = kernel(rows, k, v, causal=False)
    return merge_all(out.float(), lse).transpose(0, 1), torch.logsumexp(lse, 0).t()


def _run(kernel: LibraryKernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Part:
    """One run of keys k, v [kv_heads, m, head_dim]."""
    out, lse = kernel(q.transpose(0, 1).unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), causal=causal)
    return out[0].transpose(0, 1), lse[0].t()


def _rows(blocks: torch.Tensor, start: int, n: int) -> torch.Tensor:
    """Rows [start, start + n) of blocks [blocks, kv_heads, block_tokens, head_dim] as [kv_heads, n, head_dim]
    (a copy of these rows alone).
    """
    block_tokens = blocks.shape[2]
    return torch.cat(
        [
            blocks[block, :, max(0, start - at) : min(block_tokens, start + n - at)]
            for block, at in enumerate(range(0, start + n, block_tokens))
        ],
        dim=1,
    )


def chunk_lse(q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
    """See Backend.chunk_lse. Products in the queries' type, sums in fp32."""
    if k.dtype == q.dtype:
        return _chunk_lse(q, k, length=length, chunk=chunk)
    (blocks, _, block_tokens, _), heads = k.shape, q.shape[0]
    found = q.new_full((heads, blocks * block_tokens // chunk), -torch.inf, dtype=torch.float32)
    least = min(block_tokens, PIECE_TOKENS // chunk * chunk)
    # several blocks at a time, or a part of one
    many = max(1, PIECE_TOKENS // block_tokens)
    for block in range(0, -(-length // block_tokens), many):
        for inside in range(0, block_tokens, least):
            keys = dequantized(k[block : block + many, :, inside : inside + least], q.shape[-1], q.dtype)
            first = block * block_tokens + inside
            if first < length:
                scores = _chunk_lse(q, keys, length=length - first, chunk=chunk)
                found[:, first // chunk : first // chunk + scores.shape[1]] = scores
    return found


def _chunk_lse(q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
    blocks, kv_heads, block_tokens, head_dim = k.shape
    rows = (q * head_dim**-0.5).view(1, kv_heads, -1, head_dim)
    # [blocks, kv_heads, group, block_tokens]
    scores = torch.matmul(rows, k.transpose(-1, -2)).float()
    hidden = torch.arange(blocks * block_tokens, device=k.device).view(blocks, 1, 1, block_tokens) >= length
    scores.masked_fill_(hidden, -torch.inf)
    top = scores.amax((0, 3), keepdim=True)
    # [blocks, kv_heads, group, chunks]
    sums = (scores - top).exp_().unflatten(-1, (-1, chunk)).sum(-1)
    return (sums.log_() + top).permute(1, 2, 0, 3).reshape(q.shape[0], -1)
