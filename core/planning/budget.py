"""What a plan needs, line by line: bytes of weights, caches and work space in each place. Knows nothing of
what is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.backend.shared.pieces import PIECE_NUMBERS, PIECE_TOKENS
from core.hardware.facts import GIB
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, ModelShape
from core.planning.layout import Layout, multiple
from core.planning.plan import BudgetLine
from core.text.words import marked as N_

CUDA_CONTEXT_BYTES = GIB // 2  # driver context and library workspaces
# captured graphs: see docs/decisions/0017-cuda-graphs.md; estimated, not measured
GRAPH_BYTES = GIB // 8
SEGMENTS_BYTES = GIB // 16  # counted over whole models: tests/backend/test_peak_memory.py
SMALL_BYTES = GIB // 16  # positions, log-sum-exps, mean keys, gaps between blocks of unlike sizes
SHORT_PASS_BYTES = GIB // 8  # activations and logits of passes of few rows
PROGRAM_BYTES_CUDA = 3 * GIB  # host side of torch with CUDA, tokenizer, the app's own process
PROGRAM_BYTES_CPU = 5 * GIB // 4  # the same without CUDA
# rows of a retrieval cache that are exact beside budget and tail, and what its capacity is a multiple of
RECENT, ROWS_STEP = 64, 128

# of the RAM that a plan leaves, for what was read before: going back to it costs no prefill
_BEFORE_SHARE, _BEFORE_MOST = 0.25, 4 * GIB

# per weight of a piece that torch decodes: codes as bytes three times, fp32, and the dtype computed in
DECODING_BYTES = 9

# names of lines: keys, translated where they are shown
WEIGHTS, DECODED = N_("weights"), N_("weights decoded for a product")
DRAFT_MODEL, DRAFT_CACHE = N_("draft model"), N_("draft cache")
KV, KV_ON_CHIP = N_("KV cache"), N_("KV cache of the on-chip layers")
KV_WINDOWS = N_("KV cache of the layers with a window")
KEPT_WINDOWS = N_("copies of windows")
STATES, KEPT_STATES = N_("states of the layers without a KV cache"), N_("copies of states")
LOOKED_UP = N_("table of what tokens bring to layers")
KV_BESIDE = N_("KV cache of a passage")
KV_BEFORE = N_("KV cache of texts read before, at most")
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


def vram_lines(layout: Layout, reserve: int) -> tuple[BudgetLine, ...]:
    """What must fit in VRAM, line by line."""
    amounts = _vram_amounts(layout, reserve)
    return tuple(BudgetLine(name, amount, "VRAM") for name, amount in amounts if amount)


def vram_bytes(layout: Layout, reserve: int) -> int:
    """What must fit in VRAM, in all."""
    return sum(amount for _name, amount in _vram_amounts(layout, reserve))


def _vram_amounts(layout: Layout, reserve: int) -> list[tuple[str, int]]:
    """The work space is the larger of prefill's and decode's; the layer at work in a prefill and the next one
    have places of their own, in which a decode has its ring unless they are swept.
    """
    prefill = _activations(layout) + SMALL_BYTES
    kv = layout.target.kv_bytes_per_token(layout.dtype)
    return [
        (WEIGHTS, layout.target.weight_bytes(layout.dtype)),
        (KV_ON_CHIP, layout.on_chip * layout.layer_kv_bytes),
        (KV_WINDOWS, layout.window_kv_bytes + layout.middle_window_bytes),
        (STATES, 2 * layout.states_bytes),  # the middle level has its own
        (KV_BESIDE, layout.beside_bytes),
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


def host_lines(layout: Layout, reserve: int) -> tuple[BudgetLine, ...]:
    """What must fit in RAM; on the CPU backend that is everything."""
    if layout.device == "cpu":
        kv = layout.target.kv_bytes_per_token(layout.dtype)
        ring = layout.blocks * layout.block_bytes if layout.host_layers else 0
        lines = [
            (WEIGHTS, layout.target.weight_bytes(layout.dtype), "RAM"),
            (LOOKED_UP, _looked_up_bytes(layout), "RAM"),
            (KV, layout.on_chip * layout.layer_kv_bytes + layout.host_kv_bytes, "RAM"),
            (KV_WINDOWS, layout.window_kv_bytes + layout.middle_window_bytes, "RAM"),
            (KEPT_WINDOWS, layout.kept_window_bytes, "RAM"),
            (STATES, 2 * layout.states_bytes, "RAM"),
            (KEPT_STATES, layout.kept_states_bytes, "RAM"),
            (RETRIEVAL, layout.retrieval_tokens * kv, "RAM"),
            *((name, amount, "RAM") for name, amount in _draft_lines(layout)),
            (STAGING, ring, "RAM"),
            (DECODED, _decoded_bytes(layout), "RAM"),
            (TABLES, _tables_bytes(layout, layout.computes), "RAM"),
            (WORK_PREFILL, _activations(layout) + _cpu_copies(layout), "RAM"),
            (PROGRAM, PROGRAM_BYTES_CPU, "RAM"),
            (KEPT_FREE, reserve, "RAM"),
        ]
    else:
        pinned, pageable = layout.host_kv_split()
        lines = [
            (KV_PINNED, pinned, "pinned RAM"),
            (KV_PAGEABLE, pageable, "RAM"),
            (LOOKED_UP, _looked_up_bytes(layout), "RAM"),
            (KEPT_WINDOWS, layout.kept_window_bytes, "RAM"),
            (KEPT_STATES, layout.kept_states_bytes, "RAM"),
            (PROGRAM, PROGRAM_BYTES_CUDA, "RAM"),
            (KEPT_FREE, reserve, "RAM"),
        ]
    return tuple(BudgetLine(name, amount, place) for name, amount, place in lines if amount)


def before_lines(layout: Layout, host: Sequence[BudgetLine], free: int) -> tuple[BudgetLine, ...]:
    """What the CPU backend may keep of texts that were read before, where `host` is needed of `free` bytes.
    It takes from nothing: whether a model fits does not hang on it.
    """
    left = max(0, free - sum(line.bytes for line in host)) if layout.device == "cpu" else 0
    kept = min(int(left * _BEFORE_SHARE), _BEFORE_MOST)
    return (BudgetLine(KV_BEFORE, kept, "RAM"),) if kept else ()


def disk_lines(layout: Layout, quota: int) -> tuple[BudgetLine, ...]:
    """What the models' files take on the disk, and at most `quota` bytes of books that were read."""
    models = [layout.target, *filter(None, [layout.draft])]
    lines = [(MODEL_FILES, sum(shape.file_bytes for shape in models)), (SNAPSHOTS, quota)]
    return tuple(BudgetLine(name, amount, "disk") for name, amount in lines if amount)


