"""Rotary embedding: what a rotation means, and stretching a model beyond its native context as YaRN defines
it.
"""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.errors import UserError
from core.model.config import from_source
from core.model.loader import build_model
from core.model.rope import Rope
from tests.support.rope_kinds import ROPES
from tests.support.tiny import VOCAB, Named, oracle

NATIVE, STRETCH = 32, 4.0
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": STRETCH,
    "original_max_position_embeddings": NATIVE,
}
CPU = torch.device("cpu")


def rope(reference: torch.nn.Module, *, positions: int = 128, stretch: float = 1.0) -> Rope:
    return Rope(
        from_source(reference.config.to_dict(), name="tiny", eos=None),
        positions,
        dtype=torch.float64,
        device=CPU,
        stretch=stretch,
    )


@pytest.mark.parametrize("stretch", [1.0, STRETCH])
def test_products_depend_on_the_distance_alone(stretch: float):
    """What makes it a position embedding, stretched or not: q at m and k at n meet as at m + 50, n + 50."""
    turned = rope(oracle(max_position_embeddings=NATIVE), stretch=stretch)
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def product(m: int, n: int) -> float:
        return float((turned.rotate(0, q, torch.tensor([m])) * turned.rotate(0, k, torch.tensor([n]))).sum())

    at = [[product(m + more, n + more) for m, n in ((0, 0), (3, 1), (40, 7))] for more in (0, 50)]
    assert at[0] == pytest.approx(at[1], abs=1e-6)
    assert len({round(value, 3) for value in at[0]}) == 3


def logits(
    reference: torch.nn.Module, weights: torch.nn.Module, ids: list[int], stretch: float
) -> torch.Tensor:
    """By the runtime, with the configuration of one transformers model and the weights of another."""
    backend = CpuBackend()
    model = build_model(
        from_source(reference.config.to_dict(), name="tiny", eos=None),
        Named(weights),
        backend,
        positions=128,
        stretch=stretch,
    )
    cache = FullKVCache(model.config.kv_shape, 128, backend, block_tokens=32)
    with torch.inference_mode():
        return model.forward(ids, cache)


def test_a_stretched_model_is_the_yarn_model():
    """A native model stretched four times computes what transformers computes from a YaRN configuration of
    factor four.
    """
    ids = [
        int(token) for token in torch.randint(0, VOCAB, (110,), generator=torch.Generator().manual_seed(1))
    ]
    native, stretched = (
        oracle(max_position_embeddings=NATIVE),
        oracle(rope=YARN, max_position_embeddings=int(STRETCH * NATIVE)),
    )
    with torch.inference_mode():
        want = stretched(torch.tensor([ids])).logits[0]
    scale = float(want.abs().max())
    assert float((logits(native, stretched, ids, STRETCH) - want).abs().max()) < 1e-4 * scale
    assert float((logits(native, stretched, ids, 1.0) - want).abs().max()) > 1e-2 * scale


def test_what_cannot_be_stretched_is_refused_by_name():
    """A model with a scaling of its own, and a kind that nobody here knows."""
    with pytest.raises(UserError, match="llama3.*cannot be stretched"):
        rope(oracle(rope=ROPES["llama3"]), stretch=2.0)
    source = {**oracle().config.to_dict(), "rope_parameters": {"rope_type": "spiral", "rope_theta": 10000.0}}
    with pytest.raises(UserError, match="spiral"):
        Rope(from_source(source, name="tiny", eos=None), 64, dtype=torch.float64, device=CPU)
