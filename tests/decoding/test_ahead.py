"""Drafts by a layer of the model's own that predicts one token further: its rows keep in step with what
stands, and the law of what is emitted is the target's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from core.assembly.composition import Composer, streaming_cache
from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.layered_retrieval import retrieval_over
from core.cache.streaming import StreamingKVCache
from core.decoding.ahead import AheadDrafter, HeardModel, HeardRows
from core.decoding.decoder import Decoder
from core.decoding.draft_length import FixedLength
from core.decoding.drafters import VerifiedDrafter
from core.decoding.randomness import SeededRandomness
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.engine import Engine
from core.planning.plan import ASSISTANT, MTP
from core.request import Params
from tests.support.ahead import ahead_by_definition, noted_drafts, tiny_with_ahead
from tests.support.assistant import TYPES, assistant_oracle, our_assistant
from tests.support.branches import RoundedBranches
from tests.support.greedy_answers import answer
from tests.support.modes import GRID_MODES
from tests.support.real_law import limit
from tests.support.tiny import SHARED, VOCAB, engine, oracle, ours, whole_cache

SINKS, WINDOW = 2, 6
FEW = 3  # tokens of a vocabulary whose branches can be walked
CLOSE, FALSE_ALARM = 2e-4, 1e-6  # of a probability in fp32; of a chi-square
SMALL = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}


def tokens(n: int, vocab: int = VOCAB) -> list[int]:
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(9)).tolist()


class Watched(AheadDrafter):
    """Held against the layer's definition over the rows that transformers makes of what stands."""

    reference: torch.nn.Module
    weights: dict[str, torch.Tensor]
    checked = 0

    def _begun(self, committed: Any) -> torch.Tensor:
        found, ids = super()._begun(committed), list(committed)
        if self._exact not in (0, len(ids) - 1):  # some rows are of a partial view
            return found
        rows = self.reference.model(torch.tensor([ids])).last_hidden_state[0]
        evicted = self._cache.length - self._cache.kept
        kept = torch.arange(self._start, len(ids) - 1)
        if evicted:
            kept = torch.cat((kept[:SINKS], kept[SINKS + evicted :]))
        following = torch.tensor(ids)[kept + 1].tolist()
        want, _logits = ahead_by_definition(self.reference, self.weights, following, rows[kept])
        assert float((found[0] - want[-1]).abs().max()) < 1e-3 * float(want.abs().max()), (
            self._exact,
            len(ids),
        )
        self.checked += 1
        return found


@torch.inference_mode()
@pytest.mark.parametrize("levels", [2, 3])
def test_its_rows_are_of_what_stands(levels: int):
    """After every number of accepted tokens, with rows that left the window: a row of a rejected token, one
    of the layer's own or one that is a token late would be another law.
    """
    reference, target, layer, weights = tiny_with_ahead()
    cache, heard = whole_cache(target, 384), HeardRows(most=30)
    sampling, dice = Sampling(6.0, 1.0, 1.0, 0), SeededRandomness(5)
    listened = HeardModel(target, heard)
    own = streaming_cache(layer, sinks=SINKS, window=WINDOW, slack=40)
    drafter = Watched(layer, own, heard, sampling, dice, length=FixedLength())
    drafter.reference, drafter.weights = reference, weights
    top, how = drafter, {}
    if levels == 3:
        middle = retrieval_over(cache, budget=32, chunk=8, tail_tokens=64, slack=40)
        how = {"refresh": RetrievalRefresh(cache, middle)}
        top = VerifiedDrafter(drafter, listened, middle, sampling, dice, gamma=2, length=FixedLength())
    decoder = Decoder(top, listened, cache, sampling, dice, gamma=4, **how)
    committed, stood = tokens(70), Counter[int]()
    for _ in range(20):
        result = decoder.round(committed, most=20)
        committed.extend(result.tokens)
        stood[len(result.tokens)] += 1
    assert drafter.checked >= 15 and len(stood) >= 3
    assert own.length > own.kept and cache.length == len(committed) - 1


