"""Keys and values of one layer in host memory, and the ways they reach the device: whole blocks, or scattered
rows. Knows no passes.
"""

from __future__ import annotations

import torch

from core.backend.base import Backend, HostCopies, Mark
from core.backend.shared.kv_rows import row_width
from core.cache.base import KVShape

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values


class HostBlocks:
    """Blocks [first_block, blocks) of one layer, in the shared layout and in rows of `dtype`, page-locked as
    far as the backend can.
    """

    def __init__(
        self,
        shape: KVShape,
        backend: Backend,
        copies: HostCopies,
        *,
        first_block: int,
        blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
    ) -> None:
        size = (blocks - first_block, shape.kv_heads, block_tokens, row_width(shape.head_dim, dtype))
        self.k, self.v = backend.host_memory(size, dtype), backend.host_memory(size, dtype)
        self.first_block = first_block
        self._block_tokens, self._copies = block_tokens, copies

    @property
    def nbytes(self) -> int:
        """Bytes held, filled or not."""
        return self.k.nbytes + self.v.nbytes

    def block(self, block: int) -> Pair:
        """Views [kv_heads, block_tokens, width] of one block."""
        return self.k[block - self.first_block], self.v[block - self.first_block]

    def first(self, rows: int) -> Pair:
        """Views [blocks, kv_heads, block_tokens, width] of the blocks of the first `rows` rows here."""
        blocks = -(-rows // self._block_tokens)
        return self.k[:blocks], self.v[:blocks]

    def fetch(self, block: int, inside: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Rows [inside, inside + n) of a block go to k, v [kv_heads, n, width] on the device."""
        for target, source in zip((k, v), self.block(block), strict=True):
            self._copies.to_device(target, source[:, inside : inside + target.shape[1]])

    def store(self, block: int, inside: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [kv_heads, n, width] on the device become rows [inside, inside + n) of a block."""
        for target, source in zip(self.block(block), (k, v), strict=True):
            self._copies.to_host(target[:, inside : inside + source.shape[1]], source)

    def units(self, tokens: int) -> Pair:
        """Views [blocks * kv_heads * (block_tokens / tokens), tokens * width]: a row for each run of
        `tokens` tokens of a head.
        """
        return tuple(part.view(-1, tokens * part.shape[-1]) for part in (self.k, self.v))

    def unit(self, head: torch.Tensor, index: torch.Tensor, tokens: int) -> torch.Tensor:
        """Rows of `units` at which the runs number `index` of the heads begin; whole tensors of one shape."""
        per_block = self._block_tokens // tokens
        return (
            (index // per_block - self.first_block) * self.k.shape[1] + head
        ) * per_block + index % per_block


class RowGather:
    """Scattered rows from host memory to the device through two page-locked buffers in turn."""

    def __init__(self, backend: Backend, copies: HostCopies, dtype: torch.dtype) -> None:
        self._backend, self._copies, self._dtype = backend, copies, dtype
        self._buffers: list[torch.Tensor] = [backend.host_memory((0,), dtype) for _ in range(2)]
        self._read: list[Mark] = [copies.mark()] * 2

    def __call__(self, source: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Rows `index` [n] of source [rows, width] in host memory, as a new tensor [n, width] on the
        device.
        """
        size = (index.numel(), source.shape[1])
        self._buffers.reverse()
        self._read.reverse()
        self._copies.finish(self._read[0])  # the copy before last may still read this buffer
        if self._buffers[0].numel() < size[0] * size[1]:
            self._buffers[0] = self._backend.host_memory((size[0] * size[1],), self._dtype)
        staged = self._buffers[0][: size[0] * size[1]].view(size)
        torch.index_select(source, 0, index, out=staged)
        arrived = torch.empty(size, dtype=self._dtype, device=self._backend.device)
        self._copies.to_device(arrived, staged)
        self._read[0] = self._copies.mark()
        self._copies.wait(self._read[0])
        return arrived
