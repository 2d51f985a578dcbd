"""The transfer benchmark's own logic, on the CPU, where copies are counted as if there were a link."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.lib.results import load_result
from benchmarks.speed import transfer
from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape


def test_without_a_gpu_memory_is_measured_and_no_link_is_claimed(tmp_path: Path):
    """Rates of one thread and of all, threads as before, and the reason why there is nothing else."""
    before = torch.get_num_threads()
    assert (
        transfer.main(
            ["--device", "cpu", "--bytes", str(1 << 22), "--save", "transfer", "--folder", str(tmp_path)]
        )
        == 0
    )
    assert torch.get_num_threads() == before
    (table,) = load_result(tmp_path / "transfer.json").tables
    assert table.rows[0][:2] == ("CPU", 1) and all(0 < rate < 1e4 for row in table.rows for rate in row[2:])
    assert transfer.NO_LINK in table.notes


def test_every_block_size_is_copied_both_ways():
    """A size left out, or bytes counted for the wrong number of copies."""
    rows = list(transfer.link(CpuBackend(torch.float32), (0.25, 1), 1 << 21))
    assert [row[0] for row in rows] == [0.25, 1] and all(len(row) == 5 and min(row) > 0 for row in rows)


def test_a_streamed_pass_moves_the_whole_cache_once():
    """The parts must be those of the whole: as many bytes copied alone as in the pass."""
    shape, tokens = KVShape(3, 2, 16), 256
    found = transfer.overlap_times(CpuBackend(torch.float32), shape, tokens=tokens, block_tokens=64)
    assert found["bytes"] == tokens * shape.layers * 2 * shape.kv_heads * shape.head_dim * 4
    assert min(found["together_ms"], found["copies_ms"], found["attention_ms"]) > 0


@pytest.mark.parametrize(("together", "hidden"), [(100.0, 1.0), (140.0, 0.0)])
def test_hidden_is_what_the_longer_part_covers(
    monkeypatch: pytest.MonkeyPatch, together: float, hidden: float
):
    """By hand: copies of 100 ms and attention of 40 ms."""
    times = iter([together, 100.0, 40.0])
    monkeypatch.setattr(transfer, "_median_ms", lambda backend, action: next(times))
    found = transfer.overlap_times(CpuBackend(torch.float32), KVShape(2, 1, 16), tokens=64, block_tokens=64)
    assert found["hidden"] == pytest.approx(hidden)


def test_slow_passes_are_told_in_the_products_words():
    """The same judgement as in the app: three times slower than the planned rate explains."""
    assert transfer._slow({"bytes": 2 * 10**9, "together_ms": 100.0}, 25.0) == (
        "The planner assumes 25.0 GB/s.",
    )
    assert "5 times" in transfer._slow({"bytes": 2 * 10**9, "together_ms": 400.0}, 25.0)[1]
