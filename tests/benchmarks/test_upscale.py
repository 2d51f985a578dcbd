"""A small model in a large shape computes the small model's function."""

from __future__ import annotations

import pytest
import torch

from benchmarks.lib.upscale import ExpandedWeights, expanded_config
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.model.config import from_source
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.model.shapes import Sizes
from tests.support.tiny import VOCAB, Named, oracle

IDS = [int(token) for token in torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(3))]
SHAPES = {
    "no grouping": Sizes("large", 3, 96, 8, 8, 16, 80),
    "the same grouping": Sizes("large", 2, 32, 8, 4, 8, 48),
    "larger groups": Sizes("large", 4, 64, 12, 3, 32, 64),
}


def logits(model: LlamaModel) -> torch.Tensor:
    cache = FullKVCache(model.config.kv_shape, 64, model.backend, block_tokens=16)
    with torch.inference_mode():
        return model.forward(IDS, cache)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
@pytest.mark.parametrize(("tied", "theta"), [(False, None), (True, 50_000.0)])
def test_logits_equal_the_small_models(shape: str, kv_heads: int, tied: bool, theta: float | None):
    """A head that reads another's keys, a frequency that is off, padding that leaks: each would show in every
    logit.
    """
    reference, large_shape = oracle(kv_heads=kv_heads, tied=tied), SHAPES[shape]
    if shape == "larger groups" and kv_heads == 4:
        pytest.skip("four KV heads do not fit three")
    weights, backend = Named(reference), CpuBackend()
    small = from_source(reference.config.to_dict(), name="tiny", eos=None)
    large = expanded_config(small, large_shape, positions=64, rope_theta=theta)
    assert (large.layers, large.hidden, large.heads, large.kv_heads) == (
        large_shape.layers,
        large_shape.hidden,
        large_shape.heads,
        large_shape.kv_heads,
    )
    if theta:
        small.source["rope_parameters"]["rope_theta"] = theta
    want = logits(build_model(small, weights, backend, positions=64))
    expanded = ExpandedWeights(small, weights, large, device=backend.device, dtype=torch.float32)
    got = logits(build_model(large, expanded, backend, positions=64))
    assert float((got - want).abs().max()) < 1e-4 * float(want.abs().max())
    assert torch.equal(got.argmax(-1), want.argmax(-1))


def test_a_shape_that_is_too_small_is_refused():
    """Not a model that is silently another one."""
    reference = oracle()
    small = from_source(reference.config.to_dict(), name="tiny", eos=None)
    large = expanded_config(small, Sizes("small", 1, 32, 4, 2, 8, 48), positions=64)
    with pytest.raises(ValueError, match="does not fit"):
        ExpandedWeights(small, Named(reference), large, device=torch.device("cpu"), dtype=torch.float32)


def test_what_costs_time_is_not_zero():
    """Zeros could be skipped, and copies of zeros cost a compressing memory nothing: all columns are filled
    except behind dead parts.
    """
    reference = oracle()
    small = from_source(reference.config.to_dict(), name="tiny", eos=None)
    large = expanded_config(small, SHAPES["no grouping"], positions=64)
    weights = ExpandedWeights(small, Named(reference), large, device=torch.device("cpu"), dtype=torch.float32)
    for layer, name in ((0, "k_proj"), (2, "k_proj"), (0, "v_proj"), (2, "q_proj")):
        assert (
            float((weights.tensor(f"model.layers.{layer}.self_attn.{name}.weight") == 0).float().mean())
            < 0.01
        )
    for layer in (0, 2):
        assert (
            float((weights.tensor(f"model.layers.{layer}.mlp.gate_proj.weight") == 0).float().mean()) < 0.01
        )
    assert not weights.tensor("model.layers.2.self_attn.o_proj.weight").any()
