"""What a generated text is worth as evidence. No torch."""

from __future__ import annotations

from collections.abc import Sequence

# distinct 4-grams; text that loops is easily drafted and no evidence of acceptance
LOOPS_BELOW = 0.6


def distinct(tokens: Sequence[int], n: int = 4) -> float:
    """The share of distinct n-grams: low where the text goes round in circles."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
