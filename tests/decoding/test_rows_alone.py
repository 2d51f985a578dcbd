"""A row of a pass has, to the last bit, the logits and the KV rows that it has alone. Then a drafted token is
judged by exactly what plain decoding would have computed, and a code of an 8-bit row cannot flip between the
two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
import torch

from core.backend.cpu import backend as cpu
from core.backend.cpu import quantized_linear
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import layers
from core.backend.shared import linear
from core.cache.full import FullKVCache
from core.model.llama import LlamaModel
from core.model.loader import load_model
from core.paths import ROOT
from tests.support.embedded import compiled
from tests.support.tiny import VOCAB, oracle, ours, whole_cache
from tests.tiers import first

pytestmark = pytest.mark.every_isa

BOOK = ROOT / "assets" / "samples" / "the-thursday-clock.md"
BLOCK_TOKENS = 32
BEHIND = 61  # tokens: the rows cross a block's border
ROW_COUNTS = (2, 3, 5, 8, 9, 17, 33)
BF16, FP32, CODES = torch.bfloat16, torch.float32, torch.int8


def fed(
    model: LlamaModel, past: list[int], passes: Iterable[list[int]], rows: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [n, vocab] of `passes`, one after the other, behind `past`, and the KV rows of all tokens by
    then, [2 * layers, tokens, kv_heads, width].
    """
    passes = list(passes)
    total = len(past) + sum(map(len, passes))
    cache = FullKVCache(model.config.kv_shape, total, model.backend, block_tokens=BLOCK_TOKENS, dtype=rows)
    with torch.inference_mode():
        model.forward(past, cache)
        cache.commit(len(past))
        logits = torch.cat([model.forward(ids, cache) for ids in passes])
    layers = [cache.rows(index, 0, total) for index in range(model.config.layers)]
    return logits, torch.stack([part for layer in layers for part in layer])


def unlike(
    model: LlamaModel, ids: list[int], rows: torch.dtype, counts: Iterable[int] = ROW_COUNTS
) -> list[int]:
    """The numbers of rows, of `counts`, with which a pass has other bits than passes of one row each."""
    past, own = ids[:BEHIND], ids[BEHIND:]
    alone, kept_alone = fed(model, past, ([one] for one in own[: max(counts)]), rows)
    found = []
    for n in counts:
        logits, kept = fed(model, past, [own[:n]], rows)
        same = torch.equal(logits, alone[:n]) and torch.equal(kept, kept_alone[:, : BEHIND + n])
        found += [] if same else [n]
    return found


