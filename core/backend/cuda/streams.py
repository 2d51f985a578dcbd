"""What a card does on streams beside the computation's: copies from and to host memory, and recorded passes.
Knows no caches or models.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import torch

from core.backend.base import Mark, Replay

# passes before one is recorded: libraries make their handles, workspaces and choices in the first ones
WARM_UPS = 3


class GraphRecorder:
    """Records CUDA graphs that share one pool of memory, on a stream beside the computation's.

    Sharing is safe because no two run at once and what a graph returns is kept, so no other is given its
    memory (https://docs.pytorch.org/docs/stable/notes/cuda.html#graph-memory-management).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

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
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
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
        if os.name == "nt":
            # its driver gathers what was asked for until somebody looks, and what the copy waits for, too
            torch.cuda.current_stream(self._device).query()
            self._stream.query()


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
