"""What comes back from disk is what was saved, bit for bit, or nothing; and no trouble with files or disks is
an error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.cache import snapshot
from core.cache.snapshot import BLOCK_TOKENS
from tests.support.snapshots import REPO, TOKEN_BYTES, N, files, filled, ids, loaded, same, store

# ---- rows --------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(33, 3 * BLOCK_TOKENS),
    more=st.integers(0, BLOCK_TOKENS),
    start=st.integers(0, 2 * BLOCK_TOKENS),
    blocks=st.sampled_from([16, 48, 512, 4096]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8]),
)
def test_rows_come_back_bit_for_bit(
    tmp_path_factory, n: int, more: int, start: int, blocks: int, dtype: torch.dtype
):
    """After any length, any append, from any row on, into any block size; of every format."""
    snapshots, source = store(tmp_path_factory.mktemp("s"), dtype=dtype), filled(n + more, dtype=dtype)
    wanted = ids(n + more)
    assert snapshots.save("book", wanted[:n], source) and snapshots.save("book", wanted, source)
    stored = snapshots.longest("book", wanted)
    assert n + more - 32 <= stored <= n + more
    cache, length = loaded(snapshots, wanted, start=start, block_tokens=blocks)
    assert length == max(start, stored)
    assert same(cache, source, min(start, stored), stored)


def test_longest_prefix_wins_wherever_texts_part(tmp_path):
    """In the first block, at a border, in the last: what is alike is used, what is not is left."""
    snapshots, source = store(tmp_path), filled()
    snapshots.save("book", ids(), source)
    for common in (0, 1, 500, BLOCK_TOKENS, BLOCK_TOKENS + 7, 2 * BLOCK_TOKENS, N - 1, N):
        wanted = ids()[:common] + [i + 1 for i in ids()[common:]] + [7]
        cache, length = loaded(snapshots, wanted)
        assert snapshots.longest("book", wanted) == length == common
        assert same(cache, source, 0, common)
    assert snapshots.longest("another book", ids()) == 0


def test_texts_that_begin_alike_share_their_blocks(tmp_path):
    snapshots = store(tmp_path)
    snapshots.save("book", ids(), filled())
    fork = ids()[: BLOCK_TOKENS + 100] + ids(900, seed=1)
    snapshots.save("book", fork, filled(len(fork), seed=0))
    # the first block once, the second twice, the end of the first text
    assert len(files(tmp_path)) == 4
    assert (snapshots.longest("book", ids()), snapshots.longest("book", fork)) == (N, len(fork))


def test_append_leaves_whole_blocks_alone_and_replaces_the_unfinished_one(tmp_path):
    """A cancelled prefill that goes on: nothing is written twice but the last block, and nothing is left
    over.
    """
    snapshots, source = store(tmp_path), filled()
    snapshots.save("book", ids()[: BLOCK_TOKENS + 50], source)
    first = {
        path: path.stat().st_ino
        for path in files(tmp_path)
        if path.stat().st_size > BLOCK_TOKENS * TOKEN_BYTES
    }
    assert len(first) == 1
    snapshots.save("book", ids(), source)
    assert {path: path.stat().st_ino for path in first} == first
    assert len(files(tmp_path)) == 3


def test_a_text_that_is_stored_is_not_written_again(tmp_path):
    snapshots = store(tmp_path)
    snapshots.save("book", ids(), filled())
    before = [(path, path.stat().st_ino) for path in files(tmp_path)]
    assert snapshots.save("book", ids(), filled(seed=1))
    assert snapshots.save("book", ids()[:1500], filled(seed=1))
    assert [(path, path.stat().st_ino) for path in files(tmp_path)] == before


def test_a_block_that_takes_anothers_place_is_read_anew(tmp_path, monkeypatch):
    """What a file says is remembered by its number, which the system gives to the next one: rows that were
    computed again would be held against checksums of those before, and deleted for ever.
    """
    snapshots = store(tmp_path)
    real = Path.stat

    def one_number(path: Path, **how: bool) -> os.stat_result:
        found = list(real(path, **how))
        found[1] = 7  # st_ino
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", one_number)
    for seed in range(2):
        for path in files(tmp_path):
            path.unlink()
        source = filled(seed=seed)
        assert snapshots.save("book", ids(), source)
        cache, length = loaded(snapshots, ids())
        assert length == N and same(cache, source, 0, length)


# ---- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cut", [0, 1, 100, BLOCK_TOKENS * TOKEN_BYTES // 2, BLOCK_TOKENS * TOKEN_BYTES, -17, -1]
)
def test_a_truncated_block_is_not_used_and_made_anew(tmp_path, cut: int):
    snapshots, source = store(tmp_path), filled()
    snapshots.save("book", ids(), source)
    second = next(path for path in files(tmp_path) if path.name.startswith(first_hash(tmp_path)))
    os.truncate(second, cut if cut >= 0 else second.stat().st_size + cut)
    cache, length = loaded(snapshots, ids())
    assert length == BLOCK_TOKENS and same(cache, source, 0, length)
    assert not second.exists()
    snapshots.save("book", ids(), source)
    assert same(loaded(snapshots, ids())[0], source, 0, N)


def first_hash(root: Path) -> str:
    (first,) = root.glob("*/*/" + "0" * 24 + "-*.kv")
    return first.stem.partition("-")[2]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), which=st.integers(0, 2))
def test_no_flipped_bit_gets_into_a_cache(tmp_path_factory, where: float, bit: int, which: int):
    """In rows, description or end: every row that is loaded is the one that was saved."""
    root = tmp_path_factory.mktemp("s")
    snapshots, source = store(root), filled()
    snapshots.save("book", ids(), source)
    path = files(root)[which]
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    path.write_bytes(data)
    cache, length = loaded(snapshots, ids())
    assert length in (0, BLOCK_TOKENS, 2 * BLOCK_TOKENS)
    assert same(cache, source, 0, length)
    assert not path.exists()


@pytest.mark.parametrize(
    "other", [{"key": "other weights"}, {"dtype": torch.bfloat16, "key": "model in bf16"}]
)
def test_another_model_finds_nothing(tmp_path, other: dict):
    """Other weights, rotation or number format make other keys."""
    store(tmp_path).save("book", ids(), filled())
    assert store(tmp_path, **other).longest("book", ids()) == 0
    assert store(tmp_path).longest("book", ids()) == N


def test_a_file_of_another_model_is_refused(tmp_path):
    """Copied into our folder under a right name, it is still another model's."""
    ours, theirs = store(tmp_path / "a"), store(tmp_path / "b", key="theirs")
    theirs.save("book", ids(), filled(seed=1))
    folder = ours.folder.of("model", "book")
    folder.mkdir(parents=True)
    for path in files(tmp_path / "b"):
        path.rename(folder / path.name)
    assert ours.longest("book", ids()) == 0
    assert loaded(ours, ids())[1] == 0


