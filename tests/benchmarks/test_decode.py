"""The decoding benchmark's own logic, with tiny models: what runs in a mode, whose pass is whose, and what
the tables say of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.lib import embedded
from benchmarks.lib.level_timer import MeasuredComposer, PassRecorder
from benchmarks.speed import decode
from benchmarks.speed.decode import MODES, PLAIN, DecodeBench, DecodeRun, mode_answers
from benchmarks.speed.forward_times import OutOfTime
from core.assembly.composition import Composer
from core.backend.base import Backend
from core.cache.disk import SnapshotFolder
from core.cache.full import FullKVCache
from core.cache.snapshot import SnapshotStore
from core.engine import Engine
from tests.support.recording import RecordingBackend
from tests.support.tiny import PLAN, VOCAB, engine, oracle, ours

pytestmark = pytest.mark.wide

IDS = [int(token) for token in torch.randint(0, VOCAB, (300,), generator=torch.Generator().manual_seed(5))]
LEVELS_OF = {
    PLAIN: {"full"},
    "ngram": {"full"},
    "draft": {"draft", "full"},
    "streaming": {"middle", "full"},
    "retrieval": {"middle", "full"},
    "triforce": {"middle", "full"},
    "triforce, trained draft": {"draft", "middle", "full"},
}


class Prepared(MeasuredComposer):
    """As `build_engine` has it."""

    def __init__(self, *how: object) -> None:
        super().__init__(*how)
        self.prepare()


def bench(
    out_of_time: Callable[[], bool] = lambda: False, backend: Backend | None = None, **plan: str
) -> DecodeBench:
    recorder = PassRecorder()
    target, draft = ours(oracle(), backend=backend), ours(oracle(kv_heads=4), backend=backend)
    made = engine(
        target, draft=draft, composer=functools.partial(Prepared, recorder, replace(PLAN, **plan)), **plan
    )
    return DecodeBench(made, made.new_context(400), recorder, IDS, out_of_time)


def check_modes(made: DecodeBench) -> DecodeRun:
    """Returns plain decoding's run."""
    runs = list(mode_answers(made, [PLAIN, *MODES], 0.0, tokens=24))
    assert [run.mode for run in runs] == [PLAIN, *MODES]
    assert all(run.same_as_plain for run in runs)
    assert {run.mode: set(run.passes) for run in runs} == LEVELS_OF
    return runs[0]


def test_every_mode_writes_what_plain_decoding_writes_and_its_levels_are_timed():
    """A mode that runs another composition, or a pass that is counted for the wrong level."""
    plain = check_modes(bench())
    assert (
        plain.passes["full"]["passes"] == 24
        and plain.passes["full"]["rows"] == 1
        and 0 < plain.passes["full"]["ms"] < 1e4
    )
    assert plain.tokens_per_round == 1 and plain.acceptance_retrieval is None


def test_recorded_passes_are_timed_as_a_whole():
    """A stopwatch inside a recording waits for the device, which a CUDA graph does not allow; outside it must
    see every replay.
    """
    backend = RecordingBackend()
    check_modes(bench(backend=backend, cuda_graphs="on"))
    assert backend.recorded and backend.replayed


def test_an_answer_that_is_broken_off_is_no_result():
    """Half an answer has other figures than a whole one."""
    asked = iter(range(1000))
    with pytest.raises(OutOfTime):
        list(mode_answers(bench(lambda: next(asked) > 6), [PLAIN], 0.0, tokens=24))


def test_a_prompt_is_read_once(tmp_path: Path):
    """The rows come from disk in the next run; a run that was stopped keeps whole segments."""
    model = ours(oracle())

    def made() -> Engine:
        store = SnapshotStore(
            SnapshotFolder(tmp_path), "tiny", model.config.kv_shape, torch.float32, quota_bytes=10**9
        )
        return Engine(
            model,
            PLAN,
            new_cache=lambda n: FullKVCache(model.config.kv_shape, n + 32, model.backend, block_tokens=64),
            compose=Composer(PLAN, model, None).compose,
            peak_memory=lambda: 1,
            snapshots=store,
        )

    def read(out_of_time: Callable[[], bool]) -> int:
        one = made()
        return embedded.read_into(
            one, one.new_context(400), IDS, "book", out_of_time=out_of_time
        ).snapshot_tokens

    asked = iter(range(1000))
    with pytest.raises(OutOfTime):
        # two layers a segment: the third of seven segments is not finished
        read(lambda: next(asked) > 4)
    assert [read(lambda: False) for _ in range(2)] == [2 * PLAN.prefill_segment_tokens, len(IDS) - 1]


def run(mode: str, tbt_ms: float, distinct: float, context: int = 1024) -> DecodeRun:
    passes = {"full": {"passes": 10, "rows": 3, "ms": 20.0}} | (
        {"middle": {"passes": 30, "rows": 1, "ms": 5.0}} if mode != PLAIN else {}
    )
    return DecodeRun(context, 0.0, mode, tbt_ms, tbt_ms, tbt_ms, None, 0.9, 2.0, distinct, passes, True)


def test_looping_text_stands_apart_and_ratios_are_to_the_mean_of_plain():
    """A looping answer among the others would claim what its text gives it; one plain run alone may be the
    slow one.
    """
    runs = [
        run(PLAIN, 18.0, 0.9),
        run("triforce", 10.0, 0.3),
        run("retrieval", 16.0, 0.9),
        run(PLAIN, 22.0, 0.9),
    ]
    varied, looping, passes, floor = decode.decode_tables(
        runs, {1024: {"weight_bytes": 60e6, "kv_bytes": 40e6, "memory_gb_per_s": 10.0}}, "A book"
    )
    against = decode.COLUMNS.index("against plain")
    assert [(row[2], row[against]) for row in varied.rows] == [
        (PLAIN, 20 / 18),
        ("retrieval", 1.25),
        (PLAIN, 20 / 22),
    ]
    assert [(row[2], row[against]) for row in looping.rows] == [("triforce", 2.0)]
    assert passes.rows[1][3:] == (None, 5.0, 20.0, 3, 3.0)
    assert floor.rows[0][4:] == (10.0, 20.0, 0.5)  # 100 MB at 10 GB/s, of 20 ms
