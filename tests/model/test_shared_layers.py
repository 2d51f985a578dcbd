"""Layers that read what others hold, and what tokens bring to each layer: a tiny likeness of Gemma 4 E2B."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.errors import UserError
from core.model.gguf.config import bytes_in_codes, config_of, table_bytes
from core.model.gguf.folder import opened
from core.model.gguf.reader import read_header
from core.model.layer_inputs import LayerInputs
from core.model.llama import LlamaModel
from core.model.loader import load_model
from core.model.shapes import ModelShape
from core.model.split_weights import Share
from core.model.store.catalogue import from_gguf
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import IDS, as_stored, logits, wide
from tests.support.tiny import SHARED, VOCAB, oracle, ours, whole_cache

TEXT = torch.randint(0, VOCAB, (120,), generator=torch.Generator().manual_seed(6)).tolist()
SEGMENT, CHUNK = 48, 20


@pytest.fixture(scope="module")
def reference() -> torch.nn.Module:
    return oracle(SHARED)


def prefilled(model: LlamaModel, ids: list[int]):
    cache = whole_cache(model, 256)
    with torch.inference_mode():
        done = list(
            model.prefill(ids, cache, segment_tokens=SEGMENT, chunk_tokens=CHUNK, should_stop=lambda: False)
        )
    return cache, done


def test_a_cache_has_slots_for_the_layers_that_hold_something(reference):
    """Seven layers, of which the last three read: two slots that see every token, two windows."""
    model = ours(reference)
    assert [kind.reads for kind in model.config.kinds] == [-1, -1, -1, -1, 2, 2, 3]
    assert [kind.intermediate for kind in model.config.kinds] == [0] * 4 + [96] * 3
    cache = whole_cache(model, 256)
    assert (len(cache.full.store.k), len(cache.side.store.k)) == (2, 2)


def test_a_prefill_does_not_compute_what_leaves_nothing(reference, monkeypatch):
    """And its rows are those of one that computes all layers."""
    model, fed = ours(reference), []
    layer = LlamaModel._layer
    monkeypatch.setattr(
        LlamaModel,
        "_layer",
        lambda self, index, *more, **how: fed.append(index) or layer(self, index, *more, **how),
    )
    cache, done = prefilled(model, TEXT)
    assert set(fed) == {0, 1, 2, 3} and done[-1] == len(TEXT)
    whole = whole_cache(model, 256)
    with torch.inference_mode():
        for start in range(0, len(TEXT), SEGMENT):
            for first in range(start, min(start + SEGMENT, len(TEXT)), CHUNK):
                model.forward(TEXT[first : min(first + CHUNK, start + SEGMENT)], whole)
    assert set(fed) == set(range(7))
    for mine, other in ((cache.full.store.k, whole.full.store.k), (cache.full.store.v, whole.full.store.v)):
        assert float((mine - other).abs().max()) < 1e-5
    with torch.inference_mode():
        found, want = model.forward([5, 6], cache), reference(torch.tensor([[*TEXT, 5, 6]])).logits[0, -2:]
    assert float((found - want).abs().max()) < 1e-4


def test_what_reads_sees_its_own_pass(reference):
    """Rows of a pass of several tokens attend to each other in the slot that was written in that pass."""
    model = ours(reference)
    together, alone = whole_cache(model, 256), whole_cache(model, 256)
    with torch.inference_mode():
        for cache in (together, alone):
            model.forward(TEXT[:90], cache)
        want = torch.cat([model.forward([one], alone) for one in TEXT[90:97]])
        assert float((model.forward(TEXT[90:97], together) - want).abs().max()) < 3e-5


def test_what_a_token_brings_is_a_row_of_the_table_and_a_product_of_its_embedding():
    """As many columns as layers are computed; the row's scale, the product's, and that of both."""
    table = torch.randn(VOCAB, 6)
    norm, projection = torch.ones(2), torch.nn.Linear(4, 6, bias=False)
    inputs = LayerInputs(CpuBackend(), table=table, projection=projection, norm=norm, eps=1e-6)
    x = torch.randn(3, 4)
    with torch.inference_mode():
        found = inputs.of([4, 0, 96], x)
        assert torch.equal(inputs.of(torch.tensor([4, 0, 96]), x, layers=2), found[:, :2])
        rows = projection(x).view(3, 3, 2) / 2
        rows = rows / (rows.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        want = (rows + table[[4, 0, 96]].view(3, 3, 2) * 2**0.5) / 2**0.5
    assert float((found - want).abs().max()) < 1e-6


@pytest.mark.parametrize("kinds", ["Q8_0", {"": "Q8_0", "embed_tokens_per_layer": "Q6_K"}, "Q4_0"])
def test_a_file_in_codes_gives_what_its_weights_do(tmp_path: Path, kinds):
    """The table among them: of as many columns as are asked for, decoded where it lies."""
    model = wide(SHARED, tied=True)
    file = write_gguf(tmp_path / "model.gguf", model, kinds)
    with torch.inference_mode():
        want = as_stored(model, file)(torch.tensor([IDS])).logits[0]
    for found in (logits(file, CpuBackend()), logits(file, CpuBackend(), one_by_one=True)):
        assert float((found - want).abs().max()) < 1e-4 * max(1.0, float(want.std()))
    loaded = load_model(opened(file), CpuBackend(), positions=256)
    cache, _done = prefilled(loaded, IDS * 6)
    with torch.inference_mode():
        found = loaded.forward([7], cache)[0]
        want = as_stored(model, file)(torch.tensor([[*IDS * 6, 7]])).logits[0, -1]
    assert float((found - want).abs().max()) < 1e-4 * max(1.0, float(want.std()))


def test_a_file_says_how_much_of_it_goes_where(tmp_path: Path):
    """The table, and keys and values that files have and nobody reads, are no weights of the device."""
    model = wide(SHARED, tied=True)
    header = read_header(write_gguf(tmp_path / "model.gguf", model, "Q8_0"))
    table = model.model.embed_tokens_per_layer.weight.numel()
    matrices = sum(value.numel() for value in model.parameters() if value.ndim == 2)
    held, weights = bytes_in_codes(header)
    assert weights == matrices - table
    assert table_bytes(header) == table * 34 // 32
    for part in ("attn_k", "attn_v"):
        own = header.tensors[f"blk.2.{part}.weight"]
        header.tensors[f"blk.4.{part}.weight"] = replace(own, name=f"blk.4.{part}.weight")
    assert bytes_in_codes(header) == (held, weights)
    shape = from_gguf(tmp_path / "model.gguf").shape
    assert (shape.readers, shape.windowed_readers, shape.full_layers, shape.windowed) == (3, 2, 2, 2)
    assert shape.host_bytes == table_bytes(header)
    counted = sum(value.numel() for value in model.parameters()) - table
    of_heads = sum(
        value.numel() for name, value in model.named_parameters() if "q_norm" in name or "k_norm" in name
    )
    assert shape.parameters == counted - of_heads
    assert ModelShape.from_hf_config(config_of(header, "model")).table_weights == table


def test_such_a_model_is_not_divided_among_cards(reference):
    config = ours(reference).config
    with pytest.raises(UserError, match="share keys and values, which are not divided"):
        Share(0, 2).config(config)
    with pytest.raises(UserError, match="share keys and values, which are not divided"):
        ModelShape.from_hf_config(config.source, name="tiny").divided(2)
