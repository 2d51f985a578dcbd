"""The system's own dialog gives the app a path, which a page cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.desk import models
from app.models.catalogue import Models
from app.models.file_dialog import chosen_file, dialog_command
from app.web.models import model_files_html
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide


def saying(words: str, code: int = 0) -> list[str]:
    """A dialog that is closed at once."""
    return [sys.executable, "-c", f"import sys; print({words!r}); sys.exit({code})"]


@pytest.mark.parametrize(
    ("system", "environ", "there", "starts"),
    [
        ("win32", {}, {"powershell"}, ["/powershell", "-NoProfile", "-STA"]),
        ("win32", {}, set(), None),
        ("darwin", {}, set(), ["/usr/bin/osascript"]),
        ("linux", {"DISPLAY": ":0"}, {"zenity", "kdialog"}, ["/zenity", "--file-selection"]),
        ("linux", {"WAYLAND_DISPLAY": "w"}, {"kdialog"}, ["/kdialog", "--getopenfilename"]),
        ("linux", {"DISPLAY": ":0"}, set(), None),
        ("linux", {}, {"zenity"}, None),
    ],
)
def test_each_system_opens_its_own(system, environ, there, starts):
    found = dialog_command(
        system=system, environ=environ, which=lambda name: f"/{name}" if name in there else None
    )
    assert found[: len(starts)] == starts if starts else found is None


def test_what_is_chosen_and_what_is_not():
    assert chosen_file(saying("/models/größe.gguf")) == "/models/größe.gguf"
    assert chosen_file(saying("/models/a.gguf", code=1)) == ""
    assert chosen_file(["/nowhere/at all"]) == ""


def test_a_file_chosen_there_is_used(make_desk, engine, home, tmp_path, monkeypatch):
    file = write_gguf(tmp_path / "mine.gguf", wide(max_position_embeddings=16384), "Q8_0").resolve()
    desk = make_desk(engine, models=Models(Settings(), look=lambda: imagined_hardware(ram_gib=16)))
    monkeypatch.setattr(models, "dialog_command", lambda: saying(str(file)))
    desk.actions.dispatch({"act": "look-into", "file": ""})
    assert 'data-act="open-dialog"' in model_files_html(desk.state.choosing)
    desk.actions.dispatch({"act": "open-dialog"})
    wait_until(lambda: desk.engine.model_name == str(file))
    monkeypatch.setattr(models, "dialog_command", lambda: None)
    desk.actions.dispatch({"act": "look-into", "file": str(Path.home())})
    assert "open-dialog" not in model_files_html(desk.state.choosing)
