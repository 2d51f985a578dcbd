"""A stand-in for the CUDA driver's library that takes compiled kernels and launches as the driver does: by an
image, a handle, and an array of pointers to arguments.

A launch is done on the CPU, over the very addresses it was given: by Triton's interpreter from the kernels'
own source where the Triton they are built with is installed (`interpret`), else by what the source promises
(`promise`).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from core.backend.cuda.triton.build import COMPILER, Variant, variants
from core.backend.cuda.triton.driver import read_kernel
from core.backend.shared.delta_example import DeltaExample, ExampleSizes, delta_by_definition
from core.backend.shared.quantized import QuantizedMatrix
from tests.support.recording import Recording

Grid = tuple[int, int, int]
Executor = Callable[[Variant, Grid, Sequence[int]], None]
NUMBERS = {
    "*bf16": torch.bfloat16,
    "*fp16": torch.float16,
    "*fp32": torch.float32,
    "*i64": torch.int64,
    "*i32": torch.int32,
    "*i16": torch.int16,
    "*i8": torch.int8,
    "*u8": torch.uint8,
}


def _has_compiler() -> bool:
    """torch's builds for cards bring a Triton of their own, of another version: not what is tried here."""
    try:
        return version("triton") == COMPILER
    except PackageNotFoundError:
        return False


TRITON = _has_compiler()
if TRITON:
    # before it is imported: it decides then whether its own functions can be interpreted
    os.environ["TRITON_INTERPRET"] = "1"


@cache
def _texts() -> dict[str, Variant]:
    """Every kernel that ships, by its PTX: read once, since each has its checksum taken."""
    return {read_kernel(one.name).ptx.decode("ascii"): one for one in variants()}


class Library:
    """The functions of libcuda that are used, with the driver's own checks. `refuses`: names that fail."""

    def __init__(self, execute: Executor, *, refuses: Sequence[str] = ()) -> None:
        self._execute, self._refuses = execute, refuses
        self._modules: list[tuple[str, Variant]] = []
        self.launched: list[tuple[str, Grid, int]] = []  # function, grid, stream

    def cuModuleLoadData(self, module: Any, image: ctypes.c_char_p) -> int:  # noqa: N802 (the driver's names)
        text = image.value.decode("ascii")
        if "load" in self._refuses:
            return 222
        self._modules.append((text, _texts()[text]))
        module._obj.value = len(self._modules)
        return 0

    def cuModuleGetFunction(self, function: Any, module: ctypes.c_void_p, name: ctypes.c_char_p) -> int:
        text, _ = self._modules[module.value - 1]
        if f".entry {name.value.decode('ascii')}(" not in text:
            return 500
        function._obj.value = 1000 + module.value
        return 0

    def cuGetErrorString(self, code: int, said: Any) -> int:  # noqa: N802
        said._obj.value = b"the provided PTX was compiled with an unsupported toolchain."
        return 0

    def cuLaunchKernel(self, function: ctypes.c_void_p, *rest: Any) -> int:  # noqa: N802
        *sizes, stream, places, extra = rest
        gx, gy, gz, threads, *ones, shared = (size.value for size in sizes)
        text, variant = self._modules[function.value - 1001]
        if "launch" in self._refuses or extra is not None or ones != [1, 1]:
            return 1
        assert threads == int(re.search(r"\.reqntid (\d+)", text)[1])
        assert shared <= 48 << 10, "more must be asked for by cuFuncSetAttribute"
        kinds = re.findall(r"\.param \.(\w+) ", text.partition(")")[0])
        read = {"u32": ctypes.c_int32, "u64": ctypes.c_int64}
        numbers = [read[kind].from_address(place).value for kind, place in zip(kinds, places, strict=True)]
        given = read_kernel(variant.name).given
        assert not any(numbers[given:]), "scratch memory that nobody asked for"

        def run() -> None:
            self.launched.append((variant.function, (gx, gy, gz), stream.value or 0))
            self._execute(variant, (gx, gy, gz), numbers[:given])

        recording = _get_current_dispatch_mode()
        if isinstance(recording, Recording):
            recording.launch(run)
        # what it is done by is not seen by who asked for it
        with _disable_current_modes():
            run()
        return 0


# --- Triton's interpreter ---


class Address:
    """A pointer as the interpreter asks for one."""

    def __init__(self, address: int, dtype: torch.dtype, *, whole: bool) -> None:
        assert not whole or address % 16 == 0, "the compiled kernel reads 16 bytes at a time"
        self._address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self._address


