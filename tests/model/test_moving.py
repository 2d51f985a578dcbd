"""A downloaded model is moved to another folder and back: it is whole somewhere at every moment."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from core.errors import UserError
from core.model.store import digests, relocate
from core.model.store.catalogue import load_catalogue
from core.model.store.disk_usage import kept_bytes, remove_model
from core.model.store.fetch import is_downloaded, model_folder
from core.model.store.hub import Stopped
from core.model.store.manifest import finished, place_of, write_manifest
from core.model.store.relocate import move
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import worded_by

ENTRY = load_catalogue()["Qwen3-0.6B-Q8_0"]
NAME = ENTRY.name


@pytest.fixture
def model(home) -> Path:
    """A download that is there, of other contents."""
    folder = home / "models" / NAME
    folder.mkdir(parents=True)
    write_gguf(folder / f"{NAME}.gguf", wide(), "Q8_0")
    (folder / "LICENSE").write_text("free")
    write_manifest(folder, repo=ENTRY.repo)
    return folder


@pytest.fixture
def drive(tmp_path) -> Path:
    folder = tmp_path / "other drive"
    folder.mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def quiet(_stage: str, _share: float | None) -> None:
    """Nobody looks."""


def test_it_is_used_where_it_was_moved_to_and_comes_back(model, drive):
    before, said = contents(model), []
    model_folder(ENTRY, quiet)
    target = move(NAME, drive, progress=lambda stage, share: said.append((stage, share)))
    assert target == place_of(NAME) == drive / NAME and contents(target) == before
    assert [path.name for path in model.iterdir()] == ["moved.json"]
    assert is_downloaded(ENTRY) and kept_bytes(NAME) >= sum(map(len, before.values()))
    assert ("Copying", 1.0) in said and worded_by(relocate._compare, said[-1][0])
    read = []
    model_folder(ENTRY, lambda stage, share: read.append(stage))
    assert worded_by(digests, *read) == [], "a file that was just compared was read again for its key"
    assert move(NAME, model.parent, progress=quiet) == model
    assert contents(model) == before and list(drive.iterdir()) == []
    assert is_downloaded(ENTRY) and place_of(NAME) == model


def test_on_to_a_third_folder(model, drive, tmp_path):
    before = contents(model)
    move(NAME, drive, progress=quiet)
    third = tmp_path / "third"
    third.mkdir()
    assert contents(move(NAME, third, progress=quiet)) == before
    assert list(drive.iterdir()) == [] and place_of(NAME) == third / NAME


def test_deleted_it_gives_back_what_it_took_there(model, drive):
    move(NAME, drive, progress=quiet)
    assert remove_model(NAME) > 1_000_000
    assert list(drive.iterdir()) == [] and not model.exists() and not is_downloaded(ENTRY)


def test_a_drive_that_is_away_is_no_model_and_nothing_is_lost(model, drive, tmp_path):
    move(NAME, drive, progress=quiet)
    away = drive.rename(tmp_path / "away")
    assert not is_downloaded(ENTRY)
    assert kept_bytes(NAME) < 1000
    away.rename(drive)
    assert is_downloaded(ENTRY)


@pytest.mark.parametrize("stage", ["Copying", "Comparing the copy"])
def test_broken_off_the_original_is_as_it_was(model, drive, stage):
    before, seen = contents(model), []
    with pytest.raises(Stopped):
        move(NAME, drive, progress=lambda now, share: seen.append(now), should_stop=lambda: stage in seen)
    assert contents(model) == before and list(drive.iterdir()) == [] and place_of(NAME) == model


def test_a_copy_that_differs_is_not_taken(model, drive, monkeypatch):
    """A drive that changes bytes: the copy is read again before anything is removed."""
    before = contents(model)
    real = relocate._copied

    def changing(source, stage, progress, should_stop):
        sums = real(source, stage, progress, should_stop)
        with (stage / f"{NAME}.gguf").open("r+b") as file:
            file.write(b"X")
        return sums

    monkeypatch.setattr(relocate, "_copied", changing)
    with pytest.raises(UserError, match="not what was copied.*It is where it was"):
        move(NAME, drive, progress=quiet)
    assert contents(model) == before and list(drive.iterdir()) == []


def test_a_full_disk_is_told_before_and_while_it_is_copied(model, drive, monkeypatch):
    before = contents(model)
    usage = shutil.disk_usage(drive)._replace(free=1000)
    with monkeypatch.context() as short:
        short.setattr(relocate.shutil, "disk_usage", lambda folder: usage)
        with pytest.raises(UserError, match="free in .*other drive"):
            move(NAME, drive, progress=quiet)
    real = relocate._copied

    def full(*given):
        real(*given)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(relocate, "_copied", full)
    with pytest.raises(UserError, match="is full.*is where it was"):
        move(NAME, drive, progress=quiet)
    assert contents(model) == before and list(drive.iterdir()) == []


def test_what_cannot_be_moved_says_why(model, drive, tmp_path):
    for name, folder, words in (
        ("Nobody", drive, "not on this computer"),
        (NAME, tmp_path / "nowhere", "no folder"),
        (NAME, model.parent, "already"),
    ):
        with pytest.raises(UserError, match=words):
            move(name, folder, progress=quiet)
    (drive / NAME).mkdir()
    with pytest.raises(UserError, match="there already"):
        move(NAME, drive, progress=quiet)
    assert finished(model) is not None
