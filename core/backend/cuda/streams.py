"""What a card does on streams beside the computation's: copies from and to host memory, questions to the CPU,
recorded passes, and times of such. Knows no caches or models.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from statistics import median

import torch

from core.backend.base import Mark, Replay

log = logging.getLogger(__name__)

# passes before one is recorded: libraries make their handles, workspaces and choices in the first ones
WARM_UPS = 3
_TIMES = 5  # measurements of a kernel on trial, each of a few calls; the median counts
_CALLS = 4


class GraphRecorder:
    """Records CUDA graphs that share one pool of memory, on a stream beside the computation's.

    Sharing is safe because no two run at once and what a graph returns is kept, so no other is given its
    memory (https://docs.pytorch.org/docs/stable/notes/cuda.html#graph-memory-management). The pool is the
    recorder's own: of one that is its graphs' alone, what the last of them leaves may refuse another.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        with torch.cuda.device(device):
            self._pool = torch.cuda.MemPool()

    def record(self, run: Callable[[], torch.Tensor]) -> Replay:
        """See Backend.capture. Raises RuntimeError when it cannot be recorded."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            # its own `with`: a broken recording does not put the stream back
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    run()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(
                    graph, pool=self._pool.id, stream=self._stream, capture_error_mode="thread_local"
                ):
                    out = run()
        finally:
            current.wait_stream(self._stream)

        def replay() -> torch.Tensor:
            graph.replay()
            return out

        return replay


class CudaCopies:
    """Copies on one stream beside the computation's. Each waits for what was computed before it was asked
    for; the rest is by events.
    """

    def __init__(self, device: torch.device) -> None:
        self.bytes_to_device = 0
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """See HostCopies."""
        self.bytes_to_device += source.nbytes
        self._copy(target, source)

    def to_host(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """See HostCopies."""
        self._copy(target, source)

    def mark(self) -> Mark:
        """See HostCopies."""
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def wait(self, mark: Mark) -> None:
        """See HostCopies."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def finish(self, mark: Mark) -> None:
        """See HostCopies."""
        mark.synchronize()

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for into, rows in contiguous_runs(target, source):
                into.copy_(rows, non_blocking=True)
        _hand_over(torch.cuda.current_stream(self._device), self._stream)


class CudaHostAttention:
    """See HostAttention. Queries and results cross on two streams of their own: among the copies of blocks
    they would wait for all that were asked for before. `attend`: a CPU's Backend.attend_part, which `worker`
    runs, one question after the other, while this thread goes on launching.

    Buffers serve one question after the other. The next one's queries are computed from what this one found,
    so its copies come behind whatever reads that; where a pass was broken off, the next begins with `finish`.
    """

    def __init__(
        self,
        device: torch.device,
        attend: Callable[..., tuple[torch.Tensor, torch.Tensor]],
        host_memory: Callable[[Sequence[int], torch.dtype], torch.Tensor],
        worker: Executor,
    ) -> None:
        self._device, self._attend, self._host_memory = device, attend, host_memory
        self._worker = worker
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._asked: Future[int] | None = None
        self._q: torch.Tensor | None = None  # must not go before it was copied
        self._shape: tuple[int, ...] = ()
        self._room = 0  # rows that the buffers have
        self._queries = torch.empty(0)
        self._found: tuple[torch.Tensor, ...] = ()  # out and log-sum-exp on the host, and on the device

    def ask(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int) -> None:
        """See HostAttention: q [n, heads, head_dim]; k, v [blocks, kv_heads, block_tokens, width]."""
        n = q.shape[0]
        if self._shape != q.shape[1:] or self._queries.dtype != q.dtype or self._room < n:
            self._make_room(q)
        queries = self._queries[:n]
        current = torch.cuda.current_stream(self._device)
        self._down.wait_stream(current)
        with torch.cuda.stream(self._down):
            queries.copy_(q, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(self._down)
        _hand_over(current, self._down)
        self._q = q
        self._asked = self._worker.submit(self._answer, arrived, queries, k, v, length)

    def part(self) -> tuple[torch.Tensor, torch.Tensor]:
        """See HostAttention: [n, heads, head_dim] and [n, heads], fp32."""
        n, (out, lse, out_there, lse_there) = self._asked.result(), self._found
        self._q = None
        with torch.cuda.stream(self._up):
            out_there[:n].copy_(out[:n], non_blocking=True)
            lse_there[:n].copy_(lse[:n], non_blocking=True)
        torch.cuda.current_stream(self._device).wait_stream(self._up)
        _hand_over(self._up)
        return out_there[:n], lse_there[:n]

    def finish(self) -> None:
        """See HostAttention."""
        if self._asked is not None:
            self._asked.exception()
        self._q = None

    def _answer(
        self, arrived: torch.cuda.Event, queries: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int
    ) -> int:
        """On the worker's thread. Returns the number of queries."""
        arrived.synchronize()
        with torch.inference_mode():
            found = self._attend(queries.float(), k, v, length=length, causal=False)
            for into, part in zip(self._found, found, strict=False):
                into[: len(part)].copy_(part)
        return len(queries)

    def _make_room(self, q: torch.Tensor) -> None:
        self._up.synchronize()  # the last result may still be on its way from what goes now
        self._shape, self._room = q.shape[1:], q.shape[0]
        self._queries = self._host_memory(q.shape, q.dtype)
        sizes = (q.shape, q.shape[:2])
        self._found = (
            *(self._host_memory(size, torch.float32) for size in sizes),
            *(torch.empty(size, dtype=torch.float32, device=q.device) for size in sizes),
        )


def _hand_over(*streams: torch.cuda.Stream) -> None:
    """Windows' driver gathers what was asked for until somebody looks, and what a copy waits for, too."""
    if os.name == "nt":
        for stream in streams:
            stream.query()


def contiguous_runs(
    target: torch.Tensor, source: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of contiguous pieces of two tensors of one shape [..., rows, width]: torch would carry anything
    else through a temporary copy, and wait for it.
    """
    if target.is_contiguous() and source.is_contiguous():
        yield target, source
        return
    for into, rows in zip(target, source, strict=True):
        yield from contiguous_runs(into, rows)


def device_seconds(device: torch.device, run: Callable[[], torch.Tensor]) -> float:
    """Of the device alone: a recording of `run`, whose tensor [...] nobody looks at, where it can be
    recorded. Else of Python that launches.
    """
    try:
        run = GraphRecorder(device).record(run)
    except RuntimeError as error:
        log.info("timed without a recording: %s", error)
    times = []
    for _time in range(WARM_UPS + _TIMES):
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        for _call in range(_CALLS):
            run()
        torch.cuda.synchronize(device)
        times.append((time.perf_counter() - started) / _CALLS)
    return median(times[WARM_UPS:])
