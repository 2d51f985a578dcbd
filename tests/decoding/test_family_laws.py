"""Sampling through every level by models whose layers are not all alike: the law of what is emitted is that
of transformers' own forward passes, walked branch by branch through real caches, and by chi-square.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
import torch

from core.assembly.composition import Composer
from core.decoding import decoder as outer_level
from core.decoding import drafters as middle_level
from core.request import Params
from tests.support import mutants
from tests.support.branches import Branches
from tests.support.greedy_answers import answer
from tests.support.real_law import RowSampling, Sample, exact_law, limit, read_page, sample
from tests.support.tiny import OTHERS, VOCAB, engine, oracle, ours
from tests.tiers import first

FEW = 3  # tokens of a vocabulary whose branches can be walked
CLOSE = 2e-4  # of a probability; what rounding in fp32 comes to is a tenth of that
SETTINGS = (2.0, 1.0)  # temperature, top-p
ROUNDS = 1500
FALSE_ALARM = 1e-6
LEAST_RESIDUAL = 0.15
SPARSE_IN_FEW = {"qwen3_5_text": 0.05}  # one layer of four: the middle level is seldom wrong


class RoundedBranches(Branches):
    """Laws in fp32 add up to 1 within their rounding alone."""

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """See Randomness."""
        return super().draw(probs.double() / probs.double().sum())


def tokens(n: int, vocab: int) -> list[int]:
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(9)).tolist()


def plainly(reference: torch.nn.Module, prompt: list[int]) -> Counter[tuple[int, ...]]:
    """The law of two tokens by transformers."""
    found: Counter[tuple[int, ...]] = Counter()
    for one in range(FEW):
        with torch.inference_mode():
            rows = reference(torch.tensor([[*prompt, one]])).logits[0, -2:].double().softmax(-1)
        for second in range(FEW):
            found[one, second] = float(rows[0, one] * rows[1, second])
    return found


@pytest.mark.parametrize("family", first(OTHERS))
def test_every_branch_of_two_tokens_has_its_probability(family: str):
    """Behind a text of several windows; full, retrieval and drafting caches are the product's."""
    reference, prompt = oracle(family, vocab_size=FEW), tokens(110, FEW)
    model, branches = ours(reference), RoundedBranches()
    layers = len(model.config.kv_shape.seeing_all)
    machine = engine(
        model,
        draft=ours(oracle(vocab_size=FEW)),
        composer=partial(Composer, randomness=lambda seed: branches),
        layers=layers,
        on_chip_layers=layers,
        retrieval_budget=16,
        gamma=2,
        middle_gamma=1,
    )
    params = Params(temperature=1.0, top_p=1.0, max_new_tokens=2, mode="triforce")
    law: Counter[tuple[int, ...]] = Counter()
    for weight, said in branches.runs(lambda: tuple(answer(machine, prompt, params))):
        law[said] += weight
    want = plainly(reference, prompt)
    assert law.keys() == want.keys()
    assert max(abs(law[one] - want[one]) for one in want) < CLOSE


def sampled(family: str) -> Sample:
    """First tokens of rounds behind two pages, judged by transformers' laws."""
    reference, model, ids = oracle(family), ours(oracle(family)), tokens(160, VOCAB)
    pages = [read_page(model, ids[start:end], budget=4, window=3) for start, end in pairwise((0, 70, 160))]
    with torch.inference_mode():
        rows = [reference(torch.tensor([page.ids])).logits[0, -1] for page in pages]
    laws = [exact_law(row, *SETTINGS) for row in rows]
    return sample(pages, laws, RowSampling(*SETTINGS), rounds=ROUNDS, seed=1)


@pytest.mark.parametrize("family", first(OTHERS[::-1]))
def test_sampled_tokens_follow_the_target(family: str):
    found = sampled(family)
    assert min(found.residual, found.middle_residual) >= SPARSE_IN_FEW.get(family, LEAST_RESIDUAL)
    assert found.statistic < limit(found.freedom, FALSE_ALARM)


@pytest.mark.parametrize("home", [outer_level, middle_level], ids=["outer", "middle"])
def test_the_same_sample_catches_a_residual_from_p(home: object, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(home, "verify", mutants.residual_from_p)
    found = sampled("gemma3_text")
    assert found.statistic > limit(found.freedom, FALSE_ALARM)
