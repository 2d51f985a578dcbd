"""A model in several GGUF files is one: named, sized, keyed, loaded, chosen and fetched as one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from app.models.local_files import look_into
from core.backend.cpu.backend import CpuBackend
from core.errors import UserError
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.gguf.shards import bytes_of, parts_of, stem_of
from core.model.store.catalogue import find
from core.model.store.digests import digest_of
from core.model.store.download import download
from core.model.store.untrusted import entry_safely
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import IDS, logits, wide


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


@pytest.fixture
def first(tmp_path) -> Path:
    """Of six parts: settings and some tensors, then tensors alone."""
    folder = tmp_path / "models"
    folder.mkdir()
    return write_gguf(folder / "my-Q8_0.gguf", wide(), "Q8_0", tensors_of_part=4)


@pytest.fixture
def whole(tmp_path) -> Path:
    return write_gguf(tmp_path / "my-Q8_0.gguf", wide(), "Q8_0")


def test_parts_compute_what_the_whole_computes(first, whole):
    assert len(parts_of(first)) == 6
    together, alone = read_header(first), read_header(whole)
    assert together.tensors.keys() == alone.tensors.keys()
    assert len({tensor.path for tensor in together.tensors.values()}) >= 5
    assert torch.equal(logits(first, CpuBackend(), IDS), logits(whole, CpuBackend(), IDS))


@pytest.mark.wide
def test_any_part_and_the_folder_mean_the_model(first, whole):
    shape = find(str(whole)).shape
    (first.parent / "mmproj-my-f16.gguf").write_bytes(b"GGUF")  # what sees pictures is no model of its own
    for path in (*parts_of(first), first.parent):
        for entry in (find(str(path)), entry_safely(path)):
            assert (entry.name, entry.folder, entry.shape) == ("my-Q8_0", first, shape)
    assert opened(parts_of(first)[3]) == opened(first)
    assert opened(first).name == "my-Q8_0"


def test_it_is_shown_once_with_the_size_of_all(first):
    size = sum(part.stat().st_size for part in first.parent.iterdir())
    assert look_into(first.parent).files == (("my-Q8_0.gguf", str(first), size),)
    assert bytes_of(first) == size


def test_its_key_is_the_content_of_all_parts(first):
    """Each is read once, and a change in the last is another model."""
    shares = []
    key = digest_of(first, lambda stage, share: shares.append(share))
    assert shares == sorted(shares) and shares[-1] == 1.0
    shares.clear()
    assert digest_of(first, lambda stage, share: shares.append(share)) == key and not shares
    last = parts_of(first)[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    assert digest_of(first, lambda stage, share: None) != key


def test_a_missing_part_is_named(first):
    parts_of(first)[2].unlink()
    for look in (read_header, entry_safely, opened):
        with pytest.raises(UserError, match="one of 6 parts.*00003-of-00006.gguf is missing"):
            look(first)


def test_a_part_cut_short_is_named(first):
    last = parts_of(first)[-1]
    last.write_bytes(last.read_bytes()[:-40])
    with pytest.raises(UserError, match="00006-of-00006.gguf is damaged"):
        read_header(first)


def test_parts_that_hold_the_same_are_refused(first):
    parts = parts_of(first)
    parts[3].write_bytes(parts[2].read_bytes())
    with pytest.raises(UserError, match="00004-of-00006.gguf is damaged.*same tensors"):
        read_header(first)


def test_links_to_parts_keep_their_names(first, tmp_path):
    """As the hub's cache has them: the names are links to files named by their hash."""
    for number, part in enumerate(parts_of(first)):
        blob = tmp_path / "blobs" / f"{number}"
        blob.parent.mkdir(exist_ok=True)
        part.rename(blob)
        part.symlink_to(blob)
    assert entry_safely(first).folder == first
    assert opened(first).name == "my-Q8_0"


@pytest.mark.parametrize(
    "name", ["x-00001-of-00000.gguf", "x-1-of-2.gguf", "x.gguf", "x-00001-of-99999.gguf"]
)
def test_other_names_are_files_of_their_own(name):
    assert parts_of(Path(name)) == [Path(name)]


def test_stems():
    assert stem_of(Path("a-00002-of-00003.GGUF")) == "a" and stem_of(Path("b-Q8_0.gguf")) == "b-Q8_0"


def test_all_parts_are_fetched_and_checked(first, served, home):  # noqa: F811
    served.files = {part.name: part.read_bytes() for part in parts_of(first)} | {"README.md": b"read me"}
    folder = download("someone/tiny-GGUF", name="my-Q8_0", file=first.name)
    assert {path.name for path in folder.glob("*.gguf")} == {part.name for part in parts_of(first)}
    asked = len(served.requests)
    read = []
    key = digest_of(folder.resolve() / first.name, lambda stage, share: read.append(share))
    sums = [hashlib.sha256(part.read_bytes()).hexdigest() for part in parts_of(first)]
    assert key == hashlib.sha256("".join(sums).encode()).hexdigest()
    assert not read, "files that were checked were read again for their key"
    assert len(served.requests) == asked


def test_a_part_that_the_hub_lacks_is_told_before_anything_is_fetched(first, served, home):  # noqa: F811
    served.files = {part.name: part.read_bytes() for part in parts_of(first)[:-1]}
    with pytest.raises(UserError, match="has no file my-Q8_0-00006-of-00006.gguf"):
        download("someone/tiny-GGUF", name="my-Q8_0", file=first.name)
    assert not any(request.startswith("GET /someone") for request in served.requests)
