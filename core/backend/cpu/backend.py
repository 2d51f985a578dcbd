"""The CPU backend: torch's flash attention kernel over KV blocks, kernels of our own. Knows nothing of
caches or models.

One query over a long cache is the decode case: one call of the kernel takes every block, in place. Many
queries (prefill) take keys copied piece by piece into one run. Those of a short pass are computed as if each
were alone: the logits of a drafted token are then, to the last bit, those that plain decoding has.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import psutil
import torch
import torch.nn.functional as F

from core.backend.base import (
    DeltaParts,
    DeltaRows,
    DeltaSteps,
    DeviceMemory,
    FusedLayers,
    LayerParts,
    Linear,
    Replay,
    RowSource,
    ScoreRequest,
    ServedDelta,
)
from core.backend.cpu.at_once import AttentionAtOnce, PlainCopies
from core.backend.cpu.flash import flash_works, matmul_attention
from core.backend.cpu.native.attention import NativeAttention
from core.backend.cpu.native.delta import NativeDelta
from core.backend.cpu.native.layers import AttentionSizes, NativeLayers
from core.backend.cpu.native.products import NativeProducts
from core.backend.cpu.quantized_linear import Dequantizer, QuantizedLinear, QuantizedRows
from core.backend.cpu.thread_sharing import SharedCores
from core.backend.shared import blockwise
from core.backend.shared import slots as by_slots
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.backend.shared.kv_rows import run_of
from core.backend.shared.linear import RowwiseLinear
from core.backend.shared.merge import merge, merge_all, merge_into
from core.backend.shared.pieces import PIECE_TOKENS
from core.backend.shared.quantized import QuantizedMatrix
from core.errors import DeviceFull
from core.text.words import translated as _

_HIDDEN = -1e30
_GRID = 32  # rows, in 16 bits: with blocks of up to 256 by 512 some hundred pairs of row counts


class CpuBackend:
    """Runs on the CPU in float32 or bfloat16.

    `storage`: what matrices and rows of a KV cache are held in, where that is not what is computed in. Half
    the memory is then read, by the compiled kernels for few rows; many rows take what is decoded piece by
    piece.

    `native`: the compiled kernel for few queries, where this CPU has one; without it, and for head sizes that
    it does not know, torch's flash kernel takes every block as a sequence of its own.

    `products`: the compiled kernel for weights in codes or in another type than is computed in; without it
    torch decodes them for every product.

    `coarse`: that which rounds inputs, for passes whose tokens are verified; without it they are exact.

    `layers`: few rows through all layers in one call of these two; without it layer by layer.

    `delta`: the compiled kernel for layers with a gated delta rule; without it torch's form.

    `refused`: their names (core.backend.shared.compiled), where they were looked for and do not serve
    here.
    """

    name = "CPU"
    page_locked_limit = None

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        *,
        storage: torch.dtype | None = None,
        threads: int | None = None,
        native: NativeAttention | None = None,
        products: NativeProducts | None = None,
        coarse: NativeProducts | None = None,
        layers: NativeLayers | None = None,
        delta: NativeDelta | None = None,
        refused: Collection[str] = (),
    ) -> None:
        self.device = torch.device("cpu")
        self.dtype, self.storage = dtype, storage or dtype
        self._flash_works = flash_works(dtype)
        self._native, self._native_layers, self._native_delta = native, layers, delta
        self._coded_products, self._coarse_products = products, coarse
        self._decoder = Dequantizer(dtype, self.device, products)
        self.refused = frozenset(refused)
        self.notes = (
            () if native else (_("Attention runs on torch's kernel: no faster one serves this CPU."),)
        )
        self._doubled: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._mask: tuple[tuple[int, ...], torch.Tensor] | None = None
        if threads:
            torch.set_num_threads(threads)
        self._cores = SharedCores(torch.get_num_threads())

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        in_16_bits = self.storage == torch.bfloat16 and self._coded_products is not None
        if in_16_bits or self.storage != self.dtype:
            return self.coded([QuantizedMatrix.of_numbers(weight.to(self.storage))], bias)
        own_bias = None if bias is None else bias.to(self.dtype)
        return RowwiseLinear(weight.to(self.dtype).contiguous(), own_bias)

    def coded(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None) -> Linear:
        """See Backend. Few rows are multiplied straight from the codes, where the compiled kernel serves."""
        slow = _("Weights are decoded for every product, which is slow: no faster kernel serves this CPU.")
        if self._coded_products is None and slow not in self.notes:
            self.notes = (*self.notes, slow)
        return QuantizedLinear(parts, bias, self._decoder, self._coded_products)

    def coarse(self, matrices: Sequence[Linear]) -> list[Linear] | None:
        """See Backend. Of weights in codes: products of integers."""
        coded = [one for one in matrices if isinstance(one, QuantizedLinear) and one.products is not None]
        in_codes = any(part.bits < 16 for one in coded for part in one.parts)
        if self._coarse_products is None or len(coded) < len(matrices) or not in_codes:
            return None
        return [one.by(self._coarse_products) for one in coded]

    def coded_rows(self, planes: QuantizedMatrix) -> RowSource:
        """See Backend."""
        return QuantizedRows(planes, self.dtype)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See Backend. torch has a fused layer norm on the CPU but no fused RMS norm; of (x, -x) the mean is
        0, so they agree.
        """
        size = x.shape[-1]
        doubled = torch.cat((x, -x), dim=-1)
        return torch.layer_norm(doubled, (2 * size,), self._twice(weight), None, eps)[..., :size].contiguous()

    def _twice(self, weight: torch.Tensor) -> torch.Tensor:
        found = self._doubled.get(weight.data_ptr())
        # the weight is kept beside its double: a freed one's address may be used again
        if found is None:
            found = self._doubled[weight.data_ptr()] = (weight, weight.repeat(2))
        return found[1]

    def in_one(
        self,
        layers: Sequence[LayerParts],
        norm: torch.Tensor,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
    ) -> FusedLayers | None:
        """See Backend. Of weights that the compiled kernel multiplies."""
        if self._native_layers is None:
            return None
        return self._native_layers.prepared(layers, norm, AttentionSizes(heads, kv_heads, head_dim), eps)

    def delta_rows(
        self, parts: DeltaParts, by_torch: DeltaRows, steps_by_torch: DeltaSteps
    ) -> ServedDelta | None:
        """See Backend. The kernel was tried when it was loaded; it takes many rows as few."""
        if self._native_delta is None or not self._native_delta.takes(parts):
            return None
        rows = partial(self._native_delta.through, parts)
        return ServedDelta(rows, lambda state, given: rows(state, state, given))

    def prepare(self, heads: int, kv_heads: int, head_dim: int, *, rows: torch.dtype | None = None) -> None:
        """See Backend. The kernel was tried when it was loaded."""

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> torch.Tensor:
        """See Backend."""
        return self._attend(q, k, v, length, causal, want_lse=False, sums=sums)[0].to(q.dtype)

    def attend_part(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        out, lse = self._attend(q, k, v, length, causal, want_lse=True)
        return out.float(), lse

    def attend_more(
        self,
        total: tuple[torch.Tensor, torch.Tensor],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        merge_into(*total, *self.attend_part(q, k, v, length=length, causal=False))
        return total

    def _attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        length: int,
        causal: bool,
        *,
        want_lse: bool,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See attend_part; the log-sum-exp over all blocks may be left out where there are few queries."""
        n, heads, _ = q.shape
        if length == 0:
            lse = q.new_full((n, heads), -torch.inf, dtype=torch.float32)
            return torch.zeros_like(q, dtype=torch.float32), lse
        if self._native is not None and n <= SHORT_PASS_ROWS and self._native.takes(q, k):
            return self._native.attend(q, k, v, length=length, causal=causal, sums=sums)
        if 1 < n <= SHORT_PASS_ROWS:
            return self._attend_rows(q, k, v, length, causal, want_lse=want_lse)
        if n > 1 or k.dtype != q.dtype:
            return self._attend_many(q, k, v, length, causal)
        return self._attend_one(q, k, v, length, want_lse=want_lse)

    def chunk_lse(self, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
        """See Backend."""
        if self._native is not None and self._native.takes_chunks(q, k, chunk):
            return self._native.chunk_lse(q, k, length=length, chunk=chunk)
        return blockwise.chunk_lse(q, k, length=length, chunk=chunk)

    def attend_window(self, q: torch.Tensor, *kv: torch.Tensor, **sizes: int) -> torch.Tensor | None:
        """See Backend. A call costs little here."""
        return None

    def attend_slots(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, slots: torch.Tensor
    ) -> torch.Tensor:
        """See Backend."""
        return by_slots.attend_slots(by_slots.by_float, q, k, v, slots)

    def long_unrecorded(self, *sizes: int, rows: torch.dtype | None = None) -> str:
        """See Backend."""
        return _("a CPU has no recordings")

    def capture(self, run: Callable[[], torch.Tensor]) -> Replay | None:
        """See Backend. A CPU has no recordings."""
        return None

    def adapt(self) -> None:
        """See Backend. Other programs get the cores they use."""
        self._cores.look()

    def out_of_memory(self, error: BaseException) -> bool:
        """See Backend. The device's memory is the host's, and MemoryError says it."""
        return isinstance(error, DeviceFull)

    def lost(self) -> bool:
        """See Backend. Then nobody would ask."""
        return False

    def memory(self) -> DeviceMemory:
        """See Backend."""
        return DeviceMemory(
            used_bytes=psutil.Process().memory_info().rss, free_bytes=psutil.virtual_memory().available
        )

    def peak_memory_bytes(self) -> int:
        """See Backend. As the system counts it."""
        try:
            import resource
        except ImportError:  # Windows
            return psutil.Process().memory_info().peak_wset
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def reserve(self, nbytes: int) -> None:
        """See Backend. The system gives memory when it is first written to."""

    def release(self) -> None:
        """See Backend."""
        gc.collect()

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """See Backend. Nothing to page-lock: the device's memory is the host's."""
        return torch.zeros(tuple(shape), dtype=dtype)

    def make_ready(self, sizes: Sequence[int]) -> Iterator[int]:
        """See Backend. Nothing to wait for."""
        return iter(())

    def copies(self) -> PlainCopies:
        """See Backend."""
        return PlainCopies()

    def host_attention(self) -> AttentionAtOnce:
        """See Backend."""
        return AttentionAtOnce(self.attend_part)

    def _attend_rows(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int, causal: bool, *, want_lse: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Each query by itself over the blocks that it sees: what torch's kernel adds up depends on how many
        queries there are, and a drafted token is judged by what plain decoding would have computed.
        """
        lengths = range(length - len(q) + 1, length + 1) if causal else [length] * len(q)
        found = [
            self._attend(query, k, v, seen, causal, want_lse=want_lse)
            for query, seen in zip(q.split(1), lengths, strict=True)
        ]
        out = torch.cat([part for part, _ in found])
        return out, torch.cat([lse for _, lse in found]) if want_lse else None

    def _attend_one(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int, *, want_lse: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One query [1, heads, head_dim]: each block as a sequence of its own, with the query's heads that
        share a KV head as its rows. The kernel shares blocks and heads out to the threads.
        """
        kv_heads, block_tokens = k.shape[1:3]
        filled = -(-length // block_tokens)  # blocks; others behind them change nothing
        k, v = k[:filled], v[:filled]
        if filled == 1:
            k, v = k[:, :, :length], v[:, :, :length]
        rows = q.view(1, kv_heads, -1, q.shape[-1])
        hidden = self._hidden(rows.shape[2], length, filled, block_tokens)
        out, lse = self._flash(rows.expand(filled, -1, -1, -1), k, v, causal=False, mask=hidden)
        found = out[0] if filled == 1 else merge_all(out, lse)
        return found.reshape(q.shape), torch.logsumexp(lse, 0).view(1, -1) if want_lse else None

    def _hidden(self, group: int, length: int, blocks: int, block_tokens: int) -> torch.Tensor | None:
        """Additive mask [blocks, 1, group, block_tokens] over what is not filled of the last block; None for
        a block alone, which is cut, and where all is filled.

        The same for all layers of a pass, so the last one is kept. Hidden keys get a large negative number,
        not -inf: a kernel's piece of keys that are all hidden then has a finite softmax.
        """
        if blocks == 1 or length == blocks * block_tokens:
            return None
        key = (group, length, blocks, block_tokens)
        if self._mask is None or self._mask[0] != key:
            mask = torch.zeros(blocks, 1, group, block_tokens, dtype=self.dtype)
            mask[-1, :, :, length - (blocks - 1) * block_tokens :] = max(_HIDDEN, torch.finfo(self.dtype).min)
            self._mask = (key, mask)
        return self._mask[1]

    def _attend_many(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Past keys without a mask, piece by piece, the queries' own square block with a causal one, merged
        by log-sum-exp.

        The square begins at a multiple of `_GRID` and ends at one: torch compiles 16-bit products for each
        pair of row counts, on processors with AMX, and forgets none of them.
        """
        n, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        group, past = heads // kv_heads, length - n if causal else length
        grid = _GRID if q.dtype == torch.bfloat16 else 1
        first = past - past % grid
        before = past - first if causal else 0
        size = -(-(before + n) // grid) * grid
        framed = F.pad(q, (0, 0, 0, 0, before, size - before - n))  # [size, heads, head_dim]
        folded = framed.view(size, kv_heads, group, head_dim).permute(1, 2, 0, 3)
        folded = folded.reshape(1, kv_heads, group * size, head_dim)
        found: tuple[torch.Tensor, torch.Tensor] | None = None
        for start in range(0, first if causal else past, PIECE_TOKENS):
            end = min(start + PIECE_TOKENS, first if causal else past)
            out, lse = self._flash_run(folded, k, v, start, end, grid)
            part = out.reshape(heads, size, head_dim).transpose(0, 1), lse.reshape(heads, size).t()
            found = part if found is None else merge(*found, *part)
        if causal:
            own_k, own_v = (
                F.pad(run_of(part, first, length, head_dim, q.dtype), (0, 0, 0, size - before - n))
                .repeat_interleave(group, dim=0)
                .unsqueeze(0)
                for part in (k, v)
            )
            out, lse = self._flash(framed.transpose(0, 1)[None], own_k, own_v, causal=True)
            own = out[0].transpose(0, 1), lse[0].t()
            found = own if found is None else merge(*found, *own)
        out, lse = found
        return out[before : before + n], lse[before : before + n]

    def _flash_run(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, end: int, grid: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All queries over the keys from `start` to `end`, brought to a multiple of `grid` by hidden ones."""
        hidden = -(end - start) % grid
        keys, values = (
            F.pad(run_of(part, start, end, q.shape[-1], q.dtype), (0, 0, 0, hidden))[None] for part in (k, v)
        )
        mask = None
        if hidden:
            mask = q.new_zeros(q.shape[2], keys.shape[2])
            mask[:, -hidden:] = _HIDDEN
        return self._flash(q, keys, values, causal=False, mask=mask)

    def _flash(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool,
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q [1, h, n, d], k, v [1, h, m, d], additive mask [n, m] -> out of q's shape and lse fp32 [1, h,
        n].
        """
        if self._flash_works:
            return torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask)
        return matmul_attention(q, k, v, causal, mask)
