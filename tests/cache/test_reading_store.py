"""Storing while reading keeps to a share of the time, whatever disk and model are like."""

from __future__ import annotations

import pytest

from core.cache.disk import BLOCK_TOKENS
from core.cache.reading_store import ReadingStore

IDS = list(range(20 * BLOCK_TOKENS))


class Disk:
    """A clock, and a store on which a block takes `block_s` seconds."""

    def __init__(self, block_s: float) -> None:
        self.now, self.block_s, self.stored = 0.0, block_s, []

    def save(self, book_id: str, ids: list[int], source: object, *, whole: bool, should_stop) -> bool:
        self.now += self.block_s
        assert not whole
        self.stored.append(len(ids))
        return not should_stop()


def read(disk: Disk, block_s: float, *, blocks: int = 20, start: int = 0, should_stop=lambda: False) -> None:
    """A reading of so many blocks, each in `block_s` seconds, two of them to a segment."""
    store = ReadingStore(disk, "book", read=start, clock=lambda: disk.now)
    for end in range(start // BLOCK_TOKENS + 2, blocks + 1, 2):
        disk.now += 2 * block_s
        store.follow(IDS[: end * BLOCK_TOKENS], None, should_stop=should_stop)


@pytest.mark.parametrize("block_s", [0.01, 0.1, 1.0, 10.0])
def test_storing_takes_a_few_per_cent_of_the_reading(block_s: float):
    disk = Disk(block_s)
    read(disk, 1.0)
    spent = len(disk.stored) * block_s
    assert disk.stored and (len(disk.stored) == 1 or spent <= 0.03 * 20)


def test_a_slow_reading_is_stored_whole_block_by_block():
    disk = Disk(0.2)
    read(disk, 30.0)
    assert disk.stored == [blocks * BLOCK_TOKENS for blocks in range(1, 21)]


def test_what_was_there_before_is_not_waited_for():
    disk = Disk(0.2)
    read(disk, 30.0, start=6 * BLOCK_TOKENS + 100, blocks=8)
    assert disk.stored == [7 * BLOCK_TOKENS, 8 * BLOCK_TOKENS]


def test_who_wants_something_else_does_not_wait_for_the_disk():
    disk = Disk(0.2)
    read(disk, 30.0, should_stop=lambda: True, blocks=4)
    assert len(disk.stored) == 2, "one try a segment"
