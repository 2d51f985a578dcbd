"""The cost model: how long passes, rounds and prefill take on given speeds. Pure arithmetic; knows nothing of
fitting memory.

A pass reads its weights and KV cache and does its FLOPs; KV cache in host memory crosses the bus at the same
time, so a pass over an offloaded cache takes the longer of the two. A round of speculation is one
verification over the full cache plus as many middle passes as it takes to collect gamma tokens:

    T_round = T_verify + gamma / t_mid * (T_mid + m * T_draft),    TBT = T_round / E(p, gamma)

E(p, g) = (1 - p^(g+1)) / (1 - p) is the expected number of tokens when each of g proposals is accepted with
probability p, and t_mid = E(q, m) is what one middle pass yields from m drafted tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from core.backend.shared.compiled import (
    ATTENTION,
    COARSE,
    CODED_KV,
    CPU_HEAD_DIMS,
    DELTA,
    DTYPES,
    HEAD_DIMS,
    INPUTS_STEP,
    OLDEST,
    PRODUCTS,
    ROW_TILES,
    SHORT_PASS_ROWS,
)
from core.hardware.facts import Gpu, Hardware
from core.model.assistant_sizes import AssistantShape
from core.model.shapes import CODED_ROWS, DTYPE_BYTES, AheadShape, ModelShape
from core.planning.cpu_rates import usual_rates
from core.planning.lookup import looked_up_s
from core.text.words import GB

# Acceptance of the draft by the middle level. .35 is published for a 68M draft of a 7B model (TriForce); a
# same-family draft of a tenth of the size or more agrees far more often. N-gram lookup proposes only where
# book or answer repeat; .25 counts the passes for which it finds nothing, in answers of own words.
ACCEPTANCE_TINY_DRAFT = 0.35
ACCEPTANCE_FAMILY_DRAFT = 0.60
ACCEPTANCE_NGRAM = 0.25
# of a layer that predicts one token further: docs/decisions/0074-drafts-that-come-along.md has its source;
# of an assistant assumed to be the same
ACCEPTANCE_AHEAD = 0.5
NGRAM_GAMMA = 3  # a 4-bit pass of up to four rows costs little more than one of one
LEAST_GAMMA = 3  # shorter drafts are the draft length's decision, round by round
TINY_DRAFT_SHARE = 0.03  # of the target's weights
TINY_DRAFT_LAYERS = 2

# Of six at most: 1.6 are read on average until an answer stands (docs/LOG.md), so few take longer.
PASSAGES = 4
PASSAGE_TOKENS = 600  # 400 words and the instruction
BOOK_TOKENS = 100_000  # of a book of 300 pages
MAX_GAMMA = 32  # longer rounds trust independent acceptance too far
MAX_MIDDLE_GAMMA = 8
VRAM_EFFICIENCY = 0.91  # an RTX 4090 reads 918-924 of its 1008 GB/s
# of nominal FLOP/s in long matrix products, and in attention by FlashAttention 2: 140 and 110 of 165 TFLOP/s
# on an RTX 4090; on an H200 769 to 798 of 989, and .35 to .4 of it
EFFICIENCY, HOPPER_EFFICIENCY = (0.85, 0.67), (0.79, 0.38)
HOPPER = (9, 0)
# launch and small kernels per layer; with it a 7B middle pass takes the 20 ms seen on a 4090
GPU_LAYER_S = 0.0001
# what the host takes to ask for a layer's operations one by one, 19 to 27 of them: 10 us each, assumed. A
# pass that is not recorded takes no less
LAUNCHED_LAYER_S = 0.00027
# a sum over ranks, few rows: launch and exchange, assumed (20 to 30 us); of a layer there are two. The bytes
# of long ones cross each card's link to the host and back, at half its rate: assumed, too
SUM_S, SUM_SHARE = 0.000025, 0.5
# CPU figures: lines through passes of 1 to 9 rows of SmolLM2-135M behind 64 to 16,000 tokens, on one core and
# two, and through products of 4 million weights on one, by either instruction set (docs/LOG.md).
CPU_LAYER_S = 0.0001
# small operations of one row of one layer with a state, by torch, and how often its bytes cross: on one core
# .46, .65 and .96 ms for states of 1, 2 and 3 MB; a card's share is assumed, 35 launches (docs/LOG.md)
CPU_STATE_ROW_S, GPU_STATE_ROW_S, STATE_CROSSINGS = 0.0002, 0.00015, 3
# of a row of a layer in a card's compiled kernel, its states' bytes apart: some hundred instructions of a
# warp that waits for most of them; assumed, an H100 takes half of it
GPU_DELTA_ROW_S = 0.000002
# chunked, its products of 64 tokens in numbers of 32 bits take so many times as long as matrices', on a core
DELTA_TIMES = 6
# and row by row in the compiled kernel, as its products of few rows: 37 to 45 us for a row of 1 MB of states,
# which crosses once a pass (one core with AVX2, docs/LOG.md)
DELTA_ROW_TIMES = 1.2
COARSE_TIMES = 1.7  # as fast: products of codes with rounded inputs, 1 to 6 rows (docs/LOG.md)
TORCH_ATTENTION = 0.7  # of the compiled kernel's rates, over rows of the numbers that are computed with
PAGEABLE_SHARE = 0.5  # of the pinned copy rate
# "codes": on the CPU by the compiled kernel, bytes of Q4_K and Q6_K against those of bf16 (docs/LOG.md)
# "compiled": on a card by the compiled kernel, assumed; an H100, with more memory than arithmetic, has half
# of it (docs/decisions/0033-codes-on-a-card.md); "decoded": there by torch
# "by torch": on the CPU, where no compiled kernel serves (docs/LOG.md)
KERNEL_SPEED = {
    "float": 1.0,
    "codes": 0.9,
    "compiled": 0.8,
    "decoded": 1 / 60,
    "by torch": 1 / 30,
}  # weights pass faster by so much, one row and large matrices


@dataclass(frozen=True, slots=True)
class DeviceSpeeds:
    """What a device does per second. Rates in bytes/s and FLOP/s; `bus` and `pageable_bus` carry host memory
    to the device.

    `few_linear_flops` and `few_attention_flops` are the rates of passes of a few rows, the other two those of
    prefill. `in_turns`: in such passes it reads and computes one after the other, not both at once.
    `coarse`: how many times as fast weights in codes are multiplied with rounded inputs, as in passes that
    are verified.
    """

    weights: float
    kv: float
    few_linear_flops: float
    few_attention_flops: float
    linear_flops: float
    attention_flops: float
    layer_s: float
    state_row_s: float = 0.0
    compiled_states: bool = False  # rows go through a state by a kernel that reads it once for all of them
    coarse: float = 1.0
    in_turns: bool = False
    bus: float = math.inf
    pageable_bus: float = math.inf
    decodes_weights: bool = False  # weights in codes become numbers before they are multiplied,
    decodes_kv: bool = False  # and a cache in codes before it is attended to
    compiled_kv: bool = False  # attention to codes is a kernel's that is compiled for some sizes of heads
    sum_s: float = 0.0  # of one of the two sums of a layer over ranks, in a pass of few rows,
    sums: float = math.inf  # and bytes/s of those of a prefill


def runs_native(hardware: Hardware, kernel: str) -> bool:
    """Whether a kernel compiled for CPUs (core.backend.cpu.native) may be counted on: until its own trial on
    this computer said otherwise, on every CPU that there is a library for.
    """
    compiled_for = {"asimd"} if hardware.system == "Darwin" else {"asimd", "avx2"}
    return bool(hardware.cpu_flags & compiled_for) and kernel not in hardware.refused


def cpu_speeds(hardware: Hardware, threads: int, dtype: str) -> DeviceSpeeds:
    """Expected speeds of the CPU backend, by its compiled kernels or by torch's: as measured on this
    computer, or as usual with its instruction set.
    """
    rates = hardware.cpu_rates
    if rates is None or (rates.threads, rates.computes) != (threads, dtype) or hardware.refused:
        rates = usual_rates(hardware.cpu_flags, threads, dtype)
    attends = runs_native(hardware, ATTENTION)
    rounds = runs_native(hardware, PRODUCTS) and runs_native(hardware, COARSE)
    rate = 1.0 if attends else TORCH_ATTENTION
    return DeviceSpeeds(
        weights=rates.weights_gb_per_s * GB,
        kv=rate * rates.kv_gb_per_s * GB,
        few_linear_flops=rates.few_linear_gflops * 1e9,
        few_attention_flops=rate * rates.few_attention_gflops * 1e9,
        linear_flops=rates.linear_gflops * 1e9,
        attention_flops=rates.linear_gflops * 1e9,
        layer_s=CPU_LAYER_S,
        state_row_s=CPU_STATE_ROW_S,
        compiled_states=runs_native(hardware, DELTA),
        coarse=COARSE_TIMES if rounds else 1.0,
        in_turns=True,
        decodes_weights=not runs_native(hardware, PRODUCTS),
        decodes_kv=not attends,
    )


def serves(gpu: Gpu, dtype: str, kernel: str) -> bool:
    """Whether a compiled kernel (core.backend.shared.compiled) may be counted on: until a trial on the card
    said otherwise, on every card that it is compiled for.
    """
    capable = gpu.compute_capability is None or gpu.compute_capability >= OLDEST
    return capable and dtype in DTYPES and kernel not in gpu.refused


def gpu_speeds(gpu: Gpu, dtype: str) -> DeviceSpeeds:
    """Expected speeds of the CUDA backend on this GPU."""
    memory, flops = gpu.memory_gb_per_s * GB * VRAM_EFFICIENCY, gpu.tflops * 1e12
    linear, attention = HOPPER_EFFICIENCY if gpu.compute_capability == HOPPER else EFFICIENCY
    return DeviceSpeeds(
        weights=memory,
        kv=memory,
        few_linear_flops=flops * attention,
        few_attention_flops=flops * attention,
        linear_flops=flops * linear,
        attention_flops=flops * attention,
        layer_s=GPU_LAYER_S,
        state_row_s=GPU_DELTA_ROW_S if serves(gpu, dtype, DELTA) else GPU_STATE_ROW_S,
        compiled_states=serves(gpu, dtype, DELTA),
        decodes_weights=not serves(gpu, dtype, PRODUCTS),
        decodes_kv=not serves(gpu, dtype, CODED_KV),
        compiled_kv=True,
        bus=gpu.pcie_gb_per_s * GB,
        pageable_bus=gpu.pcie_gb_per_s * GB * PAGEABLE_SHARE,
    )


def divided_speeds(speeds: DeviceSpeeds) -> DeviceSpeeds:
    """Of a card that computes a part of a model."""
    return replace(speeds, sum_s=SUM_S, sums=speeds.bus * SUM_SHARE)


@dataclass(frozen=True, slots=True)
class StreamedKV:
    """The KV cache that crosses the bus in every full pass, and the first block, which nothing can hide."""

    pinned_bytes: int = 0
    pageable_bytes: int = 0
    block_bytes: int = 0

    def stream_s(self, speeds: DeviceSpeeds) -> float:
        """Time for what is pinned to reach the device once, beside the computation."""
        return self.pinned_bytes / speeds.bus

    def held_up_s(self, speeds: DeviceSpeeds) -> float:
        """Time for the rest: nothing else is launched while such memory is copied."""
        return self.pageable_bytes / speeds.pageable_bus

    def fill_s(self, speeds: DeviceSpeeds) -> float:
        """Time until the first block is there."""
        return min(self.block_bytes, self.pinned_bytes + self.pageable_bytes) / speeds.bus


def pass_s(
    shape: ModelShape,
    dtype: str,
    *,
    rows: int,
    kv_tokens: int,
    speeds: DeviceSpeeds,
    host: StreamedKV | None = None,
    kernel: str = "float",
    kv_rows: str | None = None,
    verified: bool = False,
    launched: bool = False,
) -> float:
    """One forward pass of `rows` tokens over `kv_tokens` of cache in rows of `kv_rows` (None: of `dtype`).
    `verified`: by another pass; `launched`: operation by operation, on a card.
    """
    both = sum if speeds.in_turns else max
    computed = -(-rows // INPUTS_STEP) * INPUTS_STEP if kernel == "compiled" else rows
    linear_flops = computed * (shape.linear_flops_per_token + shape.head_flops_per_token)
    # a card's numbers are multiplied by the kernels of long products as well
    long = kernel == "float" and not speeds.in_turns
    rate = max(speeds.few_linear_flops, speeds.linear_flops if long else 0.0)
    weights_s = shape.pass_bytes(dtype) / (speeds.weights * KERNEL_SPEED[kernel])
    weights_s *= _times_read(rows, multiplied_by_torch(dtype, kernel, speeds))
    linear = both((weights_s, linear_flops / rate))
    if verified and kernel == "codes":
        linear /= speeds.coarse
    kv_bytes = kv_tokens * shape.read_bytes_per_token(kv_rows or dtype)
    kv_bytes *= _times_read(rows, attended_by_torch(shape, speeds))
    if kv_rows == CODED_ROWS:
        kv_bytes = _read_as_codes(shape, kv_bytes, kv_tokens, dtype, speeds)
    kv_bytes *= _row_tiles(shape, rows, speeds)
    windows = shape.of_windows  # a card's kernel reads them for many rows at once; else each row its own
    together = _by_cards_kernel(windows, speeds)
    times = _row_tiles(windows, rows, speeds) if together else min(rows, SHORT_PASS_ROWS)
    kv_bytes += times * shape.window_read_bytes(dtype, min(kv_tokens, shape.window))
    attention_flops = shape.attention_flops(rows, kv_tokens)
    attention = both((kv_bytes / speeds.kv, attention_flops / speeds.few_attention_flops))
    if attended_by_torch(shape, speeds) and not speeds.decodes_kv:  # else the rates are torch's already
        attention /= TORCH_ATTENTION
    sums_s = 2 * speeds.sum_s if shape.ranks > 1 else 0.0
    compute = linear + attention + _states_s(shape, rows, speeds) + shape.layers * (speeds.layer_s + sums_s)
    compute += looked_up_s(shape, dtype, rows, bus=speeds.bus)
    if launched:
        compute = max(compute, shape.layers * LAUNCHED_LAYER_S)
    if host is None:
        return compute
    return max(compute, host.stream_s(speeds)) + host.held_up_s(speeds) + host.fill_s(speeds)


def _states_s(shape: ModelShape, rows: int, speeds: DeviceSpeeds) -> float:
    """What layers with a state take of a short pass, their products apart."""
    if not shape.state_bytes:  # a short convolution: small operations, as between other layers' products
        return shape.stateful * speeds.layer_s
    crossing = STATE_CROSSINGS * shape.state_bytes / speeds.kv
    if speeds.compiled_states and speeds.in_turns:
        return crossing + _delta_rows_s(shape, rows, speeds)
    if speeds.compiled_states:
        return crossing + rows * shape.stateful * speeds.state_row_s
    return rows * (shape.stateful * speeds.state_row_s + crossing)


def _delta_rows_s(shape: ModelShape, rows: int, speeds: DeviceSpeeds) -> float:
    return DELTA_ROW_TIMES * rows * shape.state_flops_per_token / speeds.few_linear_flops


def multiplied_by_torch(dtype: str, kernel: str, speeds: DeviceSpeeds) -> bool:
    """Whether a CPU multiplies by torch, which takes the rows of a short pass one by one
    (core.backend.shared.linear): the compiled kernel knows no numbers of 32 bits, and may not serve.
    """
    return speeds.in_turns and kernel == "float" and (dtype == "float32" or speeds.decodes_weights)


def attended_by_torch(shape: ModelShape, speeds: DeviceSpeeds) -> bool:
    """Whether a CPU attends by torch, likewise: the compiled kernel knows heads of some sizes, and may not
    serve.
    """
    return speeds.in_turns and (speeds.decodes_kv or shape.head_dim not in CPU_HEAD_DIMS)


def recorded_whole(shape: ModelShape, speeds: DeviceSpeeds) -> bool:
    """Whether passes over a KV cache that stays on a card may be recorded
    (core.model.recorded_verification): by the compiled attention, of layers that all see every token.
    """
    return shape.of_one_store and _by_cards_kernel(shape, speeds)


def _by_cards_kernel(shape: ModelShape, speeds: DeviceSpeeds) -> bool:
    """Whether a card attends by the compiled kernel."""
    return speeds.compiled_kv and not speeds.decodes_kv and shape.head_dim in HEAD_DIMS


def _times_read(rows: int, one_by_one: bool) -> int:
    return rows if one_by_one and rows <= SHORT_PASS_ROWS else 1


def _row_tiles(shape: ModelShape, rows: int, speeds: DeviceSpeeds) -> int:
    """How often a card's attention reads keys and values for so many rows. The second time they may lie in
    its cache; how much that saves was not measured.
    """
    if not _by_cards_kernel(shape, speeds):
        return 1
    return -(-rows * shape.heads // shape.kv_heads // ROW_TILES[shape.head_dim])


def _read_as_codes(shape: ModelShape, nbytes: int, tokens: int, dtype: str, speeds: DeviceSpeeds) -> float:
    """Bytes of numbers that would take as long to attend to as a cache of `tokens` in codes."""
    if attended_by_torch(shape, speeds):
        return nbytes / KERNEL_SPEED["by torch"]
    if speeds.decodes_kv or (speeds.compiled_kv and shape.head_dim not in HEAD_DIMS):
        return nbytes + tokens * 2 * shape.read_bytes_per_token(dtype)  # numbers are written and read
    return nbytes / KERNEL_SPEED["compiled"] if speeds.compiled_kv else nbytes


def hiding_rows(shape: ModelShape, kv_rows: str, speeds: DeviceSpeeds, *, pinned: bool) -> float:
    """How many rows of a segment attend to an earlier token as long as it takes to cross the bus."""
    flops = 4 * shape.heads * shape.head_dim
    bus = speeds.bus if pinned else speeds.pageable_bus
    return shape.kv_bytes_per_token_layer(kv_rows) / bus * speeds.attention_flops / flops


def prefill_seconds(
    shape: ModelShape,
    dtype: str,
    *,
    tokens: int,
    segment: int,
    speeds: DeviceSpeeds,
    chunk: int,
    host_bytes: int = 0,
    kernel: str = "float",
) -> float:
    """A prompt of `tokens` in segments: compute, behind which new KV goes to the host and earlier segments
    come back once. Weights are read once a segment; what a card's kernel decodes, is decoded for each chunk
    and read again as numbers. Layers that read what others hold are not computed.
    """
    shape = shape.storing
    compute = looked_up_s(shape, dtype, tokens, bus=speeds.bus)
    compute += tokens * shape.linear_flops_per_token / speeds.linear_flops
    compute += shape.attention_flops(tokens, 0) / speeds.attention_flops
    if speeds.compiled_states and speeds.in_turns:  # a card's kernel is for few rows
        compute += _delta_rows_s(shape, tokens, speeds)
    else:
        compute += DELTA_TIMES * tokens * shape.state_flops_per_token / speeds.linear_flops
    if shape.ranks > 1:
        compute += 2 * shape.layers * tokens * shape.hidden * DTYPE_BYTES[dtype] / speeds.sums
    segments = math.ceil(tokens / segment)
    weights = segments * shape.pass_bytes(dtype) / (speeds.weights * KERNEL_SPEED[kernel])
    if kernel == "compiled":
        moved = shape.pass_bytes(dtype) + 2 * shape.decoded().pass_bytes(dtype)
        weights = math.ceil(tokens / chunk) * moved / speeds.weights
    back = host_bytes * (segments - 1) / 2
    return max(compute + weights, (host_bytes + back) / speeds.bus)


def expected_tokens(p: float, gamma: int) -> float:
    """E(p, gamma): tokens per pass when each of gamma proposals is accepted with probability p."""
    return float(gamma + 1) if p >= 1.0 else (1.0 - p ** (gamma + 1)) / (1.0 - p)


def draft_acceptance(target: ModelShape, draft: ModelShape | None) -> float:
    """What share of the first level's proposals the middle level is assumed to accept."""
    if draft is None:
        return ACCEPTANCE_NGRAM
    if isinstance(draft, AheadShape | AssistantShape):
        return ACCEPTANCE_AHEAD
    tiny = draft.layers <= TINY_DRAFT_LAYERS or draft.parameters < TINY_DRAFT_SHARE * target.parameters
    return ACCEPTANCE_TINY_DRAFT if tiny else ACCEPTANCE_FAMILY_DRAFT


