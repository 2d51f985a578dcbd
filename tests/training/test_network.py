"""The network that is trained is the one that drafts."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.streaming import StreamingKVCache
from core.model.config import from_source
from core.model.loader import build_model
from core.training.network import DraftNetwork
from tests.support.tiny import VOCAB, Named, oracle


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(("sinks", "window", "length"), [(4, 8, 45), (3, 16, 20), (5, 7, 4), (0, 8, 30)])
def test_training_sees_what_decoding_sees(family: str, sinks: int, window: int, length: int):
    """A mask that is off by one, or sinks at another distance than in use, would train a draft for a cache
    that does not exist.
    """
    model = oracle(family, tied=True)
    config, weights = from_source(model.config.to_dict(), name="tiny", eos=None), model.state_dict()
    backend = CpuBackend(torch.float32)
    runtime = build_model(config, Named(model), backend, positions=64)
    table = weights["model.embed_tokens.weight"]
    network = DraftNetwork(config, layers=2, embedding=table, head=table, sinks=sinks, window=window)
    network.load_state_dict({name: weights[f"model.{name}"] for name in network.state_dict()})
    ids = torch.randint(VOCAB, (2, length), generator=torch.Generator().manual_seed(1))
    trained = network.logits(network(ids))
    for row in range(2):
        cache = StreamingKVCache(
            config.kv_shape, backend, runtime.rope.rotate, sinks=sinks, window=window, slack=8
        )
        for place, token in enumerate(ids[row].tolist()):
            logits = runtime.forward([token], cache)[0]
            cache.commit(cache.length)
            assert torch.allclose(trained[row, place], logits, atol=1e-4), f"token {place}"