def lowered(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """From here on passes of more than so many rows are computed as prompts are."""
    for home in (cpu, linear, quantized_linear, layers):
        monkeypatch.setattr(home, "SHORT_PASS_ROWS", rows)


# ---- the embedded model ------------------------------------------------------------------------------------

# what is computed in, what matrices are held in, whether they stay in codes, whether compiled kernels serve
WAYS = {
    "fp32 from codes": (FP32, BF16, True, True),
    "fp32 by torch": (FP32, FP32, False, False),
    "bf16 from codes": (BF16, BF16, True, True),
    "fp32 from bf16": (FP32, BF16, False, True),
    "bf16 from bf16": (BF16, BF16, False, True),
    "bf16 by torch": (BF16, BF16, False, False),
    "codes by torch": (FP32, FP32, True, False),
}


@cache
def page(folder: Path) -> list[int]:
    """Ids of a book."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(BOOK.read_text(encoding="utf-8"))["input_ids"][200:300]


@cache
def loaded(folder: Path, way: str) -> LlamaModel:
    """The embedded model, computed in one of WAYS."""
    dtype, storage, in_codes, native = WAYS[way]
    backend = CpuBackend(dtype, storage=storage, **(compiled() if native else {}))
    return load_model(folder, backend, positions=256, in_codes=in_codes)


@pytest.mark.parametrize("rows", [BF16, CODES], ids=["16-bit rows", "8-bit rows"])
@pytest.mark.parametrize("way", first(WAYS))
def test_real_weights(embedded_model_dir: Path, way: str, rows: torch.dtype):
    """Every number of rows that a verification has, by our kernels and by torch alone."""
    if WAYS[way][-1] and compiled()["products"] is None:
        pytest.skip("no compiled kernel serves in this run, and torch is tried by itself")
    model = loaded(embedded_model_dir, way)
    rows = FP32 if rows == BF16 and way in ("fp32 by torch", "codes by torch") else rows
    counts = (5, 33) if way == "codes by torch" else ROW_COUNTS  # decoded anew for every pass
    assert unlike(model, page(embedded_model_dir), rows, counts) == []


@pytest.mark.parametrize("way", ["fp32 from codes", "fp32 by torch"])
def test_a_lower_limit_is_noticed(embedded_model_dir: Path, way: str, monkeypatch: pytest.MonkeyPatch):
    """Passes that are computed as prompts are have other bits: the test above would see it."""
    lowered(monkeypatch, 4)
    model = loaded(embedded_model_dir, way)
    assert unlike(model, page(embedded_model_dir), CODES, (4, 9)) == [9]


# ---- heads of other sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [FP32, BF16, CODES], ids=["fp32 rows", "16-bit rows", "8-bit rows"])
@pytest.mark.parametrize("head_dim", [8, 80, 96, 256, 512])
@pytest.mark.parametrize("made", [dict, compiled], ids=["by torch", "compiled products"])
def test_heads_of_other_sizes(made: Callable[[], dict[str, object]], head_dim: int, rows: torch.dtype):
    """torch attends where no compiled kernel knows the size or none is there, over numbers and over codes."""
    backend = CpuBackend(FP32, storage=BF16 if rows == BF16 and made is compiled else FP32, **made())
    model = ours(oracle("qwen3", head_dim=head_dim), backend=backend)
    ids = torch.randint(0, VOCAB, (BEHIND + 33,), generator=torch.Generator().manual_seed(3)).tolist()
    assert unlike(model, ids, rows) == []


@pytest.mark.parametrize("made", [dict, compiled], ids=["by torch", "compiled"])
def test_heads_of_two_sizes(made: Callable[[], dict[str, object]]):
    """Rows of full layers and of windows, behind several windows; logits that are bounded."""
    sizes = {"head_dim": 256, "global_head_dim": 512, "num_hidden_layers": 2}
    types = {"layer_types": ["sliding_attention", "full_attention"]}
    model = ours(oracle("gemma4_text", **sizes, **types), backend=CpuBackend(**made()))
    ids = torch.randint(0, VOCAB, (BEHIND + 33,), generator=torch.Generator().manual_seed(3)).tolist()
    past, own = ids[:BEHIND], ids[BEHIND:]
    with torch.inference_mode():
        plain = whole_cache(model, 128)
        model.forward(past, plain)
        alone = torch.cat([model.forward([one], plain) for one in own])
        for n in (2, 9, 33):
            cache = whole_cache(model, 128)
            model.forward(past, cache)
            assert torch.equal(model.forward(own[:n], cache), alone[:n]), n


# ---- layers with a state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [dict, compiled], ids=["by torch", "compiled"])
def test_rows_through_states(made: Callable[[], dict[str, object]]):
    """Behind rows that wait and rows that are final; the states behind a draft that was accepted in part."""
    model = ours(oracle("qwen3_5_text", linear_key_head_dim=16), backend=CpuBackend(**made()))
    ids = torch.randint(0, VOCAB, (BEHIND + 34,), generator=torch.Generator().manual_seed(3)).tolist()
    past, own = ids[:BEHIND], ids[BEHIND:]
    with torch.inference_mode():
        plain = whole_cache(model, 128)
        model.forward(past, plain)
        alone = torch.cat([model.forward([one], plain) for one in own])
        for n, accepted in ((2, 1), (5, 2), (17, 17), (33, 20)):
            cache = whole_cache(model, 128)
            model.forward(past, cache)
            if n % 5:
                cache.commit(BEHIND)
            assert torch.equal(model.forward(own[:n], cache), alone[:n]), n
            cache.commit(BEHIND + accepted)
            assert torch.equal(model.forward([own[accepted]], cache)[0], alone[accepted]), n
