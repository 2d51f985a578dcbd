"""How much room snapshots take: quotas, full disks, and what goes first."""

import errno
import os

import torch

from core.cache import disk
from core.cache.base import KVStore
from core.cache.disk import GB, SnapshotFolder, SnapshotUsage, quota_bytes
from core.cache.snapshot import BLOCK_TOKENS
from tests.support.snapshots import CPU, SHAPE, TOKEN_BYTES, N, files, filled, ids, loaded, same, store


def test_the_book_not_used_for_longest_gives_way(tmp_path):
    size = N * TOKEN_BYTES * 11 // 10  # descriptions included
    snapshots = store(tmp_path, quota=2 * size)
    for at, book in enumerate(("a", "b")):
        snapshots.save(book, ids(), filled())
        for path in files(snapshots.folder.of("model", book).parent.parent):
            os.utime(path, (1000 + at, 1000 + at)) if path.parent == snapshots.folder.of(
                "model", book
            ) else None
    loaded(snapshots, ids(), book="a")
    snapshots.save("c", ids(), filled())
    assert snapshots.longest("a", ids()) == snapshots.longest("c", ids()) == N
    assert snapshots.longest("b", ids()) < N
    assert snapshots.folder.usage().bytes <= 2 * size


def test_a_text_is_shortened_from_its_end(tmp_path):
    """Without its beginning the rest is of no use."""
    snapshots = store(tmp_path)
    snapshots.save("book", ids(), filled())
    snapshots.folder.make_room(0, quota_bytes=snapshots.folder.usage().bytes - 1)
    assert snapshots.longest("book", ids()) == 2 * BLOCK_TOKENS


def test_a_text_larger_than_the_quota_pushes_nothing_out(tmp_path):
    store(tmp_path).save("small", ids(400), filled(400))
    assert store(tmp_path, quota=N * TOKEN_BYTES - 1).save("large", ids(), filled())
    assert store(tmp_path).longest("small", ids(400)) == 400
    assert store(tmp_path).longest("large", ids()) == 0


def test_a_full_disk_is_left_alone(tmp_path, monkeypatch):
    """No more is written than leaves the reserve free, and no book goes where that would not help."""
    store(tmp_path / "b").save("other", ids(400), filled(400))
    monkeypatch.setattr(
        disk.shutil,
        "disk_usage",
        lambda path: disk.shutil._ntuple_diskusage(10**12, 10**12, disk.RESERVE_BYTES + 100),
    )
    assert store(tmp_path / "a").save("book", ids(), filled()) and store(tmp_path / "b").save(
        "book", ids(), filled()
    )
    assert list((tmp_path / "a").rglob("*.kv")) == []
    assert store(tmp_path / "b").longest("other", ids(400)) == 400


def test_a_write_that_fails_leaves_nothing(tmp_path, caplog):
    """The disk may fill up while a block is written."""

    class Failing(KVStore):
        def rows(self, layer, start, n):
            if layer == 1 and start == BLOCK_TOKENS:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().rows(layer, start, n)

    source = Failing(SHAPE, N, block_tokens=512, dtype=torch.float32, device=CPU)
    assert store(tmp_path).save("book", ids(), source)
    assert store(tmp_path).longest("book", ids()) == BLOCK_TOKENS
    assert list(tmp_path.rglob("*.part")) == []
    assert "No space left" in caplog.text


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path, caplog):
    blocked = tmp_path / "snapshots"
    blocked.write_text("a file in the way")
    snapshots = store(blocked)
    assert snapshots.longest("book", ids()) == 0
    assert snapshots.save("book", ids(), filled())
    assert loaded(snapshots, ids())[1] == 0
    snapshots.folder.forget("book")
    assert snapshots.folder.usage() == SnapshotUsage()


def test_a_stopped_save_goes_on_later(tmp_path):
    """A question comes while a book is stored: give way after the layer at hand."""
    snapshots, source, asked = store(tmp_path), filled(), []

    def stop_at(limit: int):
        def should_stop() -> bool:
            asked.append(1)
            return len(asked) > limit

        return should_stop

    assert not snapshots.save("book", ids(), source, should_stop=stop_at(3))
    assert snapshots.longest("book", ids()) == BLOCK_TOKENS
    assert list(tmp_path.rglob("*.part")) == []
    assert snapshots.save("book", ids(), source)
    assert same(loaded(snapshots, ids())[0], source, 0, N)


# ---- the folder --------------------------------------------------------------------------------------------


def test_forgetting_a_book_deletes_it_for_every_model(tmp_path):
    for key in ("one", "two"):
        store(tmp_path, key=key).save("book", ids(400), filled(400))
        store(tmp_path, key=key).save("kept", ids(400), filled(400))
    folder = SnapshotFolder(tmp_path)
    assert folder.usage().books == 2
    folder.forget("book")
    assert folder.usage().books == 1
    assert store(tmp_path, key="one").longest("kept", ids(400)) == 400
    folder.clear()
    assert folder.usage() == SnapshotUsage() and list(tmp_path.iterdir()) == []


def test_automatic_quota_is_a_share_of_the_free_disk(tmp_path, monkeypatch):
    """A nearly full disk gets few snapshots, a large one at most 20 GB; what they take counts as free."""
    for free, expected in ((50 * GB, 5 * GB), (900 * GB, 20 * GB), (0, 0)):
        facts = disk.shutil._ntuple_diskusage(10**13, 0, free)
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda path, facts=facts: facts)
        assert quota_bytes(None, tmp_path) == expected
    assert (quota_bytes(0, tmp_path), quota_bytes(1.5, tmp_path)) == (0, 1_500_000_000)
