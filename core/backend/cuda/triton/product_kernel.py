"""Products with matrices whose weights stay in codes on a CUDA GPU, in Triton's language. Compiled by
build.py when the project is built; nothing that runs on a user's computer imports this.

The planes are those of core/backend/shared/quantized.py; the bits above the nibbles are read as one whole
number for 16 codes, of 16 bits (5-bit codes) or 32 (6-bit ones). A weight is decoded in registers, in fp32
and by the very operations by which torch decodes it, none of them fused, and rounded once to the inputs'
type: so few rows and many are of one set of numbers.

The first and the last 16 codes of a chunk of 32 are factors of two products, whose inputs lie 16 columns
apart: no code changes its place. Sums are fp32. A program has TILE_M of the matrix's rows and one split of
its columns; which, follows from the matrix alone, and no input's arithmetic looks at another's. Programs that
differ in inputs alone run beside each other, so the second finds the codes on the chip.
"""

import triton
import triton.language as tl

HALF = tl.constexpr(16)  # codes: half a chunk
CHUNK = tl.constexpr(32)
SPAN_SHIFT = tl.constexpr(3)  # chunks under one pair of factors, where groups have steps: 8


@triton.jit
def factors_of(
    scale,
    offset,
    scale_steps,
    offset_steps,
    stepped,
    chunk,
    real,
    BITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    LAST: tl.constexpr,
):
    """By what the codes of the first 16 of every chunk (LAST: the last 16) are multiplied, and what is added
    to them, fp32 [rows, chunks] each. `chunk` [rows, chunks] counts those of the whole matrix.
    """
    group = chunk
    if BITS == 6:
        group = chunk * 2 + LAST
    at = tl.where(stepped != 0, chunk >> SPAN_SHIFT, group)
    some_step = real & (stepped != 0)
    step = tl.load(scale_steps + group, mask=some_step, other=1).to(tl.float32)
    factor = tl.load(scale + at, mask=real, other=0.0).to(tl.float32) * step
    shift = factor
    if SHIFTED:
        step = tl.load(offset_steps + group, mask=some_step, other=1).to(tl.float32)
        shift = tl.load(offset + at, mask=real, other=0.0).to(tl.float32) * step
    return factor, shift


@triton.jit
def weights_of(
    low,
    high,
    factor,
    shift,
    middle,
    chunk,
    real,
    BITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    LAST: tl.constexpr,
):
    """The first 16 weights of every chunk (LAST: the last 16), fp32 [rows, chunks, 16], with `factor` and
    `shift` as `factors_of` gives them. What is not `real` is 0.
    """
    i = tl.arange(0, HALF)[None, None, :]
    here = real[:, :, None]
    if BITS == 8:
        codes = tl.load(low + chunk[:, :, None] * CHUNK + LAST * HALF + i, mask=here, other=0).to(tl.int32)
    else:
        packed = tl.load(low + chunk[:, :, None] * HALF + i, mask=here, other=0).to(tl.int32)
        codes = (packed >> (4 * LAST)) & 15
    if BITS == 5 or BITS == 6:
        above = tl.load(high + chunk * 2 + LAST, mask=real, other=0).to(tl.int32)
        codes |= ((above[:, :, None] >> ((BITS - 4) * i)) & (BITS * 2 - 9)) << 4
    if SHIFTED:
        return codes.to(tl.float32) * factor[:, :, None] + shift[:, :, None]
    return (codes - middle).to(tl.float32) * factor[:, :, None]


