"""The sizes that a plan's bytes follow from: layers, blocks, segments and rows of every cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from core.cache.state_sizes import RECENT_STATES, ROWS_WAITING
from core.config import Settings
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, ModelShape
from core.planning.costs import MAX_GAMMA, MAX_MIDDLE_GAMMA, PASSAGE_TOKENS

MIB = 1 << 20
BLOCK_TARGET_BYTES = 128 * MIB
STAGING_BLOCKS = 3
TOKENS_STEP = 256  # block sizes are multiples of this, so chunks never straddle blocks
SEGMENT_CUDA, SEGMENT_CPU = 32_768, 2048
CHUNK_CUDA, CHUNK_CPU = 4096, 1024
SMALLEST_SEGMENT, SMALLEST_CHUNK = 2048, 512
# least and most; 4K recovers 96% of the attention of 120K (TriForce)
BUDGET_CUDA, BUDGET_CPU = (1024, 4096), (256, 2048)
CHUNK_RETRIEVAL = 8
# generated tokens between two refreshes; longer answers become ordinary chunks
TAIL_TOKENS = 512
SINKS, WINDOW = 16, 240
# tokens by which the middle level's last pass may carry a draft beyond what was asked: its longest setting
OVERRUN = 32
# rows behind the window of a layer that has one: what an answer drafts, or is drawn several times, before it
# stands; tokens by which such rows are moved
WINDOW_ROOM, WINDOW_STEP = 512, 16
PASSAGE_SLACK = 128  # tokens that a passage's context is made larger, for another question about it
BLOCK_STEP = 64  # tokens; keeps a block in host memory aligned whatever its number of rows


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
    beside: int = 0  # tokens of a passage's context, which a card holds beside a book's
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
        return self.target.full_layers - self.on_chip

    @property
    def beside_bytes(self) -> int:
        """On a card: KV cache of a passage's context, all of its layers."""
        if not self.beside:
            return 0
        full = (self.beside + OVERRUN) * self.target.kv_bytes_per_token(self.kv_rows)
        return full + self.window_kv_bytes + self.states_bytes

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
    def window_kv_bytes(self) -> int:
        """KV cache of the layers with a window, in the target's rows; it stays on the device."""
        return self.target.window_bytes(self.dtype, self.target.window + WINDOW_ROOM + WINDOW_STEP)

    @property
    def kept_window_bytes(self) -> int:
        """Copies of windows in host memory: from before the segment at work, and from a book's end."""
        return 2 * self.target.window_bytes(self.dtype, self.target.window + WINDOW_STEP)

    @property
    def middle_window_bytes(self) -> int:
        """What the middle level has of windows: they are copied, and its draft goes behind them."""
        return self.target.window_bytes(self.dtype, self.target.window + self.spare_rows + WINDOW_STEP)

    @property
    def states_bytes(self) -> int:
        """States of one cache, on the device: at the last final token, behind the last pass, and what waits
        between them.
        """
        return 2 * self.target.state_bytes + self._state_rows_bytes(ROWS_WAITING)

    @property
    def kept_states_bytes(self) -> int:
        """Copies of states in host memory: from where segments began and ended, and from a book's end."""
        return (RECENT_STATES + 1) * (self.target.state_bytes + self._state_rows_bytes(0))

    def _state_rows_bytes(self, tokens: int) -> int:
        """Of so many tokens, and of those before them that a convolution sees."""
        seen = 0 if self.target.states is None else self.target.states.kernel - 1
        return self.target.waiting_bytes(self.computes, seen + tokens)

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


@lru_cache(4096)  # a fit asks for the same few hundreds of times
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


def plan_layout(
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
        on_chip=target.full_layers,
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
        beside=min(context, PASSAGE_TOKENS + settings.max_new_tokens + PASSAGE_SLACK) if cuda else 0,
    )


def _block_tokens(settings: Settings, target: ModelShape, rows: str, context: int) -> int:
    """Tokens per staging block: near the target size, and such that a layer's last block is nearly full."""
    wanted = settings.staging_block_mib * MIB if settings.staging_block_mib else BLOCK_TARGET_BYTES
    per_token = target.kv_bytes_per_token_layer(rows)
    most = max(TOKENS_STEP, wanted // per_token // TOKENS_STEP * TOKENS_STEP)
    blocks = math.ceil(context / most)
    return math.ceil(context / blocks / TOKENS_STEP) * TOKENS_STEP
