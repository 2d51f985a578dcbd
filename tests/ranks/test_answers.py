"""Answers of an engine whose model two ranks compute, against those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from core.assembly.composition import Composer
from core.assembly.engines import build_engine
from core.assembly.ranked import build_ranked
from core.config import Settings
from core.decoding.branching import AnswerBranch
from core.decoding.decoder import never
from core.decoding.randomness import RankedRandomness
from core.engine import Done, Engine
from core.errors import RankLost
from core.events import Prefill
from core.planning.budget import KV_ON_CHIP
from core.planning.plan import BudgetLine
from tests.support.assembled_engines import GREEDY, OFFLOADED, PROMPT, SmallDevice, answer
from tests.support.modes import GRID_MODES
from tests.support.tiny import oracle
from tests.support.two_ranks import asked
from tests.tiers import first

SWEPT = replace(OFFLOADED, swept_prefill=True, devices=(0, 1))
SETTINGS = Settings(snapshot_quota_gb=0, on_chip_layers=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target of two KV heads and a draft model."""
    folder = tmp_path_factory.mktemp("models")
    for name, more in (("target", {}), ("draft", {"tied": True, "kv_heads": 4})):
        oracle(**more).save_pretrained(folder / name)
    return {"target": folder / "target", "draft": folder / "draft"}


@pytest.fixture(scope="module")
def two(models: dict[str, Path]) -> Engine:
    """Of this process and another, most of the cache in host memory."""
    return build_ranked(SWEPT, SETTINGS, models["target"], draft_dir=models["draft"])


@pytest.fixture(scope="module")
def one(models: dict[str, Path]) -> Engine:
    """The same in this process alone."""
    return build_engine(SWEPT, SETTINGS, models["target"], draft_dir=models["draft"])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("mode", first(GRID_MODES))
def test_answers_are_one_processs(two: Engine, one: Engine, mode: str, temperature: float):
    """Greedy and drawn, in a context used twice; a rank that rolled back to another length would show in the
    second answer. In fp32 no logits here lie so close that the order of a sum decides.
    """
    params = replace(GREEDY, mode=mode, temperature=temperature, seed=3)
    contexts = two.new_context(400), one.new_context(400)
    for _time in range(2):
        found = [
            answer(engine, context, params)[0] for engine, context in zip((two, one), contexts, strict=True)
        ]
        assert found[0] == found[1]


@pytest.mark.wide
@pytest.mark.parametrize("mode", [mode for mode in GRID_MODES if mode != "autoregressive"])
def test_greedy_answers_are_plain_decodings(two: Engine, mode: str):
    """Drafts decide how fast an answer comes, and never what it says, also where two ranks judge them."""
    found = [
        answer(two, two.new_context(400), replace(GREEDY, mode=one, max_new_tokens=32))[0]
        for one in (mode, "autoregressive")
    ]
    assert found[0] == found[1]


def test_who_stops_reading_leaves_the_ranks_in_step(two: Engine, one: Engine):
    """Closing the events in the middle of a prefill, or of an answer, must not leave the other waiting."""
    context = two.new_context(400)
    for kind in (Prefill, object):
        for event in two.generate(context, PROMPT, GREEDY):
            if isinstance(event, kind):
                break
    polls = iter([False] * 3 + [True] * 100)
    *_, done = two.generate(context, PROMPT[:140] + PROMPT[:60], GREEDY, should_stop=lambda: next(polls))
    assert isinstance(done, Done) and done.reason == "user"
    assert answer(two, context)[0] == answer(one, one.new_context(400))[0]


@pytest.mark.wide
def test_where_an_answer_ends_is_said_by_rank_0(two: Engine):
    """The other knows no text; it would go on alone."""
    context = two.new_context(400)
    whole = answer(two, context)[0]
    told: list[int] = []
    *_, done = two.generate(context, PROMPT, GREEDY, ends=lambda token: told.append(token) or len(told) == 5)
    assert told == whole[:5] and done.reason == "stop"
    assert answer(two, context)[0] == whole


