"""The layer behind Qwen3.5's own that predicts one token further: by its definition, of a checkpoint and of a
GGUF.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.assembly.composition import streaming_cache
from core.backend.cpu.backend import CpuBackend
from core.errors import UserError
from core.model.gguf.config import bytes_in_codes, config_of
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.loader import load_ahead, load_model
from core.model.shapes import ModelShape
from core.model.store.catalogue import from_folder, from_gguf
from core.model.store.quantize_checkpoint import quantised
from tests.support.ahead import WithAhead, ahead_by_definition, checkpoint_with_ahead, tiny_with_ahead
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.tiny import whole_cache

IDS = [5, 17, 20, 3, 88, 88, 25, 41, 7, 19, 30, 12]


def rows(n: int, hidden: int) -> torch.Tensor:
    return torch.randn(n, hidden, generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
def test_it_is_what_its_definition_says():
    """All at once, token by token, and over the cache that drafts go over, whose keys rotate on read."""
    reference, _target, layer, weights = tiny_with_ahead()
    given = rows(len(IDS), reference.config.hidden_size)
    want, want_logits = ahead_by_definition(reference, weights, IDS, given)
    for cache in (whole_cache(layer, 64), streaming_cache(layer, sinks=4, window=28, slack=16)):
        found = layer.follow(IDS[:5], given[:5], cache)
        steps = [layer.follow([one], given[at : at + 1], cache) for at, one in enumerate(IDS) if at >= 5]
        found = torch.cat((found, *steps))
        assert cache.length == len(IDS)
        assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())
        assert torch.allclose(layer.logits(found).double(), want_logits, atol=1e-3)


@torch.inference_mode()
def test_a_checkpoint_and_a_gguf_give_the_same_bits(tmp_path: Path):
    """By either's names, of which the file's norms have their 1 already."""
    reference, weights = checkpoint_with_ahead(tmp_path / "checkpoint")
    file = write_gguf(tmp_path / "model.gguf", WithAhead(reference, weights), "F32")
    given = rows(len(IDS), reference.config.hidden_size)
    want, _logits = ahead_by_definition(reference, weights, IDS, given)
    found = []
    for folder in (tmp_path / "checkpoint", opened(file)):
        backend = CpuBackend(torch.float32)
        target = load_model(folder, backend, positions=64)
        layer = load_ahead(folder, backend, target=target, positions=64)
        found.append(layer.follow(IDS, given, whole_cache(layer, 64)))
        assert float((found[-1] - want).abs().max()) < 1e-4 * float(want.abs().max())
    assert torch.equal(*found)


@torch.inference_mode()
def test_of_a_file_in_codes_it_stays_in_codes(tmp_path: Path):
    """And drafts as the target's coarser products do."""
    reference, weights = checkpoint_with_ahead(tmp_path / "checkpoint")
    file = write_gguf(tmp_path / "model.gguf", WithAhead(reference, weights), "Q8_0")
    folder, backend = opened(file), CpuBackend(torch.float32)
    layer = load_ahead(folder, backend, target=load_model(folder, backend, positions=64), positions=64)
    given = rows(len(IDS), reference.config.hidden_size)
    want, _logits = ahead_by_definition(reference, weights, IDS, given)
    for one in (layer, layer.drafting):
        found = one.follow(IDS, given, whole_cache(layer, 64))
        assert float((found - want).abs().max()) < 0.1 * float(want.abs().max())


@torch.inference_mode()
def test_it_is_rounded_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a checkpoint that does not fit in 16 bits it drafts, too."""
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))
    reference, weights = checkpoint_with_ahead(tmp_path / "checkpoint")
    made = quantised(tmp_path / "checkpoint", "Q8_0", lambda stage, share: None)
    backend = CpuBackend(torch.float32)
    layer = load_ahead(made, backend, target=load_model(made, backend, positions=64), positions=64)
    given = rows(len(IDS), reference.config.hidden_size)
    want, _logits = ahead_by_definition(reference, weights, IDS, given)
    found = layer.follow(IDS, given, whole_cache(layer, 64))
    assert float((found - want).abs().max()) < 0.1 * float(want.abs().max())


def test_its_bytes_are_counted_beside_the_models(tmp_path: Path):
    reference, weights = checkpoint_with_ahead(tmp_path / "checkpoint")
    plain = write_gguf(tmp_path / "plain.gguf", reference, "Q8_0")
    file = write_gguf(tmp_path / "model.gguf", WithAhead(reference, weights), "Q8_0")
    assert bytes_in_codes(read_header(file)) == bytes_in_codes(read_header(plain))
    shape = from_gguf(file).shape
    matrices = sum(value.numel() for value in weights.values() if value.ndim == 2)
    layer = shape.layer_ahead
    assert shape.ahead_weights == layer.coded_weights == matrices
    assert layer.parameters == sum(
        value.numel() for name, value in weights.items() if "q_norm" not in name and "k_norm" not in name
    )
    assert from_gguf(plain).shape.layer_ahead is None
    assert from_folder(tmp_path / "checkpoint").shape.layer_ahead.parameters == layer.parameters


def test_where_it_was_left_out_there_is_none(tmp_path: Path):
    """transformers saves a model without it, and says in config.json that it has one."""
    reference = wide("qwen3_5_text")
    reference.config.mtp_num_hidden_layers = 1
    reference.save_pretrained(tmp_path / "saved")
    backend = CpuBackend(torch.float32)
    target = load_model(tmp_path / "saved", backend, positions=64)
    assert load_ahead(tmp_path / "saved", backend, target=target, positions=64) is None
    assert ModelShape.from_hf_config(reference.config.to_dict()).ahead == 1
    assert from_folder(tmp_path / "saved").shape.layer_ahead is None
    plain = read_header(write_gguf(tmp_path / "plain.gguf", reference, "F32"))
    plain.metadata.update({"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1})
    assert config_of(plain, "model")["mtp_num_hidden_layers"] == 0


def test_of_another_shape_it_is_refused_by_file_and_key(tmp_path: Path):
    from safetensors.torch import load_file, save_file

    checkpoint_with_ahead(tmp_path / "tiny")
    file = tmp_path / "tiny" / "model.safetensors"
    save_file(load_file(file) | {"mtp.fc.weight": torch.zeros(256, 256)}, file)
    target = load_model(tmp_path / "tiny", CpuBackend(torch.float32), positions=64)
    with pytest.raises(UserError, match=r"model.safetensors has “mtp.fc.weight” of shape \[256, 256\]"):
        load_ahead(tmp_path / "tiny", target.backend, target=target, positions=64)
