"""Attention probabilities computed densely."""

from __future__ import annotations

import torch


def dense(model: torch.nn.Module, ids: list[int], heads, tokens: range, borders) -> list[list[float]]:
    """The same by transformers' own attention: of each row the part on the text, made to sum to 1."""
    with torch.no_grad():
        layers = model(torch.tensor([ids]), output_attentions=True).attentions
    found = []
    for layer, head in heads:
        rows = layers[layer][0, head, list(tokens), borders[0] : borders[-1]].double()
        mean = (rows / rows.sum(-1, keepdim=True)).mean(0)
        stretches = zip(borders, borders[1:], strict=False)
        found.append(
            [float(mean[a - borders[0] : b - borders[0]].sum()) / (b - a) ** 0.5 for a, b in stretches]
        )
    return found
