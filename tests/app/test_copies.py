"""Model files on the page: a folder that is named and searched below, one dropped, one moved."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli import parser
from app.models import copies, local_files
from app.models.catalogue import Models
from app.web.models import fetching_html, model_files_html, models_html
from core.config import Settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from core.model.store import discovery
from core.model.store.catalogue import EMBEDDED, load_catalogue
from core.model.store.discovery import found_below
from core.model.store.manifest import write_manifest
from core.text.words import in_language
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import values

SMALL = load_catalogue()["Qwen3-0.6B-Q8_0"]

pytestmark = pytest.mark.usefixtures("plans_made_once")


@pytest.fixture
def desk(make_desk, engine, home):
    made = make_desk(engine, models=Models(Settings(), look=lambda: imagined_hardware(ram_gib=16)))
    made.models.look_again()
    return made


@pytest.fixture
def file(tmp_path) -> Path:
    folder = tmp_path / "kobold cpp" / "models"
    folder.mkdir(parents=True)
    return write_gguf(folder / "mine-Q8_0.gguf", wide(max_position_embeddings=16384), "Q8_0").resolve()


async def pieces(content: bytes, *, of: int = 100_000):
    for at in range(0, len(content), of):
        yield content[at : at + of]


# ---- a folder that is named --------------------------------------------------------------------------------


@pytest.mark.wide
def test_a_named_folder_is_remembered_searched_below_and_forgotten(desk, file):
    folder = str(file.parents[1])
    desk.actions.dispatch({"act": "look-into", "file": folder})
    assert 'data-act="search-below"' in model_files_html(desk.state.choosing)
    desk.actions.dispatch({"act": "search-below", "file": folder})
    wait_until(lambda: desk.state.choosing.found is not None)
    html = model_files_html(desk.state.choosing)
    assert f'data-act="use-file" data-file="{file}"' in html and 'data-act="forget-folder"' in html
    assert local_files.named_folders() == [Path(folder)]
    desk.actions.dispatch({"act": "look-into", "file": ""})
    assert f'data-act="forget-folder" data-file="{folder}"' in model_files_html(desk.state.choosing)
    desk.actions.dispatch({"act": "forget-folder", "file": folder})
    assert local_files.named_folders() == [] and "forget-folder" not in model_files_html(desk.state.choosing)
    assert file.exists()


def test_named_folders_are_searched_with_other_programs(desk, file, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    local_files.name_folder(file.parents[1])
    desk.actions.dispatch({"act": "look-elsewhere"})
    wait_until(lambda: desk.state.choosing.found is not None)
    assert str(file) in {str(one.path) for one in desk.state.choosing.found}


def test_a_search_that_was_closed_shows_nothing_more(desk, file, monkeypatch):
    desk.actions.dispatch({"act": "search-below", "file": str(file.parent)})
    desk.actions.dispatch({"act": "done-choosing"})
    asyncio.run(asyncio.sleep(0.3))
    assert desk.state.choosing is None


def test_a_search_is_bounded_in_depth_and_time(tmp_path, monkeypatch):
    deep = tmp_path.joinpath(*["a"] * 20)
    deep.mkdir(parents=True)
    (deep / "deep.gguf").write_bytes(b"GGUF")
    (tmp_path / "a" / "near.gguf").write_bytes(b"GGUF")
    assert [one.name for one in found_below([tmp_path])] == ["near"]
    monkeypatch.setattr(discovery, "_LONGEST_S", -1.0)
    assert found_below([tmp_path]) == []


def test_on_windows_every_drive_can_be_reached(monkeypatch):
    """Each has a root of its own: from one root the others are shown."""
    drives = [SimpleNamespace(mountpoint="C:\\"), SimpleNamespace(mountpoint="D:\\")]
    monkeypatch.setattr(local_files.psutil, "disk_partitions", lambda: drives)
    assert ("D:\\", "D:\\") not in local_files.look_into(Path("/")).folders
    monkeypatch.setattr(local_files.sys, "platform", "win32")
    assert ("D:\\", "D:\\") in local_files.look_into(Path("/")).folders


def test_what_was_found_wrong_is_said_in_the_pages_language():
    """Reasons are kept as messages, and told where they are shown."""
    wrong = local_files.look_into(Path("/no such folder"))
    assert wrong.error.startswith("/no such folder cannot be opened")
    with in_language("de"):
        assert "lässt sich nicht öffnen" in model_files_html(wrong)


# ---- a file that is dropped --------------------------------------------------------------------------------


def test_a_dropped_file_is_told_where_to_choose_and_nothing_is_copied(desk, file):
    size = file.stat().st_size
    desk.actions.dispatch({"act": "dropped-model", "name": "mine-Q8_0.gguf", "text": str(size)})
    html = model_files_html(desk.state.choosing)
    assert 'data-act="copy-dropped"' in html and "Copy mine-Q8_0.gguf into the folder" in html
    desk.actions.dispatch({"act": "look-into", "file": str(file.parent)})
    html = model_files_html(desk.state.choosing)
    assert 'data-act="copy-dropped"' in html and f'data-file="{file}"' in html
    assert desk.models.fetching is None


def test_a_copy_is_a_model_that_can_be_used_and_deleted(desk, file, home):
    seen, show = [], desk.models.show
    desk.models.show = lambda fetching: (seen.append(fetching), show(fetching))
    asyncio.run(desk.model_choice.take("mine-Q8_0.gguf", file.stat().st_size, pieces(file.read_bytes())))
    copy = (home / "models" / "mine-Q8_0" / "mine-Q8_0.gguf").resolve()
    wait_until(lambda: desk.engine.model_name == str(copy))
    assert copy.read_bytes() == file.read_bytes()
    assert seen[0].state == "copying" and seen[-1] is None
    assert any(one and one.fraction == 1.0 for one in seen)
    found = next(one for one in desk.models.list if one.path == str(copy))
    assert found.disk_bytes > file.stat().st_size
    desk.engine.use(EMBEDDED)
    desk.actions.dispatch({"act": "delete-model", "name": "mine-Q8_0"})
    assert not copy.exists() and local_files.own_files() == [] and values(desk.state.notice.text)["size"]


@pytest.mark.parametrize("fault", ["cut", "no GGUF", "damaged", "stopped", "full", "there"])
def test_a_copy_that_fails_leaves_nothing(desk, file, home, monkeypatch, fault):
    content, size, name = file.read_bytes(), file.stat().st_size, "mine-Q8_0.gguf"
    words = {"cut": "did not arrive whole", "no GGUF": "no GGUF", "damaged": "damaged"}
    words |= {"stopped": "was not copied", "full": "free in", "there": "already"}
    if fault == "no GGUF":
        content = b"#!sh" + content[4:]
    if fault == "damaged":
        content = content[:-1000]
        size = len(content)
    if fault == "full":
        monkeypatch.setattr(copies, "SPARE_BYTES", 1 << 60)
    if fault == "there":
        (home / "models" / "mine-Q8_0").mkdir(parents=True)
    before = sorted((home / "models").iterdir()) if (home / "models").exists() else []

    async def coming():
        async for piece in pieces(content[: len(content) // 2] if fault == "cut" else content):
            yield piece
            if fault == "stopped":
                desk.actions.dispatch({"act": "stop-copying"})

    with pytest.raises(UserError, match=words[fault]):
        asyncio.run(desk.model_choice.copies.take(name, size, coming()))
    assert sorted((home / "models").iterdir()) == before
    assert desk.models.fetching is None


NAMES = ["../../x.gguf", "..\\x.gguf", "x-00001-of-00002.gguf", "x.txt", ".gguf", "...gguf", ""]


@pytest.mark.parametrize("name", NAMES)
def test_names_from_a_browser_stay_in_the_folder(desk, file, home, name):
    """Only what is a file's own name counts."""
    copied = None
    with contextlib.suppress(UserError):
        copied = asyncio.run(
            desk.model_choice.copies.take(name, file.stat().st_size, pieces(file.read_bytes()))
        )
    made = {path.name for path in (home / "models").iterdir()}
    assert made <= {"x", "gguf"} and (copied is None or copied.parent.parent == home / "models")
    assert not (home.parent / "x.gguf").exists()


