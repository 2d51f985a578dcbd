"""The profiler's own logic, with tiny models: which level an operator belongs to, and that the trace is
one.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch

from benchmarks import profile
from benchmarks.decode import MODES, Bench
from benchmarks.levels import Measured
from tests.support.tiny import PLAN, VOCAB, engine, oracle, ours

pytestmark = pytest.mark.wide

IDS = [int(token) for token in torch.randint(0, VOCAB, (200,), generator=torch.Generator().manual_seed(5))]


def bench() -> Bench:
    recorder = profile.MarkedLevels()
    made = engine(
        ours(oracle()), draft=ours(oracle(kv_heads=4)), composer=functools.partial(Measured, recorder, PLAN)
    )
    return Bench(made, made.new_context(400), recorder, IDS, lambda: False)


@pytest.mark.parametrize("mode", ["autoregressive", "triforce", "triforce, trained draft"])
def test_operators_belong_to_the_level_that_ran_them(mode: str, tmp_path: Path):
    """Linear layers of one level counted for another, or shares that are not of the level."""
    made = bench()
    taken = profile.rounds(made, mode, 0.0, 4)
    found = profile.top(taken.events(), 1000)
    assert set(found) == {*made.recorder.passes, profile.OUTSIDE}
    for level, rows in found.items():
        assert sum(share for *_, share in rows) == pytest.approx(1.0)
        assert [ms for _, _, ms, _ in rows] == sorted((ms for _, _, ms, _ in rows), reverse=True)
        assert (
            "aten::addmm" in {name for name, *_ in rows} or "aten::mm" in {name for name, *_ in rows}
        ) == (level != profile.OUTSIDE)
    taken.export_chrome_trace(str(tmp_path / "trace.json"))
    named = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {profile.MARK + level for level in made.recorder.passes} <= named


def test_only_as_many_rounds_as_asked_for_are_profiled():
    """Plain decoding: one pass a round, and the first round is not among them."""
    taken = profile.rounds(bench(), "autoregressive", 0.0, 3)
    calls = {name: calls for name, calls, *_ in profile.top(taken.events(), 1000)["full"]}
    assert calls[profile.PROGRAM] == 3


def test_reading_a_prompt_is_one_level():
    """All of its operators, and none of the tokens read before to warm up."""
    taken = profile.prefill(engine(ours(oracle())), IDS)
    found = profile.top(taken.events(), 1000)
    assert "prefill" in found and not {"draft", "middle", "full"} & set(found)
    calls = {name: calls for name, calls, *_ in found["prefill"]}
    # chunks are short enough that their rows are multiplied one by one
    assert calls["aten::linear"] == 2 * 4 * len(IDS)


def test_a_mode_is_one_of_decodings():
    """Its default must exist."""
    assert profile._arguments(["trace.json"]).mode in MODES
