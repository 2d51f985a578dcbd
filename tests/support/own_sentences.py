"""A story of plain sentences, and what is chosen of a text."""

from __future__ import annotations

from core.evidence.choosing import best_sentences

PLAIN = [
    f"The keeper {verb} barrel{number} and rope{number} of the lighthouse before storm{number} came home."
    for number, verb in enumerate(["lit", "cleaned", "mended", "carried", "painted", "watched"] * 6)
]
STORY = "\n\n".join(" ".join(PLAIN[at : at + 3]) for at in range(0, len(PLAIN), 3))


def texts(text: str, words: int, ranges: list[tuple[int, int]] | None = None) -> list[str]:
    """The sentences that tell a text in so many words."""
    return [text[low:high] for low, high in best_sentences(text, ranges or [(0, len(text))], words)]
