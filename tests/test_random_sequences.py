"""Random sequences of questions, stopped readings, forks, rollbacks, storing and reopening, of families whose
layers are not those of Llama: every answer is that of a fresh engine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.request import Params
from tests.support.reopening import reopened
from tests.support.tiny import OTHERS, SHARED, VOCAB
from tests.tiers import first

CAPACITY, ANSWER = 900, 5  # tokens
# two books that begin alike: the other one rolls a context back into the first
_DICE = random.Random(8)
BOOKS = {"first": [_DICE.randrange(VOCAB) for _ in range(390)]}
BOOKS["second"] = BOOKS["first"][:130] + [_DICE.randrange(VOCAB) for _ in range(270)]
DEEDS = ("ask", "ask", "ask", "follow up", "follow up", "fork", "stopped", "scored", "stored", "reopened")


class Walk:
    """One engine on one folder, a few contexts, and what stands in each. All chance is from `seed`."""

    def __init__(self, root: Path, family: str, seed: int, *, along: bool = False) -> None:
        self.dice, self.root = random.Random(seed), root
        self.how = {"family": family, "along": along}
        self.fresh = reopened(root / "none", **self.how)
        self.done, self._deck = list[str](), list[str]()
        self._reopen()

    def step(self) -> None:
        """One deed; of ten in a row each is done."""
        self._deck = self._deck or self.dice.sample(DEEDS, len(DEEDS))
        deed = self._deck.pop()
        self.done.append(deed)
        if deed == "reopened":
            self._reopen()
        elif deed == "stored":
            for context in self.contexts:
                self.made.save(context, should_stop=lambda: False)
        elif deed == "scored":
            self._score()
        else:
            self._ask(deed)

    def _reopen(self) -> None:
        """As after a restart, with the rows here or, but of layers that share them, away."""
        away = self.dice.random() < 0.5 and self.how["family"] != SHARED
        self.made = reopened(self.root / "kept", **self.how, offloaded=away)
        self.contexts = [self.made.new_context(CAPACITY)]

    def _ask(self, deed: str) -> None:
        context = self.dice.choice(self.contexts)
        held = list(context.ids)
        book = context.book_id if deed != "ask" and context.book_id else self.dice.choice(list(BOOKS))
        if deed == "fork" and len(self.contexts) < 3:
            context = self.made.new_context(CAPACITY)
            self.contexts.append(context)
        more = self._chance(self.dice.randint(1, 60))
        before = BOOKS[book]
        if held[: len(before)] == before and len(held) < CAPACITY - 100 and deed != "ask":
            before = held if deed == "follow up" else held[: self.dice.randint(len(before), len(held))]
        context.belongs_to(book, len(BOOKS[book]), stored_while_read=self.dice.random() < 0.5)
        looks = iter(range(self.dice.randint(0, 9) if deed == "stopped" else CAPACITY))
        mode = self.dice.choice(("triforce", "autoregressive"))
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=ANSWER, mode=mode)
        ids = [*before, *more]
        said, end = answer(self.made, context, ids, params, lambda: next(looks, None) is None)
        assert len(context.ids) == context.cache.length, self.done
        if end.reason == "user":
            return
        untold = self.fresh.new_context(CAPACITY)
        assert said == answer(self.fresh, untold, ids, params)[0], (self.done, mode)

    def _score(self) -> None:
        """An answer is held against what was read, on rows that are taken back."""
        context = self.dice.choice(self.contexts)
        if len(context.ids) < 2:
            return
        ids, said = list(context.ids), self._chance(4)
        found = self.made.log_probabilities(context, ids, said)
        untold = self.fresh.new_context(CAPACITY)
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=1, mode="autoregressive")
        answer(self.fresh, untold, ids, params)
        assert found == pytest.approx(self.fresh.log_probabilities(untold, ids, said), abs=2e-3), self.done
        assert len(context.ids) == context.cache.length, self.done

    def _chance(self, n: int) -> list[int]:
        return [self.dice.randrange(VOCAB) for _ in range(n)]


def answer(
    made: Engine, context: Context, ids: Sequence[int], params: Params, should_stop=lambda: False
) -> tuple[list[int], Done]:
    events = list(made.generate(context, ids, params, should_stop=should_stop))
    return [token for one in events if isinstance(one, Round) for token in one.tokens], events[-1]


@pytest.mark.parametrize("family", first(OTHERS))
def test_after_any_sequence_an_answer_is_that_of_a_fresh_engine(tmp_path, family: str):
    walk = Walk(tmp_path, family, seed=3)
    for _ in DEEDS:
        walk.step()


def test_likewise_where_a_layer_of_the_models_own_drafts(tmp_path):
    """Its rows are an answer's own: nothing of them is stored, forked or gone back to."""
    walk = Walk(tmp_path, "qwen3_5_text", seed=4, along=True)
    for _ in DEEDS:
        walk.step()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", OTHERS)
def test_after_any_long_sequence_likewise(tmp_path, family: str, seed: int):
    walk = Walk(tmp_path, family, seed)
    for _ in range(60):
        walk.step()
