"""What the model and the caches ask of a device. Knows nothing of layers, caches or decoding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from core.backend.shared.quantized import QuantizedMatrix


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What this process holds of the device's memory, and what it could still have."""

    used_bytes: int
    free_bytes: int


class Linear(Protocol):
    """A prepared matrix: x [n, in] -> [n, out]."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


class RowSource(Protocol):
    """A matrix of which rows are read: ids [n] -> [n, columns]. A tensor is one."""

    def __getitem__(self, ids: torch.Tensor) -> torch.Tensor: ...


class LayerParts(Protocol):
    """One decoder layer's weights, prepared for the backend."""

    qkv: Linear  # hidden -> (heads + 2 * kv_heads) * head_dim
    out: Linear
    gate_up: Linear  # hidden -> 2 * intermediate
    down: Linear
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    q_norm: torch.Tensor | None  # [head_dim], Qwen3
    k_norm: torch.Tensor | None


class FusedLayers(Protocol):
    """A model's layers and the norm behind them, for few rows at once."""

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
        """x [n, hidden] through all layers over the first `start` rows of a cache, which get the n rows of
        this pass behind them. A row among many gets the bits it gets alone.

        cos and signed sin [n, 1, head_dim]; k, v [layers, blocks, kv_heads, block_tokens, width]. Returns
        what the last norm gives, fp32 [n, hidden], and the rotated queries, fp32 [layers, n, heads,
        head_dim]; both until the next call. None, and nothing is done, for so many or such rows. sums: what
        attention is to leave on the way, where it can, of every layer [layers, heads, chunks].
        """
        ...


class DeltaShape(Protocol):
    """What a layer with a gated delta rule measures. `kernel`: rows that its convolution sees; `width`: of a
    row, queries, keys and values and two numbers of each value head.
    """

    @property
    def key_heads(self) -> int: ...
    @property
    def value_heads(self) -> int: ...
    @property
    def key_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def kernel(self) -> int: ...
    @property
    def width(self) -> int: ...


class DeltaParts(Protocol):
    """A layer with a gated delta rule, between its products. Value head j is of key head j modulo their
    number.
    """

    @property
    def sizes(self) -> DeltaShape: ...
    @property
    def convolution(self) -> torch.Tensor:
        """fp32 [kernel, channels]"""
        ...

    @property
    def decay(self) -> torch.Tensor:
        """fp32 [value_heads], negative"""
        ...

    @property
    def step_bias(self) -> torch.Tensor:
        """fp32 [value_heads]"""
        ...


