"""Sampling through every level by models whose layers are not all alike: the law of what is emitted is that
of transformers' own forward passes, walked branch by branch through real caches, and by chi-square.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.cpu.backend import CpuBackend
from core.decoding import decoder as outer_level
from core.decoding import drafters as middle_level
from core.model.llama import LlamaModel
from core.request import Params
from tests.support import mutants
from tests.support.branches import RoundedBranches
from tests.support.embedded import compiled
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
# one layer of four, or of six under bounded logits: the middle level is seldom wrong
SPARSE_IN_FEW = {"qwen3_5_text": 0.05, "gemma4_text": 0.05}


def tokens(n: int, vocab: int) -> list[int]:
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(9)).tolist()


def plainly(
    reference: torch.nn.Module, prompt: list[int], unsaid: Sequence[int] = ()
) -> Counter[tuple[int, ...]]:
    """The law of two tokens by transformers; those `unsaid` are never drawn."""
    found: Counter[tuple[int, ...]] = Counter()
    for one in range(FEW):
        with torch.inference_mode():
            rows = reference(torch.tensor([[*prompt, one]])).logits[0, -2:].double()
            rows[:, list(unsaid)] = -torch.inf
            rows = rows.softmax(-1)
        for second in range(FEW):
            found[one, second] = float(rows[0, one] * rows[1, second])
    return found


@pytest.mark.parametrize("family", first(OTHERS))
def test_every_branch_of_two_tokens_has_its_probability(family: str):
    """Behind a text of several windows; full, retrieval and drafting caches are the product's."""
    assert_law(reference := oracle(family, vocab_size=FEW), ours(reference))


def test_so_it_has_by_the_compiled_gated_delta_rule():
    kernels = compiled()
    if kernels["delta"] is None:
        pytest.skip("no library for this computer")
    reference = oracle("qwen3_5_text", vocab_size=FEW, linear_key_head_dim=16)
    assert_law(reference, ours(reference, backend=CpuBackend(**kernels)))


def test_what_a_model_never_says_has_no_branch():
    """A text may hold such a token; no level draws it, and the others have the law that transformers gives
    them without it.
    """
    reference = oracle("gemma4_text", vocab_size=FEW + 1)
    source = reference.config.to_dict() | {"suppress_tokens": [FEW, 9999]}
    model = ours(reference, source=source)
    assert_law(reference, model, draft=oracle(vocab_size=FEW + 1), unsaid=(FEW,))


def assert_law(
    reference: torch.nn.Module,
    model: LlamaModel,
    *,
    draft: torch.nn.Module | None = None,
    unsaid: Sequence[int] = (),
) -> None:
    prompt, branches = tokens(110, FEW + len(unsaid)), RoundedBranches()
    layers = len(model.config.kv_shape.seeing_all)
    machine = engine(
        model,
        draft=ours(draft or oracle(vocab_size=FEW)),
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
    want = plainly(reference, prompt, unsaid)
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
