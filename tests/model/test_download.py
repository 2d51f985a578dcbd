"""Downloads from the hub, against a stand-in on this machine: whole, resumed, checked, or refused."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from core.errors import UserError
from core.model.store import digests, unpickle
from core.model.store import download as hub
from core.model.store.download import download
from core.model.store.hub import Stopped
from core.model.store.model_folder import use_folder
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.hub import REPOSITORY, WEIGHTS, Hub, safetensors
from tests.support.served_hub import point_client_at


def test_a_model_arrives_whole_and_the_next_start_asks_nobody(served: Hub, home: Path):
    """The folder holds what a model needs, no program, pickle or second copy; later starts work offline."""
    seen: list[tuple[str, float | None]] = []
    folder = download("someone/tiny", progress=lambda stage, fraction: seen.append((stage, fraction)))
    assert folder == home / "models" / "tiny"
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "complete.json",
    }
    fractions = [fraction for stage, fraction in seen if stage == "Downloading"]
    assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1.0, abs=1e-6)
    checked = [fraction for stage, fraction in seen if stage.startswith("Checking ")]
    assert checked == sorted(checked) and checked[0] == 0.0 and checked[-1] == 1.0
    served.requests.clear()
    assert download("someone/tiny", offline=True) == folder
    assert served.requests == []


def test_offline_without_the_model_says_how_to_get_it(served: Hub):
    """The switch must hold: no request, and a sentence instead."""
    with pytest.raises(UserError, match="models download"):
        download("someone/tiny", offline=True)
    assert served.requests == []


def test_a_broken_connection_is_resumed_where_it_broke(served: Hub):
    """The client asks for the rest only; the result is whole."""
    served.break_after = 1_000_000
    folder = download("someone/tiny")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert any("model.safetensors bytes=" in request for request in served.requests)


def test_a_connection_that_stays_broken_is_told_and_the_next_try_goes_on(served: Hub, home: Path):
    """What arrived before a failure must be kept, not fetched again."""
    served.break_after, served.refuse_ranges = 1_000_000, True
    with pytest.raises(UserError, match="goes on where it stopped"):
        download("someone/tiny")
    assert not (home / "models" / "tiny").exists()
    served.break_after, served.refuse_ranges = None, False
    served.requests.clear()
    assert (download("someone/tiny") / "model.safetensors").read_bytes() == WEIGHTS
    first = next(
        request for request in served.requests if request.startswith("GET") and "model.safetensors" in request
    )
    assert re.search(r"bytes=\d+-$", first)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_changed_file_is_refused_and_only_it_is_fetched_again(served: Hub, home: Path, name: str):
    """A size check alone lets changed weights through."""
    served.damage = name
    with pytest.raises(UserError, match="damaged"):
        download("someone/tiny")
    assert not (home / "models" / "tiny").exists()
    served.damage = None
    served.requests.clear()
    download("someone/tiny")
    fetched = [request for request in served.requests if request.startswith("GET /someone")]
    assert len(fetched) == 1 and name in fetched[0]


def test_stop_ends_the_download_and_keeps_what_came(served: Hub, home: Path):
    """Cancel must act within the file, not after it."""
    polls = iter(range(1000))
    with pytest.raises(Stopped):
        download("someone/tiny", should_stop=lambda: next(polls) > 3)
    assert not (home / "models" / "tiny").exists()
    assert download("someone/tiny").is_dir()


def test_too_little_space_is_said_before_anything_is_fetched(served: Hub, monkeypatch: pytest.MonkeyPatch):
    """The client itself only warns and then fills the disk."""
    monkeypatch.setattr(hub, "SPARE_BYTES", 1 << 60)
    with pytest.raises(UserError, match="GB more than is free"):
        download("someone/tiny")
    assert not any("/resolve/" in request for request in served.requests)


def test_pickled_weights_are_refused(served: Hub):
    """Opening a pickle can run any program."""
    del served.files["model.safetensors"]
    with pytest.raises(UserError, match="pickled"):
        download("someone/tiny")
    assert not any("pytorch_model.bin" in request for request in served.requests)


def _pickle(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class Program:
    """Runs something when it is unpickled."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("it-ran"),))


def test_a_model_known_to_be_pickled_only_is_converted(served: Hub):
    """The long-context model of the TriForce paper exists in no other form."""
    del served.files["model.safetensors"], served.files["pytorch_model.bin"]
    shared = torch.arange(6.0).reshape(2, 3)
    served.files["pytorch_model-00001-of-00002.bin"] = _pickle({"a.weight": shared, "same.weight": shared})
    served.files["pytorch_model-00002-of-00002.bin"] = _pickle(
        {"b.weight": torch.ones(4, dtype=torch.bfloat16).t()}
    )
    served.files["pytorch_model.bin.index.json"] = b"{}"
    folder = download("someone/tiny", pickled=True)
    assert not list(folder.glob("*.bin*"))
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == {"a.weight", "same.weight", "b.weight"}
    with safe_open(folder / index["a.weight"], framework="pt") as weights:
        assert torch.equal(weights.get_tensor("a.weight"), shared)
    with safe_open(folder / index["b.weight"], framework="pt") as weights:
        assert weights.get_tensor("b.weight").dtype == torch.bfloat16
    assert download("someone/tiny", offline=True) == folder