def retold(path: Path, change: dict) -> None:
    """Gives a file another description, whole and with its checksum."""
    data = path.read_bytes()
    length, _, magic = snapshot._END.unpack(data[-snapshot._END.size :])
    rows, told = (
        data[: -snapshot._END.size - length],
        data[-snapshot._END.size - length : -snapshot._END.size],
    )
    facts = {**json.loads(told), **change}
    text = json.dumps({name: value for name, value in facts.items() if value is not None}).encode()
    path.write_bytes(rows + text + snapshot._END.pack(len(text), zlib.crc32(text), magic))


def test_what_an_earlier_version_kept_still_opens(tmp_path):
    """Its files do not name the format of their rows; the model's key did."""
    snapshots, source = store(tmp_path), filled()
    snapshots.save("book", ids(), source)
    for path in files(tmp_path):
        retold(path, {"rows": None})
    cache, length = loaded(snapshots, ids())
    assert length == N and same(cache, source, 0, N)


def test_rows_of_another_format_are_refused_in_words(tmp_path, caplog):
    """Of the same size, they would be read as other numbers."""
    snapshots, source = store(tmp_path), filled()
    snapshots.save("book", ids(), source)
    for path in files(tmp_path):
        retold(path, {"rows": "bfloat16"})
    assert snapshots.longest("book", ids()) == 0
    assert "its rows are bfloat16, not float32" in caplog.text
    assert snapshots.save("book", ids(), source) and snapshots.longest("book", ids()) == N


