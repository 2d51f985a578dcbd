"""The two ends on real models: a draft that is always right is always accepted, one that is always wrong
never, with the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from core.cache.full import FullKVCache
from core.decoding.decoder import Decoder, Round
from core.decoding.draft_length import FixedLength
from core.decoding.drafters import Drafter, EmptyDrafter, ModelDrafter, VerifiedDrafter
from core.decoding.randomness import SeededRandomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft
from core.model.llama import LlamaModel
from tests.support.embedded import embedded
from tests.support.tiny import VOCAB, oracle, ours

pytestmark = pytest.mark.usefixtures("either_way")

GREEDY = Sampling()
TINY = [("llama", 4), ("llama", 1), ("qwen2", 2), ("qwen3", 4)]


class Private(FullKVCache):
    """A full cache that a drafter feeds: it may hold fewer tokens than are committed."""

    def commit(self, length: int) -> None:
        super().commit(min(length, self.length))


class Knows:
    """Proposes what follows in a known text, or a neighbour of it: the right token or a wrong one, every
    time.
    """

    def __init__(self, text: Sequence[int], *, off: int, vocab: int) -> None:
        self._text, self._off, self._vocab = text, off, vocab

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        tokens = tuple(
            (token + self._off) % self._vocab for token in self._text[len(committed) : len(committed) + gamma]
        )
        return Draft(tokens, None, ("draft",) * len(tokens))

    def rollback(self, length: int) -> None:
        """Nothing is kept."""

    def commit(self, length: int) -> None:
        """Nothing is kept."""


def written(model: LlamaModel, prompt: list[int], drafter: Drafter, n: int) -> tuple[list[int], list[Round]]:
    """(prompt with n more tokens, the rounds that wrote them)"""
    cache = FullKVCache(model.config.kv_shape, len(prompt) + n + 16, model.backend, block_tokens=64)
    decoder = Decoder(drafter, model, cache, GREEDY, SeededRandomness(0), gamma=4)
    text, rounds = list(prompt), []
    with torch.inference_mode():
        while len(text) < len(prompt) + n:
            rounds.append(decoder.round(text, most=len(prompt) + n - len(text)))
            text.extend(rounds[-1].tokens)
    return text, rounds


def cache_of(model: LlamaModel, prompt: list[int], n: int) -> Private:
    return Private(model.config.kv_shape, len(prompt) + n + 16, model.backend, block_tokens=64)


def between(model: LlamaModel, drafter: Drafter, prompt: list[int], n: int) -> VerifiedDrafter:
    """A middle level that is the target itself over a full cache of its own."""
    return VerifiedDrafter(
        drafter, model, cache_of(model, prompt, n), GREEDY, SeededRandomness(0), gamma=2, length=FixedLength()
    )


def check(model: LlamaModel, prompt: list[int], n: int) -> None:
    """Both ends, below the target and below a middle level, against plain decoding's text."""
    plain, _ = written(model, prompt, EmptyDrafter(), n)
    vocab = model.config.vocab
    draws = ModelDrafter(model, cache_of(model, prompt, n), GREEDY, SeededRandomness(0))
    right = {"knows": Knows(plain, off=0, vocab=vocab), "draws": draws}
    for drafter in right.values():
        text, rounds = written(model, prompt, drafter, n)
        assert text == plain
        assert (
            all(result.acceptance_retrieval.rate in (1.0, None) for result in rounds)
            and len(rounds) <= n // 5 + 1
        )
    wrong = Knows(plain, off=1, vocab=vocab)
    text, rounds = written(model, prompt, wrong, n)
    assert text == plain and len(rounds) == n
    assert (
        sum(result.acceptance_retrieval.accepted for result in rounds)
        == 0
        < sum(r.acceptance_retrieval.evaluated for r in rounds)
    )
    for drafter, accepted in ((Knows(plain, off=0, vocab=vocab), True), (wrong, False)):
        text, rounds = written(model, prompt, between(model, drafter, prompt, n), n)
        assert text == plain
        proposed = sum(result.acceptance_draft.evaluated for result in rounds)
        assert proposed > 0 and sum(result.acceptance_draft.accepted for result in rounds) == (
            proposed if accepted else 0
        )
        assert all(result.acceptance_retrieval.rate in (1.0, None) for result in rounds), (
            "the middle level is the target itself"
        )


@pytest.mark.parametrize(
    ("family", "kv_heads"), TINY, ids=[f"{family}, {kv_heads} KV heads" for family, kv_heads in TINY]
)
def test_tiny_models(family: str, kv_heads: int):
    """Biases, q/k norms, grouped heads: a cache of a drafter that lost, repeated or shifted a row would be
    rejected.
    """
    prompt = [
        int(token) for token in torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(3))
    ]
    check(ours(oracle(family, kv_heads=kv_heads)), prompt, 40)


def test_embedded_model(embedded_model_dir: Path):
    """Real weights and real text."""
    _, machine, tokenizer = embedded(embedded_model_dir)
    check(
        machine.model,
        tokenizer("The lighthouse keeper wrote in his diary every evening. In March he noted")["input_ids"],
        15,
    )
