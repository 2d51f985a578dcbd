"""Loads layers.c's library for this computer and calls it: few rows through all layers of a model at once.
The model goes layer by layer where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from core.backend.base import LayerParts, ScoreRequest
from core.backend.cpu.native.attention import KINDS, AttentionCall, NativeAttention
from core.backend.cpu.native.library import library_path, load_checked
from core.backend.cpu.native.products import NativeProducts, ProductCall, QuantizedCall, matrix_call
from core.backend.cpu.quantized_linear import Dequantizer, QuantizedLinear
from core.backend.shared.compiled import CPU_HEAD_DIMS, SHORT_PASS_ROWS
from core.backend.shared.kv_rows import as_rows
from core.backend.shared.quantized import CHUNK, QuantizedMatrix


class _Matrix(ctypes.Structure):
    """struct matrix of layers.h."""

    _fields_ = [
        ("parts", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "columns", "num_parts")),
    ]


class _Layer(ctypes.Structure):
    """struct layer of layers.h."""

    _fields_ = [
        *((name, _Matrix) for name in ("qkv", "out", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("attention_norm", "mlp_norm", "q_norm", "k_norm")),
    ]


class _Pass(ctypes.Structure):
    """struct pass of layers.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("layers", "norm", "cos", "sin", "x", "queries", "projected")),
        *((name, ctypes.c_void_p) for name in ("gate_up", "gated", "sum", "k", "v")),
        *((name, ctypes.c_int64) for name in ("layer_bytes", "start", "num_layers", "hidden", "inner")),
        *((name, ctypes.c_void_p) for name in ("multiply", "attend")),
        ("product", ProductCall),
        ("attention", AttentionCall),
        ("eps", ctypes.c_float),
    ]


class AttentionSizes(NamedTuple):
    """The sizes of a model's attention."""

    heads: int
    kv_heads: int
    head_dim: int


class NativeLayers:
    """One library for one instruction set, with the kernels that it calls. Raises OSError where it cannot be
    loaded.
    """

    def __init__(self, path: Path, attention: NativeAttention, products: NativeProducts) -> None:
        self.attention, self.products = attention, products
        library = ctypes.CDLL(str(path))
        self.run = getattr(library, f"pass_{products.instructions}")
        self.run.restype = None

    def prepared(
        self, layers: Sequence[LayerParts], norm: torch.Tensor, heads: AttentionSizes, eps: float
    ) -> NativeModel | None:
        """A model's layers and the norm behind them, `norm` [hidden]; None where one of them is not for this
        library.
        """
        matrices = [part for one in layers for part in (one.qkv, one.out, one.gate_up, one.down)]
        kernels = {part.products if isinstance(part, QuantizedLinear) else None for part in matrices}
        even = norm.shape[0] % CHUNK == 0 and heads.head_dim in CPU_HEAD_DIMS
        if None in kernels or len(kernels) > 1 or not even:
            return None
        return NativeModel(self, kernels.pop(), layers, norm, heads, eps)