def test_what_a_killed_run_left_of_a_copy_goes_at_the_next_start(home, make_desk, engine):
    left = home / "models" / ".mine.copying"
    left.mkdir(parents=True)
    (left / "mine.gguf").write_bytes(b"GGUF")
    make_desk(engine, models=Models(Settings(), look=lambda: imagined_hardware(ram_gib=16)))
    assert not left.exists()


def test_one_copy_at_a_time_and_no_download_beside_it(desk, file):
    assert desk.models.begin_copy("other")
    with pytest.raises(UserError, match="Something else"):
        asyncio.run(desk.model_choice.copies.take("a.gguf", 10, pieces(b"GGUF")))
    desk.models.fetch(SMALL.name)
    assert desk.models.fetching.name == "other"
    assert 'data-act="stop-copying"' in fetching_html(desk.models.fetching)


# ---- a model that is moved ---------------------------------------------------------------------------------


@pytest.fixture
def downloaded(home, desk) -> Path:
    folder = home / "models" / SMALL.name
    folder.mkdir(parents=True)
    write_gguf(folder / SMALL.file, wide(), "Q8_0")
    write_manifest(folder, repo=SMALL.repo)
    desk.models.look_again()
    return folder


def test_a_model_is_moved_from_the_list(desk, downloaded, tmp_path):
    html = models_html(desk.models.list, current=EMBEDDED)
    assert f'data-act="place-for" data-name="{SMALL.name}"' in html
    desk.actions.dispatch({"act": "place-for", "name": SMALL.name})
    desk.actions.dispatch({"act": "look-into", "file": str(tmp_path)})
    html = model_files_html(desk.state.choosing)
    assert 'data-act="move-here"' in html and "use-file" not in html and "search-below" not in html
    desk.actions.dispatch({"act": "move-here", "file": str(tmp_path)})
    wait_until(lambda: desk.state.notice and "lies in" in desk.state.notice.text)
    assert (tmp_path / SMALL.name / SMALL.file).exists() and not (downloaded / SMALL.file).exists()
    assert next(one for one in desk.models.list if one.name == SMALL.name).here
    assert desk.models.fetching is None and desk.state.choosing is None


def test_a_model_in_use_stays(desk, downloaded, tmp_path):
    desk.engine.model_name = SMALL.name
    desk.actions.dispatch({"act": "place-for", "name": SMALL.name})
    assert desk.state.choosing is None and "size" not in values(desk.state.notice.text)
    assert SMALL.name and (downloaded / SMALL.file).exists()


def test_what_prevents_a_move_is_said(desk, downloaded, tmp_path):
    desk.actions.dispatch({"act": "place-for", "name": SMALL.name})
    desk.actions.dispatch({"act": "move-here", "file": str(tmp_path / "nowhere")})
    wait_until(lambda: desk.state.notice and "no folder" in desk.state.notice.text)
    wait_until(lambda: desk.models.fetching is None)  # a moment behind the notice
    assert (downloaded / SMALL.file).exists()


def test_the_command_line_moves_a_model(desk, downloaded, tmp_path, capsys):
    assert parser.main(["models", "move", SMALL.name, "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / SMALL.name)
    assert json.loads((downloaded / "moved.json").read_text())["to"] == str(tmp_path / SMALL.name)
    assert parser.main(["models", "move", SMALL.name]) == 1
    assert "--to" in capsys.readouterr().err
