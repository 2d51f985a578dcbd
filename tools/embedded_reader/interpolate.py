"""The adapter between two, as `python -m tools.embedded_reader.interpolate ONE OTHER OUT`.

Weights learned on from the same start lie in one basin of the loss, where their mean is often better than
either (Wortsman et al. 2022, "Model soups", https://arxiv.org/abs/2203.05482).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from core.errors import UserError
from core.model import lora


def mean_adapter(one: lora.Factors, other: lora.Factors) -> tuple[lora.Factors, float]:
    """The mean of what two adapters change, in the first one's ranks; and the largest share of a matrix's
    change, by squares, that finds no room in them. Raises UserError where they change other matrices.
    """
    if one.keys() != other.keys():
        raise UserError("The two adapters change different matrices. Name two of the same model.")
    found, most = {}, 0.0
    for name, (down, up) in one.items():
        downs, ups = torch.cat([down, other[name][0]]), torch.cat([up, other[name][1]], 1) / 2
        # a product of thin matrices is decomposed by what is left of each beside its own directions
        (left, ups), (right, downs) = torch.linalg.qr(ups), torch.linalg.qr(downs.T)
        first, sizes, last = torch.linalg.svd(ups @ downs.T)
        kept = sizes[: len(down)].sqrt()
        found[name] = kept[:, None] * (last[: len(down)] @ right.T), left @ first[:, : len(down)] * kept
        lost = sizes[len(down) :].square().sum() / sizes.square().sum().clamp(min=1e-30)
        most = max(most, float(lost))
    return found, most


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("one", "other", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    mean, lost = mean_adapter(lora.load_factors(given.one), lora.load_factors(given.other))
    lora.save_factors(given.out, mean)
    sys.stdout.write(f"{given.out}: up to {lost:.2%} of a matrix's change found no room\n")


if __name__ == "__main__":
    main()
