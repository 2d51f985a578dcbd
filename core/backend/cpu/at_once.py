"""Copies, and the CPU's attention to host memory, where the CPU is the device: all is done when asked for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import Mark

Part = tuple[torch.Tensor, torch.Tensor]


class AttentionAtOnce:
    """See HostAttention. Computed by `attend_part` (see Backend) when it is asked for."""

    def __init__(self, attend_part: Callable[..., Part]) -> None:
        self._attend_part = attend_part
        self._part: Part | None = None

    def ask(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int) -> None:
        """See HostAttention: q [n, heads, head_dim]; k, v [blocks, kv_heads, block_tokens, width]."""
        self._part = self._attend_part(q, k, v, length=length, causal=False)

    def part(self) -> Part:
        """See HostAttention: [n, heads, head_dim] and [n, heads], fp32."""
        return self._part

    def finish(self) -> None:
        """See HostAttention. Nothing is ever under way."""


class PlainCopies:
    """Copies made at once: every mark has been reached. Bytes are counted as if there were a bus, so the CPU
    can test who moves what.
    """

    def __init__(self) -> None:
        self.bytes_to_device = 0

    def to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """See HostCopies."""
        self.bytes_to_device += source.nbytes
        target.copy_(source)

    def to_host(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """See HostCopies."""
        target.copy_(source)

    def mark(self) -> Mark:
        """All is done already."""

    def wait(self, mark: Mark) -> None:
        """Done already."""

    def finish(self, mark: Mark) -> None:
        """Done already."""
