"""Rounds of the loop over toys, played with seeded randomness."""

from __future__ import annotations

from core.decoding.decoder import Round
from core.decoding.randomness import SeededRandomness
from tests.support.loop import Loop
from tests.support.toys import ToyModel


def rounds(loop: Loop, *, tokens: int = 24, seed: int = 0, vocab: int = 3) -> list[Round]:
    """Rounds until at least `tokens` tokens are there."""
    decoder = loop.build(SeededRandomness(seed), ToyModel(11, vocab=vocab))
    committed, done = list(loop.prompt), []
    while len(committed) < len(loop.prompt) + tokens:
        done.append(decoder.round(committed, most=1_000))
        committed.extend(done[-1].tokens)
    return done


def rounds_of_perfect_draft(*, gamma: int, **settings: object) -> list[Round]:
    """The target drafts for itself, with its own full cache."""
    return rounds(Loop(drafter="perfect", middle="none", gamma=gamma, **settings))
