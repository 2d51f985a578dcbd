"""Tiny checkpoints in the file layouts of the real ones, from the stand-in hub to logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.model.gguf.reader import read_header
from core.model.loader import load_model
from core.model.store.quantize_checkpoint import quantised
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import checkpoint
from tests.support.file_layouts import fetched, older_config, sharded_bin
from tests.support.sentencepiece import sentencepiece_folder
from tests.support.tiny import VOCAB, oracle
from tests.support.tokenizer_files import make

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def sharded_safetensors(model: torch.nn.Module, folder: Path) -> None:
    model.save_pretrained(folder, max_shard_size=20_000)
    assert len(list(folder.glob("*.safetensors"))) > 1


@pytest.mark.parametrize("tokenizer", ["sentencepiece", "fast"])
@pytest.mark.parametrize(
    ("save", "rope", "older"),
    [
        (sharded_bin, None, True),
        (sharded_bin, YARN, True),
        (sharded_safetensors, LLAMA3, True),
        (sharded_safetensors, YARN, False),
    ],
    ids=["LWM", "Yarn-Llama-2", "Llama-3.1", "safetensors-yarn"],
)
def test_from_the_hub_to_logits(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save, rope, older, tokenizer
):
    reference = oracle(rope=rope)
    source = sentencepiece_folder(tmp_path / "repo") if tokenizer == "sentencepiece" else tmp_path / "repo"
    source.mkdir(exist_ok=True)
    save(reference, source)
    if older:
        older_config(source)
    if tokenizer == "fast":
        make()._backend.save_pretrained(source)
    folder = fetched(source, monkeypatch, pickled=save is sharded_bin)
    assert not list(folder.glob("*.bin"))
    text = "The keeper lit the lamp."
    assert Tokenizer.load(folder).decode(Tokenizer.load(folder).encode(text)).strip() == text

    ids = torch.randint(0, VOCAB, (200,), generator=torch.Generator().manual_seed(3)).tolist()
    model = load_model(folder, CpuBackend(torch.float32), positions=256)
    with torch.inference_mode():
        got = model.forward(ids, FullKVCache(model.config.kv_shape, 256, model.backend, block_tokens=64))
        want = reference(torch.tensor([ids])).logits[0]
    assert float((got - want).abs().max()) < 1e-4 * float(want.abs().max())


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_pickled_checkpoint_is_rounded_as_any(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """LWM ships as .bin alone: rounded it has the weights that its twin of safetensors has."""
    twin, source = tmp_path / "twin", tmp_path / "repo"
    source.mkdir()
    model = checkpoint(twin)
    sharded_bin(model, source)
    make()._backend.save_pretrained(source)
    files = []
    for folder in (twin, fetched(source, monkeypatch, pickled=True)):
        made = next(quantised(folder, kind, lambda *said: None).glob("*.gguf"))
        header = read_header(made)
        files.append({name: header.raw(name).tobytes() for name in header.tensors})
    assert files[0] == files[1] and len(files[0]) == len(model.state_dict())
