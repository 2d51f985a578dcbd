"""Where each block of each layer lies, on the device or in host memory. Knows no passes."""

from __future__ import annotations

import torch

from core.backend.base import Backend, HostCopies
from core.backend.shared.kv_rows import row_width
from core.cache.base import KVShape, KVStore, pieces
from core.cache.host import HostBlocks, Pair, RowGather


class StoredBlocks:
    """The blocks of all layers, in rows of `dtype`: the first `resident_blocks` of the first
    `resident_layers` layers on the device (`kept`, a store for each layer), the others in host memory
    (`host`, by layer).
    """

    def __init__(
        self,
        shape: KVShape,
        backend: Backend,
        copies: HostCopies,
        *,
        blocks: int,
        block_tokens: int,
        resident_layers: int,
        resident_blocks: int,
        dtype: torch.dtype,
    ) -> None:
        self._shape, self.block_tokens, self.blocks, self._dtype = shape, block_tokens, blocks, dtype
        self._backend, self._copies = backend, copies
        self._resident_layers, self._resident_blocks = resident_layers, resident_blocks
        self._gather = RowGather(backend, copies, dtype)
        tokens = resident_blocks * block_tokens
        # one for each, so that one can go
        self.kept = [
            device_store(shape, backend, 1, tokens, block_tokens, dtype) for _ in range(resident_layers)
        ]
        self.host = {
            layer: self._on_host(layer) for layer in range(shape.layers) if self.resident(layer) < blocks
        }

    def _on_host(self, layer: int) -> HostBlocks:
        return HostBlocks(
            self._shape,
            self._backend,
            self._copies,
            first_block=self.resident(layer),
            blocks=self.blocks,
            block_tokens=self.block_tokens,
            dtype=self._dtype,
        )

    def let_go(self, length: int) -> None:
        """The last layer that lies on the device goes to host memory, with its first `length` rows."""
        assert self._resident_blocks == self.blocks, "a part of a layer does not go alone"
        self._resident_layers -= 1
        layer, store = self._resident_layers, self.kept.pop()
        host = self._on_host(layer)
        for block, _, _, rows in pieces(0, length, self.block_tokens):
            host.store(block, 0, store.k[0, block, :, :rows], store.v[0, block, :, :rows])
        self._copies.finish(self._copies.mark())
        self.host = {layer: host, **self.host}

    @property
    def host_bytes(self) -> int:
        """Bytes held in host memory."""
        return sum(host.nbytes for host in self.host.values())

    def resident(self, layer: int) -> int:
        """Blocks of the layer that stay on the device, from the first on."""
        return self._resident_blocks if layer < self._resident_layers else 0

    def first_away(self) -> dict[int, int]:
        """The first token in host memory of each layer that has some there."""
        return {layer: self.resident(layer) * self.block_tokens for layer in self.host}

    def away(self, layer: int, length: int) -> range:
        """The blocks of the layer's first `length` rows that are in host memory."""
        return range(self.resident(layer), -(-length // self.block_tokens))

    def runs(self, layer: int, on_host: torch.Tensor, on_device: torch.Tensor, tokens: int) -> Pair:
        """Runs of `tokens` tokens, chosen per head by number [kv_heads, m], on the device: [kv_heads, m *
        tokens, width] each.
        """
        kv_heads, m = on_host.shape
        size = (kv_heads, m * tokens, row_width(self._shape.head_dim, self._dtype))
        border = self.resident(layer) * self.block_tokens // tokens
        # where in [kv_heads * m]
        away = (on_host >= border).flatten().nonzero().squeeze(-1)
        if not away.numel():
            return tuple(part.view(size) for part in self._kept_runs(layer, on_device, tokens))
        host, head = self.host[layer], torch.arange(kv_heads).repeat_interleave(m)
        units = host.unit(head[away], on_host.flatten()[away], tokens)
        # [away, tokens * width] each
        fetched = [self._gather(part, units) for part in host.units(tokens)]
        if away.numel() < kv_heads * m:
            here = self._kept_runs(layer, on_device.clamp(max=border - 1), tokens)
            fetched = [
                mixed.index_copy_(0, away.to(mixed.device), part)
                for mixed, part in zip(here, fetched, strict=True)
            ]
        return tuple(part.view(size) for part in fetched)

    def _kept_runs(self, layer: int, index: torch.Tensor, tokens: int) -> Pair:
        """Runs of a layer's resident blocks, [kv_heads * m, tokens * width] each."""
        per_block = self.block_tokens // tokens
        head = torch.arange(index.shape[0], device=index.device).unsqueeze(1)
        split = (
            part[0].unflatten(2, (per_block, tokens)) for part in (self.kept[layer].k, self.kept[layer].v)
        )
        return tuple(
            part[index // per_block, head, index % per_block].flatten(0, 1).flatten(1) for part in split
        )

    def block(self, layer: int, block: int) -> Pair:
        """One block, wherever it is: [kv_heads, block_tokens, width] each."""
        if block < self.resident(layer):
            return self.kept[layer].k[0, block], self.kept[layer].v[0, block]
        return self.host[layer].block(block)

    def put(self, layer: int, start: int, here: Pair, away: Pair) -> None:
        """Rows [kv_heads, n, width] into their places: resident blocks take them from `here`, blocks in
        host memory from `away`.
        """
        for block, inside, first, count in pieces(start, here[0].shape[1], self.block_tokens):
            source = here if block < self.resident(layer) else away
            for target, rows in zip(self.block(layer, block), source, strict=True):
                target[:, inside : inside + count] = rows[:, first : first + count]


def host_bytes(shape: KVShape, blocks: int, block_tokens: int, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes of each piece of host memory that so many blocks of one layer take."""
    return (blocks * block_tokens * shape.token_bytes(dtype) // 2,) * 2


def device_store(
    shape: KVShape, backend: Backend, layers: int, capacity: int, block_tokens: int, dtype: torch.dtype
) -> KVStore:
    """A store of so many layers for `capacity` rows of `dtype`."""
    of_layers = KVShape(layers, shape.kv_heads, shape.head_dim)
    return KVStore(of_layers, capacity, block_tokens=block_tokens, dtype=dtype, device=backend.device)
