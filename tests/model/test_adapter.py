"""Low-rank changes: what comes back from a file, the sum, its 8-bit codes. And the one that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from core.model import lora
from core.model.gguf.config import gguf_name
from core.model.gguf.dequantize import planes
from core.model.gguf.folder import gguf_in
from core.model.gguf.quantize_blocks import q8_0
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.store.embedded import ADAPTER, ADAPTER_SHA256, _sha256, ensure_embedded
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide

REPO = Path(__file__).parents[2]
MOST_BYTES = 20_000_000


def _factors(rank: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(3)
    sizes = torch.logspace(-2, 1, rank)  # ranks of very different sizes
    return torch.randn(rank, 64, generator=dice) * sizes[:, None], torch.randn(
        32, rank, generator=dice
    ) * 0.01


def test_a_file_keeps_the_product(tmp_path: Path):
    """Bytes with a scale for each rank: small ranks must not drown in the grid of large ones."""
    down, up = _factors()
    lora.save_factors(tmp_path / "a.safetensors", {"model.layers.0.mlp.up_proj": (down, up)})
    (again,) = lora.load_factors(tmp_path / "a.safetensors").values()
    for rank in range(4):
        want, got = torch.outer(up[:, rank], down[rank]), torch.outer(again[1][:, rank], again[0][rank])
        assert (got - want).norm() < 0.02 * want.norm()


def test_merged_is_the_sum():
    """W + up @ down: a layer that computes with it is the layer with a low-rank path beside it."""
    down, up = _factors()
    weight, x = torch.randn(32, 64), torch.randn(5, 64)
    with_path = x @ weight.T + (x @ down.T) @ up.T
    torch.testing.assert_close(x @ lora.merged_weight(weight, down, up).T, with_path, rtol=1e-4, atol=1e-4)


def _in_8_bits(weight: torch.Tensor) -> torch.Tensor:
    return planes(q8_0(weight), "Q8_0", tuple(weight.shape)).decoded()


def test_codes_keep_a_change_of_a_hundredth_of_a_4_bit_matrix():
    """Rounding to the matrix's own 4-bit grid would undo the change, which is smaller than half a step."""
    dice = torch.Generator().manual_seed(1)
    scale = torch.rand(32, 2, 1, generator=dice) * 0.02 + 0.01
    weight = (torch.randint(0, 16, (32, 2, 32), generator=dice) * scale - 0.15).view(32, 64).half().float()
    down, up = torch.randn(4, 64, generator=dice), torch.randn(32, 4, generator=dice)
    change = up @ down
    change *= 0.01 * weight.norm() / change.norm()
    kept = _in_8_bits(weight + change) - weight
    along = float((kept * change).sum() / (change * change).sum())
    assert along == pytest.approx(1, abs=0.15)


def test_a_group_of_zeros_stays_zero():
    """Its scale is 0; dividing by it must not make numbers that are none."""
    assert _in_8_bits(torch.zeros(2, 32)).abs().max() == 0


def test_the_shipped_adapter_is_whole_small_and_its_sources_are_named():
    """The sum in the code is that of the file; the file is small; licences of the data are told."""
    assert _sha256(ADAPTER) == ADAPTER_SHA256
    assert ADAPTER.stat().st_size < MOST_BYTES
    told = (ADAPTER.parent / "README.md").read_text(encoding="utf-8")
    for name in ("FairytaleQA", "Apache-2.0", "SQuALITY", "CC BY 4.0", "Project Gutenberg"):
        assert name in told, name
    licences = (REPO / "assets" / "LICENSES.md").read_text(encoding="utf-8")
    assert "FairytaleQA" in licences and "CC BY 4.0" in licences


def test_whose_words_a_measurement_keeps_is_told_with_their_licence():
    """200 questions under CC BY-SA lay in a repository whose list of licences did not name them."""
    licences = (REPO / "assets" / "LICENSES.md").read_text(encoding="utf-8")
    quoted = licences.partition("## What measurements quote")[2]
    parts = {"gold", "story", "books", "squad2"}
    for path in (REPO / "benchmarks" / "results").glob("reading*.json"):
        kept = json.loads(path.read_text(encoding="utf-8"))["details"]
        assert path.name in quoted
        assert parts.issuperset(name for name, rows in kept.items() if isinstance(rows, list) and rows)
    assert all(f'"{name}"' in quoted for name in parts) and "CC BY-SA 4.0" in quoted


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_gguf_with_an_adapter_is_the_sum_in_8_bits(tmp_path: Path, family: str):
    """What is changed, in the rows of the file's own order; all else to the byte; settings and tokens too."""
    source = write_gguf(tmp_path / "published.gguf", wide(family), "Q4_1")
    name, other = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
    before = GgufWeights(read_header(source))
    factors = {}
    for one in (name, other):
        rows, columns = before.tensor(f"{one}.weight").shape
        factors[one] = 0.1 * torch.randn(4, columns), 0.1 * torch.randn(rows, 4)
    lora.save_factors(tmp_path / "a.safetensors", factors)
    shares: list[float] = []
    lora.add_to_gguf(source, tmp_path / "a.safetensors", tmp_path / "taught.gguf", shares.append)
    held, taught = read_header(source), read_header(tmp_path / "taught.gguf")
    assert taught.metadata == held.metadata and shares == sorted(shares) and shares[-1] == 1
    after, stored = GgufWeights(taught), lora.load_factors(tmp_path / "a.safetensors")
    changed = {gguf_name(f"{one}.weight") for one in factors}
    for one in factors:
        want = lora.merged_weight(before.tensor(f"{one}.weight").half(), *stored[one])
        torch.testing.assert_close(after.tensor(f"{one}.weight"), _in_8_bits(want), rtol=0, atol=0)
    for one in held.tensors.keys() - changed:
        assert taught.tensors[one].kind == held.tensors[one].kind
        assert np.array_equal(taught.raw(one), held.raw(one)), one
    assert {taught.tensors[one].kind for one in changed} == {"Q8_0"}


def test_the_shipped_adapter_is_in_the_embedded_model(embedded_model_dir: Path):
    """Every matrix of the folder must be the published one plus its factors, within the codes' rounding."""
    base = ensure_embedded(models_dir=embedded_model_dir.parent, taught=False)
    factors = lora.load_factors(ADAPTER)
    assert len(factors) == 30 * 7
    before, after = (GgufWeights(gguf_in(folder)) for folder in (base, embedded_model_dir))
    for name, (down, up) in list(factors.items())[::17]:
        published, got = before.tensor(f"{name}.weight"), after.tensor(f"{name}.weight")
        want = lora.merged_weight(published, down, up)
        assert (got - want).norm() < 0.01 * want.norm(), name
        along = ((got - published) * (up @ down)).sum()
        assert float(along / (up @ down).square().sum()) == pytest.approx(1, abs=0.1), name
