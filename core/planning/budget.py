"""What a plan needs, line by line: bytes of weights, caches and work space in each place. Knows nothing of
what is free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from core.backend.pieces import PIECE_NUMBERS, PIECE_TOKENS
from core.config import Settings
from core.hardware.facts import GIB
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, ModelShape
from core.planning.costs import MAX_GAMMA, MAX_MIDDLE_GAMMA
from core.planning.plan import BudgetLine
from core.text.words import marked as N_

MIB = 1 << 20
CUDA_CONTEXT_BYTES = GIB // 2  # driver context and library workspaces
# captured graphs: see docs/decisions/0017-cuda-graphs.md; estimated, not measured
GRAPH_BYTES = GIB // 8
SEGMENTS_BYTES = GIB // 16  # counted over whole models: tests/backend/test_peak_memory.py
SMALL_BYTES = GIB // 16  # positions, log-sum-exps, mean keys, gaps between blocks of unlike sizes
SHORT_PASS_BYTES = GIB // 8  # activations and logits of passes of few rows
PROGRAM_BYTES_CUDA = 3 * GIB  # host side of torch with CUDA, tokenizer, the app's own process
PROGRAM_BYTES_CPU = 5 * GIB // 4  # the same without CUDA
BLOCK_TARGET_BYTES = 128 * MIB
STAGING_BLOCKS = 3
TOKENS_STEP = 256  # block sizes are multiples of this, so chunks never straddle blocks
SEGMENT_CUDA, SEGMENT_CPU = 32_768, 2048
CHUNK_CUDA, CHUNK_CPU = 4096, 1024
SMALLEST_SEGMENT, SMALLEST_CHUNK = 2048, 512
# least and most; 4K recovers 96% of the attention of 120K (TriForce)
BUDGET_CUDA, BUDGET_CPU = (1024, 4096), (256, 1024)
CHUNK_RETRIEVAL = 8
# generated tokens between two refreshes; longer answers become ordinary chunks
TAIL_TOKENS = 512
SINKS, WINDOW = 16, 240
# tokens by which the middle level's last pass may carry a draft beyond what was asked: its longest setting
OVERRUN = 32
BLOCK_STEP = 64  # tokens; keeps a block in host memory aligned whatever its number of rows
# rows of a retrieval cache that are exact beside budget and tail, and what its capacity is a multiple of
RECENT, ROWS_STEP = 64, 128

# per weight of a piece that torch decodes: codes as bytes three times, fp32, and the dtype computed in
DECODING_BYTES = 9

# names of lines: keys, translated where they are shown
WEIGHTS, DECODED = N_("weights"), N_("weights decoded for a product")
DRAFT_MODEL, DRAFT_CACHE = N_("draft model"), N_("draft cache")
KV, KV_ON_CHIP = N_("KV cache"), N_("KV cache of the on-chip layers")
KV_PINNED, KV_PAGEABLE = N_("KV cache of the other layers"), N_("KV cache, not pinned")
RETRIEVAL, TAIL = N_("retrieval cache"), N_("retrieval cache, generated tail")
WORK_PREFILL, WORK_DECODE = N_("work space (prefill)"), N_("work space (decode)")
KV_DECODED = N_("KV cache decoded for attention")
KV_AT_WORK, TABLES = N_("KV cache of the layers at work"), N_("tables and newest rows")
WAITING = N_("queries and sums of a segment")
GRAPHS, CONTEXT = N_("CUDA graphs"), N_("CUDA context")
STAGING = N_("staging blocks")
PROGRAM, KEPT_FREE = N_("program"), N_("kept free")
MODEL_FILES, SNAPSHOTS = N_("model files"), N_("KV snapshots, at most")


@dataclass(frozen=True, slots=True)
class Layout:
    """All sizes a plan's bytes follow from."""

    device: str
    dtype: str
    computes: str
    kv_rows: str  # type of the rows of the full KV cache
    target: ModelShape
    draft: ModelShape | None
    context: int
    on_chip: int
    segment: int
    chunk: int
    retrieval_budget: int
    retrieval_chunk: int
    tail: int
    draft_sinks: int
    draft_window: int
    block_tokens: int
    blocks: int
    kernel: str
    fixed_prefill: tuple[bool, bool]  # whether segment and chunk are the user's
    graphs: bool  # whether CUDA graphs may be kept
    swept: bool = False  # in a prefill, the past of a layer in host memory streams too
    pinnable: int = 0

    # ---- derived -------------------------------------------------------------------------------------------

    @property
    def retrieval_tokens(self) -> int:
        """Rows of the retrieval cache that a middle pass may read."""
        return self.retrieval_budget + self.tail

    @property
    def draft_tokens(self) -> int:
        """Rows the draft model reads."""
        return self.draft_sinks + self.draft_window

    @property
    def host_layers(self) -> int:
        """Layers whose KV cache is in host memory."""
        return self.target.layers - self.on_chip

    @property
    def held_tokens(self) -> int:
        """Tokens that a layer has room for: the context and a draft behind it, in whole blocks."""
        if self.device == "cuda" and self.host_layers:
            return held_tokens(self.context, self.block_tokens, self.retrieval_chunk)[0]
        return multiple(self.context + OVERRUN, self.retrieval_chunk)

    @property
    def layer_kv_bytes(self) -> int:
        """KV cache of one layer."""
        return self.held_tokens * self.target.kv_bytes_per_token_layer(self.kv_rows)

    @property
    def at_work_bytes(self) -> int:
        """Places of the layer at work in a prefill and of the next one; swept, also the ring beside them."""
        if not self.host_layers:
            return 0
        tokens = min(2, self.host_layers) * self.held_tokens
        if self.swept:
            size = held_tokens(self.context, self.block_tokens, self.retrieval_chunk)[1]
            tokens = swept_tokens(self.segment, size, self.blocks, self.retrieval_chunk)
        return tokens * self.target.kv_bytes_per_token_layer(self.kv_rows)

    @property
    def waiting_bytes(self) -> int:
        """Queries, sums in fp32 and log-sum-exps of a swept segment."""
        if not (self.swept and self.host_layers):
            return 0
        size, head_dim = DTYPE_BYTES[self.computes], self.target.head_dim
        return self.segment * self.target.heads * (head_dim * (size + 4) + 4)

    @property
    def block_bytes(self) -> int:
        """One staging block: that many tokens of one layer."""
        return self.block_tokens * self.target.kv_bytes_per_token_layer(self.kv_rows)

    @property
    def host_kv_bytes(self) -> int:
        """KV cache in host memory."""
        return self.host_layers * self.layer_kv_bytes

    @property
    def spare_rows(self) -> int:
        """Rows that speculation may take on top of a cache, at the longest drafts."""
        return spare_rows(MAX_GAMMA, MAX_MIDDLE_GAMMA)

    def host_kv_split(self) -> tuple[int, int]:
        """(pinned, pageable) bytes of the KV cache in host memory. The CPU backend needs no copies and counts
        as none.
        """
        if self.device == "cpu":
            return 0, 0
        pinned = min(self.host_kv_bytes, max(0, self.pinnable))
        return pinned, self.host_kv_bytes - pinned

    def smaller_prefills(self) -> Iterator[tuple[int, int]]:
        """(segment, chunk) below this layout's, faster ones first; what the user fixed stays."""
        segment, chunk = self.segment, self.chunk
        while self.device == "cuda":
            # a swept segment is as short as it may be
            fixed = self.fixed_prefill[0] or self.swept
            shrink_segment = not fixed and segment > SMALLEST_SEGMENT
            shrink_chunk = not self.fixed_prefill[1] and chunk > SMALLEST_CHUNK
            if not (shrink_segment or shrink_chunk):
                return
            segment = max(SMALLEST_SEGMENT, segment // 2) if shrink_segment else segment
            chunk = max(SMALLEST_CHUNK, chunk // 2) if shrink_chunk else chunk
            yield segment, min(chunk, segment)


def multiple(tokens: int, step: int) -> int:
    """The least multiple of `step` that is not below `tokens`."""
    return -(-tokens // step) * step


def held_tokens(context: int, block_tokens: int, chunk: int) -> tuple[int, int]:
    """Of an offloaded cache for `context` tokens and a draft behind them: tokens it has room for, and its
    blocks' size, near `block_tokens`.
    """
    rows, step = context + OVERRUN, sweep_step(chunk)
    near = max(1, round(rows / block_tokens))
    # of some numbers of blocks the one that leaves least of the last block empty
    sizes = [multiple(-(-rows // blocks), step) for blocks in range(near, near + 3)]
    held, size = min((multiple(rows, size), size) for size in sizes)
    return held, size


def sweep_step(chunk: int) -> int:
    """Tokens that divide a block of an offloaded cache, and are a multiple of a retrieval chunk."""
    return math.lcm(BLOCK_STEP, chunk)


def swept_tokens(segment: int, block_tokens: int, blocks: int, chunk: int) -> int:
    """Rows on the device while a prefill in such segments is swept: a ring of so many blocks, and two places
    for the segment's own (core.cache.segment).
    """
    step = sweep_step(chunk)
    return blocks * block_tokens + 2 * (multiple(segment, step) + step)


def spare_rows(gamma: int, middle_gamma: int) -> int:
    """Rows that speculation may take on top of a cache: what waits to be fed or committed, and the longest
    draft behind it.
    """
    return 2 * (max(gamma, MAX_GAMMA) + middle_gamma + 2)


def lay_out(
    device: str,
    dtype: str,
    computes: str,
    settings: Settings,
    *,
    target: ModelShape,
    draft: ModelShape | None,
    context: int,
) -> Layout:
    """The sizes that follow from model, context and settings alone, with everything on chip; fitting changes
    the rest.
    """
    cuda = device == "cuda"
    chunk_tokens = settings.retrieval_chunk or CHUNK_RETRIEVAL
    low, high = BUDGET_CUDA if cuda else BUDGET_CPU
    budget = settings.retrieval_budget or min(max(context // (32 if cuda else 8), low), high)
    budget = max(min(budget, context) // chunk_tokens, 2) * chunk_tokens
    segment = settings.prefill_segment_tokens or (SEGMENT_CUDA if cuda else SEGMENT_CPU)
    chunk = settings.prefill_chunk_tokens or (CHUNK_CUDA if cuda else CHUNK_CPU)
    rows = CODED_ROWS if settings.kv == 8 else dtype
    return Layout(
        device=device,
        dtype=dtype,
        computes=computes,
        kv_rows=rows,
        target=target,
        draft=draft,
        context=context,
        on_chip=target.layers,
        segment=min(segment, context),
        chunk=min(chunk, segment, context),
        retrieval_budget=budget,
        retrieval_chunk=chunk_tokens,
        tail=min(settings.max_new_tokens, TAIL_TOKENS),
        draft_sinks=SINKS if settings.draft_sinks is None else settings.draft_sinks,
        draft_window=settings.draft_window or WINDOW,
        block_tokens=_block_tokens(settings, target, rows, context),
        blocks=settings.staging_blocks or STAGING_BLOCKS,
        kernel="codes" if target.coded_weights else "float",
        fixed_prefill=(
            settings.prefill_segment_tokens is not None,
            settings.prefill_chunk_tokens is not None,
        ),
        graphs=cuda and settings.cuda_graphs != "off",
    )


def _block_tokens(settings: Settings, target: ModelShape, rows: str, context: int) -> int:
    """Tokens per staging block: near the target size, and such that a layer's last block is nearly full."""
    wanted = settings.staging_block_mib * MIB if settings.staging_block_mib else BLOCK_TARGET_BYTES
    per_token = target.kv_bytes_per_token_layer(rows)
    most = max(TOKENS_STEP, wanted // per_token // TOKENS_STEP * TOKENS_STEP)
    blocks = math.ceil(context / most)
    return math.ceil(context / blocks / TOKENS_STEP) * TOKENS_STEP


# ---- lines -------------------------------------------------------------------------------------------------


def vram_lines(layout: Layout, reserve: int) -> tuple[BudgetLine, ...]:
    """What must fit in VRAM. The work space is the larger of prefill's and decode's; the layer at work in a
    prefill and the next one have places of their own, in which a decode has its ring unless they are swept.
    """
    prefill = _activations(layout) + SMALL_BYTES
    kv = layout.target.kv_bytes_per_token(layout.dtype)
    lines = [
        (WEIGHTS, layout.target.weight_bytes(layout.dtype)),
        (KV_ON_CHIP, layout.on_chip * layout.layer_kv_bytes),
        (RETRIEVAL, layout.retrieval_budget * kv),
        (TAIL, _tail_rows(layout) * kv),
        *_draft_lines(layout),
        (DECODED, _decoded_bytes(layout)),
        (KV_AT_WORK, layout.at_work_bytes),
        (WAITING, layout.waiting_bytes),
        (KV_DECODED, _decoded_rows_bytes(layout)),
        (TABLES, _standing(layout)),
        (WORK_PREFILL, prefill) if prefill >= SHORT_PASS_BYTES else (WORK_DECODE, SHORT_PASS_BYTES),
        (GRAPHS, GRAPH_BYTES if layout.graphs else 0),
        (CONTEXT, CUDA_CONTEXT_BYTES),
        (KEPT_FREE, reserve),
    ]
    return tuple(BudgetLine(name, amount, "VRAM") for name, amount in lines if amount)


def host_lines(layout: Layout, reserve: int) -> tuple[BudgetLine, ...]:
    """What must fit in RAM; on the CPU backend that is everything."""
    if layout.device == "cpu":
        kv = layout.target.kv_bytes_per_token(layout.dtype)
        ring = layout.blocks * layout.block_bytes if layout.host_layers else 0
        lines = [
            (WEIGHTS, layout.target.weight_bytes(layout.dtype), "RAM"),
            (KV, layout.on_chip * layout.layer_kv_bytes + layout.host_kv_bytes, "RAM"),
            (RETRIEVAL, layout.retrieval_tokens * kv, "RAM"),
            *((name, amount, "RAM") for name, amount in _draft_lines(layout)),
            (STAGING, ring, "RAM"),
            (DECODED, _decoded_bytes(layout), "RAM"),
            (WORK_PREFILL, _activations(layout) + _cpu_copies(layout), "RAM"),
            (PROGRAM, PROGRAM_BYTES_CPU, "RAM"),
            (KEPT_FREE, reserve, "RAM"),
        ]
    else:
        pinned, pageable = layout.host_kv_split()
        lines = [
            (KV_PINNED, pinned, "pinned RAM"),
            (KV_PAGEABLE, pageable, "RAM"),
            (PROGRAM, PROGRAM_BYTES_CUDA, "RAM"),
            (KEPT_FREE, reserve, "RAM"),
        ]
    return tuple(BudgetLine(name, amount, place) for name, amount, place in lines if amount)


def disk_lines(layout: Layout, quota: int) -> tuple[BudgetLine, ...]:
    """What the models' files take on the disk, and at most `quota` bytes of books that were read."""
    models = [layout.target, *filter(None, [layout.draft])]
    lines = [(MODEL_FILES, sum(shape.file_bytes for shape in models)), (SNAPSHOTS, quota)]
    return tuple(BudgetLine(name, amount, "disk") for name, amount in lines if amount)


def _draft_lines(layout: Layout) -> list[tuple[str, int]]:
    if layout.draft is None:
        return []
    rows = layout.draft_tokens + layout.tail
    return [
        (DRAFT_MODEL, layout.draft.weight_bytes(layout.dtype)),
        (DRAFT_CACHE, rows * layout.draft.kv_bytes_per_token(layout.dtype)),
    ]


def _tail_rows(layout: Layout) -> int:
    """Rows of the retrieval cache behind its budget: the newest, those since the last selection, a draft."""
    behind = RECENT + layout.retrieval_chunk + layout.tail + layout.spare_rows
    return multiple(layout.retrieval_budget + behind, ROWS_STEP) - layout.retrieval_budget


def _activations(layout: Layout) -> int:
    """Hidden states and rotations of a segment, and what a chunk of it computes with."""
    shape, size = layout.target, DTYPE_BYTES[layout.computes]
    segment = layout.segment * (shape.hidden + 2 * shape.head_dim) * size
    return segment + layout.chunk * _row_bytes(shape, size)


def _row_bytes(shape: ModelShape, size: int) -> int:
    """What one row of a chunk takes in a layer, at the worst of three moments: queries, keys and values being
    rotated; attended with, in fp32; or the MLP's.
    """
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rotating = (q + 2 * kv) + 3 * (q + kv)
    attending = (q + 2 * kv) + (q + kv) + q + 2 * kv
    mlp = shape.hidden + 3 * shape.intermediate
    return max(mlp * size, rotating * size, attending * size + 4 * q)


def _cpu_copies(layout: Layout) -> int:
    """What prefill on the CPU copies to compute with, in float32: for attention keys and values of a piece
    and the chunk's own as one run per head, for matrices the widest products. It needs one or the other.
    """
    shape = layout.target
    parts = 3 if layout.kv_rows == CODED_ROWS else 2  # what torch makes on the way from codes to numbers
    keys = parts * min(layout.context, PIECE_TOKENS) * shape.kv_heads * shape.head_dim
    # keys and values by query head, queries, two outputs
    own = 5 * layout.chunk * shape.heads * shape.head_dim
    products = 2 * layout.chunk * 2 * shape.intermediate
    return max(keys + own, products) * DTYPE_BYTES["float32"]


def _standing(layout: Layout) -> int:
    """What is there in prefill and in decode: the table of rotations, scores of every chunk by query head,
    the newest rows of the layers in host memory, and what torch rounds up to whole segments.
    """
    shape, size = layout.target, DTYPE_BYTES[layout.dtype]
    rotations = 2 * layout.held_tokens * shape.head_dim * size
    scores = shape.layers * shape.heads * (layout.held_tokens // layout.retrieval_chunk) * 4
    newest = layout.spare_rows * layout.host_layers * shape.kv_bytes_per_token_layer(layout.kv_rows)
    return rotations + scores + newest + SEGMENTS_BYTES


def _decoded_rows_bytes(layout: Layout) -> int:
    """On a GPU: keys and values of a piece of a cache in codes, as numbers."""
    if layout.kv_rows == layout.dtype:
        return 0
    return min(layout.context, PIECE_TOKENS) * layout.target.kv_bytes_per_token_layer(layout.dtype)


def _decoded_bytes(layout: Layout) -> int:
    """The piece of a matrix that is decoded to multiply many rows: on the CPU one buffer, on a GPU what torch
    makes on the way from codes to numbers as well.
    """
    if layout.kernel != "codes" and layout.computes == layout.dtype:
        return 0
    shape = layout.target
    piece = min(PIECE_NUMBERS, shape.hidden * max(2 * shape.intermediate, shape.vocab))
    return piece * (DTYPE_BYTES["float32"] if layout.device == "cpu" else DECODING_BYTES)
