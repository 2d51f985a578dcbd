"""How many operations a streamed pass and a round ask of a card: each takes microseconds of the thread that
launches, which neither the bus nor the card must wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from core.backend.shared import library_attention
from core.cache.base import KVCache, KVShape
from core.cache.offloaded import OffloadedKVCache
from core.decoding import decoder, sampling, verify
from core.model.llama import LlamaModel
from core.request import Params
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.fake_cuda import FakeCuda
from tests.support.flash_kernel import flash
from tests.support.tiny import engine, oracle, ours

BLOCK, HEADS = 8, 4
# as counted; a block of 128 MB is on the bus for milliseconds, so many launches take a tenth of one
PER_BLOCK = 24  # two copies, queries laid out, the library's attention joined to the others
PER_LAYER = 4  # the new rows; their own attention is the first part
PER_PASS = 4  # the landing of the new rows
# of a whole pass, for each layer; where passes are recorded, none of these is launched
PER_SHORT_PASS = {"StreamingKVCache": 27, "RetrievalKVCache": 19}
IDS = 1  # of each pass: the tokens' copy
# between two passes of a round: laws, draws, verdicts
BESIDE_GREEDY, BESIDE_DRAWN = 27, 32
SELECTION = 100  # more in a round that chooses anew what the middle level looks at
LAYERS = 2  # of the models of `rounds_of`


class Launches(TorchDispatchMode):
    """Counts what is no view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
        self.count += not views and "empty" not in func.__name__
        return out


def launches(cuda: FakeCuda, *, layers: int, blocks: int) -> int:
    """Of a verification of 5 rows over so many full blocks of each layer in host memory."""
    backend = cuda.backend()
    backend._kernels[64] = flash
    shape = KVShape(layers=layers, kv_heads=2, head_dim=64)
    cache = OffloadedKVCache(
        shape, 8 * BLOCK, backend, block_tokens=BLOCK, resident_layers=0, staging_blocks=2, fresh_tokens=6
    )
    cache.advance(blocks * BLOCK)
    cache.commit(blocks * BLOCK)
    q, k = torch.zeros(5, HEADS, 64), torch.zeros(5, 2, 64)
    with torch.inference_mode(), Launches() as counted:
        for layer in range(layers):
            cache.attend(layer, q, k, k)
        cache.advance(5)
    return counted.count


def test_a_streamed_pass_is_few_operations(cuda: FakeCuda):
    """A loop over heads or rows, or a join by ten small steps, would starve the bus behind it."""
    one, two = (launches(cuda, layers=2, blocks=blocks) for blocks in (3, 4))
    per_block = (two - one) / 2
    per_layer = launches(cuda, layers=3, blocks=3) - one - 3 * per_block
    per_pass = one - 2 * (per_layer + 3 * per_block)
    assert 4 <= per_block <= PER_BLOCK
    assert 1 <= per_layer <= PER_LAYER
    assert per_pass <= PER_PASS


@dataclass
class Counted:
    """Operations of a round, and of those each pass's, with the class of its cache."""

    operations: int
    passes: list[tuple[str, int]] = field(default_factory=list)

    @property
    def beside(self) -> int:
        """What is not the models': draws, laws, verdicts, commits."""
        return self.operations - sum(operations for _cache, operations in self.passes)


def rounds_of(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, params: Params) -> list[Counted]:
    """Full rounds of TriForce over a cache in host memory, as a card would be asked for them."""
    for module in (sampling, verify):
        monkeypatch.setattr(module, "on_device", lambda tensor: True)
    backend, counted, rounds = cuda.backend(), Launches(), []

    def in_one(*given: torch.Tensor, **how: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """As the library's kernel: one launch."""
        counted.count += 1
        with _disable_current_modes():
            return library_attention.by_matmul(*given, **how)

    backend._kernels[64] = in_one
    model, draft = (ours(oracle(head_dim=64, tied=tied), backend=backend) for tied in (False, True))
    forward, a_round = LlamaModel.forward, decoder.Decoder.round

    def of_a_pass(self: LlamaModel, ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        before, out = counted.count, forward(self, ids, cache)
        if rounds:
            rounds[-1].passes.append((type(cache).__name__, counted.count - before))
        return out

    def of_a_round(self: decoder.Decoder, *given: object, **how: object) -> decoder.Round:
        before = counted.count
        rounds.append(Counted(0))
        with counted:
            done = a_round(self, *given, **how)
        rounds[-1].operations = counted.count - before
        return done

    monkeypatch.setattr(LlamaModel, "forward", of_a_pass)
    monkeypatch.setattr(decoder.Decoder, "round", of_a_round)

    def new_cache(capacity: int) -> OffloadedKVCache:
        room = {"block_tokens": 32, "resident_layers": 0, "staging_blocks": 2, "fresh_tokens": 40}
        return OffloadedKVCache(model.config.kv_shape, capacity + 32, backend, **room)

    tiny = engine(model, draft=draft, new_cache=new_cache, fixed_gamma=True)
    run(tiny, tiny.new_context(400), PROMPT, replace(params, mode="triforce"))
    return [one for one in rounds if len(one.passes) > 2]


@pytest.mark.parametrize(
    ("params", "beside"),
    [(GREEDY, BESIDE_GREEDY), (replace(GREEDY, temperature=0.6, top_p=0.9), BESIDE_DRAWN)],
    ids=["T 0", "T 0.6"],
)
def test_a_round_is_few_operations(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, params: Params, beside: int
):
    """Drafts and middle passes are over in a millisecond: a loop over rows in what is between them, or one
    over a layer's heads, would take as long again.
    """
    rounds = rounds_of(cuda, monkeypatch, params)
    assert len(rounds) >= 4 and all(len(one.passes) >= 4 for one in rounds)
    assert median(one.beside / len(one.passes) for one in rounds) <= beside
    assert all(one.beside <= beside * len(one.passes) + SELECTION for one in rounds)
    for cache, operations in (each for one in rounds for each in one.passes):
        assert 2 <= operations <= IDS + LAYERS * PER_SHORT_PASS.get(cache, operations)