def test_an_interrupted_conversion_goes_on_without_fetching_again(
    served: Hub, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """A converted file replaces its pickle, which then is not missing; half a file does not stay for ever."""
    del served.files["model.safetensors"], served.files["pytorch_model.bin"]
    for number in (1, 2):
        served.files[f"pytorch_model-0000{number}-of-00002.bin"] = _pickle(
            {f"w{number}": torch.full((3,), float(number))}
        )
    taken: list[str] = []
    real = unpickle._tensors

    def once(path: Path) -> dict[str, torch.Tensor]:
        if taken:
            raise KeyboardInterrupt
        taken.append(path.name)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(unpickle, "_tensors", once)
        with pytest.raises(KeyboardInterrupt):
            download("someone/tiny", pickled=True)
    served.requests.clear()
    (home / "models" / ".tiny.part" / ".model-00002-of-00002.safetensors.1.part").write_bytes(
        b"of a killed one"
    )
    folder = download("someone/tiny", pickled=True)
    assert not any("/resolve/" in request for request in served.requests)
    assert len(list(folder.glob("model-*.safetensors"))) == 2
    assert list(folder.glob("*.part")) == []


def test_a_program_in_a_pickle_does_not_run(
    served: Hub, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Allowed does not mean trusted."""
    monkeypatch.chdir(tmp_path)
    del served.files["model.safetensors"]
    served.files["pytorch_model.bin"] = _pickle({"a.weight": torch.ones(2), "x": Program()})
    with pytest.raises(UserError, match="could run a program"):
        download("someone/tiny", pickled=True)
    assert not (tmp_path / "it-ran").exists()
    assert not (home / "models" / "tiny").exists()


def test_safetensors_are_taken_where_both_are_there(served: Hub):
    """Pickles are the last resort."""
    folder = download("someone/tiny", pickled=True)
    assert (folder / "model.safetensors").exists()
    assert not any("pytorch_model.bin" in request for request in served.requests)


def test_weights_carried_twice_are_fetched_once(served: Hub):
    """Some repositories hold the same weights under a second naming: gigabytes for nothing."""
    served.files["consolidated.safetensors"] = safetensors(5000)
    folder = download("someone/tiny")
    assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "GatedRepo", "accepted its licence"),
        (404, "RepoNotFound", "no public model"),
        (404, "RevisionNotFound", "no such revision"),
    ],
)
def test_the_hubs_refusals_are_told_with_a_remedy(served: Hub, status: int, code: str, words: str):
    """A gated or missing model must not end in the client's traceback."""
    served.status, served.error_code = status, code
    with pytest.raises(UserError, match=words):
        download("someone/tiny")


def test_no_connection_names_the_manual_route(served: Hub, monkeypatch: pytest.MonkeyPatch):
    """With no network the user must learn that a copied folder works too."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    point_client_at(f"http://127.0.0.1:{port}", monkeypatch)
    with pytest.raises(UserError, match="copy it to this one"):
        download("someone/tiny")


def test_a_folder_of_the_users_own_is_taken_as_it_is(served: Hub, tmp_path: Path):
    """No network, no copy, and no marker written into a folder that is not ours."""
    own = tmp_path / "mein Modell"
    own.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (own / name).write_bytes(REPOSITORY[name])
    assert use_folder(own) == own
    assert served.requests == []
    assert {path.name for path in own.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own: shutil.rmtree(own), "no folder"),
        (lambda own: (own / "config.json").unlink(), "config.json"),
        (lambda own: (own / "config.json").write_text("[1]"), "not a model's config"),
        (lambda own: (own / "tokenizer.json").unlink(), "tokenizer"),
        (lambda own: (own / "model.safetensors").write_bytes(WEIGHTS[:-1]), "cut short"),
        (lambda own: (own / "model.safetensors").write_bytes(b"\xff" * 64), "cut short"),
        (lambda own: (own / "model.safetensors").rename(own / "model.bin"), "pickled"),
        (
            lambda own: (own / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-2"}}'),
            "lacks model-2",
        ),
    ],
)
def test_an_unusable_folder_is_refused_by_what_it_lacks(tmp_path: Path, change, words: str):
    """A half-copied folder must be told before the engine tries to load it."""
    own = tmp_path / "own"
    own.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (own / name).write_bytes(REPOSITORY[name])
    change(own)
    with pytest.raises(UserError, match=words):
        use_folder(own)


# ---- one file of a repository ------------------------------------------------------------------------------


@pytest.fixture
def gguf(served: Hub, tmp_path: Path, home: Path) -> bytes:
    """A small model as a GGUF, beside a larger one and other files; the file itself."""
    content = write_gguf(tmp_path / "one.gguf", wide(), "Q8_0").read_bytes()
    served.files = {"mine-Q8_0.gguf": content, "mine-Q4_K_M.gguf": b"GGUF" * 999, "README.md": b"read me"}
    return content


@dataclass
class DiskUsage:
    """As shutil.disk_usage answers."""

    free: int


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_only_the_file_that_is_wanted_is_fetched(served: Hub, gguf: bytes, home: Path):
    folder = download("someone/tiny", name="mine-Q8_0", file="mine-Q8_0.gguf", sha256=sum_of(gguf))
    assert {path.name for path in folder.iterdir()} == {"mine-Q8_0.gguf", "complete.json"}
    assert (folder / "mine-Q8_0.gguf").read_bytes() == gguf
    assert not any("Q4_K_M" in request or "README" in request for request in served.requests)


def test_what_was_checked_is_not_read_again_for_its_identity(served: Hub, gguf: bytes, home: Path):
    folder = download("someone/tiny", name="mine", file="mine-Q8_0.gguf")
    file, read = (folder / "mine-Q8_0.gguf").resolve(), []
    assert digests.digest_of(file, lambda stage, fraction: read.append(stage)) == sum_of(gguf)
    assert read == []


def test_a_broken_off_file_goes_on_where_it_was(served: Hub, gguf: bytes, home: Path):
    served.break_after, served.refuse_ranges = len(gguf) // 2, True
    with pytest.raises(UserError, match="goes on where it stopped"):
        download("someone/tiny", name="mine", file="mine-Q8_0.gguf")
    assert not (home / "models" / "mine").exists()
    served.break_after, served.refuse_ranges = None, False
    served.requests.clear()
    folder = download("someone/tiny", name="mine", file="mine-Q8_0.gguf")
    assert (folder / "mine-Q8_0.gguf").read_bytes() == gguf
    asked = [int(found[1]) for request in served.requests if (found := re.search(r"bytes=(\d+)-", request))]
    assert asked and asked[0] > 0


def test_a_damaged_file_is_removed_and_said(served: Hub, gguf: bytes, home: Path):
    served.damage = "mine-Q8_0.gguf"
    with pytest.raises(UserError, match="arrived damaged"):
        download("someone/tiny", name="mine", file="mine-Q8_0.gguf")
    assert not list(home.rglob("*.gguf"))


def test_another_file_under_the_known_name_is_not_fetched(served: Hub, gguf: bytes, home: Path):
    """Gigabytes later the checksum would say so, too."""
    with pytest.raises(UserError, match="another file than the one this program knows"):
        download("someone/tiny", name="mine", file="mine-Q8_0.gguf", sha256="0" * 64)
    assert not any("resolve" in request for request in served.requests)
    with pytest.raises(UserError, match="has no file gone.gguf"):
        download("someone/tiny", name="mine", file="gone.gguf")


def test_the_beginning_of_a_checksum_is_enough_to_refuse_and_not_to_check(served: Hub, gguf: bytes, home):
    """Some publishers' are stated by their first twelve digits: they must agree, and the file is checked
    and remembered by all of the hub's.
    """
    with pytest.raises(UserError, match="another file than the one this program knows"):
        download("someone/tiny", name="mine", file="mine-Q8_0.gguf", sha256="0" * 12)
    assert not any("resolve" in request for request in served.requests)
    folder = download("someone/tiny", name="mine", file="mine-Q8_0.gguf", sha256=sum_of(gguf)[:12])
    assert json.loads((folder / "complete.json").read_text())["sha256"] == {"mine-Q8_0.gguf": sum_of(gguf)}
    assert digests.digest_of(folder / "mine-Q8_0.gguf", lambda stage, share: None) == sum_of(gguf)


def test_a_file_that_is_no_model_of_ours_does_not_arrive(served: Hub, gguf: bytes, home: Path):
    with pytest.raises(UserError, match="version|damaged"):
        download("someone/tiny", name="mine", file="mine-Q4_K_M.gguf")
    assert not (home / "models" / "mine").exists()


def test_a_full_disk_is_said_before_a_file_is_fetched(served: Hub, gguf: bytes, home: Path, monkeypatch):
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda path: DiskUsage(free=len(gguf) - 1))
    with pytest.raises(UserError, match="Free some space"):
        download("someone/tiny", name="mine", file="mine-Q8_0.gguf")
    assert not any("resolve" in request for request in served.requests)
