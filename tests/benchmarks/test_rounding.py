"""Ways to round to 4 bits: each is what it is called, and is judged on the model it was made of."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from gguf.quants import dequantize, quantize

from benchmarks import rounding
from benchmarks.four_bits import (
    POWER,
    WAYS,
    InFull,
    Reordered,
    Rounded,
    half_quadratic,
    nearest,
    nearest_offset,
    searched_offset,
)
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.model.config import load_config
from core.model.gguf.folder import opened
from core.model.loader import build, load_model, weights_in
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import IDS, wide


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny model of 16-bit numbers as a GGUF's folder."""
    return opened(write_gguf(tmp_path / "model.gguf", wide(tied=True), "F16"))


def heavy_tailed(rows: int = 64, columns: int = 256) -> torch.Tensor:
    dice = torch.Generator().manual_seed(3)
    normal, rare = (torch.randn(rows, columns, generator=dice) for _index in range(2))
    found = normal + 6 * rare * (torch.rand(rows, columns, generator=dice) < 0.03)
    found[3, :32] = 0  # a group without any
    return found


def logits(source: Path, weights: object) -> torch.Tensor:
    config, backend = load_config(source), CpuBackend(torch.float32)
    model = build(config, weights, backend, positions=64)
    with torch.inference_mode():
        return model.forward(IDS, FullKVCache(config.kv_shape, 64, backend, block_tokens=64))


@pytest.mark.parametrize(("way", "kind"), [(nearest, "Q4_0"), (nearest_offset, "Q4_1")])
def test_the_nearest_codes_are_those_of_the_format(way, kind):
    """Up to ties: the package rounds a half up, torch to the even code, which errs by the same."""
    weight, number = heavy_tailed(), gguf.GGMLQuantizationType[kind]
    theirs = torch.from_numpy(dequantize(quantize(weight.numpy(), number), number))
    apart = [(found - weight).square().view(-1, 32).sum(-1) for found in (way(weight), theirs)]
    torch.testing.assert_close(*apart, rtol=0.02, atol=1e-5)


@pytest.mark.parametrize("way", WAYS[1:6], ids=lambda way: way.name)
def test_a_group_has_sixteen_numbers_at_most_on_one_grid(way):
    """A way that kept a weight as it is would win unjustly."""
    for group in way.layers(heavy_tailed()).view(-1, 32):
        steps = group.unique().diff()
        assert len(steps) < 16
        if len(steps):
            whole = steps / steps.min()
            assert float((whole / whole.round() - 1).abs().max()) < 0.1 or len(steps) < 3


def test_a_search_errs_less_in_squares_and_hqq_less_in_its_own_norm():
    """HQQ gives up large weights for the many; were its zero point not moved, both would be equal."""
    weight = heavy_tailed()
    plain, search, hqq = (
        (way(weight) - weight).abs() for way in (nearest_offset, searched_offset, half_quadratic)
    )
    assert float(search.square().sum()) < 0.97 * float(plain.square().sum())
    assert float(hqq.pow(POWER).mean()) < 0.985 * float(plain.pow(POWER).mean())
    assert float(half_quadratic(weight)[3, :32].abs().max()) == 0


def test_another_order_of_channels_is_the_same_function(source: Path):
    """And other groups: rounding gives another model."""
    config, weights = load_config(source), weights_in(source)
    plain, turned = InFull(weights, config), Reordered(weights, config)
    torch.testing.assert_close(logits(source, turned), logits(source, plain), rtol=0, atol=1e-4)
    rounded = [logits(source, Rounded(given, WAYS[4])) for given in (plain, turned)]
    assert float((rounded[0] - rounded[1]).abs().max()) > 1e-2


def test_the_embedding_has_a_way_of_its_own(source: Path):
    given = InFull(weights_in(source), load_config(source))
    way = WAYS[6]
    name, other = "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"
    exact, found = given.tensor(name), Rounded(given, way).tensor(name)
    assert float((found - exact).abs().max()) < float((way.layers(exact) - exact).abs().max()) / 4
    assert torch.equal(Rounded(given, way).tensor(other), way.layers(given.tensor(other)))
    norm = "model.norm.weight"
    assert torch.equal(Rounded(given, way).tensor(norm), given.tensor(norm))


def test_the_checkpoint_that_is_timed_is_the_model(source: Path, tmp_path: Path):
    """And the program's rounding is what is timed: it leaves nothing behind."""
    count = rounding.checkpoint(source, tmp_path / "SmolLM2")
    ours = load_model(tmp_path / "SmolLM2", CpuBackend(torch.float32), positions=64)
    with torch.inference_mode():
        found = ours.forward(IDS, FullKVCache(ours.config.kv_shape, 64, ours.backend, block_tokens=64))
    want = logits(source, InFull(weights_in(source), load_config(source)))
    assert float((found - want).abs().max()) < 0.06 * float(want.std())
    timed = rounding._whole(source, "Q4_0")
    assert timed["weights"] == count and timed["cpu_s"] > 0


def test_a_case_that_was_not_measured_has_no_row():
    law = {"kl_mean": 0.1, "kl_p99": 0.2, "agreement": 0.9, "perplexity": 30.0}
    done = {
        f"laws, in another order, {WAYS[0].name}": law,
        f"laws, in another order, {WAYS[5].name}": law,
        "whole, Q4_0": {"cpu_s": 2.0, "weights": 100_000_000},
    }
    laws, times = rounding.tables(done)
    assert [row[:4] for row in laws.rows] == [
        ("not rounded", 16.0, "in another order", 0.1),
        (WAYS[5].name, 5.0, "in another order", 0.1),
    ]
    assert times.rows[0][1:4] == (100.0, 2.0, 20.0)
    assert times.rows[0][4] == pytest.approx(20e-9 * 6.74e9 / 8 / 60)
    assert rounding.tables({}) == []