class NativeModel:
    """See core.backend.base.FusedLayers. What describes the weights is made once; work space is kept and
    grows.
    """

    def __init__(
        self,
        library: NativeLayers,
        products: NativeProducts,
        layers: Sequence[LayerParts],
        norm: torch.Tensor,
        heads: AttentionSizes,
        eps: float,
    ) -> None:
        self._library, self._products, self._heads = library, products, heads
        self.instructions = products.instructions
        self._kept: list[object] = []  # what is pointed to
        self._layers = (_Layer * len(layers))(*map(self._layer, layers))
        self._hidden, self._inner = norm.shape[0], layers[0].down.columns
        wide = heads.heads + 2 * heads.kv_heads
        # numbers of each kind of work space that a row takes
        self._sizes = {
            "x": self._hidden,
            "queries": len(layers) * heads.heads * heads.head_dim,
            "projected": wide * heads.head_dim,
            "gate_up": 2 * self._inner,
            "gated": self._inner,
            "sum": self._hidden,
            "mixed": heads.heads * heads.head_dim,
            "lse": heads.heads,
        }
        self._space: dict[str, torch.Tensor] = {}
        self._widest = max(
            part.columns for one in layers for part in (one.qkv, one.out, one.gate_up, one.down)
        )
        self._call = _Pass(
            layers=ctypes.addressof(self._layers),
            norm=self._vector(norm),
            num_layers=len(layers),
            hidden=self._hidden,
            inner=self._inner,
            multiply=products.entry,
            attend=library.attention.entry,
            attention=AttentionCall(**heads._asdict(), causal=1),
            eps=eps,
        )

    def __call__(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        start: int,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See FusedLayers."""
        n = x.shape[0]
        if n > SHORT_PASS_ROWS or not NativeAttention.takes_rows(k[0]):
            return None
        assert start + n <= k.shape[1] * k.shape[3], f"rows {start}..{start + n} do not fit {tuple(k.shape)}"
        cos, sin = (part.float().contiguous() for part in (cos, sin))
        call, space = self._call, {name: self._room(name, n * size) for name, size in self._sizes.items()}
        rows = space["x"].view(n, self._hidden).copy_(x)
        for name in ("x", "queries", "projected", "gate_up", "gated", "sum"):
            setattr(call, name, space[name].data_ptr())
        call.cos, call.sin, call.k, call.v = (part.data_ptr() for part in (cos, sin, k, v))
        call.layer_bytes, call.start = k.stride(0) * k.element_size(), start
        attention, products = self._library.attention, self._products
        call.attention.out, call.attention.lse = space["mixed"].data_ptr(), space["lse"].data_ptr()
        attention.lay_out(call.attention, k[0], v[0], n=n, length=start + n)
        attention.leave(call.attention, sums, k[0, : -(-(start + n) // k.shape[3])], len(self._layers))
        call.attention.scratch = self._room("attention", attention.scratch_floats(call.attention)).data_ptr()
        team = products.team()
        call.product.team = call.attention.team = team
        floats = team.threads * products.scratch_floats(self._widest)
        call.product.scratch = self._room("product", floats).data_ptr()
        self._library.run(ctypes.byref(call))
        heads = self._heads
        return rows, space["queries"].view(len(self._layers), n, heads.heads, heads.head_dim)

    def _room(self, name: str, floats: int) -> torch.Tensor:
        """So many numbers of work space, which may hold anything."""
        found = self._space.get(name)
        if found is None or found.numel() < floats:
            found = self._space[name] = torch.empty(floats)
        return found[:floats]

    def _layer(self, layer: LayerParts) -> _Layer:
        matrices = {name: self._matrix(getattr(layer, name)) for name in ("qkv", "out", "gate_up", "down")}
        norms = ("attention_norm", "mlp_norm", "q_norm", "k_norm")
        return _Layer(**matrices, **{name: self._vector(getattr(layer, name)) for name in norms})

    def _matrix(self, linear: QuantizedLinear) -> _Matrix:
        parts = (QuantizedCall * len(linear.parts))(*map(matrix_call, linear.parts))
        self._kept += [parts, linear]
        return _Matrix(
            parts=ctypes.addressof(parts),
            bias=self._vector(linear.bias),
            rows=sum(part.rows for part in linear.parts),
            columns=linear.columns,
            num_parts=len(parts),
        )

    def _vector(self, numbers: torch.Tensor | None) -> int | None:
        """Where they lie as fp32."""
        if numbers is None:
            return None
        self._kept.append(numbers.float().contiguous())
        return self._kept[-1].data_ptr()


def native_layers(
    cpu_flags: Collection[str], attention: NativeAttention | None, products: NativeProducts | None
) -> NativeLayers | None:
    """The library for a CPU with these flags, calling these kernels; None where one of the three is missing
    or computes wrongly.
    """
    if attention is None or products is None:
        return None
    return load_checked(
        library_path("layers"),
        cpu_flags,
        lambda path, _instructions, _openmp: NativeLayers(path, attention, products),
        _agrees,
        "layers are computed one by one",
    )


class _Layer64(NamedTuple):
    """A layer of random numbers with heads of 64: see LayerParts."""

    qkv: QuantizedLinear
    out: QuantizedLinear
    gate_up: QuantizedLinear
    down: QuantizedLinear
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor


def _agrees(library: NativeLayers) -> bool:
    """Against torch, step by step: two layers, three rows behind five of each kind of rows."""
    heads, dice = AttentionSizes(4, 2, 64), torch.Generator().manual_seed(0)
    layers = [_example(library.products, dice) for _ in range(2)]
    norm = torch.rand(96, generator=dice) + 0.5
    model = library.prepared(layers, norm, heads, 1e-5)
    x = torch.randn(3, 96, generator=dice)
    angles = torch.rand(3, 1, 32, generator=dice)
    cos, sin = angles.cos().repeat(1, 1, 2), torch.cat((-angles.sin(), angles.sin()), -1)
    for dtype in KINDS:
        k, v = (
            as_rows(torch.randn(2, 2, 2, 6, 64, generator=dice), 64, dtype).contiguous() for _ in range(2)
        )
        want = _step_by_step(library.attention, layers, norm, heads, x, (cos, sin), (k.clone(), v.clone()))
        found, _queries = model(x, cos, sin, k, v, 5)
        if not torch.allclose(found, want, atol=1e-3):
            return False
    return True


def _example(products: NativeProducts, dice: torch.Generator) -> _Layer64:
    def matrix(rows: int, columns: int) -> QuantizedLinear:
        numbers = torch.randn(rows, columns, generator=dice).div_(columns**0.5).bfloat16()
        bias = torch.randn(rows, generator=dice)
        decoder = Dequantizer(torch.float32, numbers.device)
        return QuantizedLinear([QuantizedMatrix.of_numbers(numbers)], bias, decoder, products)

    def norm(size: int) -> torch.Tensor:
        return torch.rand(size, generator=dice) + 0.5

    parts = matrix(512, 96), matrix(96, 256), matrix(320, 96), matrix(96, 160)
    return _Layer64(*parts, *(norm(size) for size in (96, 96, 64, 64)))


def _step_by_step(
    attention: NativeAttention,
    layers: Sequence[_Layer64],
    norm: torch.Tensor,
    heads: AttentionSizes,
    x: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    cache: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    (cos, sin), (keys, values), start, x = rotation, cache, 5, x.clone()
    for layer, k, v in zip(layers, keys, values, strict=True):
        own = layer.qkv(_normed(x, layer.attention_norm)).view(len(x), -1, heads.head_dim)
        q, new_k, new_v = own.split((heads.heads, heads.kv_heads, heads.kv_heads), 1)
        q, new_k = (
            part * cos + part.roll(heads.head_dim // 2, -1) * sin
            for part in (_normed(q, layer.q_norm), _normed(new_k, layer.k_norm))
        )
        for row in range(len(x)):
            block, inside = divmod(start + row, k.shape[2])
            k[block, :, inside] = as_rows(new_k[row], heads.head_dim, k.dtype)
            v[block, :, inside] = as_rows(new_v[row], heads.head_dim, v.dtype)
        mixed, _lse = attention.attend(q, k, v, length=start + len(x), causal=True)
        x += layer.out(mixed.flatten(1))
        gate, up = layer.gate_up(_normed(x, layer.mlp_norm)).chunk(2, -1)
        x += layer.down(torch.nn.functional.silu(gate) * up)
    return _normed(x, norm)


def _normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight
