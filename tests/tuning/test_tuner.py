"""The tuner on a tiny model with a clock of its own: no test here depends on how fast the machine is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.speed.tune import tuning_tables
from core.assembly.engines import TuningBench
from core.backend.base import DeviceMemory
from core.cache.base import TargetKVCache
from core.cache.offloaded import OffloadedKVCache
from core.config import Settings
from core.decoding.decoder import Round
from core.model.llama import LlamaModel
from core.planning import stored_facts
from core.planning.plan import Plan
from core.planning.tuned import SPECULATION, Tuned
from core.request import Params
from core.tuning.run_tuning import report_text, stored, tuning_json
from core.tuning.tuner import FEW_SELECTIONS, LEAST_PROMPT, RACE_TURNS, Outcome, Tuner
from tests.support.tiny import PLAN, VOCAB, engine, oracle, ours
from tests.support.tuned_record import RECORD

TEXT = [int(token) for token in torch.randint(0, VOCAB, (600,), generator=torch.Generator().manual_seed(11))]
WARM = Params(temperature=1.0, top_p=1.0)


class Clock:
    """Goes on by a thousandth at every look, and as the engines say."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    return ours(oracle())


def tuned(
    model: LlamaModel,
    *,
    token_s: dict[bool, float],
    plain_s: float = 1.0,
    seconds: float = 1e6,
    settings: Settings | None = None,
    plan: Plan = PLAN,
    stages: list[str] | None = None,
    new_cache: Callable[[int], TargetKVCache] | None = None,
    ran: list[tuple[str, int]] | None = None,
    short: tuple[str, int] | None = None,
) -> Outcome:
    """A run in which a token takes token_s[False] with the default plan, token_s[True] with the found one,
    `plain_s` where nothing is drafted. `ran` notes who answered with which seed; `short`: who breaks off
    with which seed.
    """
    clock, ran = Clock(), [] if ran is None else ran

    def engine_of(other: Plan) -> object:
        names = (*SPECULATION, "plain")
        made = engine(model, new_cache=new_cache, **{name: getattr(other, name) for name in names})
        inner = made.generate

        def generate(context: object, ids: object, params: Params, **more) -> Iterator[object]:
            ran.append(("plain" if other.plain else "chosen" if other.tuned else "default", params.seed))
            if ran[-1] == short:
                params = replace(params, max_new_tokens=2)
            for event in inner(context, ids, params, **more):
                if isinstance(event, Round):
                    assert not other.plain or event.levels == ("target",)
                    clock.now += len(event.tokens) * (plain_s if other.plain else token_s[bool(other.tuned)])
                yield event

        made.generate = generate
        return made

    def replan(found: Tuned) -> Plan:
        return replace(
            plan,
            retrieval_budget=found.retrieval_budget,
            retrieval_chunk=found.retrieval_chunk,
            gamma=found.gamma,
            middle_gamma=found.middle_gamma,
            tuned=found.date,
            plain=found.plain,
        )

    def label(**values) -> Tuned:
        return replace(RECORD, **values)

    def report(stage: str, fraction: float | None) -> None:
        if stages is not None:
            stages.append(stage)

    return Tuner(
        TuningBench(engine_of),
        plan,
        settings or Settings(),
        WARM,
        replan=replan,
        label=label,
        clock=clock,
        report=report,
        seconds=seconds,
    ).run(TEXT)


def test_a_faster_plan_is_kept(model: LlamaModel, tmp_path: Path):
    """The race decides; what is stored is what was measured, and the report says both times."""
    stages: list[str] = []
    outcome = tuned(model, token_s={False: 0.2, True: 0.1}, stages=stages)
    assert (
        outcome.kept
        and outcome.chosen_tbt_ms == pytest.approx(100, rel=0.1)
        and outcome.default_tbt_ms == pytest.approx(200, rel=0.1)
    )
    assert (
        outcome.tuned.model == "tiny"
        and outcome.tuned.verify_ms[0][0] == 1
        and 0 < outcome.tuned.acceptance <= 1
    )
    assert {one.budget for one in outcome.measured.acceptance} == {64, 128} == set(outcome.measured.middle_ms)
    done = stored(outcome, tmp_path)
    assert done.file is not None and [one.gamma for one in stored_facts.read_tuned(tmp_path)] == [
        outcome.tuned.gamma
    ]
    assert str(done.file) in report_text(done) and tuning_json(done)["kept"] is True
    assert len(dict.fromkeys(stages)) == 5


@pytest.mark.wide
def test_a_slower_plan_is_not_kept_and_drops_an_older_one(model: LlamaModel, tmp_path: Path):
    """A tie goes to the default, and values that once won do not outlive a race that says otherwise."""
    outcome = tuned(model, token_s={False: 0.1, True: 0.2})
    stored_facts.store_tuned(tmp_path, replace(outcome.tuned, gamma=31))
    done = stored(outcome, tmp_path)
    assert not outcome.kept and done.file is None and done.dropped and stored_facts.read_tuned(tmp_path) == ()
    assert "dropped" in report_text(done)
    assert not replace(outcome, chosen_tbt_ms=outcome.default_tbt_ms).kept
    # a plan without the values: they could not be used
    assert not replace(outcome, chosen=PLAN, chosen_tbt_ms=1.0).kept


@pytest.mark.parametrize(
    ("default_s", "chosen_s", "plain_s", "kept", "plain"),
    [
        (0.3, 0.2, 0.1, True, True),
        (0.2, 0.3, 0.1, True, True),
        (0.3, 0.1, 0.2, True, False),
        (0.1, 0.2, 0.1, False, False),  # a tie goes to the default
    ],
)
@pytest.mark.wide
def test_plain_decoding_races_too(
    model: LlamaModel, tmp_path: Path, default_s, chosen_s, plain_s, kept: bool, plain: bool
):
    """Where it is the fastest it is kept, its own time beside it, and the report says so."""
    outcome = tuned(model, token_s={False: default_s, True: chosen_s}, plain_s=plain_s)
    assert (outcome.kept, outcome.tuned.plain, outcome.chosen.plain) == (kept, plain, plain)
    assert outcome.tuned.tbt_ms == pytest.approx(1e3 * min(chosen_s, plain_s), rel=0.1)
    done = stored(outcome, tmp_path)
    assert [one.plain for one in stored_facts.read_tuned(tmp_path)] == ([plain] if kept else [])
    assert ("Plain decoding was faster" in report_text(done)) == plain
    assert tuning_json(done)["plain_tbt_ms"] == pytest.approx(1e3 * plain_s, rel=0.1)


@pytest.mark.wide
def test_little_time_gives_a_result_all_the_same(model: LlamaModel):
    """A slow machine: less text, fewer passes, one race all the same; and no more than that."""
    outcome = tuned(
        model, token_s={False: 0.2, True: 0.1}, seconds=0.01, plan=replace(PLAN, expected_prefill_s=1e6)
    )
    assert outcome.read_tokens == PLAN.prefill_segment_tokens < LEAST_PROMPT
    assert [one.chunk for one in outcome.measured.acceptance][:2] == [PLAN.retrieval_chunk] * 2
    assert len(outcome.measured.acceptance) == FEW_SELECTIONS and outcome.tuned.verify_ms


@pytest.mark.wide
def test_on_a_busy_machine_nothing_is_kept_or_dropped(model: LlamaModel, tmp_path: Path):
    """Times beside other work have chosen drafts of 32 tokens that were slower than plain decoding."""
    outcome = tuned(model, token_s={False: 0.2, True: 0.1})
    stored_facts.store_tuned(tmp_path, replace(outcome.tuned, gamma=31))
    done = stored(outcome, tmp_path, busy=0.8)
    assert done.file is None and [one.gamma for one in stored_facts.read_tuned(tmp_path)] == [31]
    assert "80%" in report_text(done) and tuning_json(done)["kept"] is False


@pytest.mark.wide
def test_little_memory_changes_no_figure(model: LlamaModel, monkeypatch: pytest.MonkeyPatch):
    """Selections that do not fit side by side come one after the other, each from the same start."""
    together = tuned(model, token_s={False: 0.2, True: 0.1}).measured
    monkeypatch.setattr(model.backend, "memory", lambda: DeviceMemory(0, 1))
    alone = tuned(model, token_s={False: 0.2, True: 0.1}).measured
    assert alone.acceptance == pytest.approx(together.acceptance, abs=1e-6) and len(alone.acceptance) == 6


@pytest.mark.wide
def test_an_offloaded_cache_is_measured_alike(model: LlamaModel):
    """Its rows lie in host memory; filling it up and taking that back must leave what the race reads. The
    CPU's share that the plan had is kept with the times.
    """
    shared = replace(PLAN, cpu_share=0.4, cpu_share_plain=0.6)

    def offloaded(capacity: int) -> OffloadedKVCache:
        return OffloadedKVCache(
            model.config.kv_shape,
            capacity + 32,
            model.backend,
            block_tokens=128,
            resident_layers=1,
            staging_blocks=2,
            fresh_tokens=128,
        )

    there, here = (
        tuned(model, token_s={False: 0.2, True: 0.1}, new_cache=cache, plan=shared)
        for cache in (offloaded, None)
    )
    assert (there.tuned.cpu_share, there.tuned.cpu_share_plain) == (0.4, 0.6)
    assert there.measured.acceptance == pytest.approx(here.measured.acceptance, abs=1e-4) and there.kept


@pytest.mark.wide
def test_an_answer_that_ends_at_once_keeps_the_default(model: LlamaModel, tmp_path: Path):
    """Two tokens say nothing of speed."""
    ending = ours(oracle(), eos=None)
    ending.config = replace(ending.config, eos_ids=frozenset(range(VOCAB)))
    outcome = tuned(ending, token_s={False: 0.2, True: 0.1})
    done = stored(outcome, tmp_path)
    assert not outcome.kept and done.file is None and "–" in report_text(done)
    assert json.loads(json.dumps(tuning_json(done), allow_nan=False))["default_tbt_ms"] is None


@pytest.mark.wide
def test_a_race_has_a_default(model: LlamaModel):
    """A plan that was timed has not won against one that was not."""
    assert not replace(tuned(model, token_s={False: 0.2, True: 0.1}), default_tbt_ms=math.inf).kept


@pytest.mark.wide
def test_the_race_is_run_with_several_texts(model: LlamaModel):
    """What one text says of drafts is much its own: other seeds in each turn, the same for all three, there
    and back; one turn where there is no time for more. An answer too short to be timed decides nothing.
    """
    ran: list[tuple[str, int]] = []
    outcome = tuned(model, token_s={False: 0.2, True: 0.1}, ran=ran)
    turns = [ran[-6 * RACE_TURNS :][start : start + 6] for start in range(0, 6 * RACE_TURNS, 6)]
    there = ("default", "chosen", "plain")
    assert [{seed for _, seed in turn} for turn in turns] == [{WARM.seed ^ n} for n in range(RACE_TURNS)]
    assert all(tuple(who for who, _ in turn) == (*there, *reversed(there)) for turn in turns)
    assert outcome.default_tbt_ms == pytest.approx(200, rel=0.1)
    ran.clear()
    tuned(model, token_s={False: 0.2, True: 0.1}, seconds=0.01, ran=ran)
    assert [seed for _, seed in ran[-7:]] == [WARM.seed] * 7


@pytest.mark.wide
def test_an_answer_too_short_to_be_timed_decides_nothing(model: LlamaModel):
    """One of the default's ten."""
    outcome = tuned(model, token_s={False: 0.2, True: 0.1}, short=("default", 1))
    assert outcome.kept and outcome.default_tbt_ms == pytest.approx(200, rel=0.1)


@pytest.mark.wide
def test_a_result_is_tabled(model: LlamaModel, tmp_path: Path):
    """Default and choice under the right headings; a selection that was not tried is a gap."""
    found = tuning_json(stored(tuned(model, token_s={False: 0.2, True: 0.1}), tmp_path))
    found["acceptance"] = [one for one in found["acceptance"] if (one["budget"], one["chunk"]) != (64, 4)]
    both, accepted = tuning_tables(found)
    assert (
        [row[0] for row in both.rows] == ["default", "chosen", "plain"]
        and both.rows[2][7] == pytest.approx(1e3, rel=0.1)
        and both.rows[0][7] == pytest.approx(200, rel=0.1)
    )
    assert accepted.rows[0][:2] == ("64", None) and accepted.rows[0][2] is not None
