"""The adapter between two."""

from __future__ import annotations

import pytest
import torch

from core.errors import UserError
from tools.embedded_reader.interpolate import mean_adapter


def factors(seed: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(rank, 40, generator=dice), torch.randn(30, rank, generator=dice)


def test_it_changes_by_the_mean_of_both():
    """Exactly where their directions fit the ranks; the nearest change of so few where not, and how much is
    lost is told.
    """
    down, up = factors(0, 4)
    shared = {"a": (down, up)}, {"a": (down, factors(1, 4)[1])}
    mean, lost = mean_adapter(*shared)
    wanted = sum(held["a"][1] @ held["a"][0] for held in shared) / 2
    assert [part.shape for part in mean["a"]] == [(4, 40), (30, 4)] and lost < 1e-9
    assert torch.allclose(mean["a"][1] @ mean["a"][0], wanted, atol=1e-4)

    apart = {"a": factors(0, 4)}, {"a": factors(2, 4)}
    mean, lost = mean_adapter(*apart)
    wanted = sum(held["a"][1] @ held["a"][0] for held in apart) / 2
    left = (mean["a"][1] @ mean["a"][0] - wanted).square().sum() / wanted.square().sum()
    rest = torch.linalg.svdvals(wanted)[4:].square().sum() / wanted.square().sum()
    assert float(left) == pytest.approx(float(rest), rel=1e-3) == pytest.approx(lost, rel=1e-3)


def test_adapters_of_two_models_have_none_between_them():
    with pytest.raises(UserError, match="different matrices"):
        mean_adapter({"a": factors(0, 4)}, {"b": factors(0, 4)})
