"""From the demonstration to a model of one's own, in a real browser on a PC without a card: offered, fetched
with everything that goes wrong on the way, changed to, asked, deleted; and files that lie there already.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
import yaml

from app.cli import parser
from app.engine.client import Runtime
from app.host.instance import Instance
from app.models.catalogue import Models
from core import paths
from core.config import Settings
from core.hardware.gpus import imagined_hardware
from core.model.store import catalogue
from tests.support.browsing import DROP
from tests.support.fake_runtime import wait_until
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.hub import serving
from tests.support.said import figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NAME, TITLE = "Tiny-Q8_0", "Tiny (Q8_0)"
# what a process runs with the catalogue of the test
WITH = (
    "import sys, runpy; from pathlib import Path; import core.model.store.catalogue as one\n"
    "from core.model.store import download\n"
    "one.DATA = Path(sys.argv.pop(1)); download.SPARE_BYTES = {spare}\n"
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def program(module: str, data: Path, *, spare: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-c", WITH.format(module=module, spare=spare), str(data))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A model of a family that runs, small enough to be fetched in a test."""
    made = wide(max_position_embeddings=16384)
    return write_gguf(tmp_path_factory.mktemp("tiny") / f"{NAME}.gguf", made, "Q8_0")


@pytest.fixture
def known(tiny, tmp_path, monkeypatch) -> Path:
    """The program's catalogue with one model more, which is the one to have, and no others but its own."""
    real = yaml.safe_load(catalogue.DATA.read_text(encoding="utf-8"))
    own = ("SmolLM2-135M-Instruct", "SmolLM2-135M-Draft")
    shape = catalogue.find(str(tiny)).shape
    fields = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "tied")
    entry = {
        "repo": "someone/tiny",
        "licence": "Apache-2.0",
        "languages": "English",
        "vocabulary": "tiny",
        "family": "llama",
        "shape": {field: getattr(shape, field) for field in fields},
        "native_context": 16384,
        "reading": {"part_tokens": 4096},
    }
    file = {"of": "Tiny", "repo": "someone/tiny-GGUF", "format": "Q8_0", "bytes": tiny.stat().st_size}
    models = {**{name: real["models"][name] for name in own}, "Tiny": entry}
    data = tmp_path / "catalogue.yaml"
    data.write_text(yaml.safe_dump({"models": models, "files": {NAME: file}, "not_yet": {}}))
    monkeypatch.setattr(catalogue, "DATA", data)
    _fresh()
    yield data
    monkeypatch.undo()
    _fresh()


def _fresh() -> None:
    for cached in (catalogue._data, catalogue._entries):
        cached.cache_clear()


@pytest.fixture
def hub(tiny, monkeypatch):
    with serving() as (stand_in, url):
        stand_in.files = {f"{NAME}.gguf": tiny.read_bytes(), "README.md": b"read me"}
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield stand_in


@pytest.fixture
def page(home_with_model, known, hub, serve, open_page):
    """The app with its real engine, on a PC of 8 GB without a card, before its first question."""
    models = Models(
        Settings(),
        look=lambda: imagined_hardware(ram_gib=8),
        command=program("core.model.store.fetch", known),
    )
    engine = Runtime(Settings(threads=2, max_new_tokens=24), worker=program("core.worker", known))
    url = serve(engine, models=models)
    serve.desk.models.start()
    made = open_page(url)
    made.set_default_timeout(60_000)
    made.on("dialog", lambda dialog: dialog.accept())
    made.wait_for_selector(".engine-ready")
    return made