@pytest.mark.wide
def test_probabilities_and_branches_are_one_processs(two: Engine, one: Engine):
    """Passages are answered by these."""
    figures = []
    for engine in (two, one):
        context = engine.new_context(400)
        answer(engine, context)
        levels = engine.log_probabilities(context, PROMPT, [3, 5, 7])
        branches = [AnswerBranch(replace(GREEDY, temperature=0.9, seed=seed), never) for seed in (1, 2)]
        engine.several(context, PROMPT, branches)
        figures.append((levels, [one.tokens for one in branches], [one.log_probability for one in branches]))
    (levels, tokens, sums), (own_levels, own_tokens, own_sums) = figures
    assert levels == pytest.approx(own_levels, abs=1e-4)
    assert tokens == own_tokens
    assert sums == pytest.approx(own_sums, abs=1e-3)


@pytest.mark.wide
def test_a_context_that_was_closed_is_closed_by_all(two: Engine, one: Engine):
    """A rank that kept it would answer the next question behind rows that rank 0 has not."""
    context = two.new_context(400)
    answer(two, context)
    context.close()
    assert answer(two, context)[0] == answer(one, one.new_context(400))[0]


@pytest.mark.wide
def test_a_process_that_is_killed_is_noticed_at_once(models: dict[str, Path]):
    """Where nobody notices, the person waits for an answer that does not come; a new engine answers."""
    engine = build_ranked(SWEPT, SETTINGS, models["target"])
    context = engine.new_context(400)
    whole = answer(engine, context)[0]
    events: Iterator[object] = engine.generate(context, PROMPT[:90], GREEDY)
    next(events)
    engine.others.all[0].kill()
    with pytest.raises(RankLost):
        list(events)
    again = build_ranked(SWEPT, SETTINGS, models["target"])
    assert answer(again, again.new_context(400))[0] == whole


@pytest.mark.wide
def test_processes_end_with_the_engine(models: dict[str, Path]):
    """One that stayed would hold a card's memory."""
    engine = build_ranked(SWEPT, SETTINGS, models["target"])
    (other,) = engine.others.all
    assert other.poll() is None
    engine.others.close()
    assert other.poll() == 0


# ---- two threads of this process ---------------------------------------------------------------------------


@pytest.mark.parametrize("full", [0, 1], ids=["rank 0", "rank 1"])
@pytest.mark.parametrize(
    "trouble",
    [{"failures": [3]}, {"failures": [60]}, {"refuse": [True]}, {"free": 0}],
    ids=["while it reads", "while it answers", "for a cache", "beside its weights"],
)
def test_all_give_way_where_one_is_full(
    tmp_path: Path, models: dict[str, Path], one: Engine, trouble: dict[str, object], full: int
):
    """One that took a layer off its card alone would wait for sums that the other does not compute."""
    backends = [None, None]
    backends[full] = SmallDevice(**trouble)

    def ask(engine: Engine) -> tuple[list[int], int]:
        return answer(engine, engine.new_context(400))[0], engine.plan.on_chip_layers

    budget = (BudgetLine(KV_ON_CHIP, 1000, "VRAM"),)
    plan = replace(OFFLOADED, device="cuda", budget=budget, cuda_graphs="off")
    tokens, layers = asked(tmp_path, models["target"], ask, plan=plan, backends=tuple(backends))
    assert tokens == answer(one, one.new_context(400))[0]
    assert layers == 0


class _Wrong(RankedRandomness):
    """Accepts nothing and draws the last token."""

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        return super().first_rejection(accept_probs * 0)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        return super().draw(probs) * 0 + len(probs) - 1


def _wrong_composer(*given: object, ranks: object) -> Composer:
    return Composer(*given, randomness=partial(_Wrong, ranks=ranks))


@pytest.mark.parametrize("mode", first(["triforce", "autoregressive"]))
def test_what_another_rank_draws_changes_nothing(
    tmp_path: Path, models: dict[str, Path], one: Engine, mode: str
):
    """Cards of two kinds round otherwise: what the other would have decided must not count."""
    params = replace(GREEDY, mode=mode, temperature=0.9, seed=3)

    def ask(engine: Engine) -> list[int]:
        return answer(engine, engine.new_context(400), params)[0]

    found = asked(tmp_path, models["target"], ask, plan=SWEPT, second_composer=_wrong_composer)
    (tmp_path / "again").mkdir()
    alone = asked(tmp_path / "again", models["target"], ask, plan=SWEPT)
    assert found == alone
