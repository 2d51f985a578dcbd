"""Families whose layers are not those of Llama: as checkpoint and as GGUF, through every mode, and what is
refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.config import MODES
from core.decoding.decoder import Round
from core.errors import UserError
from core.model.config import load_config
from core.model.gguf.folder import opened
from core.model.loader import load_model
from core.request import Params
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import wide
from tests.support.tiny import VOCAB, engine, oracle, ours, whole_cache

OTHERS = ("gemma3_text", "ministral3", "smollm3")
PROMPT = torch.randint(0, VOCAB, (131,), generator=torch.Generator().manual_seed(4)).tolist()


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "home"))


def logits(folder: Path) -> torch.Tensor:
    model = load_model(folder, CpuBackend(torch.float32), positions=256)
    with torch.inference_mode():
        return model.forward(PROMPT, whole_cache(model, 256))


def edited(folder: Path, **values) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize("family", OTHERS)
def test_every_mode_says_what_transformers_says(family: str):
    """Far beyond the original positions; the target drafts by streaming, too, whose keys rotate on read."""
    reference = oracle(family)
    with torch.inference_mode():
        ids = torch.tensor([PROMPT])
        want = reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
        )[0, len(PROMPT) :].tolist()
    model = ours(reference)
    machine = engine(
        model, draft=ours(oracle()), layers=model.config.layers, on_chip_layers=model.config.layers
    )
    for mode in MODES:
        params = Params(temperature=0.0, top_p=1.0, max_new_tokens=16, mode=mode)
        events = machine.generate(machine.new_context(machine.context_tokens), PROMPT, params)
        assert [token for one in events if isinstance(one, Round) for token in one.tokens] == want, mode


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", OTHERS)
def test_a_checkpoint_and_a_gguf_give_the_same_bits(tmp_path: Path, family: str, tied: bool):
    """Rows of q and k in their order, YaRN with its factor, which layers rotate."""
    reference = wide(family, tied=tied)
    reference.save_pretrained(tmp_path / "checkpoint")
    found = logits(tmp_path / "checkpoint")
    file = write_gguf(tmp_path / "model.gguf", reference, "F32")
    assert torch.equal(logits(opened(file)), found)
    with torch.inference_mode():
        want = reference(torch.tensor([PROMPT])).logits[0]
    assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())


@pytest.mark.parametrize("names", ["language_model.model.", "model.language_model."])
def test_the_text_model_of_a_checkpoint_that_sees_runs(tmp_path: Path, names: str):
    """By either spelling of its tensors; the output matrix stands beside it."""
    from safetensors.torch import load_file, save_file

    reference = oracle("ministral3")
    reference.save_pretrained(tmp_path / "text")
    inner = json.loads((tmp_path / "text" / "config.json").read_text())
    seeing = tmp_path / "seeing"
    seeing.mkdir()
    outer = {"model_type": "mistral3", "text_config": inner, "tie_word_embeddings": False}
    (seeing / "config.json").write_text(json.dumps(outer))
    tensors = load_file(tmp_path / "text" / "model.safetensors")
    renamed = {name.replace("model.", names, 1): value for name, value in tensors.items()}
    save_file(renamed, seeing / "model.safetensors")
    assert torch.equal(logits(seeing), logits(tmp_path / "text"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"layer_types": ["full_attention", "full_attention", "mamba", "full_attention"]},
            "layer_types.2. is",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types is no list of 4"),
        ({"no_rope_layers": [1, 0]}, "no_rope_layers is no list of 4"),
        ({"no_rope_layers": None, "no_rope_layer_interval": 0}, "modulo"),
    ],
)
def test_layers_that_are_not_known_are_refused_by_file_and_key(tmp_path: Path, values: dict, said: str):
    oracle("smollm3").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match=f"config.json of tiny .*{said}"):
        load_config(edited(tmp_path / "tiny", **values))


def test_weights_in_another_format_are_refused(tmp_path: Path):
    """Ministral 3 is published in FP8, whose numbers mean nothing without their scales."""
    oracle("ministral3").save_pretrained(tmp_path / "tiny")
    with pytest.raises(UserError, match="as fp8.*16 bits"):
        load_config(edited(tmp_path / "tiny", quantization_config={"quant_method": "fp8"}))