class DeltaRows(Protocol):
    """Such a layer's rows through its state."""

    def __call__(self, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows [kernel - 1 + n, width], of which the last n are the call's own, from the state `source` to
        `target`, which may be the same, fp32 [value_heads, key_dim, value_dim]. Returns fp32 [n, value_heads,
        value_dim]. A row among any number gets the bits it gets alone.
        """
        ...


class DeltaSteps(Protocol):
    """Such a layer's rows of a prefill through its state."""

    def __call__(self, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """As DeltaRows, in place, of n rows, a multiple of 64. Other bits than rows by themselves have, or
        the same, but the same in any number of calls.
        """
        ...


class ServedDelta(NamedTuple):
    """Such a layer's rows by a kernel, and those of a prefill, None where torch serves these."""

    rows: DeltaRows
    steps: DeltaSteps | None


@dataclass(slots=True)
class ScoreRequest:
    """Asks attention for what `Backend.chunk_lse` gives of its first query over the keys that one sees, a
    last chunk that is cut by the end of a single block among them. `found` stays None where that is not left
    on the way: then it is to be asked for.
    """

    chunk: int
    found: torch.Tensor | None = None

    def of(self, layer: int) -> ScoreRequest:
        """Those of one layer, of a pass through several."""
        return ScoreRequest(self.chunk, None if self.found is None else self.found[layer])


Replay = Callable[[], torch.Tensor]
Mark = object  # a place in the order of copies; what it is inside is the backend's business


class HostCopies(Protocol):
    """Carries keys and values between host memory and the device, in the order asked for, behind the
    computation.

    A copy starts after the computation asked for before it, so a buffer may be refilled as soon as its last
    reader was launched; what is computed later waits for a copy only through `wait`. Copies run one after the
    other, also in opposite directions: a duplex bus gives each direction half its rate. `bytes_to_device` is
    the only place where bytes that cross to the device are counted.
    """

    bytes_to_device: int

    def to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Host to device. Both of one shape and dtype, [rows, head_dim] or [heads, rows, head_dim], each
        head's rows contiguous.
        """
        ...

    def to_host(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Device to host, as `to_device`: [rows, head_dim] or [heads, rows, head_dim]."""
        ...

    def mark(self) -> Mark:
        """The place behind all copies asked for so far."""
        ...

    def wait(self, mark: Mark) -> None:
        """Computation asked for from now on starts after the copies before `mark`."""
        ...

    def finish(self, mark: Mark) -> None:
        """Returns when the copies before `mark` are done: their host memory may be read and written."""
        ...


class HostAttention(Protocol):
    """The CPU's attention to keys and values in host memory, beside what the device computes. One question is
    under way at a time.
    """

    def ask(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int) -> None:
        """Has queries [n, heads, head_dim], on the device, attend to the first `length` tokens of k, v
        [blocks, kv_heads, block_tokens, width] in host memory, which every query sees. Copies that the
        device sent there must have landed, and the last question be answered.
        """
        ...

    def part(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What was asked for last, on the device, until the next question: out [n, heads, head_dim] and its
        log-sum-exp [n, heads], both fp32. Raises what broke the question.
        """
        ...

    def finish(self) -> None:
        """Returns when nothing is under way: host memory may be written, another question asked."""
        ...


class Backend(Protocol):
    """One device. Every tensor passed in lives on `device`."""

    device: torch.device
    dtype: torch.dtype  # of what is computed
    storage: torch.dtype  # of matrices and of rows of a KV cache, as they are held
    name: str  # of the device, as its maker calls it
    notes: tuple[str, ...]  # what the person should know of how it computes
    refused: Collection[str]  # compiled kernels that were tried and do not serve (compiled.py)
    # bytes that were page-locked when the system refused more; None: it never did
    page_locked_limit: int | None

    def adapt(self) -> None:
        """A moment between two steps, offered by the thread that computes, to adapt to what other programs
        do.
        """
        ...

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether this says that a device with memory of its own has too little."""
        ...

    def lost(self) -> bool:
        """Whether the device has failed for good: whatever this process asks of it fails from now on."""
        ...

    def memory(self) -> DeviceMemory:
        """The device's memory as it is now."""
        ...

    def peak_memory_bytes(self) -> int:
        """The most that this process has held of it."""
        ...

    def reserve(self, nbytes: int) -> None:
        """Takes so much of the device's memory from the system in one piece, for the computations to come:
        where it is not there, it is missed now and not in the middle of a book.
        """
        ...

    def release(self) -> None:
        """Gives memory that nothing refers to any more back to the system."""
        ...

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Host memory of `shape` and `dtype`, page-locked where that makes copies faster and the system
        allows it. It holds zeros or what its last user left. Raises MemoryError.
        """
        ...

    def make_ready(self, sizes: Sequence[int]) -> Iterator[int]:
        """Makes memory ready that `host_memory` will be asked for, in pieces of so many bytes, where that
        takes time. Yields the bytes that are ready after each piece; who asks for no more leaves those.
        Raises MemoryError.
        """
        ...

    def copies(self) -> HostCopies:
        """A new carrier between host memory and this device."""
        ...

    def host_attention(self) -> HostAttention:
        """Who asks the CPU, of this cache or of all."""
        ...

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """Prepares `weight` [out, in] for repeated products."""
        ...

    def coded(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None) -> Linear:
        """Prepares matrices [out, in] that stay in codes, one above the other, for products with exactly
        their weights; `bias` has one number for each of all their rows.
        """
        ...

    def coarse(self, matrices: Sequence[Linear]) -> list[Linear] | None:
        """The same prepared matrices for passes whose tokens are verified by others: quicker for few rows,
        whose numbers may be rounded on the way. None: there is nothing quicker.
        """
        ...

    def coded_rows(self, planes: QuantizedMatrix) -> RowSource:
        """The rows of a matrix that stays in codes, by number."""
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x ** 2) + eps) * weight over the last dimension: x [..., width] in any dtype, weight
        [width]. Returns the shape and dtype of x. arXiv 1910.07467.
        """
        ...

    def in_one(
        self,
        layers: Sequence[LayerParts],
        norm: torch.Tensor,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
    ) -> FusedLayers | None:
        """Prepares a model's layers and the norm behind them, `norm` [hidden], for passes of few rows; None
        where the layers are to be computed one by one.
        """
        ...

    def delta_rows(
        self, parts: DeltaParts, by_torch: DeltaRows, steps_by_torch: DeltaSteps
    ) -> ServedDelta | None:
        """Prepares a layer with a gated delta rule, whose rows torch computes by `by_torch` and those of a
        prefill by `steps_by_torch`; None where it is to.
        """
        ...

    def prepare(self, heads: int, kv_heads: int, head_dim: int, *, rows: torch.dtype | None = None) -> None:
        """Chooses by trying how attention of these sizes to such `rows` (None: numbers of `dtype`) is
        computed; `notes` then says what was found. Left out, the first pass does it.
        """
        ...

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> torch.Tensor:
        """Attention of queries over block-major keys and values, without dropout, scaled by head_dim ** -0.5.

        q [n, heads, head_dim]; k, v [blocks, kv_heads, block_tokens, width], rows of any type (see
        core.backend.shared.kv_rows), of which the first `length` tokens are filled. causal: the last n of
        them are the queries' own rows, and query i sees tokens up to length - n + i. sums: what is to be left
        on the way, where it can be. Returns [n, heads, head_dim]; zeros without a visible key.
        """
        ...

    def attend_part(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`attend` over some of the keys, to be joined by `merge`: out and the log-sum-exp of the scaled
        scores, fp32 [n, heads].

        Without a visible key out = 0 and lse = -inf.
        """
        ...

    def attend_more(
        self,
        total: tuple[torch.Tensor, torch.Tensor],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`total`, which `attend_part` or this gave for the same queries, joined with attention over `length`
        other keys, which every query sees. Shapes as `attend_part` has them. Written into `total`, out [n,
        heads, head_dim] and lse [n, heads], which is returned.
        """
        ...

    def chunk_lse(self, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
        """Log-sum-exp of one query's scaled scores over each chunk of keys; the first `length` keys are
        visible.

        q [heads, head_dim]; k [blocks, kv_heads, block_tokens, width], rows of any type. Returns fp32
        [heads, blocks * block_tokens / chunk], -inf for chunks without a visible key.
        """
        ...

    def attend_window(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, window: int
    ) -> torch.Tensor | None:
        """Causal `attend` in which query i sees the last `window` of the tokens up to its own alone: q [n,
        heads, head_dim]; k, v [1, kv_heads, rows, head_dim], the first `length` filled, of which the last n
        are the queries' own. Returns [n, heads, head_dim]; None: each row is to attend to its window by
        itself.
        """
        ...

    def attend_slots(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, slots: torch.Tensor
    ) -> torch.Tensor:
        """`attend` by operations that do not depend on how many rows are filled, so that `capture` may record
        them.

        q [n, heads, head_dim]; k, v [kv_heads, capacity, head_dim], finite everywhere; slots int64 [n]: query
        i sees rows [0, slots[i]].
        """
        ...

    def long_unrecorded(
        self, heads: int, kv_heads: int, head_dim: int, *, rows: torch.dtype | None = None
    ) -> str:
        """Why passes over a whole book's keys, in such `rows` (None: numbers of `dtype`), are not to be
        recorded. "": they may be, since `attend_slots` gives the bits of `attend` and reads no more.
        """
        ...

    def capture(self, run: Callable[[], torch.Tensor]) -> Replay | None:
        """Does `run` a few times and records it: each call of what is returned repeats its operations on the
        same tensors and returns the same tensor with new contents. `run` must not read from the device, and
        whatever varies must lie in tensors made before; it returns a tensor of one shape each time.

        None: the device cannot, or has no memory for it. Recordings share memory: only one may be at work.
        """
        ...