def machine(levels: int, *, by: str = MTP, vocab: int = VOCAB, **how: Any) -> tuple[torch.nn.Module, Engine]:
    """An engine as the product composes it; `by`: what drafts."""
    if by != MTP:
        return assisted(levels, by, vocab, **how)
    more = {} if vocab == VOCAB else SMALL
    reference, target, layer, _weights = tiny_with_ahead(vocab=vocab, **more)
    plan = {"layers": 1, "on_chip_layers": 1, "retrieval_budget": 16, "middle_gamma": 2}
    made = engine(target, draft=layer, drafter=MTP, straight=levels == 2, **(plan | how))
    return reference, made


def assisted(levels: int, family: str, vocab: int, **how: Any) -> tuple[torch.nn.Module, Engine]:
    """Likewise a Gemma 4 with its assistant."""
    more = {} if vocab == VOCAB else {"num_hidden_layers": 2, "layer_types": TYPES}
    reference = oracle(family, vocab_size=vocab, **more)
    target = ours(reference)
    plan = {"layers": 1, "on_chip_layers": 1, "retrieval_budget": 16, "middle_gamma": 2}
    plan |= {"drafter": ASSISTANT, "straight": levels == 2} | how
    return reference, engine(target, draft=our_assistant(target, assistant_oracle(reference)), **plan)


DRAFTS_BY = (MTP, "gemma4_text", SHARED)  # a layer ahead, and the assistant of such a model


@pytest.mark.parametrize("by", DRAFTS_BY)
@pytest.mark.parametrize("levels", [2, 3])
def test_greedy_it_says_what_plain_decoding_says(levels: int, by: str, monkeypatch: pytest.MonkeyPatch):
    drafts = noted_drafts(monkeypatch)
    _reference, made = machine(levels, by=by)
    params = Params(temperature=0.0, top_p=1.0, max_new_tokens=14)
    prompt = tokens(110)
    plain = answer(made, prompt, Params(temperature=0.0, top_p=1.0, max_new_tokens=14, mode="autoregressive"))
    for mode in GRID_MODES:
        said = answer(made, prompt, Params(temperature=0.0, top_p=1.0, max_new_tokens=14, mode=mode))
        assert said == plain, mode
    assert answer(made, prompt, params) == plain
    lengths = list(map(len, drafts))
    assert max(lengths) > 1 and sum(lengths) > 6


def plainly(
    reference: torch.nn.Module, prompt: list[int], *, left: int, vocab: int
) -> dict[tuple[int, ...], float]:
    """The law of the next tokens by transformers."""
    if left == 0:
        return {(): 1.0}
    with torch.inference_mode():
        row = reference(torch.tensor([prompt])).logits[0, -1].double().softmax(-1)
    return {
        (one, *rest): float(row[one]) * weight
        for one in range(vocab)
        for rest, weight in plainly(reference, [*prompt, one], left=left - 1, vocab=vocab).items()
    }


@pytest.mark.parametrize("by", DRAFTS_BY[:2])
@pytest.mark.parametrize(("levels", "vocab", "count"), [(2, 2, 4), (3, FEW, 3)])
def test_every_branch_has_its_probability(
    levels: int, vocab: int, count: int, by: str, monkeypatch: pytest.MonkeyPatch
):
    """The law that a draft was really drawn from is what the rule divides by. Lookup does not find the end of
    the text before it.
    """
    prompt, drafts = [*[0] * 6, *range(1, vocab)], noted_drafts(monkeypatch)
    branches = RoundedBranches()
    composer = partial(Composer, randomness=lambda seed: branches)
    how = {"composer": composer, "middle_gamma": 1, "gamma": 2}
    reference, made = machine(levels, by=by, vocab=vocab, **how)
    params = Params(temperature=1.0, top_p=1.0, max_new_tokens=count)
    law: Counter[tuple[int, ...]] = Counter()
    for weight, said in branches.runs(lambda: tuple(answer(made, prompt, params))):
        law[said] += weight
    want = plainly(reference, prompt, left=count, vocab=vocab)
    assert law.keys() == want.keys()
    assert max(abs(law[one] - want[one]) for one in want) < CLOSE
    lengths = list(map(len, drafts))
    assert sum(lengths) > 20 and max(lengths) == count - 2


SHAPE = KVShape(layers=1, kv_heads=1, head_dim=2)