def test_from_the_demonstration_to_a_model_of_ones_own(page, hub, serve, known):
    desk = serve.desk
    page.wait_for_selector(".model-offer:has-text('is a demonstration')")
    offered = page.inner_text(".model-offer")
    assert "this computer should have Tiny (Q8_0, " in offered
    assert "300" in figures(offered) and len(figures(offered)) > 3
    assert hub.requests == [], "something was asked of the hub before somebody said yes"

    desk.models._command = program("core.model.store.fetch", known, spare=1 << 60)
    page.set_viewport_size({"width": 390, "height": 844})
    page.click(".model-offer [data-act='fetch-model']")
    page.wait_for_selector(".fetching:has-text('Free some space')")
    in_sight(page, ".fetching [data-act='fetch-model']")
    page.set_viewport_size({"width": 1280, "height": 800})
    desk.models._command = program("core.model.store.fetch", known)
    hub.damage = f"{NAME}.gguf"
    page.click(".fetching [data-act='fetch-model']")
    page.wait_for_selector(".fetching:has-text('arrived damaged')")
    hub.damage, hub.pace_s = None, 0.4
    page.click(".fetching [data-act='fetch-model']")
    page.wait_for_selector(".fetching:has-text('per second'):has-text('left')")
    assert page.query_selector(".models [data-act='fetch-model']") is None, "a second would do nothing"
    page.click("[data-act='pause-model']")
    page.wait_for_selector(".fetching:has-text('Paused')")
    hub.pace_s = 0.0
    hub.requests.clear()
    page.click(".fetching [data-act='fetch-model']")
    page.wait_for_selector(f".notice:has-text('{TITLE} is on this computer now')")
    assert any("bytes=" in request for request in hub.requests), "it began anew"

    wait_until(lambda: desk.engine.model_name == NAME and desk.engine.state == "ready")
    page.wait_for_selector(f"#header:has-text('{TITLE}') .engine-ready")
    page.click("[data-act='sample'] >> nth=0")
    page.wait_for_selector("[data-stage='book'], .card")
    page.fill("#question textarea", "the")
    page.press("#question textarea", "Enter")
    wait_until(lambda: desk.books.turns and desk.books.turns[-1].role == "assistant" and not desk.state.busy)
    assert desk.books.turns[-1].state == "finished", desk.books.turns[-1].extra
    assert desk.books.turns[-1].extra["stats"]["model"] == NAME

    page.click("[data-act='use-model'][data-name='SmolLM2-135M-Instruct']")
    wait_until(lambda: desk.engine.model_name == "SmolLM2-135M-Instruct" and desk.engine.state == "ready")
    page.click(f"[data-act='delete-model'][data-name='{NAME}']")
    page.wait_for_selector(".notice:has-text('given back')")
    assert not (paths.subdir("models") / NAME).exists()


def in_sight(page, selector: str) -> None:
    """Nothing lies over it, and it is inside the window."""
    page.wait_for_selector(selector)
    box = page.locator(selector).first.bounding_box()
    at = f"{box['x'] + box['width'] / 2}, {box['y'] + box['height'] / 2}"
    assert page.evaluate(f"Boolean(document.elementFromPoint({at})?.closest({selector!r}))"), selector


