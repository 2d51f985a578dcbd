"""Replay equals eager: recorded passes over caches that grow, roll back, evict, are selected anew and serve
the next conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.assembly.composition import Composer
from core.backend.cpu.backend import CpuBackend
from core.cache.fixed import FixedRows
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.hardware.measured import Measurements
from core.model.cuda_graphs import GraphedForward, ReplayedPass
from core.text.words import in_language, localized
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.recording import RecordingBackend
from tests.support.replays import BUSY, ROWS, Level0, Middle, compare, prepared, small_draft, streaming
from tests.support.said import values, worded_by
from tests.support.tiny import ONE_STORE, PLAN, oracle, ours

OPS = st.lists(
    st.tuples(st.sampled_from(["feed", "feed", "feed", "rollback", "commit", "next"]), st.integers(1, 4)),
    max_size=20,
)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As in the engine."""
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("kind", [Middle, Level0])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
@settings(max_examples=12, deadline=None)
@given(ops=OPS)
def test_any_sequence(kind: type[Middle] | type[Level0], kv_heads: int, ops: list[tuple[str, int]]):
    """Growth, rollback, commit with eviction or selection, and a second conversation in the same memory."""
    # hypothesis calls this many times within one fixture
    with torch.inference_mode():
        compare(kind, ops, RecordingBackend(), kv_heads=kv_heads)


@pytest.mark.parametrize("kind", [Middle, Level0])
@pytest.mark.parametrize("family", ONE_STORE)
def test_every_family(kind: type[Middle] | type[Level0], family: str):
    """Biases, and norms of queries and keys, are recorded with the rest."""
    ops = [
        ("feed", 2),
        ("feed", 1),
        ("rollback", 1),
        ("feed", 4),
        ("commit", 3),
        ("feed", 3),
        ("next", 1),
        ("feed", 1),
    ]
    backend = RecordingBackend()
    compare(kind, ops * 3, backend, kv_heads=2, family=family)
    assert backend.recorded == len(ROWS) and backend.replayed == len(ROWS) + 15  # each was tried once


# ---- a value that was recorded and not a tensor is found ---------------------------------------------------


def slots_stay(rows: FixedRows, position: int, slot: int) -> None:
    torch.arange(position, position + rows._n, out=rows._positions)


def positions_stay(rows: FixedRows, position: int, slot: int) -> None:
    torch.arange(slot, slot + rows._n, out=rows._slots)


def new_tensors(rows: FixedRows, position: int, slot: int) -> None:
    rows._positions, rows._slots = (torch.arange(first, first + rows._n) for first in (position, slot))


def break_place(patch: pytest.MonkeyPatch, mutant: Callable[[FixedRows, int, int], None]) -> None:
    """The first place is the one that is recorded; the next ones are the mutant's."""
    honest = FixedRows.place

    def place(rows: FixedRows, position: int, slot: int) -> None:
        (mutant if hasattr(rows, "recorded") else honest)(rows, position, slot)
        rows.recorded = True

    patch.setattr(FixedRows, "place", place)


def break_attention(patch: pytest.MonkeyPatch) -> None:
    """The eager form of attention, recorded as it is, sees for ever what was there when it was recorded."""
    caches: list[RetrievalKVCache | StreamingKVCache] = []
    fixed = {one: one.fixed for one in (RetrievalKVCache, StreamingKVCache)}
    for one in fixed:
        patch.setattr(one, "fixed", lambda cache, n: (caches.append(cache), fixed[type(cache)](cache, n))[1])
    patch.setattr(FixedRows, "attend", lambda rows, *given, offset: caches[-1].attend(*given, offset=offset))


def break_ids(patch: pytest.MonkeyPatch) -> None:
    """A pass that repeats its tokens."""
    honest = ReplayedPass.forward
    patch.setattr(ReplayedPass, "forward", lambda one, ids, cache: honest(one, [0] * len(ids), cache))


MUTANTS = {
    "slots stay": partial(break_place, mutant=slots_stay),
    "positions stay": partial(break_place, mutant=positions_stay),
    "tensors are new": partial(break_place, mutant=new_tensors),
    "a length in the code": break_attention,
    "ids stay": break_ids,
}