class Bigrams:
    """What comes next hangs on the newest token alone: as a target, and as its layer ahead."""

    def __init__(self, seed: int) -> None:
        self.law = torch.randn(FEW, FEW, generator=torch.Generator().manual_seed(seed)).mul_(1.5).softmax(-1)

    def rows(self, ids: Sequence[int], cache: Any) -> torch.Tensor:
        """See ModelInTwo."""
        cache.attend(0, *(torch.zeros(len(ids), 1, SHAPE.head_dim) for _ in range(3)))
        cache.advance(len(ids))
        return torch.eye(FEW)[list(ids)]

    def follow(self, ids: Sequence[int], rows: torch.Tensor, cache: Any) -> torch.Tensor:
        """See LayerAhead."""
        return self.rows(ids, cache)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """See both."""
        return x @ self.law.log()


@torch.inference_mode()
def statistic(count: int = 700) -> tuple[float, int]:
    """(chi-square of the second to fourth token of as many answers, its degrees of freedom)"""
    target, layer, backend, dice = Bigrams(1), Bigrams(2), CpuBackend(), SeededRandomness(3)
    found: Counter[tuple[int, ...]] = Counter()
    cache = FullKVCache(SHAPE, 64, backend, block_tokens=64)
    own = StreamingKVCache(SHAPE, backend, lambda layer, x, slots: x, sinks=2, window=8, slack=20)
    sampling = Sampling(1.0, 1.0, 1.0, 0)
    for _ in range(count):
        heard, committed = HeardRows(most=8), [0]
        cache.reset()
        own.reset()
        drafter = AheadDrafter(layer, own, heard, sampling, dice, length=FixedLength())
        decoder = Decoder(drafter, HeardModel(target, heard), cache, sampling, dice, gamma=2)
        while len(committed) < 5:
            committed.extend(decoder.round(committed, most=5 - len(committed)).tokens)
        found[tuple(committed[2:])] += 1
    first = target.law[0]
    cells = list(product(range(FEW), repeat=3))
    law = [float(first @ target.law[:, a] * target.law[a, b] * target.law[b, c]) for a, b, c in cells]
    sums = [(found[one] - count * p) ** 2 / (count * p) for one, p in zip(cells, law, strict=True)]
    return sum(sums), len(cells) - 1


def test_sampled_tokens_follow_the_target():
    found, freedom = statistic()
    assert found < limit(freedom, FALSE_ALARM)


def test_the_same_sample_catches_a_draft_that_names_another_law(monkeypatch: pytest.MonkeyPatch):
    """As if what the rule divides by were flatter than what was drawn from."""
    propose = AheadDrafter.propose

    def flattened(self: AheadDrafter, *given: Any) -> Any:
        draft = propose(self, *given)
        if draft.probs is not None:
            draft.probs.fill_(1.0 / draft.probs.shape[-1])
        return draft

    monkeypatch.setattr(AheadDrafter, "propose", flattened)
    found, freedom = statistic()
    assert found > limit(freedom, FALSE_ALARM)


def test_without_rows_of_the_newest_token_nothing_is_drafted():
    """At an answer's beginning, and where tokens were passed unheard."""
    _reference, target, layer, _weights = tiny_with_ahead()
    heard = HeardRows(most=8)
    own = streaming_cache(layer, sinks=SINKS, window=WINDOW, slack=40)
    drafter = AheadDrafter(layer, own, heard, Sampling(0.0, 1.0, 1.0, 0), SeededRandomness(0))
    assert drafter.propose(tokens(5), 3).tokens == ()
    with torch.inference_mode():
        HeardModel(target, heard).forward(tokens(4), whole_cache(target, 64))
        assert len(drafter.propose(tokens(5), 3).tokens) == 3
        drafter.commit(4)
        assert drafter.propose(tokens(9), 3).tokens == ()


def test_what_was_heard_twice_is_of_the_later_pass():
    heard = HeardRows(most=4)
    heard.put(10, torch.arange(3.0)[:, None])
    heard.put(11, torch.arange(7.0, 9.0)[:, None])
    assert heard.of(10, 13).flatten().tolist() == [0, 7, 8]
    heard.put(13, torch.arange(20.0, 23.0)[:, None])
    assert (heard.start, heard.end) == (12, 16)
    heard.put(30, torch.ones(2, 1))  # what lies between was not heard
    assert (heard.start, heard.end) == (30, 32)
