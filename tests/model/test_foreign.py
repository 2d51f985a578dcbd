"""Files that others made are hostile input: whatever is in them ends as a sentence, soon, and costs nobody
memory.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from core.errors import UserError
from core.model.config import load_config
from core.model.gguf.config import config_of
from core.model.gguf.folder import describe_file
from core.model.gguf.reader import MOST_MEMBERS, read_header
from core.model.shapes import ModelShape
from core.model.store import untrusted
from core.model.store.catalogue import find
from core.model.store.fetch import model_folder
from core.model.store.manifest import write_manifest
from core.model.store.untrusted import entry_safely
from core.sandbox.process import Limits
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.tiny import OTHERS, model_type


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "mine-Q8_0.gguf", wide(), "Q8_0")


def header(values: int = 0, tensors: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, values) + body


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


HOSTILE = {
    "2^63 settings": header(values=1 << 63),
    "2^40 tensors": header(tensors=1 << 40),
    "a name of 2^60 bytes": header(values=1, body=text(b"x", 1 << 60)),
    "a list of 2^62 numbers": header(values=1, body=text(b"x") + struct.pack("<IIQ", 9, 0, 1 << 62)),
    "a list of 2^40 texts": header(values=1, body=text(b"x") + struct.pack("<IIQ", 9, 8, 1 << 40)),
    "a list of lists": header(values=1, body=text(b"x") + struct.pack("<IIQ", 9, 9, 3)),
    "alignment 0": header(values=1, body=text(b"general.alignment") + struct.pack("<II", 4, 0)),
    "nothing": b"",
    "only the magic": b"GGUF",
    "text": b"hello " * 100,
}


@pytest.mark.parametrize("what", list(HOSTILE))
def test_a_hostile_header_ends_as_a_sentence_at_once(tmp_path, what):
    file = tmp_path / "bad.gguf"
    file.write_bytes(HOSTILE[what] + b"\0" * 64)
    with pytest.raises(UserError, match="damaged|no GGUF|version"):
        config_of(read_header(file), "bad")


def test_a_list_that_fits_the_file_but_not_a_header_is_refused(tmp_path):
    """Eight million numbers are 64 MB of file and half a gigabyte of Python."""
    file = tmp_path / "wide.gguf"
    count = MOST_MEMBERS + 1
    file.write_bytes(header(values=1, body=text(b"x") + struct.pack("<IIQ", 9, 0, count) + bytes(count)))
    with pytest.raises(UserError, match="is a list of"):
        read_header(file)


def test_a_model_of_more_layers_than_the_file_has_is_refused(tmp_path):
    """Also the first part of a model that was split: it says all layers and has some."""
    file = write_gguf(tmp_path / "few.gguf", wide(), "Q8_0", metadata={"llama.block_count": 3})
    with pytest.raises(UserError, match=r"lacks “blk\.2\.ffn_down\.weight”.*names back"):
        config_of(read_header(file), "few")


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_changed_in_a_file_is_a_model_or_a_sentence(whole, tmp_path, seed):
    chance, content = random.Random(seed), whole.read_bytes()
    file = tmp_path / "changed.gguf"
    for _attempt in range(60):
        changed = bytearray(content)
        for _byte in range(chance.choice((1, 2, 8))):
            changed[chance.randrange(min(len(changed), 9000))] = chance.choice(
                (0, 1, 0x7F, 0xFF, chance.randrange(256))
            )
        if chance.random() < 0.3:
            changed = changed[: chance.randrange(len(changed))]
        file.write_bytes(changed)
        try:
            assert find(str(file)).shape.layers > 0
            describe_file(tmp_path, file, digest="0" * 64)  # what a load does, its tokenizer included
        except UserError as error:
            assert len(str(error)) < 2000


def test_a_file_is_described_by_a_process_of_its_own(whole):
    """The same entry as here, without its header having been opened in this process."""
    found, here = entry_safely(whole), find(str(whole))
    assert (found.shape, found.chat, found.name, found.folder) == (here.shape, here.chat, here.name, whole)


def test_what_the_child_says_is_said(tmp_path):
    file = tmp_path / "bad.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(UserError, match="damaged or cut short"):
        entry_safely(file)
    with pytest.raises(UserError, match="no GGUF file, and no folder with one"):
        entry_safely(tmp_path / "nothing.txt")


def test_a_file_that_breaks_a_limit_is_refused(whole, monkeypatch):
    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 30, time_s=0.0))
    with pytest.raises(UserError, match="damaged, or built to do harm"):
        entry_safely(whole)


def test_a_file_named_by_its_hash_is_called_what_it_says(tmp_path, monkeypatch):
    """As Ollama keeps them; the name goes into paths."""
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))
    named = {"general.name": "../My Model: 8b?"}
    file = write_gguf(tmp_path / "x.gguf", wide(), "Q8_0", metadata=named).rename(
        tmp_path / ("sha256-" + "ab" * 32)
    )
    entry = entry_safely(file)
    assert (entry.name, entry.folder, entry.weights) == ("My-Model-8b", file, "gguf")
    assert model_folder(find(str(file)), lambda stage, fraction: None).name == "My-Model-8b"
    (tmp_path / "no model").write_bytes(b"text")
    with pytest.raises(UserError, match="no GGUF file"):
        entry_safely(tmp_path / "no model")


def test_a_load_looks_under_limits_before_it_opens_the_file(whole, home, monkeypatch):
    """At every load, whatever was said of the file when it came into the list."""
    from core import build
    from core.config import Settings

    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 30, time_s=0.0))
    monkeypatch.setattr(
        "core.model.store.catalogue.read_header", lambda file: pytest.fail("it was opened here")
    )
    for settings in (Settings(model=str(whole)), Settings(draft_model=str(whole))):
        with pytest.raises(UserError, match="damaged, or built to do harm"):
            build._planned(settings)


def test_a_download_is_looked_at_under_the_same_limits(whole, home, monkeypatch):
    """Its checksum says that it is what its maker published, not that its maker means well."""
    entry = find("Qwen3-0.6B-Q8_0")
    folder = home / "models" / entry.name
    folder.mkdir(parents=True)
    (folder / entry.file).write_bytes(whole.read_bytes())
    write_manifest(folder, repo=entry.repo, revision="main")
    assert model_folder(entry, lambda stage, fraction: None).name == entry.name
    monkeypatch.setattr(untrusted, "LIMITS", Limits(memory_bytes=1 << 30, time_s=0.0))
    monkeypatch.setattr("core.model.gguf.folder.read_header", lambda file: pytest.fail("it was opened here"))
    with pytest.raises(UserError, match="damaged, or built to do harm"):
        model_folder(entry, lambda stage, fraction: None)


@pytest.mark.parametrize("family", OTHERS)
def test_a_file_of_layers_of_other_kinds_is_described_and_loads(tmp_path, home, family):
    """As `use FILE` and the search for files have it: in a process of its own, tokenizer and all."""
    file = write_gguf(tmp_path / "mine-Q8_0.gguf", wide(family), "Q8_0")
    found, checkpoint = entry_safely(file), ModelShape.from_hf_config(wide(family).config.to_dict())
    kinds = (
        "family",
        "windowed",
        "window",
        "readers",
        "input_width",
        "kv_heads",
        "head_dim",
        "layers",
        "native_context",
    )
    assert [getattr(found.shape, one) for one in kinds] == [getattr(checkpoint, one) for one in kinds]
    assert (found.name, found.folder) == ("mine-Q8_0", file)
    assert load_config(model_folder(find(str(file)), lambda *_: None)).family == model_type(family)


@pytest.mark.parametrize("source", ["file", "folder"])
@pytest.mark.parametrize(
    "kind", ["clip", "whisper", "siglip_vision_model", "qwen3_moe", "mixtral", "gpt_oss"]
)
def test_towers_and_experts_are_refused_with_what_runs(tmp_path, kind, source):
    """What sees, what hears, and mixtures of experts, by the name of their kind."""
    if source == "file":
        path = tmp_path / "odd.gguf"
        writer = gguf.GGUFWriter(path, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
    else:
        path = tmp_path / "odd"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"model_type": kind, "num_local_experts": 8}))
    said = (
        "a mixture of experts; only dense models of" if kind.endswith("_moe") else f"of type “{kind}”; only"
    )
    with pytest.raises(UserError, match=f"odd is {said} llama, .*gemma4_text, lfm2, smollm3 run here"):
        find(str(path))


@pytest.mark.parametrize(("family", "said"), [("gpt-oss", "only"), ("phi3", "only")])
def test_a_file_of_an_architecture_that_does_not_run_says_why_and_what_would(tmp_path, family, said):
    """What is listed as "not yet" is refused with the same words when somebody brings it."""
    file = tmp_path / "asked-for.gguf"
    writer = gguf.GGUFWriter(file, family)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError, match=f"asked-for .*{said}.*Choose one of the list of models"):
        entry_safely(file)