def interpret(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """The kernel's source, program by program."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    class Executor(interpreter.GridExecutor):
        """Leaves the arguments as they are: they are addresses of the host's memory."""

        def _init_args_hst(self, args: Any, named: Any) -> tuple[Any, Any]:
            return args, named

        def _restore_args_dev(self, *of: Any) -> None:
            pass

    def wide(one: Any) -> np.ndarray:
        """Its bf16 numbers are bits, which its product would multiply as integers."""
        if one.dtype.scalar == tl.bfloat16:
            return (one.data.astype(np.uint32) << 16).view(np.float32)
        assert one.dtype.scalar == tl.float16, f"{one.dtype} would be rounded to tf32 on a card"
        return one.data.astype(np.float32)

    def dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        return interpreter.TensorHandle(np.matmul(wide(a), wide(b)) + d.data, d.dtype.scalar)

    def splat(self: Any, kind: Any, one: Any) -> Any:
        """A truth among its numbers would become a whole number, which is no mask."""
        return interpreter.TensorHandle(np.full(kind.shape, one.data), one.dtype.scalar)

    def cast(self: Any, one: Any, kind: Any) -> Any:
        """To the nearest, as a card does: it cuts bf16 numbers off, and takes whole ones for their bits."""
        if kind.scalar == tl.bfloat16 and one.dtype.scalar != tl.bfloat16:
            nearest = torch.from_numpy(np.ascontiguousarray(one.data)).bfloat16().view(torch.uint16)
            return interpreter.TensorHandle(nearest.numpy(), tl.bfloat16)
        return cast_as_it_is(self, one, kind)

    class Made:
        """What an instruction in machine code gives."""

        def __init__(self, found: Any) -> None:
            self.get_result = lambda number: found

    def inline_asm(self: Any, code: str, constraints: str, values: Any, *_: Any) -> Made:
        if code == "mov.b32 $0, $1;":
            return Made(values[0])
        assert code == "lop3.b32 $0, $1, $2, $3, 0xEA;", f"no stand-in for {code}"
        one, mask, others = values
        return Made(interpreter.TensorHandle(one.data & mask.data | others.data, one.dtype.scalar))

    builder = interpreter.InterpreterBuilder
    if builder.create_dot.__name__ != dot.__name__:
        cast_as_it_is = builder.cast_impl
        builder.create_dot, builder.create_splat, builder.cast_impl = dot, splat, cast
        builder.create_inline_asm = inline_asm
    function = variant.source
    arguments = []
    for name, number in zip(function.arg_names, numbers, strict=False):
        if name in variant.pointers:
            number = Address(number, NUMBERS[variant.pointers[name]], whole=variant.is_whole(name))
        else:
            assert number % 16 == 0 or not variant.is_whole(name), f"{name}: {number}"
        arguments.append(number)
    Executor(function.fn, function.arg_names, grid)(*arguments, **variant.constants)


# --- what the source promises ---


def memory(address: int, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """Numbers that lie at an address."""
    last = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    raw = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=dtype).as_strided(tuple(size), tuple(stride))


def packed(address: int, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Likewise, without gaps."""
    return memory(address, dtype, size, torch.empty(*size, device="meta").stride())


def promise(variant: Variant, grid: Grid, numbers: Sequence[int]) -> None:
    """What each kernel's docstring says, by plain torch."""
    kinds = {name: NUMBERS[pointer] for name, pointer in variant.pointers.items()}
    PROMISES[variant.function](grid, variant.constants, kinds, numbers)


Constants = Mapping[str, int]
Kinds = Mapping[str, torch.dtype]


def _places(split: int, each: int, block_tokens: int, end: int, tile: int) -> tuple[list[int], list[int]]:
    """Block and row inside it of the keys [0, end) that are of a split."""
    block_tiles = -(-block_tokens // tile)
    blocks, inside = [], []
    for index in range(split * each, (split + 1) * each):
        block, first = index // block_tiles, index % block_tiles * tile
        rows = range(first, min(first + tile, block_tokens, end - block * block_tokens))
        blocks += [block] * len(rows)
        inside += rows
    return blocks, inside


def _rows(address: int, kind: torch.dtype, size: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Keys or values fp32 [blocks, kv_heads, block_tokens, head_dim]; a factor is behind a row's codes."""
    found = memory(address, kind, size, (*strides, 1)).float()
    if kind != torch.int8:
        return found
    steps = (*(one // 4 for one in strides), 1)
    return found * memory(address + size[-1], torch.float32, (*size[:-1], 1), steps)


def _attend_split(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    q, k, v, last, out, lse, left, q_row, q_head, *strides = numbers[:15]
    offset, rows, group, kv_heads, block_tokens, each, chunks, window = numbers[15:]
    assert grid[0] * constants["TILE_M"] >= rows and grid[2] == kv_heads
    n, heads, dim = rows // group, kv_heads * group, constants["HEAD_DIM"]
    queries = memory(q, kinds["q"], (n, heads, dim), (q_row, q_head, 1)).float()
    seen = packed(last, (n,), torch.int64) + offset + 1
    outs, sums = packed(out, (grid[1], n, heads, dim)), packed(lse, (grid[1], n, heads))
    outs.zero_()
    sums.fill_(-torch.inf)
    blocks = -(-int(seen.max()) // block_tokens)
    if blocks == 0:
        return
    keys, values = (
        _rows(address, kinds["k"], (blocks, kv_heads, block_tokens, dim), step)
        for address, step in ((k, strides[:3]), (v, strides[3:]))
    )
    if constants["SUMS"]:
        of_first = torch.einsum("hd,bhmd->hbm", queries[0], keys.repeat_interleave(group, 1)) * dim**-0.5
        hidden = torch.arange(blocks * block_tokens).view(blocks, block_tokens) >= seen[0]
        size = constants["CHUNK"]
        of_first = of_first.masked_fill(hidden, -torch.inf)
        of_first = torch.nn.functional.pad(of_first, (0, -block_tokens % size), value=-torch.inf)
        found = of_first.unflatten(2, (-1, size)).logsumexp(3).flatten(1)
        packed(left, (heads, chunks))[:, : found.shape[1]] = found
    for split in range(grid[1]):
        block, inside = _places(split, each, block_tokens, int(seen.max()), constants["TILE_N"])
        token = torch.tensor(block, dtype=torch.long) * block_tokens + torch.tensor(inside, dtype=torch.long)
        mine, theirs = (part[block, :, inside].repeat_interleave(group, 1) for part in (keys, values))
        scores = torch.einsum("nhd,mhd->nhm", queries, mine) * dim**-0.5
        scores = scores.masked_fill(token >= seen.view(-1, 1, 1), -torch.inf)
        if constants["WINDOWED"]:
            scores = scores.masked_fill(token < seen.view(-1, 1, 1) - window, -torch.inf)
        sums[split] = scores.logsumexp(-1)
        outs[split] = torch.einsum("nhm,mhd->nhd", scores.softmax(-1).nan_to_num(0.0), theirs)


def _join_splits(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    parts, part_lse, out, lse, splits, rows, running = numbers
    assert grid == (rows, 1, 1) and splits <= constants["MOST_SPLITS"]
    dim = constants["HEAD_DIM"]
    outs, sums = packed(parts, (splits, rows, dim)), packed(part_lse, (splits, rows))
    total, whole = packed(out, (rows, dim), kinds["out"]), packed(lse, (rows,))
    if running:
        outs, sums = torch.cat((outs, total.float()[None])), torch.cat((sums, whole[None]))
    total.copy_((sums.softmax(0).nan_to_num(0.0).unsqueeze(-1) * outs).sum(0))
    whole.copy_(sums.logsumexp(0))


def _held(
    bits: int, rows: int, chunks: int, pointers: Sequence[int], numbers: Sequence[int]
) -> QuantizedMatrix:
    """The matrix at these addresses."""
    stepped, shifted, middle = numbers
    low, high, scale, offset, scale_steps, offset_steps = pointers
    group = 16 if bits == 6 else 32
    groups = rows, chunks * 32 // group
    factors = (rows, chunks // 8) if stepped else groups
    wide, above = (rows, chunks * 32 if bits == 8 else chunks * 16), (rows, chunks * (bits - 4) * 4)
    return QuantizedMatrix(
        bits,
        group,
        packed(low, wide, torch.int8 if bits == 8 else torch.uint8),
        packed(scale, factors, torch.float16),
        high=packed(high, above, torch.uint8) if bits in (5, 6) else None,
        offset=packed(offset, factors, torch.float16) if shifted else None,
        scale_steps=packed(scale_steps, groups, torch.int8) if stepped else None,
        offset_steps=packed(offset_steps, groups, torch.int8) if stepped and shifted else None,
        middle=middle,
    )


def _multiply_codes(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    x, *pointers, out, x_row = numbers[:9]
    stepped, middle, n, rows, first, total, chunks, each = numbers[9:]
    shifted = constants["SHIFTED"]
    splits = grid[2]
    assert grid[0] * constants["TILE_N"] >= n and grid[1] * constants["TILE_M"] >= rows
    assert (splits - 1) * each < chunks <= splits * each
    matrix = _held(constants["BITS"], rows, chunks, pointers, (stepped, shifted, middle))
    weights = matrix.decoded().to(kinds["x"]).double()
    inputs = memory(x, kinds["x"], (n, chunks * 32), (x_row, 1)).double()
    sums = packed(out, (splits, n, total))
    for split in range(splits):
        some = slice(split * each * 32, (split + 1) * each * 32)
        sums[split, :, first : first + rows] = inputs[:, some] @ weights[:, some].t()


def _join_products(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    parts, bias, out, splits, total, biased, each = numbers
    assert grid[0] * constants["TILE"] >= total and each == grid[1] * total
    summed = packed(parts, (splits, grid[1], total)).sum(0)
    packed(out, (grid[1], total), kinds["out"]).copy_(summed + packed(bias, (total,)) if biased else summed)


def _decode_rows(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    ids, *pointers, out = numbers[:8]
    stepped, middle, first, by_id, count, chunks = numbers[8:]
    shifted = constants["SHIFTED"]
    assert grid[0] * constants["TILE_M"] >= count and grid[1] * constants["CHUNKS"] >= chunks
    rows = packed(ids, (count,), torch.int64) if by_id else torch.arange(first, first + count)
    matrix = _held(constants["BITS"], int(rows.max()) + 1, chunks, pointers, (stepped, shifted, middle))
    packed(out, (count, chunks * 32), kinds["out"]).copy_(matrix.picked(rows).decoded())


def _take_rows(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    rows, source, target, out, *factors, n, width, key_heads, value_heads, value_dim = numbers
    assert grid == (value_dim // constants["COLUMNS"], value_heads, 1)
    keys, taps = constants["KEYS"], constants["TAPS"]
    sizes = ExampleSizes(key_heads, value_heads, keys, value_dim, taps)
    assert sizes.width == width
    shapes = (taps, sizes.channels), (value_heads,), (value_heads,)
    layer = DeltaExample(sizes, *map(packed, factors, shapes))
    given = packed(rows, (taps - 1 + n, width), kinds["rows"])
    state = packed(source, (value_heads, keys, value_dim))
    found = packed(out, (n, value_heads, value_dim))
    for row in range(n):  # a state is in fp32 behind each
        one, behind = delta_by_definition(layer, state, given[row : row + taps])
        found[row], state = one[0], behind.float()
    packed(target, (value_heads, keys, value_dim)).copy_(state)


def _compare_chunks(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    rows, units, inverses, insides, *factors, width, key_heads, value_heads = numbers
    keys, taps, chunk = (constants[name] for name in ("KEYS", "TAPS", "CHUNK"))
    assert grid[1:] == (value_heads, 1)
    n, channels = grid[0] * chunk, width - 2 * value_heads
    given = packed(rows, (taps - 1 + n, width), kinds["rows"]).double()
    convolution, decay, bias = map(packed, factors, ((taps, channels), (value_heads,), (value_heads,)))
    seen = sum(given[tap : tap + n, :channels] * convolution[tap].double() for tap in range(taps))
    q, k = torch.nn.functional.silu(seen)[:, : 2 * key_heads * keys].view(n, 2, key_heads, keys).unbind(1)
    k, q = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + 1e-6) for part in (k, q))
    for place, part in ((0, k), (2, q)):
        high = part.bfloat16()
        held = packed(units, (n, key_heads, 4, keys), torch.bfloat16)
        held[:, :, place], held[:, :, place + 1] = high, (part - high).bfloat16()
    corrected, kept = given[taps - 1 :, channels:].view(-1, chunk, 2, value_heads).unbind(2)
    kept = (decay * torch.nn.functional.softplus(kept + bias)).mT.cumsum(-1)  # [chunks, value_heads, chunk]
    between = (kept[..., :, None] - kept[..., None, :]).tril().exp().tril()
    q, k = (
        part.repeat(1, value_heads // key_heads, 1).unflatten(0, (-1, chunk)).transpose(1, 2)
        for part in (q, k)
    )
    system = (k @ k.mT) * between * corrected.sigmoid().mT[..., None]
    size = grid[0], value_heads, chunk, chunk
    packed(insides, size).copy_((q @ k.mT) * between)
    packed(inverses, size).copy_(torch.linalg.inv(system.tril(-1) + torch.eye(chunk)))


def _take_chunks(grid: Grid, constants: Constants, kinds: Kinds, numbers: Sequence[int]) -> None:
    rows, source, target, out, _units, _inverses, _insides, *rest = numbers
    assert rest[3] % constants["CHUNK"] == 0
    _take_rows(grid, constants, kinds, [rows, source, target, out, *rest])


PROMISES = {
    "attend_split": _attend_split,
    "join_splits": _join_splits,
    "multiply_codes": _multiply_codes,
    "join_products": _join_products,
    "decode_rows": _decode_rows,
    "take_rows": _take_rows,
    "compare_chunks": _compare_chunks,
    "take_chunks": _take_chunks,
}
EXECUTORS = {"promise": promise, **({"interpreter": interpret} if TRITON else {})}