@pytest.mark.parametrize("kind", [Middle, Level0])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_was_recorded_and_should_not_be_is_found(
    kind: type[Middle] | type[Level0],
    mutant: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """By the product before it replays anything, and by the comparison above without that."""
    MUTANTS[mutant](monkeypatch)
    assert kind(RecordingBackend(), graphs=True, kv_heads=2).passes.rows == ()
    assert "passes stay as they are" in caplog.text
    monkeypatch.setattr(GraphedForward, "_agrees", lambda *given: True)
    with pytest.raises(AssertionError, match="are off by"):
        compare(kind, BUSY, RecordingBackend(), kv_heads=2)


# ---- answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kv_heads", "temperature"), [(4, 0.0), (2, 0.8)], ids=["MHA", "GQA"])
@pytest.mark.parametrize("mode", ["triforce", "retrieval", "draft"])
def test_the_same_answers(mode: str, temperature: float, kv_heads: int):
    """Two conversations in turns, long enough for selections and evictions: the same tokens, greedy and by
    the same seed.
    """
    backend = RecordingBackend()
    params = replace(GREEDY, mode=mode, temperature=temperature, max_new_tokens=48, seed=3)
    answers = []
    for one in (prepared(CpuBackend(), kv_heads=kv_heads), prepared(backend, kv_heads=kv_heads)):
        contexts = one.new_context(400), one.new_context(400)
        first, _ = run(one, contexts[0], PROMPT, params)
        second, _ = run(one, contexts[1], PROMPT[30:], params)
        third, _ = run(one, contexts[0], [*PROMPT, *first, 5, 6, 7], params)
        answers.append((first, second, third))
    assert answers[0] == answers[1]
    assert backend.replayed > 50, "hardly a pass was replayed"


@pytest.mark.parametrize("recordings", [0, 1, 4])
def test_no_memory_for_a_recording(recordings: int):
    """Then and from then on passes are eager, and the answer is the same."""
    backend = RecordingBackend(full=recordings)
    plain, recorded = (prepared(one, kv_heads=2) for one in (CpuBackend(), backend))
    assert run(recorded, recorded.new_context(400), PROMPT, GREEDY) == run(
        plain, plain.new_context(400), PROMPT, GREEDY
    )
    assert backend.recorded == recordings


# ---- the choice --------------------------------------------------------------------------------------------


class Clock:
    """Passes take as long as the script says, one way and the other in turns."""

    def __init__(self, *seconds: tuple[float, float]) -> None:
        self._steps = [step for pair in seconds for _ in range(7) for step in (0.0, pair[0], 0.0, pair[1])]
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._steps.pop(0)
        return self._now


def test_whichever_is_faster_is_kept():
    """By number of rows; a tie is none."""
    model = ours(oracle(), backend=RecordingBackend())
    cache = streaming(model)
    cache.advance(12)
    passes = GraphedForward(model, cache, (1, 2, 3), clock=Clock((4e-3, 1e-3), (3e-3, 5e-3), (3e-3, 2.95e-3)))
    assert passes.rows == (1,)
    assert [(round(one.eager_ms, 6), round(one.replay_ms, 6)) for one in passes.times] == [
        (4, 1),
        (3, 5),
        (3, 2.95),
    ]
    assert cache.length == 12


def test_what_was_measured_decides_the_next_time(tmp_path: Path):
    """By the file alone: then a seed gives the same text after a restart. Damaged, it is measured again."""
    measured = Measurements(tmp_path)

    def prepare() -> tuple[tuple[str, ...], int]:
        backend = RecordingBackend()
        composer = Composer(replace(PLAN, cuda_graphs="auto"), ours(oracle(), backend=backend), None)
        return composer.prepare(measured), backend.recorded

    prepare()
    path = tmp_path / "measured.json"
    values = json.loads(path.read_text())
    key = next(key for key in values if key.startswith("middle passes of tiny"))
    for one in values[key]["times"]:
        one.update(eager_ms=4.0, replay_ms=1.0 if one["rows"] == 2 else 5.0)
    path.write_text(json.dumps(values))
    said = (
        "CUDA graphs: used for middle passes of 2 rows. One row takes 4.0 ms launched by operation and "
        "5.0 ms replayed."
    )
    notes, recorded = prepare()
    assert (notes[0], recorded) == (said, 1)
    with in_language("de"):
        assert "Mittelstufen-Durchläufe" in localized(notes[0]) and "abgespielt" in localized(notes[0])
    values[key]["times"][1] = {"rows": "two"}
    path.write_text(json.dumps(values))
    assert prepare()[1] == 3
    assert ["replayed." in line and "middle passes of tiny" in line for line in measured.said()] == [True]
    assert [one["rows"] for one in json.loads(path.read_text())[key]["times"]] == [1, 2, 3]


def test_long_passes_are_not_recorded():
    """They keep a device busy by themselves."""
    model = ours(oracle(), backend=RecordingBackend())
    assert GraphedForward(model, streaming(model), (16, 17), only_faster=False).rows == (16,)


def test_what_a_user_is_told():
    """One sentence for each level, with the times where there are any."""
    backend = RecordingBackend()
    for graphs, said in (
        ("on", "CUDA graphs: used for middle passes of 1, 2, 3 rows."),
        ("auto", "ms replayed"),
        ("off", None),
    ):
        composer = Composer(
            replace(PLAN, cuda_graphs=graphs), ours(oracle(), backend=backend), small_draft(backend)
        )
        notes = composer.prepare()[:2]
        assert len(notes) == (2 if said else 0) and all(said in note or "draft" in note for note in notes), (
            notes
        )
    composer = Composer(replace(PLAN, cuda_graphs="on"), ours(oracle()), None)
    middle, verification = composer.prepare()
    assert values(middle) == {"level": "middle"}
    assert worded_by(CpuBackend, values(verification)["reason"])
