"""Rows of a layer with a gated delta rule through its state on a CUDA GPU, in Triton's language. Compiled by
build.py when the project is built; nothing that runs on a user's computer imports this.

Of each value head, with query q and key k of length 1 (q over the root of its size), value v, what is kept d
and the share b that is corrected (https://arxiv.org/abs/2412.06464):

    u = b (v - d S' k),    S = d S + k u',    out = S' q

Columns of a state know nothing of each other. So a program, which is one warp, holds a strip of them in its
registers and takes it through all rows of a pass, in order: memory is read once and written once, whatever
their number. No product and sum are rounded together but where the source says so (`fma`), and a row is the
same instructions whatever comes before it, so a row among many has the bits that it has alone. What its
convolution, SiLU and gates give is made anew in each program: that costs less than to write and read it.
"""

import triton
import triton.language as tl

LEAST_LENGTH = tl.constexpr(1e-6)  # squared, added to a query's and a key's


@triton.jit
def channels_of(rows, convolution, at, row, width, channels, TAPS: tl.constexpr):
    """The channels `at` of row `row`, behind the convolution and SiLU, fp32."""
    first = tl.load(rows + row * width + at).to(tl.float32)
    summed = first * tl.load(convolution + at)
    for tap in tl.static_range(1, TAPS):
        seen = tl.load(rows + (row + tap) * width + at).to(tl.float32)
        summed = tl.fma(seen, tl.load(convolution + tap * channels + at), summed)
    return summed / (1.0 + tl.exp(-summed))


@triton.jit
def of_length_1(x):
    """A query or key, as a vector of length 1."""
    return x * tl.rsqrt(tl.sum(x * x, axis=0) + LEAST_LENGTH)


@triton.jit
def softplus(x):
    """ln(1 + e^x): of a small part s = e^-|x|, ln(1 + s) = 2 artanh(s / (2 + s)), to the last digits, since
    what is kept of a state is raised to thousands of tokens.
    """
    small = tl.exp(-tl.abs(x))
    ratio = small / (2.0 + small)  # at most a third
    square = ratio * ratio
    series = square * (1.0 / 15.0) + 1.0 / 13.0
    series = series * square + 1.0 / 11.0
    series = series * square + 1.0 / 9.0
    series = series * square + 1.0 / 7.0
    series = series * square + 1.0 / 5.0
    series = series * square + 1.0 / 3.0
    return tl.maximum(x, 0.0) + 2.0 * ratio * (series * square + 1.0)


@triton.jit
def take_rows(
    rows,
    source,
    target,
    out,
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
):
    """Program (strip of columns, value head): rows [TAPS - 1 + n, width], of which the last n are the pass's
    own, from the state `source` to `target`, fp32 [value_heads, KEYS, value_dim], which may be the same; what
    is found fp32 [n, value_heads, value_dim]. A row has queries, keys and values, then for each value head
    how much is corrected and how much is kept. Value head j is of key head j modulo their number.
    """
    head, channels = tl.program_id(1), width - 2 * value_heads
    key = tl.arange(0, KEYS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    query_at = head % key_heads * KEYS + key
    key_at = query_at + key_heads * KEYS
    found_at = head * value_dim + column
    value_at = found_at + 2 * key_heads * KEYS
    place = (head * KEYS + key)[:, None] * value_dim + column[None, :]
    state = tl.load(source + place)
    rate, bias = tl.load(decay + head), tl.load(step_bias + head)
    for row in range(n):
        k = of_length_1(channels_of(rows, convolution, key_at, row, width, channels, TAPS))
        q = of_length_1(channels_of(rows, convolution, query_at, row, width, channels, TAPS))
        v = channels_of(rows, convolution, value_at, row, width, channels, TAPS)
        gates = rows + (row + TAPS - 1) * width + channels + head
        corrected = 1.0 / (1.0 + tl.exp(-tl.load(gates).to(tl.float32)))
        kept = tl.exp(rate * softplus(tl.load(gates + value_heads).to(tl.float32) + bias))
        seen = tl.sum(state * k[:, None], axis=0)
        lacking = (v - seen * kept) * corrected
        state = tl.fma(k[:, None], lacking[None, :], state * kept)
        result = tl.sum(state * q[:, None], axis=0) * KEYS**-0.5
        tl.store(out + row * value_heads * value_dim + found_at, result)
    tl.store(target + place, state)