def put(path: Path, content: bytes | object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_files_that_lie_there_already(page, tiny, serve, tmp_path, monkeypatch):
    """By a folder, by the command line, and those of three other programs."""
    desk, content = serve.desk, tiny.read_bytes()
    own = put(tmp_path / "person" / "my models" / "own.gguf", content)
    home = own.parents[1]
    studio = put(home / ".lmstudio" / "models" / "a" / "b" / "studio.gguf", content)
    root, digest = home / ".ollama" / "models", "ab" * 32
    put(root / "blobs" / f"sha256-{digest}", content)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    put(root / "manifests" / "registry.ollama.ai" / "library" / "lamp" / "1b", {"layers": [layer]})
    jan = home / ".local" / "share" / "Jan" / "data"
    put(jan / "llamacpp" / "models" / "jan" / "model.gguf", content)
    put(jan / "llamacpp" / "models" / "jan" / "model.yml", b"model_path: llamacpp/models/jan/model.gguf")
    monkeypatch.setattr(Path, "home", lambda: home)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "LLAMA_CACHE", "HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    before = sorted(path for path in home.rglob("*"))

    page.set_viewport_size({"width": 390, "height": 844})
    page.click(".tool-shelf")
    page.click(".models [data-act='look-into']")
    in_sight(page, ".model-files [data-act='look-elsewhere']")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click(".model-files [data-act='look-into']:has-text('my models')")
    page.click(".model-files [data-act='use-file']")
    wait_until(lambda: desk.engine.model_name == "own" and desk.engine.state == "ready")
    page.wait_for_selector("#header:has-text('own') .engine-ready")

    other = put(tmp_path / "elsewhere" / "handed.gguf", content)
    Instance(paths.subdir("run")).announce(serve.address)
    assert parser.main(["use", str(other)]) == 0
    wait_until(lambda: desk.engine.model_name == "handed" and desk.engine.state == "ready")

    page.click(".models [data-act='look-into']")
    page.click("[data-act='look-elsewhere']")
    page.wait_for_selector(".model-files:has-text('LM Studio')")
    shown = page.inner_text(".model-files")
    assert all(words in shown for words in ("studio", "lamp:1b", "Ollama", "Jan"))
    page.click(".model-files li:has-text('lamp:1b') [data-act='use-file']")
    wait_until(lambda: any(one.path.endswith(digest) for one in desk.models.list))
    assert sorted(path for path in home.rglob("*")) == before
    assert own.exists() and studio.exists() and other.read_bytes() == content


def test_a_dropped_file_a_named_folder_and_another_drive(page, tiny, serve, tmp_path, monkeypatch):
    """Dropped: told where to choose, copied after a yes; found below a named folder; moved and deleted."""
    desk, content = serve.desk, tiny.read_bytes()
    home = tmp_path / "person"
    kobold = put(home / "koboldcpp" / "models" / "deep" / "below.gguf", content)
    drive = home / "other drive"
    drive.mkdir()
    monkeypatch.setattr(Path, "home", lambda: home)

    page.evaluate(DROP, [base64.b64encode(content).decode(), "dropped.gguf", "#middle"])
    page.wait_for_selector(".model-files:has-text('A browser does not say where a dropped file lies')")
    assert not (paths.subdir("models") / "dropped").exists()
    page.click("[data-act='copy-dropped']")
    page.wait_for_selector("#header:has-text('dropped') .engine-ready")
    copy = paths.subdir("models") / "dropped" / "dropped.gguf"
    assert copy.read_bytes() == content and desk.engine.model_name == "dropped"

    page.click(".models [data-act='look-into']")
    page.click(".model-files [data-act='look-into']:has-text('koboldcpp')")
    page.click(".model-files [data-act='search-below']")
    page.click(f".model-files [data-act='use-file'][data-file='{kobold}']")
    page.wait_for_selector("#header:has-text('below') .engine-ready")

    desk.models.fetch(NAME)
    wait_until(lambda: desk.engine.model_name == NAME and desk.engine.state == "ready")
    page.click("[data-act='use-model'][data-name$='below.gguf']")
    wait_until(lambda: desk.engine.model_name == "below" and desk.engine.state == "ready")
    page.click(f"[data-act='place-for'][data-name='{NAME}']")
    page.click(".model-files [data-act='look-into']:has-text('other drive')")
    page.click(".model-files [data-act='move-here']")
    page.wait_for_selector(f".notice:has-text('{TITLE} lies in')")
    assert (drive / NAME / f"{NAME}.gguf").read_bytes() == content
    page.click(f"[data-act='use-model'][data-name='{NAME}']")
    wait_until(lambda: desk.engine.model_name == NAME and desk.engine.state == "ready")
    page.click("[data-act='delete-model'][data-name='dropped']")
    page.wait_for_selector(".notice:has-text('dropped is deleted')")
    assert not copy.exists() and kobold.exists()
