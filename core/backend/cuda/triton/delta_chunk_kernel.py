"""Chunks of rows of a layer with a gated delta rule through its state on a CUDA GPU, in Triton's language:
the steps of a prefill. Compiled by build.py when the project is built; nothing that runs on a user's computer
imports this.

Of each value head, with queries q and keys k of length 1 (q over the root of its size), values v, what is
kept d and the share b that is corrected, what the rows of a chunk correct, u, follows from one triangular
system (https://arxiv.org/abs/2412.06464, section 3.3), here with S before the chunk:

    u_i + b_i sum over j < i of d_(j+1) ... d_i (k_i' k_j) u_j = b_i (v_i - d_1 ... d_i S' k_i)

What of this is of no state, its inverse among it, is made for all chunks side by side (`compare_chunks`).
Then a program holds a strip of a state's columns, which know nothing of each other, and takes it through
chunk after chunk (`take_chunks`): a state is read once and written once, whatever their number. Products are
those of tensor cores, of numbers in two parts of 8 bits each, summed in fp32. Chunks of 16 rows leave
registers for the parts of keys, queries and state that a product needs at once.
"""

import triton
import triton.language as tl

from core.backend.cuda.triton.delta_kernel import LEAST_LENGTH, softplus


@triton.jit
def channels_of_chunk(rows, convolution, at, row, width, channels, TAPS: tl.constexpr):
    """The channels `at` of some rows, behind the convolution and SiLU, fp32 [rows, channels]."""
    place = row[:, None] * width + at[None, :]
    summed = tl.load(rows + place).to(tl.float32) * tl.load(convolution + at)[None, :]
    for tap in tl.static_range(1, TAPS):
        seen = tl.load(rows + tap * width + place).to(tl.float32)
        summed += seen * tl.load(convolution + tap * channels + at)[None, :]
    return summed / (1.0 + tl.exp(-summed))


@triton.jit
def rows_of_length_1(x):
    """Queries or keys [rows, numbers], each as a vector of length 1."""
    return x * tl.rsqrt(tl.sum(x * x, axis=1) + LEAST_LENGTH)[:, None]


@triton.jit
def two_parts_of(x):
    """fp32 numbers as the sum of two bf16, to 16 bits."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def product(a_high, a_low, b_high, b_low):
    """Of matrices in two parts, on tensor cores, fp32."""
    return tl.dot(a_high, b_high, tl.dot(a_high, b_low, tl.dot(a_low, b_high)))


@triton.jit
def inverse_of(system, row, column, CHUNK: tl.constexpr):
    """Of I + a strictly lower triangular matrix, by blocks on its diagonal, twice as large at each turn: of
    [[P, 0], [R, Q]] it is [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]]. No number becomes larger than the inverse's.
    """
    inverse = tl.where(row == column, 1.0, tl.where(row >> 1 == column >> 1, -system, 0.0))
    for turn in tl.static_range(1, 6):
        if (1 << turn) < CHUNK:
            below = (row >> (turn + 1) == column >> (turn + 1)) & (row >> turn != column >> turn)
            high, low = two_parts_of(inverse)
            b_high, b_low = two_parts_of(tl.where(below, system, 0.0))
            first_high, first_low = two_parts_of(product(high, low, b_high, b_low))
            inverse -= product(first_high, first_low, high, low)
    return inverse


@triton.jit
def gates_of(gates, row, value_heads, rate, bias):
    """How much of some rows is corrected, and the logarithm of what is kept, of one value head."""
    corrected = 1.0 / (1.0 + tl.exp(-tl.load(gates + row).to(tl.float32)))
    return corrected, rate * softplus(tl.load(gates + row + value_heads).to(tl.float32) + bias)


@triton.jit
def compare_chunks(
    rows,
    units,
    inverses,
    insides,
    convolution,
    decay,
    step_bias,
    width,
    key_heads,
    value_heads,
    KEYS: tl.constexpr,
    TAPS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program (chunk, value head): of rows [TAPS - 1 + n, width], as take_rows of delta_kernel.py has them,
    what is of no state: the system's inverse, and queries by keys times what is kept between the two rows,
    fp32 [chunks, value_heads, CHUNK, CHUNK]; and keys and queries in two parts, bf16 [n, key_heads, 4, KEYS].
    """
    chunk, head, channels = tl.program_id(0), tl.program_id(1), width - 2 * value_heads
    token = tl.arange(0, CHUNK)
    some, row, column = chunk * CHUNK + token, token[:, None], token[None, :]
    query_at = head % key_heads * KEYS + tl.arange(0, KEYS)
    k = channels_of_chunk(rows, convolution, query_at + key_heads * KEYS, some, width, channels, TAPS)
    q = channels_of_chunk(rows, convolution, query_at, some, width, channels, TAPS)
    k_high, k_low = two_parts_of(rows_of_length_1(k))
    q_high, q_low = two_parts_of(rows_of_length_1(q))
    t_high, t_low = tl.trans(k_high), tl.trans(k_low)
    corrected, kept = gates_of(
        rows + channels + head,
        (some + TAPS - 1) * width,
        value_heads,
        tl.load(decay + head),
        tl.load(step_bias + head),
    )
    # sums of what lies between two rows, not differences of sums: these lose their small part
    between = tl.exp(tl.cumsum(tl.where(row > column, kept[:, None], 0.0), axis=0))
    system = product(k_high, k_low, t_high, t_low) * between * corrected[:, None]
    inside = tl.where(row >= column, product(q_high, q_low, t_high, t_low) * between, 0.0)
    if head < key_heads:
        unit = ((some * key_heads + head) * 4 * KEYS)[:, None] + tl.arange(0, KEYS)[None, :]
        tl.store(units + unit, k_high)
        tl.store(units + unit + KEYS, k_low)
        tl.store(units + unit + 2 * KEYS, q_high)
        tl.store(units + unit + 3 * KEYS, q_low)
    place = ((chunk * value_heads + head) * CHUNK + row) * CHUNK + column
    tl.store(insides + place, inside)
    tl.store(inverses + place, inverse_of(tl.where(row > column, system, 0.0), row, column, CHUNK))


