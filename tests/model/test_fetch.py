"""A model with its draft, fetched by a process that a window can stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.model.store.catalogue import find
from core.model.store.fetch import is_downloaded
from core.model.store.hub import _explained
from core.text.packing import from_json
from tests.support.hub import WEIGHTS, Hub, serving
from tests.support.said import values, worded_by

REPO = Path(__file__).resolve().parent.parent.parent
TARGET, DRAFT = "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The stand-in, which child processes reach."""
    with serving() as (stand_in, url):
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield stand_in


def start(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "core.model.store.fetch", name],
        cwd=REPO,
        env={**os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def told(child: subprocess.Popen[bytes]) -> list[dict]:
    """What it says, to its end; its stdin stays open."""
    lines = [from_json(line) for line in child.stdout]
    assert child.wait(10) == 0
    child.stdin.close()
    return lines


def wait_for_most(child: subprocess.Popen[bytes]) -> None:
    """Of the download; the last of so much may not be written yet."""
    for line in child.stdout:
        if (from_json(line).get("fraction") or 0) > 0.6:
            break


def test_a_model_comes_with_its_draft(hub: Hub, home: Path):
    """Without the draft beside it the engine could only look phrases up."""
    lines = told(start(TARGET))
    assert lines[-1] == {"done": ""}
    assert is_downloaded(find(TARGET)) and is_downloaded(find(DRAFT))
    shown = [line["fraction"] for line in lines if line.get("stage") == "Downloading"]
    assert shown == sorted(shown) and shown[-1] > 0.99


@pytest.mark.wide
def test_a_paused_download_goes_on_where_it_was(hub: Hub, home: Path):
    hub.pace_s = 0.05
    child = start(TARGET)
    wait_for_most(child)
    child.stdin.close()
    assert from_json(child.stdout.readlines()[-1]) == {"stopped": True}
    assert child.wait(10) == 0 and not is_downloaded(find(TARGET))

    hub.pace_s = 0.0
    hub.requests.clear()
    assert told(start(TARGET))[-1] == {"done": ""}
    assert (home / "models" / TARGET / "model.safetensors").read_bytes() == WEIGHTS
    assert any("model.safetensors bytes=" in request for request in hub.requests)


@pytest.mark.wide
def test_a_killed_download_is_no_model_and_goes_on(hub: Hub, home: Path):
    hub.pace_s = 0.05
    child = start(TARGET)
    wait_for_most(child)
    child.kill()
    child.communicate()
    assert not is_downloaded(find(TARGET))
    hub.pace_s = 0.0
    assert told(start(TARGET))[-1] == {"done": ""}


FILLS_UP = """
import errno, os, sys
from core.model.store import fetch
fetch._CHUNK_BYTES = 1 << 14
from huggingface_hub import file_download
get, room = file_download.http_get, [int(sys.argv.pop(1))]
class Disk:
    def __init__(self, file): self.file = file
    def __getattr__(self, name): return getattr(self.file, name)
    def write(self, data):
        room[0] -= len(data)
        if room[0] < 0: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)
file_download.http_get = lambda url, file, **more: get(url, Disk(file), **more)
sys.exit(fetch.main())
"""


def test_a_disk_that_fills_up_on_the_way_is_said_and_what_came_is_gone_on_from(hub: Hub, home: Path):
    """Another program takes the room that was there when the download began."""
    child = subprocess.Popen(
        [sys.executable, "-c", FILLS_UP, str(len(WEIGHTS) // 2), TARGET],
        cwd=REPO,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    (said,) = worded_by(_explained, told(child)[-1]["error"])
    assert "disk" in said
    assert not is_downloaded(find(TARGET))
    assert told(start(TARGET))[-1] == {"done": ""} and is_downloaded(find(TARGET))


def test_what_cannot_be_had_is_said_in_words(hub: Hub, home: Path):
    hub.status, hub.error_code = 401, "GatedRepo"
    (said,) = worded_by(_explained, told(start("Llama-3.1-8B-Instruct"))[-1]["error"])
    assert "licence" in said


def test_a_draft_that_cannot_be_had_costs_nothing_but_itself(hub: Hub, home: Path):
    """The draft of a gated model is gated by itself."""
    hub.refused = ("Qwen2.5-0.5B",)
    assert values(told(start(TARGET))[-1]["done"])["draft"] == DRAFT
    assert is_downloaded(find(TARGET)) and not is_downloaded(find(DRAFT))
