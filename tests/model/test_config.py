"""A model's configuration read from config.json: the same values whether transformers is asked or everything
is stated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.model.config import ModelConfig, from_source, load_config
from core.model.rope import Rope

REPO = Path(__file__).resolve().parent.parent.parent
STATED = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 96,
    "vocab_size": 101,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
    "eos_token_id": 7,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}
OLD = {
    **{key: value for key, value in STATED.items() if key != "rope_parameters"},
    "rope_theta": 5000.0,
    "rope_scaling": None,
}


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in STATED.items() if key not in keys}


def written(folder: Path, config: dict[str, Any], **generation: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if generation:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def rotation(config: ModelConfig, stretch: float = 1.0) -> str:
    return Rope(config, 64, dtype=torch.float32, device=torch.device("cpu"), stretch=stretch).fingerprint


@pytest.mark.parametrize(
    "config",
    [
        STATED,
        OLD,
        without("rope_parameters"),
        without("head_dim", "tie_word_embeddings"),
        without("num_key_value_heads"),
        {**OLD, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {**STATED, "model_type": "qwen2"},
        {**without("head_dim"), "model_type": "qwen3"},
        {**STATED, "model_type": "mistral", "sliding_window": None},
    ],
    ids=[
        "stated",
        "old spelling",
        "no rotation",
        "defaults",
        "no groups",
        "scaled",
        "qwen2",
        "qwen3",
        "mistral",
    ],
)
def test_values_are_those_of_transformers(tmp_path: Path, config: dict[str, Any]):
    """Read by ourselves or not: a default filled in wrongly would be another model."""
    from transformers import AutoConfig

    folder = written(tmp_path / "tiny", config)
    expected = from_source(AutoConfig.from_pretrained(folder).to_dict(), name="tiny", eos=7)
    found = load_config(folder)
    assert replace(found, source={}) == replace(expected, source={})
    assert rotation(found) == rotation(expected)
    if not config.get("rope_scaling"):
        assert rotation(found, stretch=2.0) == rotation(expected, stretch=2.0) != rotation(found)


def test_the_end_tokens_of_the_generation_settings_win(tmp_path: Path):
    """Llama-3's chat models end with a token that config.json does not name."""
    assert load_config(written(tmp_path / "a", STATED)).eos_ids == {7}
    assert load_config(written(tmp_path / "b", STATED, eos_token_id=[7, 9])).eos_ids == {7, 9}
    assert load_config(written(tmp_path / "c", STATED, do_sample=True)).eos_ids == {7}


@pytest.mark.wide
def test_the_embedded_model_needs_no_large_imports(embedded_model_dir: Path):
    """AutoConfig and AutoTokenizer pull in kernels, distributed code and sympy: half of the start."""
    script = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
from pathlib import Path
import torch
from core.model.config import load_config
from core.model.rope import Rope
from core.text.tokenizer import Tokenizer
folder = Path({str(embedded_model_dir)!r})
Rope(load_config(folder), 64, dtype=torch.float32, device=torch.device("cpu"))
assert "transformers" not in sys.modules, "for the configuration"
assert Tokenizer.load(folder).frame("system").ask
heavy = {{"sympy", "transformers.activations", "transformers.modeling_utils"}}
print(sorted(heavy & set(sys.modules)))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout.strip()) == (0, "[]"), said.stderr