@triton.jit
def take_chunks(
    rows,
    source,
    target,
    out,
    units,
    inverses,
    insides,
    convolution,
    decay,
    step_bias,
    n,
    width,
    key_heads,
    value_heads,
    value_dim,
    KEYS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAPS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program (strip of columns, value head): as take_rows of delta_kernel.py, of n rows, a multiple of
    CHUNK, behind compare_chunks.
    """
    head, channels = tl.program_id(1), width - 2 * value_heads
    key = tl.arange(0, KEYS)
    strip = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    found_at = head * value_dim + strip
    value_at = found_at + 2 * key_heads * KEYS
    place = (head * KEYS + key)[:, None] * value_dim + strip[None, :]
    state = tl.load(source + place)
    rate, bias = tl.load(decay + head), tl.load(step_bias + head)
    token = tl.arange(0, CHUNK)
    row, column = token[:, None], token[None, :]
    for chunk in range(n // CHUNK):
        some = chunk * CHUNK + token
        corrected, kept = gates_of(rows + channels + head, (some + TAPS - 1) * width, value_heads, rate, bias)
        to_here = tl.exp(tl.cumsum(kept, axis=0))[:, None]
        from_here = tl.exp(tl.sum(tl.where(row > column, kept[:, None], 0.0), axis=0))[:, None]
        s_high, s_low = two_parts_of(state)
        unit = units + ((some * key_heads + head % key_heads) * 4 * KEYS)[:, None] + key[None, :]
        k_high, k_low = tl.load(unit), tl.load(unit + KEYS)
        seen = product(k_high, k_low, s_high, s_low) * to_here
        q_high, q_low = tl.load(unit + 2 * KEYS), tl.load(unit + 3 * KEYS)
        result = product(q_high, q_low, s_high, s_low) * to_here
        v = channels_of_chunk(rows, convolution, value_at, some, width, channels, TAPS)
        inner = ((chunk * value_heads + head) * CHUNK + row) * CHUNK + column
        i_high, i_low = two_parts_of(tl.load(inverses + inner))
        w_high, w_low = two_parts_of((v - seen) * corrected[:, None])
        lacking = product(i_high, i_low, w_high, w_low)
        i_high, i_low = two_parts_of(tl.load(insides + inner))
        l_high, l_low = two_parts_of(lacking)
        result += product(i_high, i_low, l_high, l_low)
        tl.store(out + some[:, None] * (value_heads * value_dim) + found_at[None, :], result * KEYS**-0.5)
        l_high, l_low = two_parts_of(lacking * from_here)
        gained = product(tl.trans(k_high), tl.trans(k_low), l_high, l_low)
        state = state * tl.exp(tl.sum(kept, axis=0)) + gained
    tl.store(target + place, state)
