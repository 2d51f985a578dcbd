"""Recorded passes beside eager ones: models and caches driven as the decoder drives them, without tests."""

from __future__ import annotations

from dataclasses import replace

import torch

from core.assembly.composition import Composer
from core.backend.base import Backend
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.engine import Engine
from core.model.cuda_graphs import GraphedForward
from core.model.joined_matrices import PartialHead
from core.model.llama import LlamaModel
from tests.support.engine_runs import PROMPT
from tests.support.tiny import PLAN, VOCAB, oracle, ours

ROWS = range(1, 5)
BUSY = [
    ("feed", 2),
    ("feed", 1),
    ("commit", 2),
    ("feed", 3),
    ("rollback", 2),
    ("feed", 1),
    ("commit", 4),
    ("feed", 2),
]


def retrieval(
    model: LlamaModel, source: FullKVCache, like: RetrievalKVCache | None = None
) -> RetrievalKVCache:
    return RetrievalKVCache(
        source, budget=32, chunk=8, recent=8, tail_tokens=24, slack=40, store=like and like.store
    )


def streaming(model: LlamaModel, like: StreamingKVCache | None = None) -> StreamingKVCache:
    return StreamingKVCache(
        model.config.kv_shape,
        model.backend,
        model.rope.rotate,
        sinks=3,
        window=9,
        slack=90,
        store=like and like.store,
    )


def full(model: LlamaModel) -> FullKVCache:
    return FullKVCache(model.config.kv_shape, 400, model.backend, block_tokens=32)


class Middle:
    """A model, its full cache with part of a book in it, and a retrieval cache over that, driven as the
    decoder drives them.
    """

    def __init__(
        self, backend: Backend, *, graphs: bool, kv_heads: int, family: str = "llama", **more: int
    ) -> None:
        self.model = ours(oracle(family, kv_heads=kv_heads, **more), backend=backend)
        self.cache = retrieval(self.model, full(self.model))
        self.passes: LlamaModel | GraphedForward = self.model
        if graphs:
            self.cache.advance(40)
            self.passes = GraphedForward(self.model, self.cache, ROWS, only_faster=False)
        self.begin()

    def begin(self) -> None:
        """The next conversation, with the same memory."""
        self.source = full(self.model)
        self.cache = retrieval(self.model, self.source, self.cache)
        self.tokens = list(PROMPT[:70])
        self.source.observer = self.cache.policy.tap
        self.model.forward(self.tokens, self.source)
        self.source.commit(len(self.tokens))
        self.cache.refresh()

    def feed(self, n: int) -> torch.Tensor:
        tokens = [(len(self.tokens) * 7 + i * 3) % VOCAB for i in range(n)]
        return self.passes.forward(tokens, self.cache)

    def rollback(self, n: int) -> None:
        self.cache.rollback(max(len(self.tokens), self.cache.length - n))

    def commit(self, n: int) -> None:
        """n tokens are verified by the full cache, which is observed; then the retrieval cache is selected
        anew.
        """
        tokens = [(len(self.tokens) * 5 + i) % VOCAB for i in range(n)]
        self.source.observer = self.cache.policy.observe
        self.model.forward(tokens, self.source)
        self.source.observer = None
        self.tokens += tokens
        self.source.commit(len(self.tokens))
        self.cache.commit(len(self.tokens))
        if len(self.tokens) % 3 == 0:
            self.cache.refresh()


class Level0:
    """A model over a streaming cache."""

    def __init__(
        self, backend: Backend, *, graphs: bool, kv_heads: int, family: str = "llama", **more: int
    ) -> None:
        self.model = ours(oracle(family, kv_heads=kv_heads, **more), backend=backend)
        ids = torch.arange(3, VOCAB, 2)
        self.model._head = PartialHead(
            backend.linear(self.model.embedding[ids]), ids.to(backend.device), VOCAB
        )
        self.cache = streaming(self.model)
        self.passes: LlamaModel | GraphedForward = self.model
        if graphs:
            self.cache.advance(12)
            self.passes = GraphedForward(self.model, self.cache, ROWS, only_faster=False)
        self.begin()

    def begin(self) -> None:
        self.cache = streaming(self.model, self.cache)

    def feed(self, n: int) -> torch.Tensor:
        return self.passes.forward([(self.cache.length * 7 + i * 3) % VOCAB for i in range(n)], self.cache)

    def rollback(self, n: int) -> None:
        self.cache.rollback(max(self.cache.committed, self.cache.length - n))

    def commit(self, n: int) -> None:
        self.cache.commit(max(self.cache.committed, self.cache.length - n + 1))


def compare(
    kind: type[Middle] | type[Level0],
    ops: list[tuple[str, int]],
    backend: Backend,
    *,
    like: Backend | None = None,
    off: float = 1e-4,
    **sizes: object,
) -> None:
    """Does the same to eager passes on `like`, the CPU, and to replayed ones on `backend`, and compares what
    every pass says.
    """
    eager, replayed = kind(like or CpuBackend(), graphs=False, **sizes), kind(backend, graphs=True, **sizes)
    assert replayed.passes.rows == tuple(ROWS)
    for op, n in ops:
        if op == "feed" and eager.cache.length - eager.cache.committed < 30:
            want, got = eager.feed(n), replayed.feed(n)
            got, want = (logits.cpu().nan_to_num(neginf=0.0) for logits in (got, want))
            assert float((got - want).abs().max()) <= off * float(want.abs().max()), (
                f"{n} rows are off by {(got - want).abs().max()}"
            )
        elif op == "next":
            eager.begin()
            replayed.begin()
        elif op != "feed":
            getattr(eager, op)(n)
            getattr(replayed, op)(n)


def prepared(backend: Backend, *, kv_heads: int, graphs: str = "on") -> Engine:
    """An engine whose short passes are recorded, with a draft model of its own vocabulary."""
    model = ours(oracle(kv_heads=kv_heads), backend=backend)
    plan = replace(PLAN, cuda_graphs=graphs)
    composer = Composer(plan, model, small_draft(backend))
    composer.prepare()
    return Engine(
        model,
        plan,
        new_cache=lambda capacity: FullKVCache(
            model.config.kv_shape, capacity + 32, backend, block_tokens=64
        ),
        compose=composer.compose,
        peak_memory=lambda: 1,
    )


def small_draft(backend: Backend) -> LlamaModel:
    draft, ids = ours(oracle(tied=True), backend=backend), torch.arange(0, VOCAB, 2)
    draft._head = PartialHead(backend.linear(draft.embedding[ids]), ids.to(backend.device), VOCAB)
    return draft