@triton.jit
def multiply_codes(
    x,
    low,
    high,
    scale,
    offset,
    scale_steps,
    offset_steps,
    out,
    x_row,
    stepped,
    middle,
    n,
    rows,
    first,
    total,
    chunks,
    chunks_per_split,
    BITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program (tile of inputs, tile of the matrix's rows, split of its columns): x [n, columns] times the
    transposed matrix, into the columns [first, first + rows) of out fp32 [splits, n, total].
    """
    m, split = tl.program_id(1) * TILE_M + tl.arange(0, TILE_M), tl.program_id(2)
    r = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    k, c = tl.arange(0, CHUNKS * HALF), tl.arange(0, CHUNKS)
    begin = split * chunks_per_split
    end = tl.minimum(begin + chunks_per_split, chunks)
    before = tl.minimum(m, rows - 1).to(tl.int64) * chunks
    inputs = x + r[None, :].to(tl.int64) * x_row + (k // HALF * CHUNK + k % HALF)[:, None]
    asked = (r < n)[None, :]
    sums = tl.zeros([TILE_M, TILE_N], tl.float32)
    chunk = before[:, None] + (begin + c)[None, :]
    real = ((begin + c) < end)[None, :] & (m < rows)[:, None]
    factor, shift = factors_of(
        scale, offset, scale_steps, offset_steps, stepped, chunk, real, BITS, SHIFTED, 0
    )
    factor_too, shift_too = factor, shift
    if BITS == 6:
        factor_too, shift_too = factors_of(
            scale, offset, scale_steps, offset_steps, stepped, chunk, real, BITS, SHIFTED, 1
        )
    for at in range(begin, end, CHUNKS):
        chunk = before[:, None] + (at + c)[None, :]
        real = ((at + c) < end)[None, :] & (m < rows)[:, None]
        seen = (at + k // HALF < end)[:, None] & asked
        # the next ones are on their way while these are multiplied by
        after = chunk + CHUNKS
        there = ((at + CHUNKS + c) < end)[None, :] & (m < rows)[:, None]
        next_factor, next_shift = factors_of(
            scale, offset, scale_steps, offset_steps, stepped, after, there, BITS, SHIFTED, 0
        )
        next_too, next_shift_too = next_factor, next_shift
        if BITS == 6:
            next_too, next_shift_too = factors_of(
                scale, offset, scale_steps, offset_steps, stepped, after, there, BITS, SHIFTED, 1
            )
        for last in tl.static_range(2):
            by, plus = (factor, shift) if last == 0 else (factor_too, shift_too)
            weights = weights_of(low, high, by, plus, middle, chunk, real, BITS, SHIFTED, last)
            weights = tl.reshape(weights.to(x.dtype.element_ty), [TILE_M, CHUNKS * HALF])
            taken = tl.load(inputs + at * CHUNK + last * HALF, mask=seen, other=0.0)
            sums = tl.dot(weights, taken, sums)
        factor, shift, factor_too, shift_too = next_factor, next_shift, next_too, next_shift_too
    place = out + (split * n + r[None, :]).to(tl.int64) * total + first + m[:, None]
    tl.store(place, sums, mask=asked & (m < rows)[:, None])


@triton.jit
def join_products(parts, bias, out, splits, total, biased, each, TILE: tl.constexpr):
    """Program (tile, input): what `multiply_codes` left in `splits`, as one, with the bias fp32 [total] where
    there is one: out [n, total]. `each`: numbers of a split, n * total.
    """
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = column < total
    place = tl.program_id(1).to(tl.int64) * total + column
    summed = tl.load(bias + column, mask=here & (biased != 0), other=0.0)
    part = parts + place
    for _ in range(splits):
        summed += tl.load(part, mask=here, other=0.0)
        part += each
    tl.store(out + place, summed.to(out.dtype.element_ty), mask=here)


@triton.jit
def decode_rows(
    ids,
    low,
    high,
    scale,
    offset,
    scale_steps,
    offset_steps,
    out,
    stepped,
    middle,
    first,
    by_id,
    count,
    chunks,
    BITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    TILE_M: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program (tile of rows, tile of columns): the rows first + [0, count) of the matrix, or those that `ids`
    names, as numbers: out [count, columns].
    """
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    c = tl.program_id(1) * CHUNKS + tl.arange(0, CHUNKS)
    row = tl.load(ids + m, mask=(m < count) & (by_id != 0), other=0)
    row = tl.where(by_id != 0, row, first + m)
    real = (m < count)[:, None] & (c < chunks)[None, :]
    chunk = row[:, None] * chunks + c[None, :]
    target = (
        out
        + (m[:, None].to(tl.int64) * chunks + c[None, :])[:, :, None] * CHUNK
        + tl.arange(0, HALF)[None, None, :]
    )
    for last in tl.static_range(2):
        factor, shift = factors_of(
            scale, offset, scale_steps, offset_steps, stepped, chunk, real, BITS, SHIFTED, last
        )
        weights = weights_of(low, high, factor, shift, middle, chunk, real, BITS, SHIFTED, last)
        tl.store(target + last * HALF, weights.to(out.dtype.element_ty), mask=real[:, :, None])
