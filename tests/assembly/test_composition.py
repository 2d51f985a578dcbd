"""What the product composes for each mode, by its Composer over its caches, with models whose laws are
constants: who draws, over what, how far, and that the law is the target's whatever the others say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.decoding.context import Context
from core.decoding.decoder import Decoder, Round
from core.planning.plan import Plan
from core.request import Params
from tests.support.modes import GRID_MODES
from tests.support.tiny import PLAN

SHAPE = KVShape(layers=1, kv_heads=1, head_dim=2)
PROMPT = list(range(100, 120))  # no word of it comes again: lookup has nothing to say at first
WARM = Params(temperature=1.0, top_p=1.0)
CHEAP = replace(PLAN, context_tokens=20, retrieval_budget=16, gamma=4, middle_gamma=2, expected_draft_ms=0.01)
# by what a pass reads: the target's law over each cache, and the draft model's
LAWS = {
    "full": (0.5, 0.3, 0.2),
    "retrieval": (0.3, 0.3, 0.4),
    "streaming": (0.2, 0.5, 0.3),
    "draft": (0.2, 0.3, 0.5),
}
KINDS = {FullKVCache: "full", RetrievalKVCache: "retrieval", StreamingKVCache: "streaming"}


class Constant:
    """A model whose logits depend on the kind of cache alone. Notes each pass: (kind, rows)."""

    def __init__(self, laws: dict[str, Sequence[float]], *, eos: Sequence[int] = ()) -> None:
        self.backend = CpuBackend()
        self.config = SimpleNamespace(kv_shape=SHAPE, eos_ids=frozenset(eos), name="constant")
        self.rope = SimpleNamespace(rotate=self._rotate)
        self.passes: list[tuple[str, int]] = []
        self.read: dict[str, FullKVCache | RetrievalKVCache | StreamingKVCache] = {}
        self.rotated = 0
        self.drafting = self
        self._logits = {kind: torch.tensor(law).log() for kind, law in laws.items()}

    def forward(self, ids: Sequence[int], cache: FullKVCache) -> torch.Tensor:
        """See LlamaModel."""
        n, kind = len(ids), KINDS[type(cache)]
        cache.attend(0, *(torch.zeros(n, 1, SHAPE.head_dim) for _ in range(3)))
        cache.advance(n)
        self.passes.append((kind, n))
        self.read[kind] = cache
        return self._logits[kind].repeat(n, 1)

    def _rotate(self, layer: int, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.rotated += 1
        return x


@dataclass
class Machine:
    """Both models, and answers composed for a plan."""

    plan: Plan
    target: Constant
    draft: Constant

    def __post_init__(self) -> None:
        self._composer = Composer(self.plan, self.target, self.draft)
        self._cache = FullKVCache(SHAPE, 256, self.target.backend, block_tokens=64)

    def rounds(self, params: Params, *, tokens: int, prompt: Sequence[int] = PROMPT) -> Iterator[Round]:
        """The rounds of one answer, read from the end of the prompt as after a prefill."""
        committed = list(prompt)
        context = Context(self._cache, 256)
        decoder: Decoder = self._composer.compose(params, context, len(prompt))
        self._cache.reset()
        self._cache.observer = decoder.refresh.tap
        self.target.forward(committed[:-1], self._cache)
        self._cache.observer = None
        self._cache.commit(self._cache.length)
        context.hold(committed)
        self.target.passes.clear()
        self.draft.passes.clear()
        while len(committed) < len(prompt) + tokens:
            made = decoder.round(committed, most=32)
            committed += made.tokens
            yield made
            if made.ended:
                return


def machine(plan: Plan = CHEAP, *, eos: Sequence[int] = (), **laws: Sequence[float]) -> Machine:
    made = {**LAWS, **laws}
    return Machine(plan, Constant(made, eos=eos), Constant({"streaming": made["draft"]}))


def chance(counts: Counter, expected: dict[tuple[int, ...], float]) -> float:
    """The p value of Pearson's chi-square."""
    total = sum(counts.values())
    statistic = sum((counts[cell] - total * p) ** 2 / (total * p) for cell, p in expected.items())
    half = torch.tensor([(len(expected) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*half))


@pytest.mark.parametrize("mode", GRID_MODES)
def test_the_law_is_the_targets_in_every_mode(mode: str):
    """Levels that draw from streams of their own with one seed repeat each other's numbers: what one proposed
    by a low number, the other accepts by it, and .50/.30/.20 becomes .70/.30/.00.
    """
    made, answers = machine(), []
    for seed in range(200):
        params = replace(WARM, mode=mode, seed=seed)
        answers.append([token for one in made.rounds(params, tokens=4) for token in one.tokens])
    law = LAWS["full"]
    for place in range(3):
        pairs = Counter((answer[place], answer[place + 1]) for answer in answers)
        found = chance(pairs, {(a, b): law[a] * law[b] for a, b in product(range(3), repeat=2)})
        assert found > 1e-6, f"tokens {place} and {place + 1} of {mode}: {pairs}"


@pytest.mark.parametrize(
    ("mode", "of_target", "of_draft"),
    [
        ("autoregressive", {"full"}, set()),
        ("ngram", {"full"}, set()),
        ("draft", {"full"}, {"streaming"}),
        ("streaming", {"full", "streaming"}, set()),
        ("retrieval", {"full", "retrieval"}, set()),
        ("triforce", {"full", "retrieval"}, {"streaming"}),
    ],
)
def test_each_level_reads_its_own_cache(mode: str, of_target: set[str], of_draft: set[str]):
    """A level over another's cache, or keys turned by another model's rotation, proposes worse, and nobody
    sees why: the law stays right.
    """
    made = machine()
    list(made.rounds(replace(WARM, mode=mode), tokens=12))
    assert {kind for kind, _ in made.target.passes} == of_target
    assert {kind for kind, _ in made.draft.passes} == of_draft
    assert (made.target.rotated > 0) == ("streaming" in of_target)
    assert (made.draft.rotated > 0) == bool(of_draft)


def test_caches_have_the_sizes_of_the_plan():
    """A budget for a chunk, or a window for the sinks, is a worse drafter and no error."""
    made = machine()
    for mode in ("triforce", "streaming"):
        list(made.rounds(replace(WARM, mode=mode), tokens=4))
    retrieval = made.target.read["retrieval"]
    assert (retrieval.budget, retrieval.chunk, retrieval.tail_tokens) == (16, 8, 32)
    for streaming in (made.target.read["streaming"], made.draft.read["streaming"]):
        assert (streaming.sinks, streaming.window) == (4, 24)


CERTAIN = (0.98, 0.01, 0.01)
SURE = dict.fromkeys(LAWS, CERTAIN)  # greedy decoding says 0, and nobody doubts it
GREEDY = Params(temperature=0.0, top_p=1.0)


def longest(passes: Sequence[tuple[str, int]], kind: str) -> int:
    return max(rows for one, rows in passes if one == kind)


@pytest.mark.parametrize(("gamma", "middle_gamma"), [(7, 2), (3, 6)])
def test_each_level_drafts_as_long_as_the_plan_says(gamma: int, middle_gamma: int):
    """Lengths that were exchanged cost time and nothing else."""
    plan = replace(CHEAP, gamma=gamma, middle_gamma=middle_gamma)
    made = machine(plan, **SURE)
    list(made.rounds(replace(GREEDY, mode="draft"), tokens=40))
    assert longest(made.target.passes, "full") == 1 + gamma
    list(made.rounds(replace(GREEDY, mode="triforce"), tokens=40))
    assert longest(made.target.passes, "retrieval") == 1 + middle_gamma
    # the middle level's last pass may run over
    assert 1 + gamma <= longest(made.target.passes, "full") <= 1 + gamma + middle_gamma


@pytest.mark.parametrize("mode", GRID_MODES)
def test_every_level_knows_the_end(mode: str):
    """A decoder without the ids of the end writes on; a middle level without them drafts behind it."""
    made = machine(eos=[0], **SURE)
    (last,) = made.rounds(replace(GREEDY, mode=mode), tokens=30)
    assert last.ended and last.tokens == (0,)
    if mode in ("streaming", "retrieval"):
        assert longest(made.target.passes, "full") == 2  # the prompt's last token and the end
    if mode == "triforce":
        assert sum(kind == "retrieval" for kind, _ in made.target.passes) == 1


def drafted(plan: Plan, mode: str, kind: str) -> bool:
    """Whether passes over that kind of cache are made while an answer of 20 tokens is written."""
    made = machine(plan, **SURE)
    list(made.rounds(replace(GREEDY, mode=mode), tokens=20))
    return any(one == kind for model in (made.target, made.draft) for one, _ in model.passes)


def test_what_does_not_pay_is_not_done():
    """The plan's times decide, each in its place: a full pass must be dear against a middle pass, at the
    length that is read, and a middle pass against the draft's.
    """
    cheap_middle = replace(CHEAP, context_tokens=20, assumed_acceptance=0.7)
    dear_middle = replace(cheap_middle, expected_middle_ms=1.9)
    long_context = replace(cheap_middle, context_tokens=20_000)
    assert drafted(cheap_middle, "retrieval", "retrieval")
    assert not drafted(dear_middle, "retrieval", "retrieval")
    assert drafted(replace(dear_middle, fixed_gamma=True), "retrieval", "retrieval"), (
        "the user's length is kept"
    )
    assert not drafted(long_context, "retrieval", "retrieval"), "20 tokens are read as fast as a middle pass"
    held = replace(cheap_middle, retrieval_budget=24, context_tokens=30)
    assert not drafted(held, "retrieval", "retrieval"), "the budget holds all: it would be verified twice"
    assert drafted(replace(held, retrieval_budget=16), "retrieval", "retrieval")
    assert drafted(CHEAP, "draft", "streaming")
    assert not drafted(replace(CHEAP, expected_draft_ms=2.0), "draft", "streaming")


def test_the_penalty_counts_from_where_the_answer_starts():
    """The book's own words are not held against the answer, at any level."""
    params = replace(GREEDY, repetition_penalty=2.0, mode="triforce")
    made = machine(**dict.fromkeys(LAWS, (0.5, 0.4, 0.1)))
    first = next(made.rounds(params, tokens=1, prompt=[0, 0, 0, 0]))
    assert first.tokens[0] == 0
