"""The shelf of contexts over the real engine: what happens to it when a device runs out of memory."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from core.backend.cpu.backend import CpuBackend
from core.cache.disk import GB, SnapshotFolder
from core.cache.full import FullKVCache
from core.cache.snapshot import SnapshotStore
from core.conversation.contexts import ContextShelf
from core.decoding.context import Context
from core.engine import Engine
from core.errors import UserError
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.tiny import engine, oracle, ours


class OutOfMemory(RuntimeError):
    """What the device says when it is full."""


class FullDevice(CpuBackend):
    """A device without room for another pass while `full`."""

    full = False

    def out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, OutOfMemory)

    def adapt(self) -> None:
        if self.full:
            raise OutOfMemory


def on(device: FullDevice, folder: Path) -> Engine:
    """A tiny engine on the device, with snapshots: what is idle is stored."""
    model = ours(oracle(), backend=device)

    def new_cache(capacity: int) -> FullKVCache:
        if device.full:
            raise OutOfMemory
        return FullKVCache(model.config.kv_shape, capacity + 32, model.backend, block_tokens=64)

    made = engine(model, new_cache=new_cache)
    made._snapshots = SnapshotStore(
        SnapshotFolder(folder), "tiny", model.config.kv_shape, device.dtype, quota_bytes=GB
    )
    return made


def test_a_context_that_lost_its_cache_harms_no_other(tmp_path: Path):
    """It stayed on the shelf without one: the next text, the idle save and the memory sum broke."""
    device = FullDevice()
    made = on(device, tmp_path)
    shelf = ContextShelf(lambda tokens, beside: made.new_context(tokens), allowance_bytes=GB)
    lost = shelf.take(("one", 1), 400)
    lost.belongs_to("one", len(PROMPT))
    device.full = True
    with pytest.raises(UserError, match="memory"):
        run(made, lost, PROMPT, GREEDY)
    assert shelf.nbytes == 0
    device.full = False
    for context in shelf.contexts:
        made.save(context, should_stop=lambda: False)
    other = shelf.take(("two", 1), 400)
    answer = run(made, other, PROMPT, GREEDY)
    assert run(made, shelf.take(("one", 1), 400), PROMPT, replace(GREEDY)) == answer


@pytest.mark.parametrize("tokens", [1, 5, 12])
def test_a_closed_context_frees_its_memory_at_once(tokens: int):
    """What watches a verification holds the cache, and the cache it: such a circle waits for the collector,
    and the memory of a text with it.
    """
    made = engine(ours(oracle()))
    context = made.new_context(400)
    cache = weakref.ref(context.cache)
    gc.disable()
    try:
        run(made, context, PROMPT, replace(GREEDY, mode="triforce", max_new_tokens=tokens))
        context.close()
        assert cache() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("length", [1, 1023, 1024, 1025, 3000])
def test_the_longest_common_prefix_is_kept(length: int):
    """Found piece by piece: no border between two pieces may cut it short or carry it on."""

    class Rows:
        length = 3001

        def resumable(self, to: int) -> int:
            return to

        def rollback(self, to: int) -> None:
            self.length = to

    context = Context(Rows(), 4000)
    context.hold(range(3001))
    ids = [*range(length), 9999, *range(length + 1, 3500)]
    assert context.keep_prefix_of(tuple(ids)) == length == context.cache.length == len(context.index)
    assert context.ids == ids[:length]