def test_a_renamed_block_is_refused(tmp_path):
    """A block at the place of another would give rows of other tokens."""
    snapshots = store(tmp_path)
    snapshots.save("book", ids(), filled())
    first = next(tmp_path.glob("*/*/" + "0" * 24 + "-*.kv"))
    second = next(tmp_path.glob(f"*/*/{first_hash(tmp_path)}-*.kv"))
    second.replace(first)
    assert snapshots.longest("book", ids()) == 0


# (at, whole blocks left): killed before a layer (at > 0) or between writing a block and giving it its name
KILLS = [(1, 0), (2, 0), (3, 1), (6, 2), (-1, 0), (-2, 1), (-3, 2)]
KILLED = """
import os, signal, sys
sys.path.insert(0, {repo!r})
from pathlib import Path
from tests.support import snapshots as t

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    calls = 0
    def __init__(self, source, at): self.source, self.at = source, at
    def rows(self, layer, start, n):
        Dying.calls += 1
        if Dying.calls == self.at: die()
        return self.source.rows(layer, start, n)

def save(at):
    replaced, calls = os.replace, []
    def replace(*names):
        calls.append(names)
        if len(calls) == -at: die()
        replaced(*names)
    os.replace = replace
    t.store(Path({root!r}) / str(at)).save("book", t.ids(), Dying(t.filled(), at))

for at, _ in {kills!r}:
    child = os.fork()
    if not child:
        save(at)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, at
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each killed process left, in a folder by its number."""
    root = tmp_path_factory.mktemp("killed")
    script = KILLED.format(kills=KILLS, repo=str(REPO), root=str(root))
    subprocess.run([sys.executable, "-c", script], timeout=120, check=True)
    return root


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX")
@pytest.mark.parametrize(("at", "whole"), KILLS)
def test_a_killed_save_leaves_whole_blocks_only(killed: Path, at: int, whole: int):
    """Half a block under a whole one's name would be read as rows of the book."""
    root = killed / str(at)
    snapshots, source = store(root), filled()
    cache, length = loaded(snapshots, ids())
    assert length == whole * BLOCK_TOKENS and same(cache, source, 0, length)
    snapshots.save("book", ids(), source)
    assert same(loaded(snapshots, ids())[0], source, 0, N)
    assert list(root.glob("*/*/*.part")) == []


def test_a_block_that_is_being_written_is_not_cleaned_away(tmp_path):
    """Another process may be at work in the same folder."""
    snapshots = store(tmp_path)
    snapshots.save("book", ids()[:500], filled())
    part = files(tmp_path)[0].with_name(f".{os.getppid()}-x.part")
    part.write_bytes(b"half")
    snapshots.folder.drop_stale_parts()
    assert part.exists()
    os.utime(part, (time.time() - 3600,) * 2)  # by now the number is another program's
    snapshots.folder.drop_stale_parts()
    assert not part.exists()


BESIDE = """
import sys
sys.path.insert(0, {repo!r})
from pathlib import Path
from tests.support import snapshots as t
snapshots, source = t.store(Path({root!r})), t.filled()
for number in range(12):
    snapshots.save("book", t.ids()[:1500], source)
    snapshots.save("book", t.ids(), source)
    cache, length = t.loaded(snapshots, t.ids())
    assert t.same(cache, source, 0, length)
    if number >= 6: snapshots.folder.forget("book")
"""


@pytest.mark.wide
def test_two_processes_at_once(tmp_path):
    """Both write, read and at last delete the same text; neither sees a wrong row nor fails."""
    script = BESIDE.format(repo=str(REPO), root=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [child.communicate(timeout=120)[1] for child in both]
    assert [child.returncode for child in both] == [0, 0], said
    store(tmp_path).save("book", ids(), filled())
    assert same(loaded(store(tmp_path), ids())[0], filled(), 0, N)