@dataclass(frozen=True, slots=True)
class Speculation:
    """The draft lengths with the least expected time between tokens."""

    gamma: int
    middle_gamma: int
    tbt_s: float


def straight_speculation(verify_s: list[float], *, draft_s: float, q: float) -> Speculation:
    """The fastest way without a middle level: so many drafted tokens straight before the full cache, which
    accepts one with probability q. `verify_s[n]` is the time of a pass with n + 1 rows.
    """
    lengths = range(1, len(verify_s))
    tbt, m = min(((verify_s[m] + m * draft_s) / expected_tokens(q, m), m) for m in lengths)
    return Speculation(m, m, tbt)


def best_speculation(
    verify_s: list[float],
    middle_s: list[float],
    *,
    draft_s: float,
    p: float,
    q: float,
    gamma: int | None = None,
    middle_gamma: int | None = None,
) -> Speculation:
    """The fastest (gamma, middle_gamma); `verify_s[n]` and `middle_s[n]` are the times of passes with n + 1
    rows.

    A given gamma or middle_gamma is kept. p: acceptance by the full cache, q: by the middle level.
    """
    options = []
    for m in [middle_gamma] if middle_gamma else range(1, MAX_MIDDLE_GAMMA + 1):
        per_token = (middle_s[m] + m * draft_s) / expected_tokens(q, m)
        for g in [gamma] if gamma else range(1, MAX_GAMMA + 1):
            round_s = verify_s[g] + g * per_token
            options.append((round_s / expected_tokens(p, g), g, m))
    tbt, g, m = min(options)
    return Speculation(g, m, tbt)
