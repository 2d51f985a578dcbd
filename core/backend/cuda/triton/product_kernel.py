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

A step multiplies what the step before decoded, and decodes what that one read. So neither waits for memory,
and the compiler, which looks no further back than a step, reads decoded tiles as tensor cores take them.
"""

import triton
import triton.language as tl

HALF = tl.constexpr(16)  # codes: half a chunk
CHUNK = tl.constexpr(32)
WORDS = tl.constexpr(4)  # of four bytes, that hold 16 codes of 8 bits, or nibbles of 32
SIGNS = tl.constexpr(-0x7F7F7F80)  # 0x80808080: the sign of each byte of a word
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
def code_words(low, high, chunk, real, BITS: tl.constexpr, LAST: tl.constexpr):
    """What the first 16 codes of every chunk (LAST: the last 16) are made of: words of four bytes [rows,
    chunks, 4], and the bits above nibbles [rows, chunks]; 0 for what is not `real`.
    """
    w, here = tl.arange(0, WORDS)[None, None, :], real[:, :, None]
    if BITS == 8:
        word = tl.load(low + (chunk * 2 + LAST)[:, :, None] * WORDS + w, mask=here, other=0)
    else:
        word = tl.load(low + chunk[:, :, None] * WORDS + w, mask=here, other=0)
    above = chunk
    if BITS == 5 or BITS == 6:
        above = tl.load(high + chunk * 2 + LAST, mask=real, other=0).to(tl.int32)
    return word, above


@triton.jit
def among(word, mask, others):
    """word & mask | others in one instruction, of which the compiler would make two with two constants."""
    return tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 0xEA;", "=r,r,r,r", [word, mask, others], tl.int32, is_pure=True, pack=1
    )


@triton.jit
def number_at(word, above, BITS: tl.constexpr, PLACE: tl.constexpr, NUMBER: tl.constexpr):
    """2 ** (23 - PLACE) and a code, fp32: its low bits are those of `word` from PLACE on, what stands above a
    nibble is the NUMBERth in `above`. A code's bits are put where the mantissa of a float of that size counts
    in ones, so that nothing is converted.
    """
    size: tl.constexpr = (150 - PLACE) << 23
    if BITS == 8:
        bits = among(word, 255 << PLACE, size)
    else:
        bits = among(word, 15 << PLACE, size)
        if BITS == 5 or BITS == 6:
            place: tl.constexpr = PLACE + 4 - (BITS - 4) * NUMBER
            moved = above << place if place > 0 else above >> -place
            bits = among(moved, (BITS * 2 - 9) << (PLACE + 4), bits)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def weights_of(
    word, above, factor, shift, middle, BITS: tl.constexpr, SHIFTED: tl.constexpr, LAST: tl.constexpr
):
    """The weights [rows, chunks, 16], fp32, of what `code_words` gives, with `factor` and `shift` as
    `factors_of` does.
    """
    least = middle
    first: tl.constexpr = 0 if BITS == 8 else 4 * LAST
    if BITS == 8:  # signed ones, from 0 on
        word = word ^ SIGNS
        least += 128
    if SHIFTED:
        least = least - middle
    above = above[:, :, None] >> ((BITS - 4) * WORDS * tl.arange(0, WORDS)[None, None, :])
    even, odd = (least + (1 << (23 - first))).to(tl.float32), (least + (1 << (15 - first))).to(tl.float32)
    half = word >> 16
    a = number_at(word, above, BITS, first, 0) - even
    b = number_at(word, above, BITS, first + 8, 1) - odd
    c = number_at(half, above, BITS, first, 2) - even
    d = number_at(half, above, BITS, first + 8, 3) - odd
    codes = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [word.shape[0], word.shape[1], HALF])
    if SHIFTED:
        return codes * factor[:, :, None] + shift[:, :, None]
    return codes * factor[:, :, None]


@triton.jit
def halves_of(
    word, above, factor, shift, middle, x, BITS: tl.constexpr, SHIFTED: tl.constexpr, LAST: tl.constexpr
):
    """The weights of half the codes of all chunks, as numbers of x's type: [rows, chunks * 16]."""
    weights = weights_of(word, above, factor, shift, middle, BITS, SHIFTED, LAST)
    return tl.reshape(weights.to(x.dtype.element_ty), [word.shape[0], word.shape[1] * HALF])


@triton.jit
def fetched(
    low,
    high,
    scale,
    offset,
    scale_steps,
    offset_steps,
    stepped,
    chunk,
    real,
    BITS: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """All that the weights of these chunks are made of: for the first 16 of each, and for the last."""
    word, above = code_words(low, high, chunk, real, BITS, 0)
    factor, shift = factors_of(
        scale, offset, scale_steps, offset_steps, stepped, chunk, real, BITS, SHIFTED, 0
    )
    word_too, above_too, factor_too, shift_too = word, above, factor, shift
    if BITS == 8 or BITS == 5 or BITS == 6:
        word_too, above_too = code_words(low, high, chunk, real, BITS, 1)
    if BITS == 6:
        factor_too, shift_too = factors_of(
            scale, offset, scale_steps, offset_steps, stepped, chunk, real, BITS, SHIFTED, 1
        )
    return word, above, factor, shift, word_too, above_too, factor_too, shift_too


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
    mine = (m < rows)[:, None]
    planes = low, high, scale, offset, scale_steps, offset_steps, stepped
    one, up, by, plus, two, up_too, by_too, plus_too = fetched(
        *planes, chunk, ((begin + c) < end)[None, :] & mine, BITS, SHIFTED
    )
    weights = halves_of(one, up, by, plus, middle, x, BITS, SHIFTED, 0)
    weights_too = halves_of(two, up_too, by_too, plus_too, middle, x, BITS, SHIFTED, 1)
    one, up, by, plus, two, up_too, by_too, plus_too = fetched(
        *planes, chunk + CHUNKS, ((begin + CHUNKS + c) < end)[None, :] & mine, BITS, SHIFTED
    )
    last = begin + (end - begin - 1) // CHUNKS * CHUNKS
    for at in range(begin, last, CHUNKS):
        taken = tl.load(inputs + at * CHUNK, mask=asked, other=0.0)
        taken_too = tl.load(inputs + at * CHUNK + HALF, mask=asked, other=0.0)
        later = at + 2 * CHUNKS + c
        next_one, next_up, next_by, next_plus, next_two, next_up_too, next_by_too, next_plus_too = fetched(
            *planes, before[:, None] + later[None, :], (later < end)[None, :] & mine, BITS, SHIFTED
        )
        sums = tl.dot(weights, taken, sums)
        sums = tl.dot(weights_too, taken_too, sums)
        weights = halves_of(one, up, by, plus, middle, x, BITS, SHIFTED, 0)
        weights_too = halves_of(two, up_too, by_too, plus_too, middle, x, BITS, SHIFTED, 1)
        one, up, by, plus = next_one, next_up, next_by, next_plus
        two, up_too, by_too, plus_too = next_two, next_up_too, next_by_too, next_plus_too
    seen = (last + k // HALF < end)[:, None] & asked
    sums = tl.dot(weights, tl.load(inputs + last * CHUNK, mask=seen, other=0.0), sums)
    sums = tl.dot(weights_too, tl.load(inputs + last * CHUNK + HALF, mask=seen, other=0.0), sums)
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
        word, above = code_words(low, high, chunk, real, BITS, last)
        weights = weights_of(word, above, factor, shift, middle, BITS, SHIFTED, last)
        tl.store(target + last * HALF, weights.to(out.dtype.element_ty), mask=real[:, :, None])
