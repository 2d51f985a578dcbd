"""Attention of few queries over a long cache on a CUDA GPU, in Triton's language. Compiled by build.py when
the project is built; nothing that runs on a user's computer imports this.

Layout: queries q [n, heads, head_dim]; keys and values [blocks, kv_heads, block_tokens, width], any strides
but contiguous rows. Query i sees the tokens [0, last[i] + offset], WINDOWED the last `window` of them alone:
`last` lies on the device, so a recorded launch follows what is written there, and an unrecorded one says the
rest by `offset`.

A row is 16-bit numbers or, CODED, int8 codes and behind them the fp32 number that they are to be multiplied
by (core/backend/shared/kv_rows.py). Codes are exact as 16-bit factors. A key's number multiplies its scores,
a value's its shares: so a cache in codes is read as it lies.

The keys go through in tiles of TILE_N tokens, none over the border of a block; a program takes
`tiles_per_split` of them for up to TILE_M of one KV head's rows, which are its queries times the query heads
that share it. What a row gives does not depend on the rows beside it: every warp holds whole rows (TILE_M is
16 times the warps), and a tile in which a row sees nothing leaves its numbers as they are. Triton gives a
warp whole rows where a product is at least as high as wide: so values are summed in parts of 64 numbers.
Heads of 512 numbers leave a warp no room for a row: there tiles of one height serve any number of rows, and
four warps share each row.

Factors are 16-bit and sums fp32 (a float32 `tl.dot` would be rounded to tf32). Running maximum and sum as in
https://arxiv.org/abs/2205.14135, splits joined by log-sum-exp as in FlashDecoding.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
MOST = tl.constexpr(127.0)  # the largest code


@triton.jit
def factor_of(rows, here, HEAD_DIM: tl.constexpr):
    """The numbers behind the codes of rows at these addresses, fp32."""
    behind = (rows + HEAD_DIM).to(tl.pointer_type(tl.float32), bitcast=True)
    return tl.load(behind, mask=here, other=0.0)


@triton.jit
def widened(codes, numbers):
    """Codes as factors of the type of `numbers`, exactly. Once in a program: what stands in machine code is
    not moved behind the reading of a tile from shared memory, where every warp would widen all of it.
    """
    same = codes.to(numbers.dtype)
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [same], numbers.dtype, is_pure=False, pack=2)


@triton.jit
def attend_split(
    q,
    k,
    v,
    last,
    out,
    lse,
    sums,
    q_row,
    q_head,
    k_block,
    k_head,
    k_row,
    v_block,
    v_head,
    v_row,
    offset,
    rows,
    group,
    kv_heads,
    block_tokens,
    tiles_per_split,
    chunks,
    window,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PART: tl.constexpr,
    CHUNK: tl.constexpr,
    CODED: tl.constexpr,
    SUMS: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """Program (row tile, split, KV head): out fp32 [splits, n, heads, head_dim] and lse fp32 [splits, n,
    heads], -inf where a row sees nothing of the split (its out is 0).

    PART: numbers of a row that one product sums. SUMS: also the log-sum-exp of the first query's scores over
    each CHUNK keys, which divide a block (a single one may end inside): sums fp32 [heads, chunks], where a
    row of this launch sees one of them.
    """
    split, head = tl.program_id(1), tl.program_id(2)
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    d, few = tl.arange(0, HEAD_DIM), tl.arange(0, PART)
    real = m < rows
    query, member = m // group, head * group + m % group
    seen = (tl.load(last + query, mask=real, other=0) + offset + 1).to(tl.int32)
    seen = tl.where(real, seen, 0)
    end = tl.max(seen, 0)
    block_tiles = tl.cdiv(block_tokens, TILE_N)
    tiles = end // block_tokens * block_tiles + tl.cdiv(end % block_tokens, TILE_N)
    first = split * tiles_per_split
    stop = tl.minimum(first + tiles_per_split, tiles)
    if WINDOWED:
        # the first token that a row here sees
        begin = tl.maximum(0, tl.min(tl.where(real, seen, end), 0) - window)
        begin = begin // block_tokens * block_tiles + begin % block_tokens // TILE_N
        first = tl.maximum(first, begin)

    rows_of_q = tl.load(
        q + query[:, None] * q_row + member[:, None] * q_head + d[None, :], mask=real[:, None], other=0.0
    )
    top = tl.full([TILE_M], -float("inf"), tl.float32)
    total = tl.zeros([TILE_M], tl.float32)
    summed = ()
    for _ in tl.static_range(HEAD_DIM // PART):
        summed = summed + (tl.zeros([TILE_M, PART], tl.float32),)
    for tile in range(first, stop):
        block = tile // block_tiles
        inside = tile % block_tiles * TILE_N + tl.arange(0, TILE_N)
        token = block * block_tokens + inside
        here = (inside < block_tokens) & (token < end)
        keys = tl.load(
            k + block * k_block + head * k_head + inside[None, :] * k_row + d[:, None],
            mask=here[None, :],
            other=0,
        )
        if CODED:
            keys = widened(keys, rows_of_q)
        scores = tl.dot(rows_of_q, keys) * (HEAD_DIM**-0.5 * LOG2E)
        if CODED:
            scores *= factor_of(k + block * k_block + head * k_head + inside * k_row, here, HEAD_DIM)[None, :]
        shown = here[None, :] & (token[None, :] < seen[:, None])
        if WINDOWED:
            shown &= token[None, :] >= seen[:, None] - window
        scores = tl.where(shown, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        shares = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        values_at = v + block * v_block + head * v_head + inside[:, None] * v_row + few[None, :]
        total = total * shrink + tl.sum(shares, 1)
        if SUMS:
            # of the rows m < group, which are the first query's; what is too small beside the largest is none
            of_chunks = tl.sum(tl.reshape(shares, [TILE_M, TILE_N // CHUNK, CHUNK]), 2)
            chunk = tile % block_tiles * (TILE_N // CHUNK) + tl.arange(0, TILE_N // CHUNK)
            place = member[:, None] * chunks + block * (block_tokens // CHUNK) + chunk[None, :]
            inner = chunk * CHUNK < block_tokens
            found = (base[:, None] + tl.log2(of_chunks)) * LN2
            tl.store(sums + place, found, mask=(m < group)[:, None] & inner[None, :])
        if CODED:
            # the row's largest number, which is about 1: 16 bits may not hold what is much smaller
            large = factor_of(v + block * v_block + head * v_head + inside * v_row, here, HEAD_DIM) * MOST
            shares *= large[None, :]
        shares = shares.to(rows_of_q.dtype)
        added = ()
        for part in tl.static_range(HEAD_DIM // PART):
            values = tl.load(values_at + part * PART, mask=here[:, None], other=0)
            if CODED:
                values = widened(values, rows_of_q)
            added = added + (tl.dot(shares, values, summed[part] * shrink[:, None]),)
        summed = added
        top = higher

    nothing = total == 0.0
    row = split * (rows * kv_heads) + query * (kv_heads * group) + member
    tl.store(lse + row, tl.where(nothing, -float("inf"), (top + tl.log2(total)) * LN2), mask=real)
    share = 1.0 / tl.where(nothing, 1.0, total)[:, None]
    if CODED:
        share *= 1.0 / MOST
    out_at = out + row[:, None] * HEAD_DIM + few[None, :]
    for part in tl.static_range(HEAD_DIM // PART):
        tl.store(out_at + part * PART, summed[part] * share, mask=real[:, None])


@triton.jit
def join_splits(
    parts,
    part_lse,
    out,
    lse,
    splits,
    rows,
    running,
    HEAD_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
):
    """Program (row): what `attend_split` left of `rows` = n * heads rows, as one: out [rows, head_dim] of
    any type, lse fp32 [rows], COLUMNS numbers of a row at a time. `running`: together with what is in out and
    lse already.
    """
    row = tl.program_id(0)
    s, d = tl.arange(0, MOST_SPLITS), tl.arange(0, COLUMNS)
    each = tl.load(part_lse + s * rows + row, mask=s < splits, other=-float("inf"))
    top, before = tl.max(each, 0), -float("inf")
    if running:
        before = tl.load(lse + row)
        top = tl.maximum(top, before)
    base = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp2((each - base) * LOG2E)
    some = each > -float("inf")
    total, weight = tl.sum(weights, 0), 0.0
    if running:
        weight = tl.exp2((before - base) * LOG2E)
        total += weight
    for first in tl.static_range(0, HEAD_DIM, COLUMNS):
        place = (s[:, None] * rows + row) * HEAD_DIM + first + d[None, :]
        part = tl.load(parts + place, mask=some[:, None], other=0.0)
        summed = tl.sum(weights[:, None] * part, 0)
        out_at = out + row * HEAD_DIM + first + d
        if running:
            summed += weight * tl.load(out_at).to(tl.float32)
        mean = summed / tl.where(total == 0.0, 1.0, total)
        tl.store(out_at, mean.to(out.dtype.element_ty))
    tl.store(lse + row, base + tl.log2(total) * LN2)
