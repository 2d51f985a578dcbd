"""Models of other programs are found by what those programs write, and nothing there is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.model.store import discovery
from core.model.store.discovery import found_elsewhere

DIGEST = "ab" * 32


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(discovery, "_OLLAMA_SERVICE", tmp_path / "service")


def put(path: Path, content: object = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def look(home: Path, *named: Path, system: str = "linux", **environ: str) -> dict[str, tuple[str, Path]]:
    found = found_elsewhere(named, home=home, environ=environ, system=system)
    assert len({one.path for one in found}) == len(found)
    return {one.name: (one.program, one.path) for one in found}


def test_lm_studio_by_its_pointer_and_its_own_folder(tmp_path):
    base = tmp_path / "studio"
    put(tmp_path / ".lmstudio-home-pointer", str(base).encode() + b"\n")
    file = put(base / "models" / "qwen" / "Qwen3-8B-GGUF" / "Qwen3-8B-Q4_K_M.gguf")
    put(tmp_path / ".lmstudio" / "models" / "old.gguf")  # not where the pointer points
    assert look(tmp_path) == {"Qwen3-8B-Q4_K_M": ("LM Studio", file)}
    moved = put(tmp_path / "disk" / "a" / "b" / "moved.gguf")
    put(base / "settings.json", {"downloadsFolder": str(tmp_path / "disk")})
    assert look(tmp_path) == {"moved": ("LM Studio", moved)}


def test_lm_studio_without_a_pointer_of_both_ages(tmp_path):
    new = put(tmp_path / ".lmstudio" / "models" / "a" / "b" / "new.gguf")
    old = put(tmp_path / ".cache" / "lm-studio" / "models" / "a" / "b" / "old.gguf")
    assert look(tmp_path) == {"new": ("LM Studio", new), "old": ("LM Studio", old)}


def ollama(root: Path, *, kind: str = "application/vnd.ollama.image.model", digest: str = DIGEST) -> Path:
    layers = [
        {"mediaType": "application/vnd.ollama.image.projector", "digest": "sha256:" + "cd" * 32},
        {"mediaType": kind, "digest": f"sha256:{digest}"},
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "ef" * 32},
    ]
    put(root / "manifests" / "registry.ollama.ai" / "library" / "qwen3" / "8b", {"layers": layers})
    put(root / "blobs" / ("sha256-" + "cd" * 32))
    return put(root / "blobs" / f"sha256-{digest}")


def test_ollama_by_its_manifests(tmp_path):
    file = ollama(tmp_path / ".ollama" / "models")
    assert look(tmp_path) == {"qwen3:8b": ("Ollama", file)}
    own = ollama(tmp_path / "own")
    assert look(tmp_path, OLLAMA_MODELS=str(tmp_path / "own")) == {"qwen3:8b": ("Ollama", own)}
    service = ollama(tmp_path / "service")
    assert [one.path for one in found_elsewhere(home=tmp_path / "nobody", environ={})] == [service]


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "AB" * 32, "ab", ""])
def test_a_manifest_that_points_elsewhere_is_left_out(tmp_path, digest):
    root = tmp_path / ".ollama" / "models"
    put(
        root / "manifests" / "r" / "l" / "m" / "latest",
        {"layers": [{"mediaType": discovery._MODEL_LAYER, "digest": f"sha256:{digest}"}]},
    )
    put(root / "manifests" / "r" / "l" / "m" / "broken", b"{")
    put(root / "manifests" / "r" / "l" / "m" / "list", [1, 2])
    put(root / "manifests" / "r" / "l" / "m" / "odd", {"layers": [3, None, {"mediaType": 4}]})
    assert look(tmp_path) == {}


@pytest.mark.parametrize(
    ("system", "config"),
    [("linux", ".config"), ("darwin", "Library/Application Support"), ("win32", "AppData/Roaming")],
)
def test_jan_by_its_data_folder(tmp_path, system, config):
    data = tmp_path / "jan data"
    put(tmp_path / config / "Jan" / "settings.json", {"data_folder": str(data)})
    file = put(data / "llamacpp" / "models" / "me" / "qwen" / "model.gguf")
    put(file.parent / "model.yml", b"name: My Qwen\nmodel_path: llamacpp/models/me/qwen/model.gguf\n")
    put(data / "llamacpp" / "models" / "broken" / "model.yml", b"{: [")
    put(data / "llamacpp" / "models" / "gone" / "model.yml", b"model_path: llamacpp/models/gone/model.gguf\n")
    assert look(tmp_path, system=system) == {"My Qwen": ("Jan", file)}


@pytest.mark.parametrize("base", [".local/share/jan.ai.app", ".local/share/Jan", ".config/Jan"])
def test_jan_where_it_lies_today_and_where_it_lay(tmp_path, base):
    """What is installed anew on Linux was not found: it keeps nothing among the settings any more."""
    put(tmp_path / base / "settings.json", {"data_folder": str(tmp_path / "disk")})
    chosen = put(tmp_path / "disk" / "llamacpp" / "models" / "one" / "model.gguf")
    put(chosen.parent / "model.yml", b"model_path: llamacpp/models/one/model.gguf\n")
    assert look(tmp_path) == {"one": ("Jan", chosen)}
    (tmp_path / base / "settings.json").unlink()
    plain = put(tmp_path / base / "data" / "llamacpp" / "models" / "two" / "model.gguf")
    put(plain.parent / "model.yml", b"model_path: llamacpp/models/two/model.gguf\n")
    assert look(tmp_path) == {"two": ("Jan", plain)}


def test_the_caches_of_llama_cpp_and_of_the_hub(tmp_path):
    llama = put(tmp_path / ".cache" / "llama.cpp" / "ggml-org_x.gguf")
    blob = put(tmp_path / ".cache" / "huggingface" / "hub" / "models--a--b" / "blobs" / DIGEST)
    link = blob.parents[1] / "snapshots" / "c0ffee" / "model-Q8_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert look(tmp_path) == {"ggml-org_x": ("llama.cpp", llama), "model-Q8_0": ("Hugging Face", link)}
    own = put(tmp_path / "own" / "mine.gguf")
    moved = put(tmp_path / "cache" / "huggingface" / "hub" / "moved.gguf")
    assert look(tmp_path / "nobody", XDG_CACHE_HOME=str(tmp_path / "cache")) == {
        "moved": ("Hugging Face", moved)
    }
    for name in ("LLAMA_CACHE", "HF_HUB_CACHE"):
        assert own in {
            path for _program, path in look(tmp_path / "nobody", **{name: str(own.parent)}).values()
        }


def test_a_named_folder_is_searched_below(tmp_path):
    """Portable programs keep models beside themselves."""
    file = put(tmp_path / "koboldcpp" / "models" / "deep" / "er" / "Mine.GGUF")
    put(tmp_path / "koboldcpp" / "models" / "mmproj-mine-f16.gguf")
    put(tmp_path / "koboldcpp" / "models" / "mlx" / "model.safetensors")
    assert look(tmp_path / "nobody", tmp_path / "koboldcpp") == {"Mine": (str(tmp_path / "koboldcpp"), file)}


def test_a_model_in_parts_is_one(tmp_path):
    for part in (1, 2, 3):
        put(tmp_path / f"Big [x]-Q4_K_M-0000{part}-of-00003.gguf", b"GGUF" * part)
    (found,) = found_elsewhere([tmp_path], home=tmp_path / "nobody", environ={})
    assert (found.name, found.bytes, found.why_not) == ("Big [x]-Q4_K_M", 24, "")
    assert found.path.name == "Big [x]-Q4_K_M-00001-of-00003.gguf"
    (tmp_path / "Big [x]-Q4_K_M-00003-of-00003.gguf").unlink()
    (found,) = found_elsewhere([tmp_path], home=tmp_path / "nobody", environ={})
    assert found.name == "Big [x]-Q4_K_M" and "-00003-of-00003.gguf is missing" in found.why_not


def test_a_file_that_two_programs_know_is_found_once(tmp_path):
    file = put(tmp_path / ".lmstudio" / "models" / "a" / "b" / "one.gguf")
    (found,) = found_elsewhere([tmp_path / ".lmstudio"], home=tmp_path, environ={})
    assert (found.path, found.program) == (file, "LM Studio")


def test_nothing_is_changed_and_a_search_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "_MOST_FILES", 5)
    for number in range(9):
        put(tmp_path / "models" / f"{number}.gguf")
    (tmp_path / "models" / "round").symlink_to(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    assert 5 <= len(look(tmp_path / "nobody", tmp_path / "models")) <= 9
    assert sorted(path for path in tmp_path.rglob("*")) == before