def _draft_lines(layout: Layout) -> list[tuple[str, int]]:
    draft = layout.draft
    if draft is None:
        return []
    rows = layout.draft_tokens + layout.tail
    others = (draft.layers - draft.readers - draft.windowed) * draft.kv_bytes_per_token_layer(layout.dtype)
    return [
        (DRAFT_MODEL, draft.weight_bytes(layout.dtype)),
        (DRAFT_CACHE, rows * others + draft.window_bytes(layout.dtype, rows)),
    ]


def _looked_up_bytes(layout: Layout) -> int:
    return sum(shape.host_bytes for shape in (layout.target, layout.draft) if shape is not None)


def _tail_rows(layout: Layout) -> int:
    """Rows of the retrieval cache behind its budget: the newest, those since the last selection, a draft."""
    behind = RECENT + layout.retrieval_chunk + layout.tail + layout.spare_rows
    return multiple(layout.retrieval_budget + behind, ROWS_STEP) - layout.retrieval_budget


def _activations(layout: Layout) -> int:
    """Hidden states and rotations of a segment, and what a chunk of it computes with."""
    shape, size = layout.target, DTYPE_BYTES[layout.computes]
    brought = shape.storing.layers * shape.input_width
    segment = layout.segment * (shape.hidden + 2 * shape.rotation_width + brought) * size
    row = max(_row_bytes(one, size) for one in (shape, shape.of_windows))
    return segment + layout.chunk * row


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
    """What is there in prefill and in decode: tables, the newest rows of the layers in host memory, and what
    torch rounds up to whole segments.
    """
    return _tables_bytes(layout, layout.dtype) + newest_rows_bytes(layout) + SEGMENTS_BYTES


def _tables_bytes(layout: Layout, dtype: str) -> int:
    """The table of rotations in `dtype`, and scores of every chunk by query head: they grow with the context,
    to 1.6 GB for a million tokens of a 7B model in fp32.
    """
    shape = layout.target
    rotations = 2 * layout.held_tokens * shape.rotation_width * DTYPE_BYTES[dtype]
    scores = shape.full_layers * shape.heads * (layout.held_tokens // layout.retrieval_chunk) * 4
    return rotations + scores


def newest_rows_bytes(layout: Layout) -> int:
    """On a GPU: the rows of the last short pass of the layers in host memory."""
    row = layout.target.kv_bytes_per_token_layer(layout.kv_rows)
    return layout.spare_rows * layout.host_layers * row


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
