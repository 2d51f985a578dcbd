"""Layers with a state against llama.cpp, on a small file of random weights: `pip install xllamacpp`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.model.gguf.folder import opened
from core.model.loader import load_model
from tests.support.gguf_files import write_gguf
from tests.support.llamacpp import by_llama_cpp
from tests.support.tiny import whole_cache

pytestmark = pytest.mark.slow
ENDS = (2, 40, 100, 200, 300)  # tokens; llama.cpp takes long texts in steps of 64
VOCAB, WORDS = 2048, 300  # from WORDS on whole words: of half a letter llama.cpp tells nothing
# llama.cpp wants states as wide as high; two value heads of each key head, which a GGUF has apart
SHAPE = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 512,
    "vocab_size": VOCAB,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}


def test_logits_are_those_of_llama_cpp(tmp_path: Path, monkeypatch):
    """In numbers of 32 bits: what lies between is the order of sums."""
    from transformers import AutoConfig, AutoModelForCausalLM

    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: it is on PyPI")
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path))
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPE), dtype=torch.float32)
    with torch.no_grad():
        for value in theirs.parameters():
            value.add_(torch.randn_like(value), alpha=0.1)  # as made, logits hardly differ
    file = write_gguf(tmp_path / "states.gguf", theirs, "F32")
    ids = torch.randint(VOCAB - 2, (max(ENDS),)).tolist()
    model = load_model(opened(file), CpuBackend(torch.float32), positions=512)
    with torch.inference_mode():
        ours = model.forward(ids, whole_cache(model, 512, room=300)).log_softmax(-1)
    ends = tuple(end for end in ENDS if WORDS <= int(ours[end - 1].argmax()) < VOCAB - 2)
    assert len(ends) > 2
    for end, found in by_llama_cpp(file, ids, ends).items():
        wanted = torch.tensor(list(found.values()))
        assert wanted.max() - wanted.min() > 2, "so flat a law would tell nothing"
        assert torch.allclose(ours[end - 1][torch.tensor(list(found))], wanted, atol=2e-3), end
