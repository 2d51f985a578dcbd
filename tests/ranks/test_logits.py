"""What two ranks compute together is what one process computes alone, up to the order of a sum."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.backend.ranks import SINGLE
from core.backend.shared.kv_rows import CODES
from core.model.gguf.folder import opened
from tests.support import rank_cases
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import MIXED, wide
from tests.support.tiny import oracle
from tests.support.two_ranks import TwoRanks

# of the largest logit: two sums of floats instead of one, a few layers deep
FP32 = 1e-5
# a key that rounds to another code is off by a 254th of its row's largest number
ROWS_OF_CODES = 1e-2


def saved(folder: Path, family: str, **more: object) -> Path:
    oracle(family, **more).save_pretrained(folder)
    return folder


def both_agree(pair: TwoRanks, folder: Path, most: float, *how: object) -> None:
    """That ranks have the same bits, and those are near a single process's."""
    first, second = pair.run(rank_cases.logits, folder, *how)
    alone = rank_cases.logits(SINGLE, folder, *how)
    assert torch.equal(first, second)
    assert (first - alone).abs().max() <= most * alone.abs().max()


@pytest.mark.parametrize(
    ("family", "more"),
    [
        pytest.param("llama", {"kv_heads": 4}, id="every head its own keys"),
        pytest.param("llama", {"kv_heads": 2}, id="two heads share keys"),
        pytest.param("qwen2", {}, id="biases"),
        pytest.param("llama", {"attention_bias": True, "mlp_bias": True}, id="biases behind sums"),
        pytest.param("qwen3", {}, id="norms of heads"),
        pytest.param("gemma3_text", {"intermediate_size": 50}, id="windows, norms behind sums, uneven MLP"),
        pytest.param(
            "gemma4_text",
            {"num_global_key_value_heads": 2, "num_attention_heads": 8},
            id="heads of two sizes",
        ),
    ],
)
def test_logits_are_one_processs(pair: TwoRanks, tmp_path: Path, family: str, more: dict[str, object]):
    """A rank that took another's heads, or added a bias twice, would be a nearby model's."""
    both_agree(pair, saved(tmp_path, family, **more), FP32)


@pytest.mark.parametrize("split", ["one layer", "two blocks of each, swept"])
def test_logits_over_offloaded_caches(pair: TwoRanks, tmp_path: Path, split: str):
    """Each rank streams the keys of its own heads, also where a prefill sweeps them."""
    both_agree(pair, saved(tmp_path, "llama"), FP32, None, split)


def test_logits_over_rows_of_8_bits(pair: TwoRanks, tmp_path: Path):
    """The rows of a KV cache have factors of their own, head by head."""
    both_agree(pair, saved(tmp_path, "llama"), ROWS_OF_CODES, CODES)


@pytest.mark.parametrize("kinds", [MIXED, "Q4_0", "Q8_0"], ids=["Q4_K_M", "Q4_0", "Q8_0"])
def test_logits_of_weights_in_codes(pair: TwoRanks, tmp_path: Path, kinds: dict[str, str] | str):
    """Codes are cut between blocks: a factor of a neighbour would scale all weights behind it."""
    model = wide(num_attention_heads=8, kv_heads=2, intermediate_size=768)
    both_agree(pair, opened(write_gguf(tmp_path / "tiny.gguf", model, kinds)), FP32)
